"""A filter → a Milvus expression that lets at least the same items through; needs no Milvus.

Values stand in the expression as quoted literals, with quotes and backslashes escaped, so that nothing a user
gives can become a part of the language. What cannot be said so (control characters; ``%``, ``_`` and ``\\``
in a pattern, which milvus-lite does not let escape) is widened to any character, and the expression says that
it is not exact: whoever uses it reads the filter once more on what came back (:func:`passes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vidvec_msg.retrieval.indexes.conditions import (
    PATHS,
    SECONDS,
    Condition,
    Mask,
    Range,
    Where,
    as_number,
    group_name,
    is_group,
)
from vidvec_msg.retrieval.indexes.filtering import FilterColumns

METADATA = "metadata"  # the JSON field; "seconds", "groups" and "numbers" are maps in it
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[%_\\]")
_UNSAYABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # milvus-lite knows no \x and no \u


@dataclass(frozen=True, slots=True)
class Expression:
    """What Milvus is asked.

    Args:
        text: in Milvus's language; empty lets everything through.
        exact: it lets through what the filter does, and nothing else.
    """

    text: str = ""
    exact: bool = True


def expression(where: Where) -> Expression:
    """The expression of a filter whose keys are known (``indexes.conditions.refuse_unknown_keys``)."""
    parts, exact = [], True
    for key, condition in where.items():
        part = _range(key, condition) if isinstance(condition, Range) else _values(key, condition)
        exact &= part.exact
        if part.text:
            parts.append(f"({part.text})")
    return Expression(" and ".join(parts), exact)


def ids_expression(ids: Iterable[str]) -> str:
    """Items by their ids."""
    return f"id in [{', '.join(map(quoted, ids))}]"


def quoted(text: str) -> str:
    """A string literal."""
    return f'"{"".join(_ESCAPES.get(character, character) for character in text)}"'


def passes(where: Where, rows: Sequence[Mapping[str, Any]]) -> Mask:
    """The filter, read on the rows themselves, (rows,).

    Args:
        where: the filter.
        rows: metadata as an index gives it.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {
        name: pa.array([row.get(name) for row in rows], pa.string()) for name in ("id", "text", *PATHS)
    }
    columns |= {name: pa.array([row.get(name) for row in rows], pa.float64()) for name in ("start", "end")}
    columns["groups"] = pa.array([json.dumps(row.get("groups") or {}) for row in rows], pa.string())
    filtered = FilterColumns(pa.table(columns))
    if any(is_group(key) and group_name(key) not in filtered.groups for key in where):
        return np.zeros(len(rows), dtype=np.bool_)  # none of these has it
    return filtered.matching(where)


def _values(key: str, condition: Condition) -> Expression:
    values = sorted(condition) if isinstance(condition, frozenset) else []
    field = _field(key)
    if field is None or "*" in values:
        return Expression(_exists(key, field), exact=field is not None)
    if key in SECONDS:
        return Expression(" or ".join(f"{field} == {as_number(value)!r}" for value in values))
    parts, exact = [], True
    for value in values:
        if "*" not in value and not _UNSAYABLE.search(value):
            parts.append(f"{field} == {quoted(value)}")
            continue
        exact &= not (_SPECIAL.search(value) or _UNSAYABLE.search(value))
        pattern = _UNSAYABLE.sub("_", _SPECIAL.sub("_", value)).replace("*", "%")
        parts.append(f"{field} like {quoted(pattern)}")
    return Expression(" or ".join(parts), exact)


def _range(key: str, condition: Range) -> Expression:
    field = _field(key, "numbers")
    if field is None:
        return Expression(exact=False)
    bounds = []
    if condition.low > -np.inf:
        bounds.append(f"{field} {'>' if condition.above else '>='} {condition.low!r}")
    if condition.high < np.inf:
        bounds.append(f"{field} {'<' if condition.below else '<='} {condition.high!r}")
    return Expression(" and ".join(bounds) or f"exists {field}")


def _field(key: str, groups: str = "groups") -> str | None:
    """What a key is called in an expression; None for a group whose name no literal can say."""
    if key == "id":
        return "id"
    if key in SECONDS:
        return f'{METADATA}["seconds"]["{key}"]'
    if not is_group(key):
        return f'{METADATA}["{key}"]'
    name = group_name(key)
    return None if _UNSAYABLE.search(name) else f'{METADATA}["{groups}"][{quoted(name)}]'


def _exists(key: str, field: str | None) -> str:
    return "" if field is None or key == "id" else f"exists {field}"
