"""How far apart positive and mismatched pairs lie in the space of scores (DrivelHub+ F.2).

Retrieval asks which candidate scores highest for one query; a score alone says little. What the distributions
add: whether a threshold on the cosine could tell a match from a mismatch. The pairwise AUC is the probability
that a positive pair scores above a mismatched pair, drawn from all queries together; a tie counts half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.retrieval.evaluation.ranking import Gold, Ints, Scores

_BINS = 1 << 15  # of [-1, 1]; a bin is 6e-5 wide, and the AUC's error is bounded by the pairs that share one
_CELLS = 1 << 22  # scores counted at once
_POINTS = 120  # of a curve

Curve = Sequence[float]


@dataclass(frozen=True, slots=True)
class Separation:
    """Distributions of the scores of positive and of mismatched pairs.

    Args:
        auc: probability that a positive pair scores above a mismatched one.
        error: what binning the scores may have changed of it, at most.
        positives: positive pairs.
        mismatched: all other pairs of a query and a candidate.
        thresholds: scores at which the curves are given, rising.
        positive_below: share of positive pairs with a score up to each threshold.
        mismatched_below: the same of mismatched pairs.
    """

    auc: float
    error: float
    positives: int
    mismatched: int
    thresholds: Curve
    positive_below: Curve
    mismatched_below: Curve

    def to_dict(self) -> dict[str, Any]:
        """Its part of ``report.json``."""
        return {
            "auc": self.auc, "error": self.error, "positives": self.positives, "mismatched": self.mismatched,
            "thresholds": list(self.thresholds), "positive_below": list(self.positive_below),
            "mismatched_below": list(self.mismatched_below),
        }  # fmt: skip


class ScoreCounts:
    """Counts scores by bins, block by block, in the memory of two histograms."""

    def __init__(self) -> None:
        self.all: Ints = np.zeros(_BINS, dtype=np.int64)
        self.positive: Ints = np.zeros(_BINS, dtype=np.int64)

    def add(self, rows: slice, scores: Scores, gold: Gold) -> None:
        """Counts a block; a ``ranking.Watch``. Cells of -inf do not count."""
        step = max(1, _CELLS // max(scores.shape[1], 1))
        for start in range(0, len(scores), step):
            part = scores[start : start + step]
            self.all += np.bincount(_bins(part).ravel(), minlength=_BINS)
            self.all[0] -= np.count_nonzero(np.isneginf(part))
        owners = np.repeat(np.arange(len(gold)), gold.counts)
        real = gold.columns >= 0
        mine = scores[owners[real], gold.columns[real]]  # (positives,)
        self.positive += np.bincount(_bins(mine[np.isfinite(mine)]), minlength=_BINS)

    def separation(self) -> Separation | None:
        """The outcome; None without a pair of either kind."""
        mismatched = self.all - self.positive
        count, others = int(self.positive.sum()), int(mismatched.sum())
        if not count or not others:
            return None
        positive_share, mismatched_share = self.positive / count, mismatched / others
        before = np.cumsum(mismatched_share) - mismatched_share
        shared = float(positive_share @ mismatched_share)
        used = np.flatnonzero(self.all)
        edges = np.unique(np.linspace(used[0], used[-1], _POINTS).round().astype(np.int64))
        return Separation(
            auc=float(positive_share @ before) + shared / 2,
            error=shared / 2,
            positives=count,
            mismatched=others,
            thresholds=((edges + 1) * 2 / _BINS - 1).round(6).tolist(),
            positive_below=np.cumsum(positive_share)[edges].round(6).tolist(),
            mismatched_below=np.cumsum(mismatched_share)[edges].round(6).tolist(),
        )


def _bins(scores: Scores) -> npt.NDArray[np.int32]:
    # a float32 cosine of 1 may be 1 + 1e-7; -inf goes into bin 0
    placed = (np.clip(scores, -1, 1) + 1) * np.float32(_BINS / 2)
    return np.asarray(np.minimum(placed, _BINS - 1), dtype=np.int32)
