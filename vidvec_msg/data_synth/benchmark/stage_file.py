"""The rows of one stage, in a file that people open and edit; and which of them have to be made anew.

A stage works unit by unit: a story for each message, some queries for each story, the candidates of each
query. Every row that it makes carries ``made_from``: 12 digits of what its unit was made from, and 8 of the
row itself. A unit whose source is still the same stays as the file has it, whatever a person changed in it;
one whose source has changed is made anew. Rows without the mark are a person's own, and stay as long as
their unit is wanted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems
from vidvec_msg.runs import digest_of, write_text

log = logging.getLogger(__name__)

MARK = "made_from"
REPLACED = "replaced.jsonl"
"""Rows that a person had edited and whose source changed, so that no work of a person's is lost."""

Row = dict[str, Any]
Units = dict[str, list[Row]]
_SHOWN = 6  # units that a message lists


@dataclass(frozen=True, slots=True)
class Form:
    """What the rows of a stage look like.

    Args:
        name: of the file, without its suffix.
        what: the rows are, for messages.
        unit: field that says to which unit of work a row belongs.
        key: fields that no two rows share.
        fields: field → types that it may have; None among them for fields that may be empty or missing.
        depends: what a unit was made from, for messages.
    """

    name: str
    what: str
    unit: str
    key: tuple[str, ...]
    fields: Mapping[str, tuple[type | None, ...]]
    depends: str


class StageFile:
    """The rows of a stage, by unit and in order.

    Args:
        folder: of the build.
        form: of the rows.
    """

    def __init__(self, folder: Path, form: Form) -> None:
        self.form, self.path = form, folder / f"{form.name}.jsonl"
        self.units: Units = {}
        self.made = 0  # rows that this run made

    def read(self, problems: Problems) -> None:
        """Reads the file, if there is one; what is wrong with it is noted."""
        self.units = {}
        if not self.path.is_file():
            return
        try:
            lines = self.path.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            problems.add(f"{self.path} is not UTF-8 ({error.reason} at byte {error.start})")
            return
        seen: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            row = self._parsed(line, where, problems)
            if row is None:
                continue
            key = tuple(str(row.get(name)) for name in self.form.key)
            if key in seen:
                told = ", ".join(f"{name} {part!r}" for name, part in zip(self.form.key, key, strict=True))
                problems.add(f"{where}: {told} stands in line {seen[key]} already")
                continue
            seen[key] = number
            self.units.setdefault(row[self.form.unit], []).append(row)

    def settle(
        self, wanted: Mapping[str, str], make: Callable[[Sequence[str]], Mapping[str, Sequence[Row]]]
    ) -> Units:
        """The rows of the wanted units: those that the file has, and the others made; and writes the file.

        Args:
            wanted: unit → digest of its source, in the order of the file.
            make: rows per unit, for those units that can be made.

        Returns:
            unit → rows; units that could not be made are missing.
        """
        kept = {unit: rows for unit, rows in self.units.items() if _from(rows) in (None, wanted.get(unit))}
        kept = {unit: rows for unit, rows in kept.items() if unit in wanted}
        stale = [unit for unit in wanted if unit in self.units and unit not in kept]
        missing = [unit for unit in wanted if unit not in kept]
        made = {
            unit: _marked(rows, wanted[unit]) for unit, rows in (make(missing) if missing else {}).items()
        }
        self._tell(kept, stale, missing)
        self._put_aside(stale)
        others = {unit: rows for unit, rows in self.units.items() if unit not in wanted}
        ordered = {unit: found for unit in wanted if (found := kept.get(unit) or made.get(unit))}
        merged = {**ordered, **others}
        same = bool(others) and merged.keys() == self.units.keys()
        # a round that asks for a part of what is there leaves the order, and with it the file, as it was
        self.units = {unit: merged[unit] for unit in self.units} if same else merged
        self.made += sum(map(len, made.values()))
        self._write()
        return ordered

    def prune(self, wanted: Collection[str]) -> None:
        """Takes out units that nothing asks for any more, such as those of a message that is gone."""
        gone = [unit for unit in self.units if unit not in wanted]
        if not gone:
            return
        self._put_aside(gone)
        for unit in gone:
            del self.units[unit]
        log.info(f"{self.path.name}: {_listed(gone)} taken out, since nothing asks for it any more")
        self._write()

    def edited(self) -> int:
        """Rows that a person changed or added."""
        return sum(_edited(row) for rows in self.units.values() for row in rows)

    def _parsed(self, line: str, where: str, problems: Problems) -> Row | None:
        try:
            row = json.loads(line)
        except ValueError as error:
            problems.add(f"{where}: not JSON ({error})")
            return None
        if not isinstance(row, dict):
            problems.add(f"{where}: a {type(row).__name__}, not an object")
            return None
        faults = [
            fault
            for name, types in self.form.fields.items()
            if (fault := _fault(name, row.get(name), types, given=name in row))
        ]
        for fault in faults:
            problems.add(f"{where}: {fault}")
        return None if faults else row

    def _tell(self, kept: Units, stale: Sequence[str], missing: Sequence[str]) -> None:
        name = self.path.name
        if stale:
            edited = sum(_edited(row) for unit in stale for row in self.units[unit])
            aside = f"; rows edited by hand are now in {REPLACED}: {edited}" if edited else ""
            log.warning(
                f"{name}: {len(stale)} made anew, since {self.form.depends} changed: {_listed(stale)}{aside}"
            )
        if kept and (edited := sum(_edited(row) for rows in kept.values() for row in rows)):
            log.info(f"{name}: edited by hand, and kept so: {edited} of {sum(map(len, kept.values()))} rows")
        if kept and missing:
            log.info(f"{name}: {len(kept)} are there, {len(missing)} are made")

    def _put_aside(self, units: Sequence[str]) -> None:
        rows = [row for unit in units for row in self.units[unit] if _edited(row)]
        if rows:
            with (self.path.parent / REPLACED).open("a", encoding="utf-8") as stream:
                for row in rows:
                    stream.write(json.dumps({"stage": self.form.name, **row}, ensure_ascii=False) + "\n")

    def _write(self) -> None:
        text = "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for rows in self.units.values() for row in rows
        )
        if self.path.is_file() and self.path.read_text(encoding="utf-8") == text:
            return  # a file that a person has open is not touched without need
        write_text(self.path, text)


