"""Whether two embedders differ on the same queries: paired tests, and their correction for several of them.

- *Randomisation test* (Fisher): the two values of each query are swapped with probability one half, which
  flips the sign of their difference; p is the share of sign patterns whose mean difference is at least as
  large, either way, as the observed one. It assumes nothing about the values. All patterns are counted where
  they are few (up to 13 queries that differ); otherwise a sample of them, and the observed one.
- *Student's paired t test*: assumes that the mean difference is about normal. With 50 queries and more it
  usually agrees with the other (Smucker et al. 2007); where they disagree, believe the randomisation test.
- *Holm* and *Bonferroni* keep the chance of any false alarm among several comparisons below the level. Holm
  never refuses what Bonferroni accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.evaluation.intervals import Kind, Values, bootstrap_intervals

SHUFFLES = 10_000  # sign patterns sampled; the smallest p-value of a sample is 1 / 10,001

_CELLS = 1 << 22  # signs held at once


@dataclass(frozen=True, slots=True)
class Difference:
    """The outcome of a paired comparison.

    Args:
        difference: mean of the second minus mean of the first.
        low: lower end of its bootstrap interval.
        high: upper end.
        p: two-sided p-value of the randomisation test.
        t: two-sided p-value of the t test; None with a single query.
        queries: pairs that were compared.
        higher: of them, those where the second one's value is higher.
        lower: those where it is lower.
    """

    difference: float
    low: float
    high: float
    p: float
    t: float | None
    queries: int
    higher: int
    lower: int


def paired_difference(
    first: Values, second: Values, *, seed: int = 0, shuffles: int = SHUFFLES, level: float = 0.95
) -> Difference:
    """Whether the second of two embedders differs from the first on the same queries.

    Args:
        first: ``(queries,)`` values of a metric.
        second: ``(queries,)`` values of the same queries in the same order.
        seed: of sign patterns and resamples.
        shuffles: sign patterns, where not all are counted.
        level: coverage of the interval of the difference.

    Raises:
        RefusedRequest: the arrays differ in length, or are empty.
    """
    return paired_differences([(first, second)], seed=seed, shuffles=shuffles, level=level)[0]


def paired_differences(
    pairs: Sequence[tuple[Values, Values]],
    *,
    seed: int = 0,
    shuffles: int = SHUFFLES,
    level: float = 0.95,
    kind: Kind = "percentile",
) -> list[Difference]:
    """:func:`paired_difference` of several pairs over the same queries, which share patterns and resamples.

    Args:
        pairs: (first, second), each ``(queries,)``.
        seed: as there.
        shuffles: as there.
        level: as there.
        kind: of the intervals, see :func:`~vidvec_msg.retrieval.evaluation.intervals.bootstrap_intervals`.

    Raises:
        RefusedRequest: as there.
    """
    for first, second in pairs:
        if first.shape != second.shape or first.ndim != 1 or not len(first):
            raise RefusedRequest(
                f"a paired comparison needs the values of the same queries; given were arrays of shape "
                f"{first.shape} and {second.shape}. Compare runs of the same collection and split."
            )
    if not pairs:
        return []
    table = np.stack(
        [
            np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
            for first, second in pairs
        ],
        axis=1,
    )  # (queries, pairs)
    ends = bootstrap_intervals(
        {str(i): column for i, column in enumerate(table.T)}, seed=seed, level=level, kind=kind
    )
    p, t = randomisation_test(table, seed=seed, shuffles=shuffles), t_test(table)
    return [
        Difference(
            float(column.mean()),
            *ends[str(i)],
            p=float(p[i]),
            t=float(t[i]) if np.isfinite(t[i]) else None,
            queries=len(column),
            higher=int(np.count_nonzero(column > 0)),
            lower=int(np.count_nonzero(column < 0)),
        )
        for i, column in enumerate(table.T)
    ]


def randomisation_test(differences: Values, *, seed: int = 0, shuffles: int = SHUFFLES) -> Values:
    """Two-sided p-values of the paired randomisation test.

    Args:
        differences: ``(queries, comparisons)``.
        seed: of the sampled sign patterns, which all comparisons share.
        shuffles: patterns to sample; a column with at most that many patterns is counted out instead.

    Returns:
        ``(comparisons,)``; 1 for a column of zeros.
    """
    p = np.ones(differences.shape[1])
    moved = np.count_nonzero(differences, axis=0)  # flipping a zero changes nothing
    exact = np.exp2(moved) <= shuffles
    for column in np.flatnonzero(exact & (moved > 0)):
        values = differences[:, column]
        p[column] = _exact(values[values != 0])
    rest = np.flatnonzero(~exact)
    if len(rest):
        p[rest] = _sampled(differences[:, rest], seed, shuffles)
    return p


def t_test(differences: Values) -> Values:
    """Two-sided p-values of Student's paired t test.

    Args:
        differences: ``(queries, comparisons)``.

    Returns:
        ``(comparisons,)``; 1 for a column of zeros, NaN with fewer than two queries.
    """
    from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy ships no types

    queries = len(differences)
    if queries < 2:
        return np.full(differences.shape[1], np.nan)
    mean, error = differences.mean(axis=0), differences.std(axis=0, ddof=1) / np.sqrt(queries)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == 0, 0.0, np.abs(mean) / error)  # (comparisons,)
    return np.asarray(2 * stdtr(queries - 1, -t))


def holm(p: npt.ArrayLike) -> Values:
    """Holm's adjusted p-values of one family of comparisons, in the given order."""
    raw = np.asarray(p, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    scaled = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty(len(raw))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def bonferroni(p: npt.ArrayLike) -> Values:
    """Bonferroni's adjusted p-values of one family of comparisons."""
    raw = np.asarray(p, dtype=np.float64)
    return np.minimum(raw * len(raw), 1.0)


def _exact(values: Values) -> float:
    """The share of all sign patterns that are as extreme as the observed one, which is all plus."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])  # (patterns,)
    return float(np.mean(np.abs(sums) >= abs(values.sum()) - _tolerance(values)))


def _sampled(differences: Values, seed: int, shuffles: int) -> Values:
    generator = np.random.default_rng(seed)
    queries = len(differences)
    observed = np.abs(differences.sum(axis=0)) - _tolerance(differences)  # (comparisons,)
    extreme = np.zeros(differences.shape[1])
    block = max(1, _CELLS // queries)
    for start in range(0, shuffles, block):
        rows = min(block, shuffles - start)
        bits = np.frombuffer(generator.bytes(rows * -(-queries // 8)), dtype=np.uint8)
        kept = np.unpackbits(bits.reshape(rows, -1), axis=1, count=queries)  # (rows, queries), 1 for a plus
        sums = 2 * (kept.astype(np.float64) @ differences) - differences.sum(axis=0)
        extreme += np.count_nonzero(np.abs(sums) >= observed, axis=0)
    return (1 + extreme) / (1 + shuffles)


def _tolerance(values: Values) -> Values:
    """Sums of floats that differ in their order alone count as equal."""
    return np.asarray(1e-12 * np.abs(values).sum(axis=0))
