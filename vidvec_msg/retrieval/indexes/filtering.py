"""Which items of an index a filter lets through."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.indexes.conditions import (
    PATHS,
    SECONDS,
    SHOWN,
    Condition,
    Floats,
    Mask,
    Range,
    Where,
    as_number,
    group_name,
    is_group,
    normal_path,
    refuse_unknown_keys,
    written,
)

if TYPE_CHECKING:
    import pyarrow as pa

_MANY = 50_000  # distinct maps of groups; Python parses so many in a third of a second


class FilterColumns:
    """The columns of ``ids.parquet``, each parsed when it is first asked about and kept.

    Safe to share between threads: what two of them parse at once is the same.

    Args:
        table: at least a column ``id``.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._last: tuple[Where, Mask] | None = None  # a batch of queries asks the same again and again
        self._paths: dict[str, Any] = {}

    def matching(self, where: Where) -> Mask:
        """Which rows the filter lets through, (rows,); an empty one lets everything through.

        Raises:
            RefusedRequest: a key that no item has, or one that takes no such condition.
        """
        last = self._last  # read once: another thread may put another one there
        if last is not None and last[0] == where:
            return last[1]
        refuse_unknown_keys(where, self.groups)
        mask = np.ones(self._table.num_rows, dtype=np.bool_)
        for key, condition in where.items():
            mask &= self._holds(key, condition)
        mask.flags.writeable = False  # kept
        self._last = (dict(where), mask)
        return mask

    def nothing_matches(self, where: Where) -> str:
        """What to tell a person whose filter lets nothing through."""
        hints = []
        for key, condition in where.items():
            group = self.groups.get(group_name(key)) if is_group(key) else None
            if group is None or not isinstance(condition, frozenset) or self._holds(key, condition).any():
                continue
            values = sorted(group.values)
            near = "".join(did_you_mean(value, values) for value in sorted(condition))
            more = f", … and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
            hints.append(f"the values of {key} are {', '.join(values[:SHOWN])}{more}{near}")
        return f"no item matches {written(where)}" + "".join(f"; {hint}" for hint in hints)

    @cached_property
    def groups(self) -> Mapping[str, _Group]:
        """The groups by name."""
        import pyarrow as pa

        if "groups" not in self._table.column_names:
            return {}
        encoded = self._table["groups"].cast(pa.large_string()).combine_chunks().dictionary_encode()
        maps = encoded.dictionary.to_pylist()  # few distinct ones as a rule: each is parsed once
        of_row = np.asarray(encoded.indices.fill_null(len(maps)), dtype=np.int32)  # (rows,)
        coded = _coded_by_arrow(maps) if len(maps) > _MANY else None
        return {
            # one more code stands for the maps that are null
            name: _Group(values, np.append(codes, np.int32(-1))[of_row])
            for name, (values, codes) in (_coded(maps) if coded is None else coded).items()
        }

    def _holds(self, key: str, condition: Condition) -> Mask:
        if is_group(key):
            return self.groups[group_name(key)].holds(condition)
        if key in SECONDS:
            numbers = self._seconds(key)
            if isinstance(condition, Range):
                return condition.holds(numbers)
            return _any_second(condition, numbers)
        values = condition if isinstance(condition, frozenset) else frozenset()  # a range was refused before
        return _has_value(self._strings(key), values)

    def _strings(self, name: str) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._table.column_names:
            return pa.nulls(self._table.num_rows, pa.large_string())
        if name not in PATHS:
            return self._table[name].cast(pa.large_string())
        if name not in self._paths:
            column = self._table[name].cast(pa.large_string())
            if pc.any(pc.match_substring_regex(column, r"/\.{0,2}/|^\./|/$")).as_py():
                coded = column.combine_chunks().dictionary_encode()
                plain = [normal_path(path) for path in coded.dictionary.to_pylist()]
                column = pa.array(plain, pa.large_string()).take(coded.indices)
            self._paths[name] = column
        return self._paths[name]

    def _seconds(self, name: str) -> Floats:
        if name == "duration":
            return self._seconds("end") - self._seconds("start")
        numbers = np.full(self._table.num_rows, np.nan)
        if name in self._table.column_names:
            numbers = self._table[name].cast("float64").fill_null(np.nan).to_numpy().copy()
        if name == "start":
            filed = [self._table[one].is_valid() for one in PATHS if one in self._table.column_names]
            for valid in filed:
                numbers[np.asarray(valid, dtype=np.bool_) & np.isnan(numbers)] = 0
        return numbers


