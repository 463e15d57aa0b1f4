"""Which items of an index a search may return: values and ranges of their groups and metadata."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

TEXTS = ("id", "text")
PATHS = ("video", "image", "audio")
SECONDS = ("start", "end", "duration")
COLUMNS = (*TEXTS, *PATHS, *SECONDS)
GROUP = "groups."  # before the name of a group that is called like a column

_FORMS = "topic=news, topic=news,sport, id=talks/* or 'start>=60' (quoted: < and > are the shell's)"
_OPERATOR = re.compile(r"\s*(?P<key>.*?)\s*(?P<operator><=|>=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
_SHOWN = 12  # values or keys that a message lists
_MANY = 50_000  # distinct maps of groups; Python parses so many in a third of a second


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two bounds.

    Args:
        low: smallest number.
        high: largest number.
        above: the smallest number itself is outside.
        below: the largest number itself is outside.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def holds(self, numbers: Floats) -> Mask:
        """Which of the numbers lie inside; NaN does not."""
        over = numbers > self.low if self.above else numbers >= self.low
        under = numbers < self.high if self.below else numbers <= self.high
        return over & under

    def __and__(self, other: Range) -> Range:
        low, above = max((self.low, self.above), (other.low, other.above))
        high, open_below = min((self.high, not self.below), (other.high, not other.below))
        return Range(low, high, above, not open_below)

    def __str__(self) -> str:
        low = f"{'>' if self.above else '>='}{self.low:g}" if self.low > -math.inf else ""
        high = f"{'<' if self.below else '<='}{self.high:g}" if self.high < math.inf else ""
        return " and ".join(part for part in (low, high) if part)


Condition = frozenset[str] | Range
Where = Mapping[str, Condition]
"""Key → the values of which an item has one, or the range in which its number lies; all keys must hold.

A key is a column (id, text, video, image, audio, start, end, duration) or a group; ``groups.NAME`` is always
the group. In a value, ``*`` stands for any characters, also for none; ``*`` alone for "has one". Seconds are
compared as numbers, and so is a group under a range. A file without a start begins at 0; an unknown end is in
no range. Paths are absolute and normal (:func:`normal_path`); :func:`as_where` makes them so.
"""


def as_where(given: Where | Mapping[str, Any] | Sequence[str] | str | None) -> Where:
    """A filter in any of the forms that people write.

    Args:
        given: the words of ``--filter``, one or several; or key → a value, several values, or a
            :class:`Range`.

    Raises:
        RefusedRequest: words that are no condition, or a key without values.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        return parse_filters([given])
    if not isinstance(given, Mapping):
        return parse_filters(given)
    problems = Problems("the filter")
    where = {str(key): _condition(str(key), value, problems) for key, value in given.items()}
    problems.refuse_if_any()
    return where


def parse_filters(texts: Sequence[str]) -> Where:
    """The conditions that ``--filter`` words say, such as "topic=news,sport" or "start>=60".

    Values are separated by commas (``\\,`` is a comma inside one). A key that is given again takes more
    values, or another bound. Paths are completed with the current folder, unless they begin with ``*``.

    Raises:
        RefusedRequest: every word that is no condition, in one message.
    """
    problems = Problems("the filter")
    where: dict[str, Condition] = {}
    for text in texts:
        found = _OPERATOR.fullmatch(text)
        if found is None or not found["key"] or not found["value"]:
            problems.add(f"{text!r} is no condition; give a key and its values, such as {_FORMS}")
            continue
        key, operator, value = found["key"], found["operator"], found["value"]
        if key.endswith("!"):
            problems.add(f"{text!r}: there is no !=; give the values that are wanted")
            continue
        values = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", value)]
        condition = (
            _condition(key, [part for part in values if part], problems)
            if operator == "="
            else _bound(text, operator, value, problems)
        )
        before = where.get(key, condition)
        if isinstance(before, Range) and isinstance(condition, Range):
            where[key] = before & condition
        elif isinstance(before, frozenset) and isinstance(condition, frozenset):
            where[key] = before | condition
        else:
            problems.add(f"{key!r} has values and a bound; give one or the other")
    problems.refuse_if_any()
    return where


def written(where: Where) -> str:
    """A filter for messages, as ``--filter`` takes it."""
    return "; ".join(
        f"{key}{condition}" if isinstance(condition, Range) else f"{key}={','.join(sorted(condition))}"
        for key, condition in where.items()
    )


def matching(table: pa.Table, where: Where) -> Mask:
    """Which rows a filter lets through; for many filters on one table, keep :class:`FilterColumns`.

    Args:
        table: rows as in ``ids.parquet``.
        where: the filter; an empty one lets everything through.

    Returns:
        (rows,).

    Raises:
        RefusedRequest: a key that no item has, or one that takes no such condition.
    """
    return FilterColumns(table).matching(where)


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
        """Which rows the filter lets through, (rows,); see :func:`matching`."""
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
            more = f", … and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            hints.append(f"the values of {key} are {', '.join(values[:_SHOWN])}{more}{near}")
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


def refuse_unknown_keys(where: Where, groups: Iterable[str]) -> None:
    """Refuses keys that are no column and no group, and conditions that a column does not take.

    Raises:
        RefusedRequest: all of them in one message, with the keys there are.
    """
    problems = Problems("the filter")
    known = set(groups)
    keys = [f"{GROUP}{name}" if name in COLUMNS else name for name in sorted(known)]
    for key, condition in where.items():
        if is_group(key):
            if group_name(key) in known:
                continue
            more = f", … and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            problems.add(
                f"no item has {key!r}{did_you_mean(group_name(key), [*COLUMNS, *known])}; the keys are "
                f"{', '.join([*COLUMNS, *keys[:_SHOWN]])}{more}"
            )
        elif key not in SECONDS and isinstance(condition, Range):
            problems.add(f"{key!r} takes values, not < and >; bounds are for {', '.join(SECONDS)} and groups")
        elif key in SECONDS and isinstance(condition, frozenset):
            for value in sorted(condition):
                if value != "*" and math.isnan(as_number(value)):
                    problems.add(f"{key}={value}: {key} is in seconds; give a number, or bounds: {key}<60")
    problems.refuse_if_any()


def is_group(key: str) -> bool:
    """Whether a key of a filter is a group's."""
    return key not in COLUMNS


def group_name(key: str) -> str:
    """The group that a key names."""
    return key.removeprefix(GROUP)


def as_number(text: str) -> float:
    """The finite number that a text is; NaN if it is none."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def normal_path(path: str) -> str:
    """A path as filters compare it: without ``..`` and doubled slashes."""
    return os.path.normpath(path)


def _condition(key: str, value: Any, problems: Problems) -> Condition:
    if isinstance(value, Range):
        return value
    many = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    texts = [str(one) for one in many if one is not None]
    if not texts:
        problems.add(f"{key!r} has no value; leave it out, or give values, such as {_FORMS}")
    if key in PATHS:
        texts = [one if one.startswith("*") else normal_path(str(Path.cwd() / one)) for one in texts]
    return frozenset(texts)


def _bound(text: str, operator: str, value: str, problems: Problems) -> Range:
    number = as_number(value)
    if math.isnan(number):
        problems.add(f"{text!r}: {value!r} is not a number; {operator} compares numbers, = any value")
    if operator.startswith("<"):
        return Range(high=number, below=operator == "<")
    return Range(low=number, above=operator == ">")


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
