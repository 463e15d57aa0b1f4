"""Weights of a weighted sum, chosen on other queries than those of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.evaluation.ranked import Options, rank_lists
from vidvec_msg.retrieval.evaluation.ranking import Gold
from vidvec_msg.retrieval.fusing.lists import Lists, fused_scores
from vidvec_msg.retrieval.fusing.recipe import Recipe
from vidvec_msg.retrieval.metrics import per_query

CHOSEN_BY = "map"
STEPS = 10  # weights are tried in tenths
_MOST_SETTINGS = 1001  # of five runs in tenths


@dataclass(frozen=True, slots=True)
class Choice:
    """What was tried and what was best.

    Args:
        weights: those of the highest value; of equally good ones, the most even.
        value: of :data:`CHOSEN_BY` with them, on the validation queries.
        even: the same with equal weights.
        single: the same of each run alone.
        settings: how many were compared: the more there are and the fewer queries, the more of the best one's
            lead is luck.
        queries: of the validation.
    """

    weights: tuple[float, ...]
    value: float
    even: float
    single: tuple[float, ...]
    settings: int
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Its part of ``report.json``."""
        return {
            "chosen_by": CHOSEN_BY, "settings": self.settings, "queries": self.queries, "value": self.value,
            "even": self.even, "single": list(self.single),
        }  # fmt: skip


def choose_weights(
    lists: Sequence[Lists],
    candidates: Sequence[str],
    qrels: Mapping[str, Mapping[str, int]],
    recipe: Recipe,
    options: Options,
) -> Choice:
    """Tries all weights in tenths that sum to 1, those of single runs too.

    Args:
        lists: of each run, of the validation queries.
        candidates: ids of theirs.
        qrels: theirs, in the direction's own sense.
        recipe: a weighted sum.
        options: of the evaluation; depth and exclude_self are used.

    Raises:
        RefusedRequest: no validation query has a positive and a list.
    """
    listed = {query for one in lists for query in one.of}
    queries = [
        query for query, judged in qrels.items()
        if query in listed and any(grade > 0 for grade in judged.values())
    ]  # fmt: skip
    if not queries:
        raise RefusedRequest("no validation query has a positive and a list: no weights can be chosen")
    gold = Gold.of(qrels, queries, candidates)
    plain = Options(metrics=[CHOSEN_BY], depth=options.depth, exclude_self=options.exclude_self, keep=1)
    tried: dict[tuple[float, ...], float] = {}
    even = tuple(1 / len(lists) for _ in lists)
    for weights in dict.fromkeys([*simplex(len(lists)), even]):
        scores = fused_scores(lists, queries, candidates, replace(recipe, weights=weights))
        ranks = rank_lists(scores, queries, candidates, gold, plain).gold
        tried[weights] = float(per_query(ranks, [CHOSEN_BY], depth=options.depth)[CHOSEN_BY].mean())
    best = max(tried, key=lambda weights: (round(tried[weights], 12), -max(weights), weights))
    corners = [tuple(float(place == run) for place in range(len(lists))) for run in range(len(lists))]
    return Choice(
        best, tried[best], tried[even], tuple(tried[corner] for corner in corners), len(tried), len(queries)
    )


def simplex(runs: int) -> list[tuple[float, ...]]:
    """All weights in tenths that sum to 1, ``(settings, runs)``.

    Raises:
        RefusedRequest: there are too many of them.
    """

    def parts(total: int, count: int) -> list[tuple[int, ...]]:
        if count == 1:
            return [(total,)]
        return [(first, *rest) for first in range(total, -1, -1) for rest in parts(total - first, count - 1)]

    if runs > 5:
        raise RefusedRequest(
            f"weights of {runs} runs in tenths are more than {_MOST_SETTINGS:,} settings; choose "
            "among at most 5 runs, or give weights"
        )
    return [tuple(part / STEPS for part in one) for one in parts(STEPS, runs)]
