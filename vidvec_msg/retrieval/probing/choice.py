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
        optimism: by how much the value of whatever is chosen is too high because it was chosen on the same
            queries: the mean over resamples of the winner's value there less its value on all queries
            (Efron's bootstrap optimism).
        shares: (candidates,) in which share of the resamples each was the best.
    """

    best: int
    value: float
    low: float
    high: float
    optimism: float
    shares: Values

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "optimism": self.optimism,
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
    gained, of_best = 0.0, []
    block = max(1, _CELLS // max(queries, 1))
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        counts = generator.multinomial(queries, np.full(queries, 1 / queries), size=rows)
        sampled = counts @ values.T / queries  # (rows, candidates)
        # rounded, or candidates that are equal would win by the last bit of a sum
        winner = np.round(sampled, 12).argmax(axis=1)  # (rows,)
        wins += np.bincount(winner, minlength=candidates)
        gained += float((sampled[np.arange(rows), winner] - means[winner]).sum())
        of_best.append(sampled[:, best])
    low, high = np.quantile(np.concatenate(of_best), [0.025, 0.975])
    return Choice(best, float(means[best]), float(low), float(high), gained / resamples, wins / resamples)


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
