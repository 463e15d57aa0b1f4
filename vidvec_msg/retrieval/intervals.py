"""How sure a number is: bootstrap intervals over queries, and a paired test between two embedders.

The queries are a sample; another sample would give other numbers. With VidMsg's 52 queries the interval of
a recall is some 20 points wide, so a point estimate alone misleads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest

RESAMPLES = (
    1000  # bootstrap samples: the ends of a 95% interval are then steady to about a tenth of its width
)
SHUFFLES = 10_000  # sign flips of the paired test: the smallest p-value is 1 / 10,001

_CELLS = 1 << 22  # resampled queries held at once

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """The outcome of a paired comparison.

    Args:
        difference: mean of the second minus mean of the first.
        low: lower end of its bootstrap interval.
        high: upper end.
        p: two-sided p-value of the randomisation test.
        queries: pairs that were compared.
    """

    difference: float
    low: float
    high: float
    p: float
    queries: int


def bootstrap_intervals(
    values: Mapping[str, Values], *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of the mean over queries.

    All metrics see the same resamples, so their intervals belong together.

    Args:
        values: metric name → ``(queries,)``, the same queries in the same order.
        seed: of the resampling; the same seed gives the same interval.
        resamples: bootstrap samples.
        level: coverage, 0.95 for the 2.5% and 97.5% percentiles.

    Returns:
        Metric name → (low, high); NaN without queries.
    """
    names = list(values)
    queries = len(next(iter(values.values()))) if names else 0
    if not queries:
        return dict.fromkeys(names, (float("nan"), float("nan")))
    table = np.stack(
        [np.asarray(values[name], dtype=np.float64) for name in names], axis=1
    )  # (queries, metrics)
    samples = np.concatenate([counts @ table for counts in _draws(queries, resamples, seed)]) / queries
    ends = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)  # (2, metrics)
    return {name: (float(ends[0, i]), float(ends[1, i])) for i, name in enumerate(names)}


def paired_difference(
    first: Values, second: Values, *, seed: int = 0, shuffles: int = SHUFFLES, level: float = 0.95
) -> Difference:
    """Whether the second of two embedders differs from the first on the same queries.

    The test swaps the two values of each query with probability ½ (a sign flip of the difference) and asks
    how often the mean difference is at least as large as the observed one. It assumes nothing about the
    distribution of the values.

    Args:
        first: ``(queries,)`` values of a metric.
        second: ``(queries,)`` values of the same queries in the same order.
        seed: of flips and resamples.
        shuffles: sign flips.
        level: coverage of the interval of the difference.

    Raises:
        RefusedRequest: the arrays differ in length, or are empty.
    """
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise RefusedRequest(
            f"a paired comparison needs the values of the same queries; given were arrays of shape "
            f"{first.shape} and {second.shape}. Compare runs of the same collection and split."
        )
    difference = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    observed = float(difference.mean())
    moved = difference[difference != 0]  # flipping a zero changes nothing
    generator = np.random.default_rng(seed)
    extreme, tolerance = 0, 1e-12 * float(np.abs(moved).sum())
    block = max(1, _CELLS // max(len(moved), 1))
    for start in range(0, shuffles, block):
        rows = min(block, shuffles - start)
        signs = 2 * generator.integers(0, 2, size=(rows, len(moved)), dtype=np.int8) - 1
        extreme += int(np.count_nonzero(np.abs(signs @ moved) >= abs(moved.sum()) - tolerance))
    low, high = bootstrap_intervals({"difference": difference}, seed=seed, level=level)["difference"]
    return Difference(observed, low, high, (1 + extreme) / (1 + shuffles), len(difference))


def _draws(queries: int, resamples: int, seed: int) -> Iterator[Values]:
    """How often each query was drawn, ``(some resamples, queries)`` at a time."""
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // queries)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        yield np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries).astype(np.float64)
