"""Pairs that one direction finds and the other does not (DrivelHub+ F.3).

A relevant pair has a rank in either direction: of the document in the query's list, and of the query in the
document's. The lists differ in length, so places are compared as shares of the list: 0 is the first place, 1
the last. With lists of equal length that is the difference of the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vidvec_msg.retrieval.evaluation.directions import Direction, Evaluation
from vidvec_msg.retrieval.evaluation.ranking import best_first


@dataclass(frozen=True, slots=True)
class Diverging:
    """A relevant pair.

    Args:
        query: id of the query.
        document: id of the document.
        forward: the document's rank in the query's list.
        forward_of: length of that list.
        reverse: the query's rank in the document's list.
        reverse_of: length of that list.
    """

    query: str
    document: str
    forward: int
    forward_of: int
    reverse: int
    reverse_of: int

    @property
    def gap(self) -> float:
        """Place in the forward list less place in the reverse list, -1 to 1; above 0: reverse is better."""
        return _place(self.forward, self.forward_of) - _place(self.reverse, self.reverse_of)

    def to_dict(self) -> dict[str, Any]:
        """Its row of ``report.json``."""
        return {**asdict(self), "gap": round(self.gap, 4)}


def most_diverging(
    evaluation: Evaluation,
    qrels: Mapping[str, Mapping[str, int]],
    backwards: Mapping[str, Mapping[str, int]],
    *,
    count: int = 10,
) -> list[Diverging]:
    """The relevant pairs whose places differ most between the directions, the widest gap first.

    Args:
        evaluation: both directions.
        qrels: query → document → grade.
        backwards: the same, read from the documents.
        count: pairs at most; those of the same place in both directions are left out.
    """
    forward = _ranks(evaluation.forward, qrels)
    reverse = {(query, document): ranks for (document, query), ranks in _ranks(evaluation.reverse, backwards)}
    pairs = [
        Diverging(query, document, *ranks, *reverse[query, document])
        for (query, document), ranks in forward
        if (query, document) in reverse
    ]
    pairs = [pair for pair in pairs if pair.gap]
    return sorted(pairs, key=lambda pair: (-abs(pair.gap), pair.query, pair.document))[:count]


def _ranks(
    direction: Direction, qrels: Mapping[str, Mapping[str, int]]
) -> list[tuple[tuple[str, str], tuple[int, int]]]:
    """((query, positive), (rank, candidates)) of every positive that is a candidate."""
    gold = direction.gold
    names = [(query, document) for query in direction.query_ids for document, _ in best_first(qrels[query])]
    sizes = np.repeat(gold.candidates, gold.counts).tolist()
    return [
        (name, (rank, size))
        for name, rank, size in zip(names, gold.ranks.tolist(), sizes, strict=True)
        if rank
    ]


def _place(rank: int, size: int) -> float:
    return (rank - 1) / max(size - 1, 1)
