"""Accepted pairs → relevance: what is right for one of two items is right for the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vidvec_msg.formats.collections import Side
from vidvec_msg.formats.relevance import Qrels


@dataclass(frozen=True, slots=True)
class Added:
    """A judgement that a pair adds.

    Args:
        query: id.
        document: id.
        grade: of the judgement that it follows from.
        first: the pair.
        second: the pair.
    """

    query: str
    document: str
    grade: int
    first: str
    second: str


def follows(pair: tuple[str, str], qrels: Qrels, side: Side) -> list[Added]:
    """The judgements that follow if two items mean the same, and that are not there yet.

    A judgement of 0 (looked at, and not relevant) is a person's word and stays. Nothing follows from what
    follows: if a means b and b means c, nobody has said that a means c.

    Args:
        pair: ids of one side.
        qrels: query → document → grade, before anything was added.
        side: of the pair.
    """
    added = []
    for one, other in (pair, pair[::-1]):
        for query, document, grade in _right_for(one, qrels, side):
            moved = (other, document) if side == "queries" else (query, other)
            if moved[1] not in qrels.get(moved[0], {}):
                added.append(Added(*moved, grade, *pair))
    return added


def with_added(qrels: Qrels, added: Sequence[Added]) -> Qrels:
    """The judgements and the added ones; a pair of which two reviews speak has the higher grade."""
    made = {query: dict(judged) for query, judged in qrels.items()}
    for one in added:
        judged = made.setdefault(one.query, {})
        judged[one.document] = max(one.grade, judged.get(one.document, one.grade))
    return made


def _right_for(name: str, qrels: Mapping[str, Mapping[str, int]], side: Side) -> list[tuple[str, str, int]]:
    """Relevant judgements in which an item stands."""
    if side == "queries":
        return [(name, document, grade) for document, grade in qrels.get(name, {}).items() if grade > 0]
    return [(query, name, judged[name]) for query, judged in qrels.items() if judged.get(name, 0) > 0]
