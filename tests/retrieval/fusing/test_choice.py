"""Weights: all of them are tried, the best by map on the queries given is taken, the mildest of equals."""

from math import comb

import numpy as np
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.evaluation.ranked import Options
from vidvec_msg.retrieval.fusing.choice import choose_weights, simplex
from vidvec_msg.retrieval.fusing.lists import Lists
from vidvec_msg.retrieval.fusing.recipe import Recipe, checked_recipe

IDS = tuple("abcd")


def ranked(name: str, **orders: str) -> Lists:
    """Lists of documents in the order of their letters, with scores 3, 2, 1, 0."""
    return Lists(
        name,
        {
            query: (
                np.array([IDS.index(letter) for letter in order]),
                np.arange(len(order))[::-1].astype(float),
            )
            for query, order in orders.items()
        },
    )


@pytest.mark.parametrize(("runs", "settings"), [(2, 11), (3, 66), (4, 286), (5, 1001)])
def test_all_weights_in_tenths(runs: int, settings: int) -> None:
    found = simplex(runs)
    assert len(found) == len(set(found)) == settings == comb(10 + runs - 1, runs - 1)
    assert all(sum(one) == pytest.approx(1) and min(one) >= 0 for one in found)


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(RefusedRequest, match="weights of 6 runs in tenths are more than 1,001 settings"):
        simplex(6)


def test_the_run_that_is_right_gets_the_weight() -> None:
    right, wrong = ranked("right", q="abcd", r="bacd"), ranked("wrong", q="dcba", r="dcab")
    choice = choose_weights([wrong, right], IDS, {"q": {"a": 1}, "r": {"b": 1}}, Recipe("sum"), Options())
    assert choice.value == 1
    assert choice.single == (pytest.approx((1 / 4 + 1 / 4) / 2), 1.0)
    assert choice.weights[1] > choice.weights[0]
    assert (choice.settings, choice.queries) == (11, 2)
    # equal weights give every document the same sum, and ties go by id descending: a comes last, b third
    assert choice.even == pytest.approx((1 / 4 + 1 / 3) / 2, abs=0.2)
    assert choice.even < 1


def test_of_equally_good_weights_the_most_even_ones() -> None:
    alike = [ranked(name, q="abcd") for name in ("one", "two", "three")]
    choice = choose_weights(alike, IDS, {"q": {"a": 1}}, Recipe("sum"), Options())
    assert choice.weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert choice.settings == 67  # equal thirds are no tenths


def test_nothing_to_choose_on() -> None:
    with pytest.raises(RefusedRequest, match="no validation query has a positive and a list"):
        choose_weights(
            [ranked("one", q="ab"), ranked("two", q="ba")], IDS, {"r": {"a": 1}}, Recipe("sum"), Options()
        )


def test_a_request_that_does_not_fit_names_all_that_is_wrong() -> None:
    with pytest.raises(RefusedRequest) as caught:
        checked_recipe("rrf", "z", [0.5], 0, runs=2, validated=True)
    message = str(caught.value)
    for part in (
        "5 problems",
        "normalize is 'z'; it is one of min-max, sum, zmuv, rank",
        "k is 0",
        "weights were given, and method 'rrf' takes none; method 'sum' does",
        "leave one of the two out",
        "there are 2 runs and 1 weights",
    ):
        assert part in message
    with pytest.raises(RefusedRequest, match="method is 'best'; it is one of rrf, sum, mnz, max"):
        checked_recipe("best", "sum", None, 60, runs=2, validated=False)
    for weights in ([0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0]):
        with pytest.raises(RefusedRequest, match="they are 0 or more, and not all 0"):
            checked_recipe("sum", "sum", weights, 60, runs=2, validated=False)
    assert checked_recipe("sum", "rank", [3, 1], 60, runs=2, validated=False).words == (
        "sum of rank scores, weights 3 and 1"
    )
