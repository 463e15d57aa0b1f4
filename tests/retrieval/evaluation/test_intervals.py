"""Intervals and the paired test: seeds, known widths, and false alarms at the promised rate."""

import numpy as np
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.evaluation import intervals
from vidvec_msg.retrieval.evaluation.intervals import bootstrap_intervals
from vidvec_msg.retrieval.evaluation.paired_tests import paired_difference


def test_interval_of_a_proportion_is_about_two_standard_errors() -> None:
    values = np.repeat([0.0, 1.0], [120, 280])
    low, high = bootstrap_intervals({"hit_rate@1": values})["hit_rate@1"]
    error = np.sqrt(0.7 * 0.3 / 400)
    assert low == pytest.approx(0.7 - 1.96 * error, abs=0.008)
    assert high == pytest.approx(0.7 + 1.96 * error, abs=0.008)


def test_52_queries_say_little() -> None:
    low, high = bootstrap_intervals({"x": np.repeat([0.0, 1.0], 26)})["x"]
    assert high - low > 0.2


def test_same_seed_same_interval_and_memory_bound_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": np.random.default_rng(0).random(101), "b": np.zeros(101)}
    first = bootstrap_intervals(values, seed=3)
    assert bootstrap_intervals(values, seed=3) == first
    assert bootstrap_intervals(values, seed=4) != first
    assert first["b"] == (0.0, 0.0)
    monkeypatch.setattr(intervals, "_CELLS", 1)
    assert bootstrap_intervals(values, seed=3)["a"] == pytest.approx(first["a"])


def test_no_queries_no_interval() -> None:
    assert np.isnan(bootstrap_intervals({"a": np.zeros(0)})["a"]).all()
    assert bootstrap_intervals({}) == {}


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_intervals({"x": generator.random(60)}, resamples=300)["x"]
        covered += low <= 0.5 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_paired_test_sees_a_difference_that_single_intervals_hide() -> None:
    generator = np.random.default_rng(0)
    hard = generator.random(80)
    better = np.clip(hard + 0.03 + 0.02 * generator.normal(size=80), 0, 1)
    outcome = paired_difference(hard, better, seed=0)
    assert outcome.p < 0.001
    assert 0 < outcome.low < outcome.difference < outcome.high
    assert outcome.queries == 80
    assert paired_difference(better, hard, seed=0).difference == -outcome.difference


def test_equal_embedders_do_not_differ() -> None:
    values = np.random.default_rng(0).random(50)
    assert paired_difference(values, values).p == 1.0


def test_false_alarms_are_as_rare_as_promised() -> None:
    generator = np.random.default_rng(0)
    pairs = [(generator.random(30), generator.random(30)) for _ in range(200)]
    alarms = sum(paired_difference(a, b, shuffles=400).p <= 0.05 for a, b in pairs)
    assert alarms / 200 <= 0.1


def test_exact_on_a_case_worked_out_by_hand() -> None:
    """Three queries, all better: only +++ and --- of the 8 sign patterns are as extreme, so p is 1/4."""
    outcome = paired_difference(np.zeros(3), np.array([0.2, 0.1, 0.3]), shuffles=20_000)
    assert outcome.p == pytest.approx(0.25, abs=0.01)


def test_other_queries_are_refused() -> None:
    with pytest.raises(
        RefusedRequest, match=r"arrays of shape \(3,\) and \(4,\). Compare runs of the same collection"
    ):
        paired_difference(np.zeros(3), np.zeros(4))
    with pytest.raises(RefusedRequest, match="needs the values of the same queries"):
        paired_difference(np.zeros(0), np.zeros(0))


def test_bca_is_scipys() -> None:
    from scipy import stats

    generator = np.random.default_rng(0)
    for values, apart in ((generator.exponential(size=60), 0.08), (generator.beta(0.4, 0.2, size=80), 0.01)):
        ours = bootstrap_intervals({"x": values}, resamples=20_000, kind="bca")["x"]
        theirs = stats.bootstrap(
            (values,), np.mean, n_resamples=20_000, method="BCa", rng=1
        ).confidence_interval
        plain = bootstrap_intervals({"x": values}, resamples=20_000)["x"]
        width = plain[1] - plain[0]
        assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02 * width)
        assert abs(ours[1] - plain[1]) > apart * width  # a case in which the two kinds differ


def test_bca_of_equal_values_and_of_few_that_differ() -> None:
    assert bootstrap_intervals({"x": np.ones(20)}, kind="bca")["x"] == (1.0, 1.0)
    low, high = bootstrap_intervals({"x": np.repeat([0.0, 1.0], [1, 30])}, kind="bca")["x"]
    assert low < 30 / 31 < high <= 1


def test_bca_covers_a_skewed_mean_better() -> None:
    generator = np.random.default_rng(0)
    missed = {"percentile": 0, "bca": 0}
    for _ in range(200):
        values = generator.lognormal(sigma=1.2, size=30)
        for kind in missed:
            _, high = bootstrap_intervals({"x": values}, kind=kind, resamples=400)["x"]  # type: ignore[arg-type]
            missed[kind] += high < np.exp(1.2**2 / 2)
    assert missed["bca"] < missed["percentile"]


def test_another_kind_is_refused() -> None:
    with pytest.raises(RefusedRequest, match="interval is 'normal'; it is 'percentile' or 'bca'"):
        bootstrap_intervals({"x": np.ones(3)}, kind="normal")  # type: ignore[arg-type]


def test_a_medians_interval_is_of_medians() -> None:
    generator = np.random.default_rng(0)
    for queries in (51, 52):
        ranks = generator.integers(1, 300, size=queries).astype(float)
        low, high = bootstrap_intervals({"median_rank": ranks}, medians=["median_rank"])["median_rank"]
        drawn = np.median(generator.choice(ranks, size=(20_000, queries)), axis=1)
        assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=12)
        counts = generator.multinomial(queries, np.full(queries, 1 / queries), size=50).astype(float)
        expected = [np.median(np.repeat(ranks, row.astype(int))) for row in counts]
        assert intervals._medians(counts, ranks).tolist() == expected
