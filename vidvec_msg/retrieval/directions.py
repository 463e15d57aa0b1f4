"""Vectors to numbers, in both directions: queries → corpus (forward) and corpus → queries (reverse).

Which items take part, for one split of the judgements:

- *Forward.* Queries: those that the split judges. Candidates: the whole corpus (BEIR's rule), or with
  ``pool="split"`` only the documents that the split names, for folders whose one corpus holds several splits.
- *Reverse.* Queries: the documents with a positive in the split. Candidates: the queries that the split
  names, always; queries of other splits are not in the game.

Pools and numbers of positives differ, so the two are reported side by side and never averaged. Queries
without a positive are left out of the means, counted and listed (ranx alone would count them as 0).
"""

from __future__ import annotations

import math
from collections.abc import Collection as Sized
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.formats.relevance import reverse
from vidvec_msg.formats.trec import WriteQuery
from vidvec_msg.retrieval.chance import expected
from vidvec_msg.retrieval.intervals import Kind, bootstrap_intervals, refuse_other_kind
from vidvec_msg.retrieval.metrics import (
    DEFAULT_METRICS,
    MEDIANS,
    PerQuery,
    means,
    parse_metrics,
    per_query,
)
from vidvec_msg.retrieval.ranking import Floats, Gold, GoldRanks, Ints, Scores, join, rank_blocks
from vidvec_msg.retrieval.separation import ScoreCounts, Separation

Pool = Literal["corpus", "split"]
Unreachable = Literal["refuse", "keep"]

_MANY_TIES = 0.01  # share of queries tied at rank 1 from which the embedder is suspected of having collapsed
_NORM_TOLERANCE = 1e-2  # fp16 vectors come back with norms off by up to 1e-3
_ROWS = 65_536  # vectors checked at once


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
class Score:
    """A mean over queries with its interval and what a random ranking would score; None: not computed."""

    value: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None


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


@dataclass(frozen=True)
class Direction:
    """One direction, scored.

    Args:
        label: for people, "text → video".
        query_ids: queries in the means.
        candidate_ids: what they were ranked against.
        skipped: queries left out, and why.
        unreachable: positives that are not among the candidates; they count as never found.
        gold: ranks of the positives of each query.
        per_query: metric → ``(queries,)``.
        metrics: metric → mean, interval and chance.
        top: ``(queries, kept)`` positions in ``candidate_ids``, best first.
        top_scores: ``(queries, kept)``.
        groups: group name → value → {"queries": n, "small": n < 15, "metrics": {name: mean}}.
        details: what :attr:`Options.details` asks for.
    """

    label: str
    query_ids: tuple[str, ...]
    candidate_ids: tuple[str, ...]
    skipped: tuple[Failure, ...]
    unreachable: int
    gold: GoldRanks
    per_query: dict[str, PerQuery]
    metrics: dict[str, Score]
    top: Ints
    top_scores: Scores
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    details: Details | None = None

    @property
    def tied_queries(self) -> int:
        """Queries whose numbers depend on the tie rule."""
        return int(self.gold.tied.sum())

    @property
    def tied_at_top(self) -> int:
        """Queries whose best score belongs to more than one candidate."""
        return int(self.gold.tied_at_top.sum())

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing the numbers."""
        found = []
        queries = len(self.query_ids)
        if queries and self.tied_at_top > _MANY_TIES * queries:
            found.append(
                f"{self.tied_at_top} of {queries} queries ({self.tied_at_top / queries:.0%}) tie at rank 1: "
                "the embedder may have collapsed, or the candidates hold copies. Ties are ordered by id, "
                "descending."
            )
        if self.unreachable:
            found.append(
                f"{self.unreachable} positives are not among the candidates and count as never found."
            )
        if not queries:
            found.append("no query is left, so there are no numbers.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The direction's part of ``report.json``."""
        return {
            "label": self.label,
            "queries": len(self.query_ids),
            "candidates": len(self.candidate_ids),
            "skipped": [{"id": failure.item, "reason": failure.reason} for failure in self.skipped],
            "unreachable": self.unreachable,
            "tied_queries": self.tied_queries,
            "tied_at_top": self.tied_at_top,
            "warnings": self.warnings,
            "metrics": {name: asdict(score) for name, score in self.metrics.items()},
            "groups": self.groups,
            "separation": None
            if self.details is None or self.details.separation is None
            else self.details.separation.to_dict(),
        }


@dataclass(frozen=True)
class Evaluation:
    """Both directions of one embedder on one collection."""

    forward: Direction
    reverse: Direction

    def to_dict(self) -> dict[str, Any]:
        """The numbers of ``report.json``."""
        return {"forward": self.forward.to_dict(), "reverse": self.reverse.to_dict()}


