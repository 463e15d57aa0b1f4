"""The best of several on some queries, how sure that is, and what the choosing itself adds to its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.retrieval.evaluation.intervals import RESAMPLES

Values = npt.NDArray[np.float64]

_CELLS = 1 << 22  # resampled queries held at once


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Args:
        best: number of the candidate with the highest mean; of equal ones the first.
        value: its mean on the queries that chose it.
        low: lower end of its 95% bootstrap interval.
        high: upper end.
        unseen: what choosing like this is worth on queries that did not choose, by cross-validation: the
            best on nine tenths of the queries, on the last tenth; None with a single query.
        shares: (candidates,) in which share of the resamples each was the best.
    """

    best: int
    value: float
    low: float
    high: float
    unseen: float | None
    shares: Values

    @property
    def optimism(self) -> float | None:
        """By how much the value is too good because the same queries chose it. (A bootstrap of the winner's
        value tells 1/√2 of it: a resample repeats the luck of the sample.)"""
        return None if self.unseen is None else self.value - self.unseen

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "unseen": self.unseen,
            "share_of_resamples": float(self.shares[self.best]),
        }


def choose(values: Values, *, seed: int = 0, resamples: int = RESAMPLES) -> Choice:
    """Chooses by the mean over queries.

    Args:
        values: (candidates, queries), the higher the better.
        seed: of the resampling.
        resamples: bootstrap samples of the queries.
    """
    candidates, queries = values.shape
    means = values.mean(axis=1)  # (candidates,)
    best = int(means.argmax())
    generator = np.random.default_rng(seed)
    wins = np.zeros(candidates)
    of_best = []
    block = max(1, _CELLS // max(queries, 1))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        counts = generator.multinomial(queries, np.full(queries, 1 / queries), size=rows)
        sampled = counts @ values.T / queries  # (rows, candidates)
        # rounded, or candidates that are equal would win by the last bit of a sum
        winner = np.round(sampled, 12).argmax(axis=1)  # (rows,)
        wins += np.bincount(winner, minlength=candidates)
        of_best.append(sampled[:, best])
    low, high = np.quantile(np.concatenate(of_best), [0.025, 0.975])
    return Choice(
        best,
        float(means[best]),
        float(low),
        float(high),
        cross_validated(values, seed=seed),
        wins / resamples,
    )


def cross_validated(values: Values, *, seed: int = 0, folds: int = 10, repeats: int = 50) -> float | None:
    """The value, on queries that did not choose, of whatever the others choose.

    Args:
        values: (candidates, queries), the higher the better.
        seed: of the folds.
        folds: parts of the queries; each is left out once.
        repeats: random divisions into folds, averaged.

    Returns:
        the mean over queries and repeats; None with a single query.
    """
    queries = values.shape[1]
    if queries < 2:
        return None
    generator = np.random.default_rng(seed)
    total, found = values.sum(axis=1, keepdims=True), 0.0
    for _ in range(repeats):
        fold = generator.permutation(queries) % min(folds, queries)  # (queries,)
        left_out = np.stack([values[:, fold == one].sum(axis=1) for one in range(fold.max() + 1)], axis=1)
        rest = (total - left_out) / (queries - np.bincount(fold))  # (candidates, folds)
        winner = np.round(rest, 12).argmax(axis=0)  # (folds,)
        found += float(left_out[winner, np.arange(len(winner))].sum())
    return float(found / (repeats * queries))


def range_of(places: Values, shares: Values, *, level: float = 0.95) -> tuple[float, float]:
    """The narrowest quantiles of where the best one lies that leave no more than (1 - level) / 2 outside on
    either side.

    Args:
        places: (candidates,) a number for each, such as its layer.
        shares: (candidates,) how often each was the best; they add up to 1.
        level: coverage.
    """
    order = np.argsort(places, kind="stable")
    reached = shares[order].cumsum()
    tail = (1 - level) / 2
    low = order[int(np.argmax(reached > tail + 1e-12))]
    high = order[int(np.argmax(reached >= 1 - tail - 1e-12))]
    return float(places[low]), float(places[high])