@dataclass(frozen=True, slots=True)
class _Group:
    """A group's values, and which of them each row has.

    Args:
        values: distinct.
        codes: (rows,), position in ``values``; -1 where a row has none.
    """

    values: list[str]
    codes: npt.NDArray[np.int32]

    def holds(self, condition: Condition) -> Mask:
        import pyarrow as pa

        if isinstance(condition, Range):
            ok = condition.holds(np.array([as_number(value) for value in self.values], dtype=np.float64))
        else:
            ok = _has_value(pa.array(self.values, pa.large_string()), condition)
        mask: Mask = np.append(ok, False)[self.codes]  # code -1 is the last
        return mask


def _parsed(text: str | None) -> dict[str, str]:
    try:
        content = json.loads(text or "{}")
    except ValueError as error:
        raise RefusedRequest(f"ids.parquet: groups is {text!r}, which is not JSON ({error})") from error
    if not isinstance(content, dict):
        return {}
    return {str(name): str(value) for name, value in content.items() if value is not None}


Coded = dict[str, tuple[list[str], npt.NDArray[np.int32]]]
"""Group → its distinct values, and of each map which of them it has; -1 for none."""


def _coded(maps: Sequence[str | None]) -> Coded:
    codes: dict[str, npt.NDArray[np.int32]] = {}
    values: dict[str, dict[str, int]] = {}
    for number, text in enumerate(maps):
        for name, value in _parsed(text).items():
            if name not in codes:
                codes[name] = np.full(len(maps), -1, dtype=np.int32)
                values[name] = {}
            codes[name][number] = values[name].setdefault(value, len(values[name]))
    return {name: (list(values[name]), codes[name]) for name in codes}


def _coded_by_arrow(maps: Sequence[str]) -> Coded | None:
    """The same for very many maps of strings, three times as fast; None where Arrow reads them otherwise."""
    import pyarrow as pa
    import pyarrow.json

    lines = "\n".join(maps).encode()
    if lines.count(b"\n") != len(maps) - 1:
        return None
    try:
        names = pa.json.read_json(pa.BufferReader(lines)).column_names
        strings = pa.schema([(name, pa.string()) for name in names])  # or "2020-01-01" becomes a date
        options = pa.json.ParseOptions(explicit_schema=strings)
        table = pa.json.read_json(pa.BufferReader(lines), parse_options=options)
    except pa.ArrowException:
        return None
    if table.num_rows != len(maps):
        return None
    found: Coded = {}
    for name in names:
        column = table[name].combine_chunks().dictionary_encode()
        codes = np.asarray(column.indices.fill_null(-1), dtype=np.int32)
        found[name] = (column.dictionary.to_pylist(), codes)
    return found


def _has_value(strings: Any, wanted: frozenset[str]) -> Mask:
    """Which strings are one of the wanted, patterns understood; null is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    exact = [value for value in wanted if "*" not in value]
    mask = np.asarray(pc.is_in(strings, value_set=pa.array(exact, pa.large_string())), dtype=np.bool_)
    for pattern in wanted.difference(exact):
        regex = f"(?s)^{'.*'.join(re.escape(part) for part in pattern.split('*'))}$"
        found = pc.match_substring_regex(strings, regex).fill_null(False)
        mask = mask | np.asarray(found, dtype=np.bool_)
    return mask


def _any_second(values: frozenset[str], numbers: Floats) -> Mask:
    if "*" in values:
        return ~np.isnan(numbers)
    return np.isin(numbers, [as_number(value) for value in values])
