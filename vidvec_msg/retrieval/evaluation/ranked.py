"""All queries of one direction, ranked: what is scored, how, and what is kept of the scores."""

from __future__ import annotations

from collections.abc import Collection as Sized
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Failure, RefusedRequest
from vidvec_msg.formats.trec import WriteQuery
from vidvec_msg.retrieval.evaluation.intervals import Kind, refuse_other_kind
from vidvec_msg.retrieval.evaluation.ranking import (
    Floats,
    Gold,
    GoldRanks,
    Ints,
    RankedBlock,
    Scores,
    join,
    rank_blocks,
    rank_score_blocks,
    tie_order,
)
from vidvec_msg.retrieval.evaluation.separation import ScoreCounts, Separation
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS, parse_metrics

Unreachable = Literal["refuse", "keep"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a direction is scored.

    Args:
        metrics: names as ranx writes them.
        depth: ranks that count as retrieved, and the length of a run's lists.
        exclude_self: leave a candidate out for the query of the same id.
        unreachable: "refuse" positives that are not among the candidates, or "keep" them as never found.
        intervals: bootstrap 95% intervals (about a second per 100,000 queries and metric).
        chance: expected values under a random ranking.
        seed: of the bootstrap.
        keep: results per query kept in memory for a report.
        interval: "percentile", or "bca" (bias-corrected and accelerated).
        details: keep the scores of positives and of the best wrong candidate, and the distributions of
            positive and mismatched pairs; two more passes over the scores.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    depth: int = 1000
    exclude_self: bool = False
    unreachable: Unreachable = "refuse"
    intervals: bool = True
    chance: bool = True
    seed: int = 0
    keep: int = 10
    interval: Kind = "percentile"
    details: bool = False

    def __post_init__(self) -> None:
        parse_metrics(self.metrics)
        refuse_other_kind(self.interval)
        if self.depth < 1:
            raise RefusedRequest(
                f"depth is {self.depth}; it must be at least 1 rank (TREC's custom is 1000)."
            )
        if self.unreachable not in ("refuse", "keep"):
            raise RefusedRequest(f"unreachable is {self.unreachable!r}; it is 'refuse' or 'keep'.")


@dataclass(frozen=True, slots=True)
class Embedded:
    """One side as vectors.

    Args:
        ids: ``(items,)``, unique.
        vectors: ``(items, dim)``, finite, of norm 1.
        failures: items that have no vector, and why.
    """

    ids: Sequence[str]
    vectors: Floats
    failures: Sequence[Failure] = ()

    def take(self, wanted: Sized[str]) -> Embedded:
        """Only these ids, in the present order; nothing is copied if that is all of them."""
        rows = [row for row, identity in enumerate(self.ids) if identity in wanted]
        failures = [failure for failure in self.failures if failure.item in wanted]
        if len(rows) == len(self.ids):
            return Embedded(self.ids, self.vectors, failures)
        return Embedded(
            [self.ids[row] for row in rows], self.vectors[np.asarray(rows, dtype=np.int64)], failures
        )


@dataclass(frozen=True, slots=True)
class Details:
    """What the scores say beyond the ranks.

    Args:
        gold_scores: ``(positives,)``, in the order of ``gold.ranks``; -inf for one that is no candidate.
        best_wrong: ``(queries,)``, the best score of a candidate that is no positive; -inf if there is none.
        separation: distributions of positive and mismatched pairs; None without pairs of both kinds.
    """

    gold_scores: Scores
    best_wrong: Scores
    separation: Separation | None

    def gaps(self, gold: GoldRanks) -> Scores:
        """Score of the best positive less that of the best wrong candidate, ``(queries,)``; above 0 where
        the query's first rank is right. NaN where either is missing."""
        best = np.full(len(gold), -np.inf, dtype=np.float32)
        np.maximum.at(best, np.repeat(np.arange(len(gold)), gold.counts), self.gold_scores)
        both = np.isfinite(best) & np.isfinite(self.best_wrong)
        gaps = np.full(len(gold), np.nan, dtype=np.float32)
        gaps[both] = best[both] - self.best_wrong[both]
        return gaps


@dataclass(frozen=True, slots=True)
class Ranked:
    """All queries, ranked: see the fields of the same names of :class:`Direction`."""

    gold: GoldRanks
    top: Ints
    top_scores: Scores
    details: Details | None


def rank_all(
    queries: Embedded,
    candidates: Embedded,
    gold: Gold,
    options: Options,
    write: WriteQuery | None = None,
    offset: npt.NDArray[np.float64] | None = None,
) -> Ranked:
    """Ranks the candidates for every query.

    Args:
        queries: in the order of ``gold``.
        candidates: of all queries.
        gold: the positives.
        options: depth, exclude_self, keep and details are used.
        write: receives every query's list, best first.
        offset: ``(candidates,)``, added to the scores of a candidate.
    """
    watcher = _Watcher(len(gold), gold.starts) if options.details else None
    blocks = rank_blocks(
        queries.vectors, candidates.vectors, candidates.ids, gold,
        depth=_listed(options, candidates.ids, write), own=_own(options, queries.ids, candidates.ids),
        offset=offset, watch=watcher,
    )  # fmt: skip
    return _gathered(blocks, queries.ids, candidates.ids, options, write, watcher)


def rank_lists(
    scores: Iterable[Scores],
    queries: Sequence[str],
    candidates: Sequence[str],
    gold: Gold,
    options: Options,
    write: WriteQuery | None = None,
) -> Ranked:
    """What :func:`rank_all` does, from scores that are no cosines: those of fused lists.

    Args:
        scores: blocks as :func:`~vidvec_msg.retrieval.evaluation.ranking.rank_score_blocks` takes them.
        queries: in the order of ``gold`` and of the blocks.
        candidates: of all queries.
        gold: the positives.
        options: depth, exclude_self and keep are used; there are no details, which are of cosines.
        write: receives every query's list, best first, without candidates that no list has.
    """
    blocks = rank_score_blocks(
        scores, tie_order(candidates), gold, depth=_listed(options, candidates, write),
        own=_own(options, queries, candidates),
    )  # fmt: skip
    return _gathered(blocks, queries, candidates, options, write, None)


def _own(options: Options, queries: Sequence[str], candidates: Sequence[str]) -> Ints | None:
    """The candidate that is the query itself, ``(queries,)``, where it is to be left out."""
    if not options.exclude_self:
        return None
    position = {identity: column for column, identity in enumerate(candidates)}
    return np.asarray([position.get(query, -1) for query in queries], dtype=np.int64)


def _listed(options: Options, candidates: Sequence[str], write: WriteQuery | None) -> int:
    """Candidates that are taken from each query's ranking."""
    keep = min(options.keep, len(candidates))
    return keep if write is None else max(keep, min(options.depth, len(candidates)))


def _gathered(
    blocks: Iterable[RankedBlock],
    queries: Sequence[str],
    candidates: Sequence[str],
    options: Options,
    write: WriteQuery | None,
    watcher: _Watcher | None,
) -> Ranked:
    keep = min(options.keep, len(candidates))
    listed = min(options.depth, len(candidates))
    ranks: list[GoldRanks] = []
    top = np.zeros((len(queries), keep), dtype=np.int64)
    top_scores = np.full((len(queries), keep), -np.inf, dtype=np.float32)
    for block in blocks:
        ranks.append(block.gold)
        rows = slice(block.first, block.first + len(block.top))
        top[rows], top_scores[rows] = block.top[:, :keep], block.top_scores[:, :keep]
        if write is not None:
            for query, columns, scores in zip(queries[rows], block.top, block.top_scores, strict=True):
                real = np.isfinite(scores[:listed])  # -inf: the query itself, excluded, or in no list
                names = [candidates[column] for column in columns[:listed][real]]
                write(query, names, scores[:listed][real].tolist())
    return Ranked(join(ranks), top, top_scores, None if watcher is None else watcher.details())


class _Watcher:
    """Collects :class:`Details` from blocks of scores."""

    def __init__(self, queries: int, starts: Ints) -> None:
        self.starts = starts
        self.gold_scores = np.full(int(starts[-1]), -np.inf, dtype=np.float32)
        self.best_wrong = np.full(queries, -np.inf, dtype=np.float32)
        self.counts = ScoreCounts()

    def __call__(self, rows: slice, scores: Scores, gold: Gold) -> None:
        if not scores.shape[1]:
            return
        self.counts.add(rows, scores, gold)
        real = gold.columns >= 0
        cells = np.repeat(np.arange(len(gold)), gold.counts)[real], gold.columns[real]
        mine = scores[cells]  # (positives that are candidates,)
        self.gold_scores[self.starts[rows.start] : self.starts[rows.stop]][real] = mine
        scores[cells] = -np.inf
        self.best_wrong[rows] = scores.max(axis=1)
        scores[cells] = mine

    def details(self) -> Details:
        return Details(self.gold_scores, self.best_wrong, self.counts.separation())