def evaluate_vectors(
    query_vectors: Floats,
    query_ids: Sequence[str],
    corpus_vectors: Floats,
    corpus_ids: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    depth: int = 1000,
    pool: Pool = "corpus",
    exclude_self: bool = False,
    unreachable: Unreachable = "refuse",
    intervals: bool = True,
    chance: bool = True,
    seed: int = 0,
    labels: tuple[str, str] = ("queries", "corpus"),
) -> Evaluation:
    """Scores vectors in both directions.

    With ``intervals=False, chance=False`` it is cheap enough for every validation of a training.

    Args:
        query_vectors: ``(queries, dim)`` float16 or float32, each of norm 1.
        query_ids: ``(queries,)``.
        corpus_vectors: ``(documents, dim)``.
        corpus_ids: ``(documents,)``.
        qrels: query id → document id → grade; a grade above 0 is relevant.
        metrics: names as ranx writes them, for example ``"ndcg@10"``.
        depth: ranks that count as retrieved.
        pool: candidates of the forward direction, the whole "corpus" or the documents that the "split" names.
        exclude_self: leave a candidate out for the query of the same id.
        unreachable: "refuse" judgements of ids that have no vector, or "keep" them (a query is skipped, a
            document is never found).
        intervals: compute bootstrap intervals.
        chance: compute expected values under a random ranking.
        seed: of the bootstrap.
        labels: what the two sides are, for "queries → corpus".

    Raises:
        RefusedRequest: ids given twice, lengths that do not agree, vectors that are not finite or not of
            norm 1, judgements of unknown ids, unknown metrics, no query with a positive.
    """
    options = Options(metrics, depth, exclude_self, unreachable, intervals, chance, seed)
    queries, corpus = Embedded(query_ids, query_vectors), Embedded(corpus_ids, corpus_vectors)
    check_sides({"query": queries, "corpus": corpus})
    forward = score_forward(queries, corpus, qrels, options, pool=pool, label=" → ".join(labels))
    backward = score_reverse(corpus, queries, qrels, options, label=" → ".join(reversed(labels)))
    return Evaluation(forward, backward)


def score_forward(
    queries: Embedded,
    corpus: Embedded,
    qrels: Mapping[str, Mapping[str, int]],
    options: Options,
    *,
    pool: Pool,
    label: str,
    write: WriteQuery | None = None,
) -> Direction:
    """Queries of the split → corpus; ``write`` receives every query's list, best first."""
    if pool not in ("corpus", "split"):
        raise RefusedRequest(f"pool is {pool!r}; it is 'corpus' or 'split'.")
    if pool == "split":
        corpus = corpus.take({document for judged in qrels.values() for document in judged})
    return _score(queries, corpus, qrels, options, label, write)


def score_reverse(
    corpus: Embedded,
    queries: Embedded,
    qrels: Mapping[str, Mapping[str, int]],
    options: Options,
    *,
    label: str,
    write: WriteQuery | None = None,
) -> Direction:
    """Documents with a positive in the split → the split's queries."""
    backwards = reverse(qrels)
    # a document that is judged, but not relevant to any query, is not a query of this direction
    backwards = {d: judged for d, judged in backwards.items() if any(grade > 0 for grade in judged.values())}
    return _score(corpus, queries.take(set(qrels)), backwards, options, label, write)


def check_sides(sides: Mapping[str, Embedded]) -> None:
    """Refuses sides that cannot be scored, with every problem in one message.

    Args:
        sides: name for the message → side.
    """
    problems = Problems("vectors")
    widths = {name: side.vectors.shape[1:] for name, side in sides.items()}
    if len(set(widths.values())) > 1 or any(len(width) != 1 for width in widths.values()):
        given = ", ".join(f"{name} {side.vectors.shape}" for name, side in sides.items())
        problems.add(f"the shapes are {given}; both must be (items, dim) with the same dim")
    else:
        for name, side in sides.items():
            _check_side(name, side, problems)
    problems.refuse_if_any()


# --- below: one direction ---------------------------------------------------------------------------


def _score(
    queries: Embedded,
    candidates: Embedded,
    qrels: Mapping[str, Mapping[str, int]],
    options: Options,
    label: str,
    write: WriteQuery | None,
) -> Direction:
    asked, skipped = _asked(queries, qrels, options)
    _check_reachable(asked, candidates, qrels, options)
    chosen = queries.take(set(asked))
    gold = Gold.of(qrels, chosen.ids, candidates.ids)
    ranked = rank_all(chosen, candidates, gold, options, write)
    ranks = ranked.gold
    values = per_query(ranks, options.metrics, depth=options.depth)
    return Direction(
        label=label,
        query_ids=tuple(chosen.ids),
        candidate_ids=tuple(candidates.ids),
        skipped=tuple(skipped),
        unreachable=int(np.count_nonzero(ranks.ranks == 0)),
        gold=ranks,
        per_query=values,
        metrics=summary(ranks, values, options),
        top=ranked.top,
        top_scores=ranked.top_scores,
        details=ranked.details,
    )


