"""The paper's rule on every clip that three people can rate, and what a rule refuses."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from data_synth.annotation.candidate_files import candidates
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.data_synth.annotation.ratings import Ratings
from vidvec_msg.data_synth.annotation.rule import (
    CONDITIONS,
    NO_MAJORITY,
    OBVIOUS,
    TOO_FEW,
    VERY_LOW,
    Rule,
    load_rule,
)
from vidvec_msg.data_synth.annotation.verdicts import NOT_RATED, funnel_of, overlapping, verdicts
from vidvec_msg.errors import RefusedRequest


def test_of_all_that_three_people_can_say_the_papers_words_decide():
    for ratings in product(range(1, 7), repeat=3):
        majority = sum(rating in (4, 5) for rating in ratings) >= 2
        stays = majority and 1 not in ratings and 6 not in ratings
        assert (not Rule().failed(ratings)) == stays, ratings


@pytest.mark.parametrize(
    ("ratings", "failed"),
    [
        ([4, 5, 2], []), ([4, 4], []), ([4, 3], [NO_MAJORITY]), ([5], [TOO_FEW]), ([], [TOO_FEW]),
        ([5, 5, 1], [VERY_LOW]), ([6, 5, 5], [OBVIOUS]), ([6, 1, 2], [OBVIOUS, VERY_LOW, NO_MAJORITY]),
        ([6, 6, 4], [OBVIOUS]), ([4, 4, 3, 3], [NO_MAJORITY]), ([4, 4, 4, 3, 3], []),
    ],
)  # fmt: skip
def test_conditions_that_fail_are_all_told(ratings, failed):
    assert Rule().failed(ratings) == failed


@pytest.mark.parametrize(
    ("rule", "ratings"),
    [
        (Rule(high=3), [3, 3, 2]), (Rule(share=0.3), [4, 3, 3]), (Rule(low=0), [5, 5, 1]),
        (Rule(obvious=1), [6, 5, 4]), (Rule(least_raters=1), [4]),
    ],
)  # fmt: skip
def test_each_option_lets_something_stay_that_does_not_otherwise(rule, ratings):
    assert Rule().failed(ratings)
    assert not rule.failed(ratings)


@given(st.lists(st.integers(1, 6), max_size=6), st.randoms())
def test_the_order_of_raters_decides_nothing(ratings, dice):
    assert Rule().failed(ratings) == Rule().failed(dice.sample(ratings, len(ratings)))


def test_a_rule_out_of_its_range_is_refused_all_at_once():
    with pytest.raises(RefusedRequest) as refusal:
        Rule(high=6, share=1.0, low=-1, obvious=True, least_raters=0)
    told = str(refusal.value)
    for words in (
        "high is 6; it must be between 1 and 5", "low is -1; it must be between 0 and 5",
        "obvious is True; it must be a whole number", "least_raters is 0; it must be at least 1",
        "share is 1.0; it is at least 0 and below 1",
    ):  # fmt: skip
        assert words in told


def test_the_shipped_rule_is_the_one_that_is_used_without_one():
    (shipped,) = (Path(__file__).parents[3] / "configs" / "rating").rglob("*.yaml")
    assert load_rule(shipped) == Rule()


def test_a_rule_comes_from_a_file(tmp_path):
    (tmp_path / "rule.yaml").write_text("share: 0.6\nobvious: 1\n")
    assert load_rule(tmp_path / "rule.yaml") == Rule(share=0.6, obvious=1)
    (tmp_path / "rule.yaml").write_text("hihg: 4\n")
    with pytest.raises(RefusedRequest, match=r"unknown key 'hihg' \(did you mean 'high'\?\)"):
        load_rule(tmp_path / "rule.yaml")
    (tmp_path / "rule.yaml").write_text("high: 9\n")
    with pytest.raises(RefusedRequest, match=r"rule .*rule.yaml: 1 problem\n  - high is 9"):
        load_rule(tmp_path / "rule.yaml")
    (tmp_path / "rule.yaml").write_text("- 4\n")
    with pytest.raises(
        RefusedRequest,
        match="is no table, but a list; needed are some of high, share, low, obvious, least_raters",
    ):
        load_rule(tmp_path / "rule.yaml")
    with pytest.raises(
        RefusedRequest, match=r"no such file \(did you mean 'rule.yaml'\?\); needed is a YAML f"
    ):
        load_rule(tmp_path / "rul.yaml")


def test_the_funnel_counts_each_candidate_once_and_conditions_as_often_as_they_fail(tmp_path):
    found = candidates(tmp_path, *((f"m{1 + n % 2}", f"c{n}") for n in range(6)))
    given_ratings = [[4, 5, 4], [6, 1, 2], [5, 5, 1], [3, 3, 4], [5], []]
    of_task = {
        one.task: {f"r{place}": rating for place, rating in enumerate(ratings)}
        for one, ratings in zip(found, given_ratings, strict=True) if ratings
    }  # fmt: skip
    judged = verdicts(found, Ratings(of_task), Rule())
    way = funnel_of(judged)
    assert [(stage.name, stage.given, stage.left, dict(stage.codes)) for stage in way] == [
        ("candidates", 6, 5, {NOT_RATED: 1}), ("rated", 5, 4, {TOO_FEW: 1}),
        ("not too obvious", 4, 3, {OBVIOUS: 1}),
        ("no very low rating", 3, 2, {VERY_LOW: 1}), ("majority of high", 2, 1, {NO_MAJORITY: 1}),
    ]  # fmt: skip
    assert overlapping(judged) == {NOT_RATED: 1, TOO_FEW: 1, OBVIOUS: 1, VERY_LOW: 2, NO_MAJORITY: 2}
    assert set(CONDITIONS) < overlapping(judged).keys()
    assert [one.mean for one in judged][-1] is None
    assert judged[1].row()["failed"] == [OBVIOUS, VERY_LOW, NO_MAJORITY]
