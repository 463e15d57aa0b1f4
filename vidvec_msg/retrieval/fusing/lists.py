"""The ranked lists of a run, and many runs' lists as one matrix of fused scores.

The rules, written down:

- *Order within a list*: by score, equal scores by document id, descending (trec_eval's rule). So every
  document has one rank, and reciprocal rank fusion one result.
- *A document that a list lacks* gets nothing from it: no reciprocal rank, and 0 for a score. After "min-max"
  and "sum" 0 is what the list's last document has, after "rank" it is less. After "zmuv" it would be the
  mean, so "zmuv" takes only lists of the same documents.
- *A query that a run lacks* (its item could not be embedded, say) has an empty list there.
- *After fusion*: scores in float32, equal ones by document id, descending, as everywhere. Documents that no
  list has come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.trec import read_run
from vidvec_msg.retrieval.evaluation.ranking import ABSENT, Scores, tie_order
from vidvec_msg.retrieval.fusing.joining import OneList, joined
from vidvec_msg.retrieval.fusing.recipe import Recipe

_SCORE_BYTES = 96 << 20  # fused scores of one block of queries
_EMPTY = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Lists:
    """One direction of one run.

    Args:
        name: of the run, for messages.
        of: query → its list.
    """

    name: str
    of: Mapping[str, OneList]


def read_lists(path: Path, name: str, candidates: Sequence[str]) -> Lists:
    """The lists of a TREC run file, in the order of the rule.

    Args:
        path: the file.
        name: of the run.
        candidates: ids of all that may be in a list.

    Raises:
        RefusedRequest: the file is missing or faulty, or lists what is no candidate.
    """
    column = {identity: place for place, identity in enumerate(candidates)}
    place = np.empty(len(candidates), dtype=np.int64)
    place[tie_order(candidates)] = np.arange(len(candidates))
    found: dict[str, OneList] = {}
    for query, scored in read_run(path).items():
        unknown = [identity for identity in scored if identity not in column]
        if unknown:
            raise RefusedRequest(
                f"run {path}: query {query!r} lists {unknown[0]!r}, which the collection does not have"
            )
        columns = np.asarray([column[identity] for identity in scored], dtype=np.int64)
        scores = np.asarray(list(scored.values()), dtype=np.float64)
        order = np.lexsort((place[columns], -scores))
        found[query] = columns[order], scores[order]
    return Lists(name, found)


def refuse_unequal_lists(lists: Sequence[Lists]) -> None:
    """Refuses lists of one query that hold different documents, for "zmuv".

    Raises:
        RefusedRequest: naming the first such query.
    """
    for query in dict.fromkeys(query for one in lists for query in one.of):
        sizes = {one.name: set(one.of.get(query, _EMPTY)[0].tolist()) for one in lists}
        if len({frozenset(documents) for documents in sizes.values()}) > 1:
            told = ", ".join(f"{name} has {len(documents)}" for name, documents in sizes.items())
            raise RefusedRequest(
                f"normalize is 'zmuv', and the lists of query {query!r} do not hold the same documents "
                f"({told}): a document that a list lacks would count as average there. Use min-max, sum or "
                "rank, or evaluate with a greater --depth."
            )


def fused_scores(
    lists: Sequence[Lists], queries: Sequence[str], candidates: Sequence[str], recipe: Recipe
) -> Iterator[Scores]:
    """Fused scores, ``(block, candidates)`` float32 with columns in tie order, for ``rank_lists``.

    Args:
        lists: of each run.
        queries: that count, in the order wanted.
        candidates: ids of all candidates.
        recipe: how lists are joined.
    """
    place = np.empty(len(candidates), dtype=np.int64)
    place[tie_order(candidates)] = np.arange(len(candidates))
    size = max(1, _SCORE_BYTES // max(4 * len(candidates), 1))
    for start in range(0, len(queries), size):
        block = queries[start : start + size]
        scores = np.full((len(block), len(candidates)), ABSENT, dtype=np.float32)
        for row, query in enumerate(block):
            columns, values = joined([one.of.get(query, _EMPTY) for one in lists], recipe)
            scores[row, place[columns]] = values
        yield scores
