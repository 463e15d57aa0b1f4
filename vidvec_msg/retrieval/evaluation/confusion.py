"""What is taken for what at rank 1: confusion matrices of topics, and of messages in a topic (VidMsg 5.4).

A *topic* is the value of a group that items carry. A *message* is an item of the queries' side: in the
forward direction the query is asked for and the retrieved clip stands for the message that it belongs to; in
the reverse direction the clip stands for its own message and the retrieved message for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.retrieval.evaluation.directions import Direction
from vidvec_msg.retrieval.evaluation.groups import group_values
from vidvec_msg.retrieval.evaluation.ranking import best_first

Counts = npt.NDArray[np.int64]
Groups = Mapping[str, Mapping[str, str]]
Judgements = Mapping[str, Mapping[str, int]]

ELSEWHERE = "another topic"


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix of top-1 retrieval.

    Args:
        title: what it is about.
        rows: labels of what was asked for.
        columns: labels of what came first; those of the rows, and in a matrix within a topic
            :data:`ELSEWHERE`.
        counts: ``(rows, columns)`` queries.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Counts

    @property
    def right(self) -> int:
        """Queries on the diagonal."""
        return int(np.trace(self.counts))

    @property
    def total(self) -> int:
        """All queries of the matrix."""
        return int(self.counts.sum())

    def worst(self, count: int = 5) -> list[tuple[str, str, int]]:
        """The most frequent confusions: asked for, came first, queries."""
        wrong = self.counts.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        cells = [np.unravel_index(flat, wrong.shape) for flat in order.tolist()]
        return [
            (self.rows[row], self.columns[column], int(wrong[row, column]))
            for row, column in cells
            if wrong[row, column]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Its part of ``report.json``: labels, and the cells that are not 0 as [row, column, queries]."""
        cells = [
            [int(r), int(c), int(self.counts[r, c])] for r, c in zip(*np.nonzero(self.counts), strict=True)
        ]
        return {
            "title": self.title, "rows": list(self.rows), "columns": list(self.columns), "cells": cells,
            "right": self.right, "total": self.total,
        }  # fmt: skip


def topic_confusion(
    direction: Direction, key: str, own: Groups, others: Groups, qrels: Judgements, backwards: Judgements
) -> Confusion | None:
    """Topics of queries against topics of what came first.

    Args:
        direction: a scored direction.
        key: the group whose values are the topics.
        own: item id → groups, on the queries' side of the direction.
        others: on the candidates' side. An item that carries no topic has the one that its positives share.
        qrels: in the direction's own sense.
        backwards: the same judgements, read from the candidates.

    Returns:
        None if fewer than two topics are there.
    """
    asked, came = _topics(direction, key, own, others, qrels, backwards)
    labels = tuple(sorted({*asked.values(), *came.values()}))
    if len(set(asked.values())) < 2:
        return None
    pairs = [
        (asked[query], came[first]) for query, first in _firsts(direction) if query in asked and first in came
    ]
    return Confusion(key, labels, labels, _count(pairs, labels, labels))


def message_confusions(
    direction: Direction,
    key: str,
    own: Groups,
    others: Groups,
    qrels: Judgements,
    backwards: Judgements,
    *,
    messages_ask: bool,
) -> list[Confusion]:
    """Within each topic, messages against the messages of what came first.

    Args:
        direction: a scored direction.
        key: as for :func:`topic_confusion`, like the next four.
        own: as there.
        others: as there.
        qrels: as there.
        backwards: as there.
        messages_ask: the messages are the queries of the direction, and not its candidates.

    Returns:
        a matrix per topic with two messages or more, topics in order of their names.
    """
    asked, _ = _topics(direction, key, own, others, qrels, backwards)
    messages: dict[str, list[tuple[str, str]]] = {}
    for query, first in _firsts(direction):
        if query not in asked:
            continue
        row = query if messages_ask else best_first(qrels[query])[0][0]
        column = best_first(backwards.get(first, {})) if messages_ask else [(first, 1)]
        # a clip of several messages stands for the one that was asked for, if that is among them
        names = [name for name, _ in column]
        came = row if row in names else names[0] if names else ELSEWHERE
        messages.setdefault(asked[query], []).append((row, came))
    found = []
    for topic, pairs in sorted(messages.items()):
        rows = tuple(sorted({row for row, _ in pairs}))
        if len(rows) < 2:
            continue
        known = set(rows)
        inside = [(row, came if came in known else ELSEWHERE) for row, came in pairs]
        columns = (*rows, ELSEWHERE)
        found.append(Confusion(topic, rows, columns, _count(inside, rows, columns)))
    return found


def _topics(
    direction: Direction, key: str, own: Groups, others: Groups, qrels: Judgements, backwards: Judgements
) -> tuple[dict[str, str], dict[str, str]]:
    """Topic of each query, and of each candidate."""
    asked = group_values(direction.query_ids, own, others, qrels)
    came = group_values(direction.candidate_ids, others, own, backwards)
    return (
        {item: groups[key] for item, groups in asked.items() if key in groups},
        {item: groups[key] for item, groups in came.items() if key in groups},
    )


def _firsts(direction: Direction) -> list[tuple[str, str]]:
    """Each query and its first candidate."""
    if not direction.top.shape[1]:
        return []
    return [
        (query, direction.candidate_ids[column])
        for query, column, score in zip(
            direction.query_ids, direction.top[:, 0].tolist(), direction.top_scores[:, 0], strict=True
        )
        if np.isfinite(score)
    ]


def _count(pairs: Sequence[tuple[str, str]], rows: Sequence[str], columns: Sequence[str]) -> Counts:
    down = {label: place for place, label in enumerate(rows)}
    across = {label: place for place, label in enumerate(columns)}
    counts = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for row, column in pairs:
        counts[down[row], across[column]] += 1
    return counts
