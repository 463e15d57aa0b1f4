"""Dual softmax: scores corrected for candidates that are near to every query, as a second, labelled number.

With similarities S (queries × candidates) and a temperature t, the corrected score of a pair is the product
of two softmaxes of S / t, one over the candidates of its query and one over the queries of its candidate. The
first one's denominator is the same for all candidates of a query, so they are ordered by

    S[i, j] - t / 2 · logsumexp over all queries k of (S[k, j] / t)

A candidate near to many queries (a hub) is moved back. **It looks at all queries of the test at once**, which
a search engine that answers one query cannot do: raw numbers come first, these second and under this name.
The temperature (one a direction) is chosen on other queries, by the best map there; never on the test.
VidVec reports both; its temperatures are not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vidvec_msg.retrieval.evaluation.directions import Score, summary
from vidvec_msg.retrieval.evaluation.intervals import Values
from vidvec_msg.retrieval.evaluation.ranked import Embedded, Options, rank_all
from vidvec_msg.retrieval.evaluation.ranking import Floats, Gold
from vidvec_msg.retrieval.metrics import per_query

TEMPERATURES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
"""What is tried, of cosines between -1 and 1: from nearly "the best query alone" to nearly no correction."""

CHOSEN_BY = "map"
NOTE = (
    "Dual softmax sees the whole query set of the test, so these numbers are not those of a search for one "
    "query; compare them only with numbers made in the same way."
)

_BYTES = 64 << 20  # float64 scores of one block of queries


@dataclass(frozen=True, slots=True)
class Task:
    """Queries, candidates and judgements of one direction.

    Args:
        queries: all queries of the direction; their whole set enters the correction.
        candidates: of all queries.
        qrels: in the direction's own sense; of these queries.
    """

    queries: Embedded
    candidates: Embedded
    qrels: Mapping[str, Mapping[str, int]]

    @property
    def gold(self) -> Gold:
        """The positives as columns of the candidates."""
        return Gold.of(self.qrels, self.queries.ids, self.candidates.ids)


def task_of(queries: Embedded, candidates: Embedded, qrels: Mapping[str, Mapping[str, int]]) -> Task:
    """The task of the queries that have a positive and a vector."""
    asked = {query for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())}
    return Task(queries.take(asked), candidates, qrels)


def corrected(task: Task, validation: Task, options: Options) -> tuple[dict[str, Any], dict[str, Values]]:
    """A direction's numbers with dual softmax.

    Args:
        task: of the test.
        validation: of other queries, on which the temperature is chosen.
        options: of the evaluation.

    Returns:
        its part of ``report.json`` (temperature, what each temperature gave on the validation queries, and
        the metrics), and the values per query, in the order of ``task.queries``.
    """
    tried = scores_by_temperature(validation, options)
    temperature = max(tried, key=lambda t: (tried[t], t))  # of equally good ones, the mildest
    plain = replace(options, details=False, keep=1)
    offset = hub_offset(task.queries.vectors, task.candidates.vectors, [temperature])[0]
    ranks = rank_all(task.queries, task.candidates, task.gold, plain, offset=offset).gold
    values = per_query(ranks, options.metrics, depth=options.depth)
    scores: dict[str, Score] = summary(ranks, values, options)
    part = {
        "temperature": temperature,
        "validation_queries": len(validation.queries.ids),
        "validation": {f"{t:g}": round(value, 6) for t, value in tried.items()},
        "metrics": {
            name: {"value": score.value, "low": score.low, "high": score.high, "chance": score.chance}
            for name, score in scores.items()
        },
    }
    return part, values


def scores_by_temperature(task: Task, options: Options) -> dict[float, float]:
    """The mean of :data:`CHOSEN_BY` for each of :data:`TEMPERATURES`."""
    plain = replace(options, details=False, keep=1)
    gold, found = task.gold, {}
    offsets = hub_offset(task.queries.vectors, task.candidates.vectors, TEMPERATURES)
    for temperature, offset in zip(TEMPERATURES, offsets, strict=True):
        ranks = rank_all(task.queries, task.candidates, gold, plain, offset=offset).gold
        found[temperature] = float(per_query(ranks, [CHOSEN_BY], depth=options.depth)[CHOSEN_BY].mean())
    return found


def hub_offset(queries: Floats, candidates: Floats, temperatures: Sequence[float]) -> Values:
    """What is added to each candidate's similarity, ``(temperatures, candidates)``, in one pass.

    Args:
        queries: ``(queries, dim)``, the whole set, each of norm 1.
        candidates: ``(candidates, dim)``.
        temperatures: each above 0.
    """
    right = np.asarray(candidates, dtype=np.float64).T  # (dim, candidates)
    count = right.shape[1]
    block = max(1, _BYTES // (8 * max(count, 1)))
    sums = np.zeros((len(temperatures), count))
    for start in range(0, len(queries), block):
        similarity = (
            np.asarray(queries[start : start + block], dtype=np.float64) @ right
        )  # (block, candidates)
        for row, temperature in enumerate(temperatures):
            # a cosine is at most 1, so exp((s - 1) / t) cannot overflow; hubs have s near their own maximum
            sums[row] += np.exp((similarity - 1) / temperature).sum(axis=0)
    scale = np.asarray(temperatures, dtype=np.float64)[:, None]
    # exp((s - 1) / 0.005) is above the smallest float64 for every s from -2.7 up: the log is finite
    return np.asarray(-(scale / 2) * (np.log(np.maximum(sums, np.finfo(np.float64).tiny)) + 1 / scale))
