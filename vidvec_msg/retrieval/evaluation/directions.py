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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.formats.relevance import reverse
from vidvec_msg.formats.trec import WriteQuery
from vidvec_msg.retrieval.evaluation.chance import expected
from vidvec_msg.retrieval.evaluation.intervals import bootstrap_intervals
from vidvec_msg.retrieval.evaluation.ranked import Details, Embedded, Options, Ranked, Unreachable, rank_all
from vidvec_msg.retrieval.evaluation.ranking import Floats, Gold, GoldRanks, Ints, Scores
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS, MEDIANS, PerQuery, means, per_query

__all__ = [
    "Direction", "Embedded", "Evaluation", "Options", "Pool", "Score", "Unreachable", "check_sides",
    "evaluate_vectors", "score_forward", "score_ranked", "score_reverse", "summary",
]  # fmt: skip

Pool = Literal["corpus", "split"]

NO_POSITIVE = "no positive in the judgements"
"""Why a query is skipped whatever the embedder."""

_MANY_TIES = 0.01  # share of queries tied at rank 1 from which the embedder is suspected of having collapsed
_NORM_TOLERANCE = 1e-2  # fp16 vectors come back with norms off by up to 1e-3
_ROWS = 65_536  # vectors checked at once


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over queries with its interval and what a random ranking would score; None: not computed."""

    value: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None


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
    return score_ranked(
        queries, candidates, qrels, options, label,
        lambda chosen, gold: rank_all(chosen, candidates, gold, options, write),
    )  # fmt: skip


def score_ranked(
    queries: Embedded,
    candidates: Embedded,
    qrels: Mapping[str, Mapping[str, int]],
    options: Options,
    label: str,
    rank: Callable[[Embedded, Gold], Ranked],
) -> Direction:
    """One direction from whatever ranks it.

    Args:
        queries: of the direction.
        candidates: of all queries.
        qrels: in the direction's own sense.
        options: how it is scored.
        label: for people, "text → video".
        rank: from the queries that count and their positives to the outcome.

    Raises:
        RefusedRequest: judgements of unknown ids, no query with a positive.
    """
    asked, skipped = _asked(queries, qrels, options)
    _check_reachable(asked, candidates, qrels, options)
    chosen = queries.take(set(asked))
    gold = Gold.of(qrels, chosen.ids, candidates.ids)
    ranked = rank(chosen, gold)
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
            skipped.append(Failure(query, NO_POSITIVE))
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
