"""From judgements to one number a pair, and from numbers to a new order of the top of a list.

What is read, three ways (``score``), since VidVec's paper does not fix it:

========= ================================================================================================
full      P(Yes), the softmax over the whole vocabulary, the forms of the word added
two-way   P(Yes) / (P(Yes) + P(No)), as LamRA's
log-odds  log P(Yes) - log P(No); orders as two-way does, and is added to an embedding's score unbounded
========= ================================================================================================

Priors are taken off, and temperatures applied, to the *logit*: of P(Yes) itself (log p - log(1 - p)) for
"full", the log-odds of the two words for the others. Without a fusion pairs are ordered by it, so that two
that are sure do not tie at 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vidvec_msg.retrieval.comparison.evaluated_runs import Way
from vidvec_msg.retrieval.evaluation.ranking import Floats, Ints
from vidvec_msg.retrieval.fusing.joining import OneList
from vidvec_msg.retrieval.fusing.lists import Lists
from vidvec_msg.retrieval.reranking.contract import Judgement
from vidvec_msg.retrieval.reranking.judgements import Pair
from vidvec_msg.retrieval.reranking.stage import NOTHING, Prior, Stage

Score = Literal["full", "two-way", "log-odds"]

_SURE = -1e-12  # largest log P of which a logit is taken: 27.6
_STEP = 1e-3  # between two candidates that keep their order below the reranked ones


@dataclass(frozen=True, slots=True)
class Calibration:
    """How logits become probabilities: sigmoid(logit / temperature + bias)."""

    temperature: float = 1.0
    bias: float = 0.0

    def applied(self, logit: float) -> float:
        """The calibrated logit."""
        return logit / self.temperature + self.bias


@dataclass(frozen=True, slots=True)
class Fusion:
    """A weighted sum of the embedding's score and the reranker's, each divided by its spread.

    Args:
        weight: of the reranker, 0 to 1; the embedding has the rest.
        first_spread: standard deviation of the embedding's scores of the validation pairs.
        second_spread: of the reranker's.
    """

    weight: float
    first_spread: float
    second_spread: float

    def of(self, first: float, second: float) -> float:
        """The fused score."""
        return (1 - self.weight) * first / self.first_spread + self.weight * second / self.second_spread


def logit_of(judgement: Judgement, score: Score) -> float:
    """The logit of a pair."""
    if score == "full":
        yes = min(judgement.yes, _SURE)
        return yes - math.log(-math.expm1(yes))
    return judgement.yes - judgement.no


def logits_of(judged: Mapping[Pair, Judgement], score: Score, prior: Prior) -> dict[Pair, float]:
    """The logit of every pair, less those of its content-free pairs.

    A prior of the query (the text with a blank clip) moves texts against each other and matters where a clip
    asks; one of the clip (with an empty query) matters where a text asks. A pair whose prior could not be
    judged has no logit.
    """
    raw = {pair: logit_of(one, score) for pair, one in judged.items()}
    found = {}
    for (clip, text), logit in raw.items():
        if NOTHING in (clip, text):
            continue
        for wanted, blank in (("query", (NOTHING, text)), ("clip", (clip, NOTHING))):
            if prior in (wanted, "both"):
                logit -= raw.get(blank, math.nan)
        if not math.isnan(logit):
            found[clip, text] = logit
    return found


def value_of(logit: float, score: Score) -> float:
    """What is added to an embedding's score: a probability, or for "log-odds" the logit itself."""
    return logit if score == "log-odds" else probability(logit)


def probability(logit: float) -> float:
    """sigmoid(logit), without overflow."""
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def reranked(
    stage: Stage,
    way: Way,
    depth: int,
    logits: Mapping[Pair, float],
    *,
    score: Score,
    calibration: Calibration | None = None,
    fusion: Fusion | None = None,
) -> Lists:
    """The lists of a direction with their first ``depth`` candidates in a new order.

    Candidates that could not be judged follow in their old order, then the rest of the list in its own: they
    score below the reranked ones, in even steps. Equal scores are ordered by id, as everywhere.

    Args:
        stage: whose lists.
        way: the direction.
        depth: candidates of each query that are reranked.
        logits: of the pairs.
        score: what is read.
        calibration: applied before ``value_of``; matters in a fusion.
        fusion: with the list's own scores; None for the reranker alone.
    """
    ids = [item.id for item in stage.candidates(way)]
    found: dict[str, OneList] = {}
    for query, (columns, scores) in stage.lists[way].of.items():
        top = columns[:depth]
        mine = [logits.get(stage.pair(way, query, ids[column])) for column in top.tolist()]
        new = [
            math.nan if one is None else _fused(one, float(first), score, calibration, fusion)
            for one, first in zip(mine, scores[:depth], strict=True)
        ]
        found[query] = _reordered(columns, np.asarray(new, dtype=np.float64))
    return Lists(stage.lists[way].name, found)


def _fused(
    logit: float, first: float, score: Score, calibration: Calibration | None, fusion: Fusion | None
) -> float:
    calibrated = logit if calibration is None else calibration.applied(logit)
    return calibrated if fusion is None else fusion.of(first, value_of(calibrated, score))


def _reordered(columns: Ints, new: Floats) -> OneList:
    """All columns, best first, with scores of which only the order below the judged ones means something."""
    judged = ~np.isnan(new)
    ahead, behind = columns[: len(new)][judged], columns[: len(new)][~judged]
    values = new[judged]
    order = np.argsort(-values, kind="stable")
    rest = np.concatenate([behind, columns[len(new) :]])
    floor = (float(values.min()) if len(values) else 0.0) - 1.0
    step = _STEP * max(1.0, abs(floor))  # float32 tells such steps apart
    below = floor - step * np.arange(len(rest))
    return np.concatenate([ahead[order], rest]), np.concatenate([values[order], below])
