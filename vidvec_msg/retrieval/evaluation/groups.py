"""Means per group of queries: by topic, by modality, by whatever ``groups`` the items carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vidvec_msg.retrieval.evaluation.directions import Direction
from vidvec_msg.retrieval.evaluation.ranking import Ints
from vidvec_msg.retrieval.metrics import means

SMALL_GROUP = 15  # groups with fewer queries are marked: their means move by several points with one query


def add_groups(direction: Direction, groups: Mapping[str, Mapping[str, str]]) -> Direction:
    """The direction with means per group.

    Args:
        direction: a scored direction.
        groups: query id → group name → value, for example ``{"clip7": {"topic": "education"}}``.
    """
    members: dict[str, dict[str, list[int]]] = {}
    for row, query in enumerate(direction.query_ids):
        for key, value in groups.get(query, {}).items():
            members.setdefault(key, {}).setdefault(value, []).append(row)
    table = {
        key: {value: _group(direction, np.asarray(rows)) for value, rows in sorted(values.items())}
        for key, values in sorted(members.items())
    }
    return replace(direction, groups=table)


def groups_of_queries(
    direction: Direction,
    own: Mapping[str, Mapping[str, str]],
    others: Mapping[str, Mapping[str, str]],
    qrels: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, str]]:
    """Groups of each query: its own, and those on which all of its positives agree.

    A message has no modality, but its clips have; if they share one, the message belongs to it.

    Args:
        direction: whose queries are asked for.
        own: item id → groups, on the queries' side.
        others: item id → groups, on the candidates' side.
        qrels: in the direction's own sense.
    """
    return group_values(direction.query_ids, own, others, qrels)


def group_values(
    ids: Iterable[str],
    own: Mapping[str, Mapping[str, str]],
    others: Mapping[str, Mapping[str, str]],
    qrels: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, str]]:
    """:func:`groups_of_queries` for any items of a side."""
    found: dict[str, dict[str, str]] = {}
    for query in ids:
        shared: dict[str, set[str | None]] = {}
        positive = [others.get(d, {}) for d, grade in qrels.get(query, {}).items() if grade > 0]
        for key in {key for groups in positive for key in groups}:
            shared[key] = {groups.get(key) for groups in positive}
        agreed = {
            key: value for key, values in shared.items() if len(values) == 1 and (value := next(iter(values)))
        }
        found[query] = {**agreed, **own.get(query, {})}
    return found


def _group(direction: Direction, rows: Ints) -> dict[str, Any]:
    return {
        "queries": len(rows),
        "small": len(rows) < SMALL_GROUP,
        "metrics": means({name: values[rows] for name, values in direction.per_query.items()}),
    }
