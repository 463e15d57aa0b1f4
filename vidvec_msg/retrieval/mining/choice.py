"""From a row's ranked candidates to its negatives; the options have the names and meanings that users of
sentence-transformers' ``mine_hard_negatives`` know."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import Problems
from vidvec_msg.retrieval.cosine import Positions

Sampling = Literal["top", "random"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a candidate a negative. All scores are cosines with the anchor.

    Args:
        num_negatives: per row, at most.
        range_min: candidates of the highest ranks that are skipped.
        range_max: rank at which a row stops looking.
        margin: least distance below the positive's score.
        relative_margin: the same as a share of the positive's score; 0.05 is NV-Retriever's.
        max_score: highest score of a negative.
        min_score: lowest score of a negative.
        sampling: the highest of what remains, or a draw.
        seed: of the draw.
    """

    num_negatives: int = 4
    range_min: int = 0
    range_max: int = 100
    margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None
    sampling: Sampling = "top"
    seed: int = 0

    def note_problems(self, problems: Problems) -> None:
        """Notes every value that is out of its range, or that contradicts another."""
        if self.num_negatives < 1:
            problems.add(f"num_negatives is {self.num_negatives}; it must be at least 1 (per row)")
        if self.range_min < 0:
            problems.add(f"range_min is {self.range_min}; it must be at least 0 (ranks)")
        width = self.range_max - self.range_min
        if width < max(self.num_negatives, 1):
            problems.add(
                f"range_min {self.range_min} to range_max {self.range_max} leaves {max(width, 0)} ranks for "
                f"{self.num_negatives} negatives; raise range_max"
            )
        for name in ("margin", "relative_margin", "max_score", "min_score"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                problems.add(f"{name} is {value}; it must be a finite number")
        if self.relative_margin is not None and not 0 <= self.relative_margin < 1:
            problems.add(f"relative_margin is {self.relative_margin}; it must be at least 0 and below 1")
        if None not in (low := self.min_score, high := self.max_score) and low > high:  # type: ignore[operator]
            problems.add(f"min_score {low} is above max_score {high}; no candidate lies between")
        if self.sampling not in get_args(Sampling):
            problems.add(f"sampling is {self.sampling!r}; accepted: {', '.join(get_args(Sampling))}")
        if self.seed < 0:
            problems.add(f"seed is {self.seed}; it must be at least 0")


def choose(
    positions: Positions, scores: Vectors, positive: float, rules: Rules, row: int
) -> tuple[Positions, Vectors, Counter[str]]:
    """The negatives of a row.

    Args:
        positions: ``(found,)`` candidates that the row may take, best first.
        scores: ``(found,)`` their cosines.
        positive: cosine of the row's own positive.
        rules: see :class:`Rules`.
        row: number of the row, for its draw.

    Returns:
        positions and scores of the negatives, best first, and how many candidates each rule removed.
    """
    removed: Counter[str] = Counter()
    if rules.range_min:
        removed["range_min"] = len(positions[: rules.range_min])
    positions = positions[rules.range_min : rules.range_max]
    scores = scores[rules.range_min : rules.range_max]
    ceilings = {
        "margin": None if rules.margin is None else positive - rules.margin,
        # from the size of the score, so that a negative one is not undercut by its own margin
        "relative_margin": None
        if rules.relative_margin is None
        else positive - abs(positive) * rules.relative_margin,
        "max_score": rules.max_score,
    }
    for name, ceiling in ceilings.items():
        if ceiling is not None:
            keep = scores <= ceiling + _ROUNDING
            removed[name] = int((~keep).sum())
            positions, scores = positions[keep], scores[keep]
    if rules.min_score is not None:
        keep = scores >= rules.min_score - _ROUNDING
        removed["min_score"] = int((~keep).sum())
        positions, scores = positions[keep], scores[keep]
    if rules.sampling == "random" and len(positions) > rules.num_negatives:
        random = np.random.default_rng((rules.seed, row))
        drawn = np.sort(random.choice(len(positions), rules.num_negatives, replace=False))
        return positions[drawn], scores[drawn], removed
    return positions[: rules.num_negatives], scores[: rules.num_negatives], removed


_ROUNDING = 1e-9  # scores have six decimals: 0.8 - 0.1 must not be above 0.7