def _asked(
    queries: Embedded, qrels: Mapping[str, Mapping[str, int]], options: Options
) -> tuple[list[str], list[Failure]]:
    """The queries that count, and those that are judged but do not, with the reason."""
    have = set(queries.ids)
    reasons = {failure.item: failure.reason for failure in queries.failures}
    asked, skipped, unknown = [], [], []
    for query, judged in qrels.items():
        if not any(grade > 0 for grade in judged.values()):
            skipped.append(Failure(query, "no positive in the judgements"))
        elif query in have:
            asked.append(query)
        elif query in reasons or options.unreachable == "keep":
            skipped.append(Failure(query, reasons.get(query, "no vector")))
        else:
            unknown.append(query)
    _refuse_unknown(unknown, "queries")
    if not asked and not any(failure.item in reasons for failure in skipped):
        raise RefusedRequest(
            "no judged query has a positive, so there is nothing to score; check the split's qrels."
        )
    return asked, skipped


def _check_reachable(
    asked: Iterable[str], candidates: Embedded, qrels: Mapping[str, Mapping[str, int]], options: Options
) -> None:
    if options.unreachable == "keep":
        return
    have = {*candidates.ids, *(failure.item for failure in candidates.failures)}
    positive = {d: None for query in asked for d, grade in qrels[query].items() if grade > 0}
    _refuse_unknown([document for document in positive if document not in have], "positives")


def _refuse_unknown(unknown: Sequence[str], what: str) -> None:
    if unknown:
        shown = ", ".join(repr(identity) for identity in unknown[:5]) + (", …" if len(unknown) > 5 else "")
        raise RefusedRequest(
            f"{len(unknown)} judged {what} have no vector: {shown}. Embed them, or ask for them to be "
            'kept as unreachable (unreachable="keep").'
        )


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
    own = None
    if options.exclude_self:
        position = {identity: column for column, identity in enumerate(candidates.ids)}
        own = np.asarray([position.get(query, -1) for query in queries.ids], dtype=np.int64)
    keep = min(options.keep, len(candidates.ids))
    listed = min(options.depth, len(candidates.ids))
    depth = max(keep, listed) if write is not None else keep
    ranks: list[GoldRanks] = []
    watcher = _Watcher(len(gold), gold.starts) if options.details else None
    top = np.zeros((len(queries.ids), keep), dtype=np.int64)
    top_scores = np.full((len(queries.ids), keep), -np.inf, dtype=np.float32)
    blocks = rank_blocks(
        queries.vectors, candidates.vectors, candidates.ids, gold, depth=depth, own=own, offset=offset,
        watch=watcher,
    )  # fmt: skip
    for block in blocks:
        ranks.append(block.gold)
        rows = slice(block.first, block.first + len(block.top))
        top[rows], top_scores[rows] = block.top[:, :keep], block.top_scores[:, :keep]
        if write is not None:
            for query, columns, scores in zip(queries.ids[rows], block.top, block.top_scores, strict=True):
                real = np.isfinite(scores[:listed])  # -inf: the query itself, excluded
                names = [candidates.ids[column] for column in columns[:listed][real]]
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


def summary(ranks: GoldRanks, values: dict[str, PerQuery], options: Options) -> dict[str, Score]:
    """Means of the metrics with their intervals and levels of chance, as far as the options ask for them."""
    value = means(values)
    ends = (
        bootstrap_intervals(values, seed=options.seed, kind=options.interval, medians=MEDIANS)
        if options.intervals
        else {}
    )
    random = expected(ranks, options.metrics, depth=options.depth) if options.chance else {}
    summary = {}
    for name in values:
        low, high = ends.get(name, (None, None))
        summary[name] = Score(_number(value[name]), _number(low), _number(high), _number(random.get(name)))
    return summary


def _number(value: float | None) -> float | None:
    """A finite number or None; JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else float(value)


def _check_side(name: str, side: Embedded, problems: Problems) -> None:
    if len(side.ids) != len(side.vectors):
        problems.add(f"{name}: {len(side.ids)} ids and {len(side.vectors)} vectors")
        return
    if not all(isinstance(identity, str) for identity in side.ids):
        problems.add(
            f"{name}: ids must be strings; {next(i for i in side.ids if not isinstance(i, str))!r} is not"
        )
        return
    if len(set(side.ids)) != len(side.ids):
        seen: set[str] = set()
        twice = next(identity for identity in side.ids if identity in seen or seen.add(identity))  # type: ignore[func-returns-value]
        problems.add(f"{name}: ids must be unique; {twice!r} is there more than once")
    for start in range(0, len(side.vectors), _ROWS):
        norms = np.linalg.norm(side.vectors[start : start + _ROWS].astype(np.float32), axis=1)  # (rows,)
        wrong = np.flatnonzero(~(np.abs(norms - 1) <= _NORM_TOLERANCE))
        if len(wrong):
            row = int(wrong[0])
            problems.add(
                f"{name}: {len(wrong)} vectors are not finite or not of norm 1, the first is "
                f"{side.ids[start + row]!r} with norm {norms[row]:.6g}; an embedder returns unit vectors"
            )
            return
