"""How sure a number is: bootstrap intervals over queries.

The queries are a sample; another sample would give other numbers. With VidMsg's 52 queries the interval of
a recall is some 20 points wide, so a point estimate alone misleads.

Two kinds. *percentile*: the ends that leave 2.5% of the resampled means on either side. *bca*
(bias-corrected and accelerated; Efron 1987): the same resamples, read at ends that are shifted for the bias
and the skewness of the values, which matters for means near 0 or 1 and for few queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest

RESAMPLES = (
    1000  # bootstrap samples: the ends of a 95% interval are then steady to about a tenth of its width
)

_CELLS = 1 << 22  # resampled queries held at once

Values = npt.NDArray[np.float64]
Kind = Literal["percentile", "bca"]


def refuse_other_kind(kind: str) -> None:
    """Raises RefusedRequest unless the kind of interval is one of :data:`Kind`."""
    if kind not in get_args(Kind):
        raise RefusedRequest(f"interval is {kind!r}; it is {' or '.join(map(repr, get_args(Kind)))}.")


def bootstrap_intervals(
    values: Mapping[str, Values],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    kind: Kind = "percentile",
    medians: Collection[str] = (),
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals of the mean over queries (of some metrics, of the median).

    All metrics see the same resamples, so their intervals belong together.

    Args:
        values: metric name → ``(queries,)``, the same queries in the same order.
        seed: of the resampling; the same seed gives the same interval.
        resamples: bootstrap samples.
        level: coverage, 0.95 for the 2.5% and 97.5% percentiles.
        kind: "percentile" or "bca". A median keeps its percentile interval: BCa's acceleration comes from
            the jackknife, which is inconsistent for medians (Efron 1979).
        medians: names whose mean is a median.

    Returns:
        Metric name → (low, high); NaN without queries.
    """
    refuse_other_kind(kind)
    names = list(values)
    queries = len(next(iter(values.values()))) if names else 0
    if not queries:
        return dict.fromkeys(names, (float("nan"), float("nan")))
    table = np.stack(
        [np.asarray(values[name], dtype=np.float64) for name in names], axis=1
    )  # (queries, metrics)
    middle = [names.index(name) for name in medians if name in names]
    blocks = []
    for counts in _draws(queries, resamples, seed):
        sampled = counts @ table / queries  # (some resamples, metrics)
        for column in middle:
            sampled[:, column] = _medians(counts, table[:, column])
        blocks.append(sampled)
    samples = np.concatenate(blocks)  # (resamples, metrics)
    ends = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)  # (2, metrics)
    found = {name: (float(ends[0, i]), float(ends[1, i])) for i, name in enumerate(names)}
    if kind == "bca":
        for column, name in enumerate(names):
            if column not in middle:
                found[name] = _bca(samples[:, column], table[:, column], level)
    return found


def _bca(samples: Values, values: Values, level: float) -> tuple[float, float]:
    """The ends of the BCa interval of a mean from its resamples; the mean itself if all values are equal."""
    mean = float(values.mean())
    away = values - mean  # a mean differs from its jackknife values by these, divided by n - 1
    spread = float((away**2).sum())
    if spread <= 1e-24 * len(values):
        return mean, mean
    # resamples equal to the mean, which the few values of a hit rate make frequent, count half
    tolerance = 1e-12 * max(abs(mean), 1.0)
    below = np.count_nonzero(samples < mean - tolerance)
    equal = np.count_nonzero(np.abs(samples - mean) <= tolerance)
    normal = NormalDist()
    share = (below + equal / 2) / len(samples)
    bias = normal.inv_cdf(min(max(share, 0.5 / len(samples)), 1 - 0.5 / len(samples)))
    acceleration = float((away**3).sum()) / (6 * spread**1.5)
    ends = []
    for point in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + normal.inv_cdf(point)
        ends.append(normal.cdf(bias + shifted / (1 - acceleration * shifted)))
    low, high = np.quantile(samples, ends)
    return float(low), float(high)


def _medians(counts: Values, values: Values) -> Values:
    """The median of each resample, ``(some resamples,)``; of an even number, the mean of the middle two."""
    order = np.argsort(values, kind="stable")
    reached = counts[:, order].cumsum(axis=1)  # (some resamples, queries)
    queries = int(reached[0, -1])
    lower = (reached >= (queries + 1) // 2).argmax(axis=1)
    upper = (reached >= queries // 2 + 1).argmax(axis=1)
    ordered = values[order]
    return np.asarray((ordered[lower] + ordered[upper]) / 2)


def _draws(queries: int, resamples: int, seed: int) -> Iterator[Values]:
    """How often each query was drawn, ``(some resamples, queries)`` at a time."""
    generator = np.random.default_rng(seed)
    block = max(1, _CELLS // queries)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(0, queries, size=(rows, queries))
        drawn += np.arange(rows)[:, None] * queries
        yield np.bincount(drawn.ravel(), minlength=rows * queries).reshape(rows, queries).astype(np.float64)
