"""The words of a filter: values and ranges of the groups and metadata of items."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Problems, did_you_mean

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

TEXTS = ("id", "text")
PATHS = ("video", "image", "audio")
SECONDS = ("start", "end", "duration")
COLUMNS = (*TEXTS, *PATHS, *SECONDS)
GROUP = "groups."  # before the name of a group that is called like a column

_FORMS = "topic=news, topic=news,sport, id=talks/* or 'start>=60' (quoted: < and > are the shell's)"
_OPERATOR = re.compile(r"\s*(?P<key>.*?)\s*(?P<operator><=|>=|=|<|>)\s*(?P<value>.*?)\s*", re.DOTALL)
SHOWN = 12  # values or keys that a message lists


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
            more = f", … and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
            problems.add(
                f"no item has {key!r}{did_you_mean(group_name(key), [*COLUMNS, *known])}; the keys are "
                f"{', '.join([*COLUMNS, *keys[:SHOWN]])}{more}"
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