def _fault(name: str, value: Any, types: tuple[type | None, ...], *, given: bool) -> str:
    if value is None:
        return "" if None in types else f"{name} is {'null' if given else 'missing'}"
    accepted = tuple(one for one in types if one is not None)
    if isinstance(value, accepted) and not (isinstance(value, bool) and bool not in accepted):
        return f"{name} is empty" if value == "" and None not in types else ""
    names = " or ".join(_PLAIN[one] for one in accepted)
    return f"{name} is {value!r}; it must be {names}"


_PLAIN: Mapping[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"
}  # fmt: skip


def _marked(rows: Sequence[Row], source: str) -> list[Row]:
    return [{**row, MARK: f"{source}.{_content(row)}"} for row in rows]


def _from(rows: Sequence[Row]) -> str | None:
    """What a unit was made from; None if no row says so."""
    marks = (row.get(MARK) for row in rows)
    return next((mark.partition(".")[0] for mark in marks if isinstance(mark, str)), None)


def _edited(row: Row) -> bool:
    mark = row.get(MARK)
    return not isinstance(mark, str) or mark.partition(".")[2] != _content(row)


def _content(row: Row) -> str:
    return digest_of({name: value for name, value in row.items() if name != MARK})[:8]


def source_of(*parts: Any) -> str:
    """The digest of what a unit is made from: 12 hex digits."""
    return digest_of(list(parts))[:12]


def _listed(units: Sequence[str]) -> str:
    rest = len(units) - _SHOWN
    return ", ".join(units[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
