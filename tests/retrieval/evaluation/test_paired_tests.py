"""Paired tests: against brute force, scipy and ranx, and corrections worked out by hand."""

from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vidvec_msg.retrieval.evaluation import paired_tests
from vidvec_msg.retrieval.evaluation.paired_tests import (
    bonferroni,
    holm,
    paired_differences,
    randomisation_test,
    t_test,
)

GRID = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


def by_force(differences: list[float]) -> float:
    """Every pattern of signs, one after the other."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return float(np.mean([total >= observed - 1e-9 for total in sums]))


@given(GRID)
@settings(max_examples=80, deadline=None)
def test_small_cases_are_counted_out(values: list[int]) -> None:
    differences = [value / 8 for value in values]
    p = randomisation_test(np.asarray(differences)[:, None])
    assert p[0] == pytest.approx(by_force(differences))


def test_by_hand() -> None:
    """Three queries, all better: only +++ and --- of the 8 patterns are as extreme."""
    assert randomisation_test(np.array([[0.2], [0.1], [0.3]]))[0] == 0.25
    assert randomisation_test(np.zeros((4, 1)))[0] == 1.0


def test_sampled_patterns_agree_with_all_of_them() -> None:
    generator = np.random.default_rng(0)
    table = generator.normal(0.3, 1, size=(12, 5))
    exact = randomisation_test(table)
    sampled = randomisation_test(table, shuffles=4_000)  # 2 ** 12 patterns are more
    assert exact == pytest.approx([by_force(list(column)) for column in table.T])
    assert sampled == pytest.approx(exact, abs=0.03)
    assert not np.array_equal(sampled, exact)


def test_the_memory_bound_changes_nothing_but_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).normal(0.2, 1, size=(40, 3))
    whole = randomisation_test(table)
    monkeypatch.setattr(paired_tests, "_CELLS", 400)
    assert randomisation_test(table) == pytest.approx(whole, abs=0.02)
    assert np.array_equal(randomisation_test(table, seed=4), randomisation_test(table, seed=4))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30))
@settings(max_examples=60, deadline=None)
def test_t_is_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = np.asarray(pairs).T
    spread = (second - first).std()
    if spread < 1e-6 * max(np.abs(second - first).max(), 1e-3):  # scipy warns of lost precision there
        return
    assert t_test((second - first)[:, None])[0] == pytest.approx(stats.ttest_rel(second, first).pvalue)


def test_t_at_its_edges() -> None:
    assert t_test(np.zeros((5, 1)))[0] == 1.0
    assert np.isnan(t_test(np.ones((1, 1)))[0])
    assert paired_differences([(np.zeros(1), np.ones(1))])[0].t is None


def test_second_opinions() -> None:
    """ranx's own randomisation test agrees too, and compiles for 20 s; scipy's is as independent."""
    from ranx.statistical_tests import paired_student_t_test

    generator = np.random.default_rng(0)
    first = generator.random(60)
    second = np.clip(first + generator.normal(0.04, 0.15, size=60), 0, 1)
    ours = paired_differences([(first, second)])[0]
    theirs, _ = paired_student_t_test(second, first)
    assert ours.t == pytest.approx(theirs)
    other = stats.permutation_test(
        (first, second), lambda a, b: np.mean(b - a), permutation_type="samples", n_resamples=5_000, rng=1
    )
    assert ours.p == pytest.approx(other.pvalue, abs=0.02)
    assert 0.001 < ours.p < 0.5  # a case in which the two could differ


def test_corrections_by_hand() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert bonferroni(p) == pytest.approx([0.04, 0.16, 0.12, 0.02])
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_raw_and_bonferroni_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert (adjusted >= np.asarray(p) - 1e-12).all()
    assert (adjusted <= bonferroni(p) + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_several_pairs_at_once_are_each_alone() -> None:
    generator = np.random.default_rng(0)
    pairs = [(generator.random(50), generator.random(50)) for _ in range(3)]
    together = paired_differences(pairs, seed=2)
    for one, pair in zip(together, pairs, strict=True):
        assert astuple(one) == pytest.approx(astuple(paired_differences([pair], seed=2)[0]))
    one = together[0]
    assert one.higher + one.lower <= one.queries == 50
    assert one.low < one.difference < one.high
    assert paired_differences([]) == []
