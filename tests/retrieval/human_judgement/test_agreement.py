"""Kappa and alpha: tables worked out by hand, published ones, and what must hold for any ratings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.retrieval.human_judgement.agreement import Level, cohens_kappa, krippendorffs_alpha

LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")
SCALE = (1, 2, 3, 4, 5, 6)
RATINGS = st.lists(st.integers(1, 6), min_size=1, max_size=12)
ITEMS = st.lists(st.lists(st.integers(1, 6), max_size=4), max_size=10)


def test_kappa_of_decisions_worked_out_by_hand():
    # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: observed 0.7, expected 0.5 x 0.6 + 0.5 x 0.4 = 0.5
    left = [1] * 25 + [0] * 25
    right = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohens_kappa(left, right) == pytest.approx(0.4)
    assert cohens_kappa([1, 0], [1, 0]) == 1.0
    assert cohens_kappa([1, 0], [0, 1]) == -1.0


def test_linear_weights_worked_out_by_hand():
    # differences 0, 1, 2, 0: mean 0.75. Of all 16 meetings of {1, 2, 3, 3} and {1, 3, 1, 3} they sum to
    # (0+2+0+2) + (1+1+1+1) + 2 x (2+0+2+0) = 16: mean 1. Kappa is 1 - 0.75 / 1.
    assert cohens_kappa([1, 2, 3, 3], [1, 3, 1, 3], linear=True, categories=(1, 2, 3)) == pytest.approx(0.25)
    # without weights: 2 of 4 alike, by chance 1/4 x 1/2 + 0 + 1/2 x 1/2 = 3/8; (1/2 - 3/8) / (5/8)
    assert cohens_kappa([1, 2, 3, 3], [1, 3, 1, 3], categories=(1, 2, 3)) == pytest.approx(0.2)


def test_kappa_is_not_defined_without_judgements_or_with_one_value():
    assert cohens_kappa([], []) is None
    assert cohens_kappa([4, 4, 4], [4, 4, 4], linear=True, categories=SCALE) is None
    assert cohens_kappa([4, 4, 4], [5, 5, 5], linear=True, categories=SCALE) == 0.0


def test_kappa_refuses_what_does_not_belong_together():
    with pytest.raises(ValueError, match="2 judgements of one person and 1 of the other"):
        cohens_kappa([1, 0], [1])
    with pytest.raises(ValueError, match=r"\[7\] are none of the categories"):
        cohens_kappa([1], [7], categories=SCALE)


@given(RATINGS.flatmap(lambda left: st.tuples(st.just(left), st.permutations(left))))
def test_kappa_is_symmetric_at_most_one_and_one_only_for_the_same(both: tuple[list[int], Sequence[int]]):
    left, right = both
    kappa = cohens_kappa(left, right, linear=True, categories=SCALE)
    if kappa is None:
        assert len(set(left)) == 1
        return
    assert kappa == pytest.approx(cohens_kappa(right, left, linear=True, categories=SCALE))
    assert kappa <= 1 + 1e-12
    assert (kappa == pytest.approx(1)) == (list(left) == list(right))


@given(RATINGS, st.integers(0, 6))
def test_categories_that_nobody_gave_change_nothing(left: list[int], further: int):
    right = left[1:] + left[:1]
    one = cohens_kappa(left, right, linear=True, categories=SCALE)
    other = cohens_kappa(left, right, linear=True, categories=range(1, 7 + further))
    assert one == (None if other is None else pytest.approx(other))


# Krippendorff 2011, table C: four observers, twelve units, some of which some did not judge
_UNITS = [
    [1, 1, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4], [4, 4, 4, 4], [1, 1, 2,
    1], [2, 2, 2, 2], [5, 5, 5], [1, 1], [3],
]  # fmt: skip


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_that_of_krippendorffs_own_example(level: Level, alpha: float):
    assert krippendorffs_alpha(_UNITS, level) == pytest.approx(alpha, abs=5e-4)


def test_alpha_worked_out_by_hand():
    # pairs (1, 1), (1, 2): coincidences 11: 2, 12 and 21: 1 each; given 3 ones and 1 two.
    # observed 2/4; by chance 2 x 3 x 1 / (4 x 3) = 1/2: no better than chance
    for level in LEVELS:
        assert krippendorffs_alpha([[1, 1], [1, 2]], level) == pytest.approx(0)


def test_alpha_is_not_defined_where_nothing_differs_or_nobody_shares_an_item():
    for level in LEVELS:
        assert krippendorffs_alpha([], level) is None
        assert krippendorffs_alpha([[1], [2], [3]], level) is None
        assert krippendorffs_alpha([[4, 4], [4, 4, 4], [1]], level) is None


@given(ITEMS, st.sampled_from(LEVELS), st.randoms())
def test_alpha_knows_neither_the_order_of_raters_nor_of_items(items, level, dice):
    shuffled = [dice.sample(item, len(item)) for item in dice.sample(items, len(items))]
    alpha = krippendorffs_alpha(items, level)
    assert krippendorffs_alpha(shuffled, level) == (None if alpha is None else pytest.approx(alpha, abs=1e-9))
    assert alpha is None or alpha <= 1 + 1e-12


@given(ITEMS, st.sampled_from(LEVELS))
def test_alpha_is_one_exactly_where_all_agree(items, level):
    alpha = krippendorffs_alpha(items, level)
    if alpha is not None:
        assert (alpha == pytest.approx(1)) == all(len(set(item)) <= 1 for item in items)


@given(ITEMS, st.sampled_from(LEVELS), st.integers(1, 6))
def test_an_item_that_one_person_judged_counts_for_nothing(items, level, value):
    assert krippendorffs_alpha([*items, [value]], level) == krippendorffs_alpha(items, level)
