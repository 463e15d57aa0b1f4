"""Choosing: the best mean, how sure it is, and how much of its value is luck."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.probing.choice import choose, cross_validated, range_of


def test_the_best_mean_is_chosen_and_the_first_of_equal_ones() -> None:
    values = np.array([[0.2, 0.4], [0.9, 0.7], [0.7, 0.9], [0.0, 1.0]])
    found = choose(values)
    assert found.best == 1
    assert found.value == pytest.approx(0.8)
    assert found.low <= 0.8 <= found.high


def test_a_single_candidate_has_no_optimism() -> None:
    found = choose(np.random.default_rng(0).random((1, 30)))
    assert found.shares.tolist() == [1.0]
    assert found.optimism == pytest.approx(0.0)
    assert choose(np.array([[0.3], [0.4]])).optimism is None  # one query: nothing is left out


def test_optimism_is_the_luck_that_a_fresh_sample_does_not_have() -> None:
    """Among 60 equally good candidates, the winner's value is too good by what its optimism says."""
    random, gaps, told = np.random.default_rng(1), [], []
    for seed in range(200):
        seen = random.normal(0.5, 0.2, (60, 40))
        value = seen.mean(axis=1).max()
        gaps.append(value - 0.5)  # 0.5: what the winner is worth on queries that it has not seen
        told.append(value - cross_validated(seen, seed=seed, repeats=4))
    assert np.mean(told) == pytest.approx(np.mean(gaps), rel=0.12)


def test_a_clear_winner_is_chosen_in_every_resample() -> None:
    values = np.stack([np.full(20, 0.1), np.full(20, 0.9), np.full(20, 0.2)])
    found = choose(values)
    assert found.shares.tolist() == [0.0, 1.0, 0.0]
    assert (found.low, found.high) == (pytest.approx(0.9), pytest.approx(0.9))
    assert found.optimism == pytest.approx(0.0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 5))
def test_shares_add_up_and_the_seed_decides(candidates: int, queries: int, seed: int) -> None:
    values = np.random.default_rng(seed).random((candidates, queries))
    one, other = choose(values, seed=seed, resamples=50), choose(values, seed=seed, resamples=50)
    assert one.shares.sum() == pytest.approx(1.0)
    assert one.shares.tolist() == other.shares.tolist()
    assert one.unseen == other.unseen
    if one.unseen is not None:  # a mean of values that are there
        assert values.min() - 1e-9 <= one.unseen <= values.max() + 1e-9


def test_the_range_of_the_layer() -> None:
    places = np.array([12.0, 3.0, 7.0, 7.0])
    assert range_of(places, np.array([0.0, 0.0, 0.5, 0.5])) == (7, 7)
    assert range_of(places, np.array([0.02, 0.01, 0.5, 0.47])) == (7, 7)
    assert range_of(places, np.array([0.03, 0.03, 0.5, 0.44])) == (3, 12)
