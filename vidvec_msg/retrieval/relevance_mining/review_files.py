"""The files that people review, and their reading: who decided what, and when."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.collect.tables import rows_of
from vidvec_msg.retrieval.relevance_mining.pairs import Pair
from vidvec_msg.runs import replacing, write_json_lines

COLUMNS = (
    "first", "second", "score", "kind", "first_text", "second_text", "decision", "reviewer", "reviewed_at",
    "note",
)  # fmt: skip
DECISIONS = ("accept", "reject")
_UNDECIDED = ("", "skip")
SUFFIXES = (".jsonl", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said of a pair.

    Args:
        first: id; the two are in the order of the review file.
        second: id.
        accept: whether the two mean the same.
        reviewer: who.
        reviewed_at: when, as written; ISO 8601.
        note: their remark.
    """

    first: str
    second: str
    accept: bool
    reviewer: str
    reviewed_at: str
    note: str = ""

    @property
    def pair(self) -> tuple[str, str]:
        """The two ids, in alphabetical order: a file that swaps them speaks of the same pair."""
        return (self.first, self.second) if self.first <= self.second else (self.second, self.first)


def review_rows(pairs: Iterable[Pair], items: Mapping[str, Item]) -> list[dict[str, Any]]:
    """A row per pair, decision, reviewer and time empty."""
    return [
        {
            "first": pair.first,
            "second": pair.second,
            "score": None if pair.score is None else round(pair.score, 4),
            "kind": pair.kind,
            "first_text": _words(items[pair.first]),
            "second_text": _words(items[pair.second]),
            "decision": "",
            "reviewer": "",
            "reviewed_at": "",
            "note": "",
        }
        for pair in pairs
    ]


def write_review(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as ``review.jsonl`` and ``review.csv``: the same, for programs and for tables."""
    write_json_lines(folder / "review.jsonl", rows)
    with (
        replacing(folder / "review.csv") as temporary,
        temporary.open("w", encoding="utf-8-sig", newline="") as stream,  # the mark: spreadsheets ask for it
    ):
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def read_decisions(paths: Sequence[Path], known: Iterable[str]) -> list[Decision]:
    """The decisions of reviewed files; rows that nobody has decided are passed over.

    Args:
        paths: .jsonl or .csv files, of one reviewer or several.
        known: ids of the side.

    Raises:
        RefusedRequest: every problem in one message: another decision than accept and reject, one without a
            reviewer or a time, unknown ids, one reviewer who decided a pair twice and differently.
    """
    problems = Problems("reviewed files")
    ids = set(known)
    decisions: dict[tuple[tuple[str, str], str], Decision] = {}
    for path in paths:
        for where, row in _rows(path, problems):
            one = _decision(row, where, ids, problems)
            if one is None:
                continue
            before = decisions.setdefault((one.pair, one.reviewer), one)
            if before.accept != one.accept:
                both = " and ".join(one.pair)
                problems.add(f"{where}: {one.reviewer} decided {both} differently before; keep one of them")
    problems.refuse_if_any()
    return list(decisions.values())


def _rows(path: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        problems.add(f"{path} is no file that ends in {', '.join(SUFFIXES)}")
        return
    try:
        for number, row in enumerate(rows_of(path), start=1):
            yield f"{path.name}, row {number}", row
    except RefusedRequest as refusal:
        problems.add(str(refusal))


def _decision(row: Mapping[str, Any], where: str, ids: set[str], problems: Problems) -> Decision | None:
    cells = {name: str(row.get(name) or "").strip() for name in COLUMNS}
    decision = cells["decision"].lower()
    if decision in _UNDECIDED:
        return None
    found = len(problems.found)
    if decision not in DECISIONS:
        problems.add(f"{where}: the decision is {cells['decision']!r}; it is accept, reject, or empty")
    for name in ("first", "second"):
        if cells[name] not in ids:
            problems.add(f"{where}: {name} is {cells[name]!r}, which the collection does not have")
    if not cells["reviewer"]:
        problems.add(f"{where}: a decision without a reviewer; fill in the column reviewer")
    try:
        datetime.fromisoformat(cells["reviewed_at"])
    except ValueError:
        problems.add(
            f"{where}: reviewed_at is {cells['reviewed_at']!r}; it is a time such as 2026-11-30 or "
            "2026-11-30T14:05:00Z"
        )
    if len(problems.found) > found:
        return None
    return Decision(
        cells["first"],
        cells["second"],
        decision == "accept",
        cells["reviewer"],
        cells["reviewed_at"],
        cells["note"],
    )


def _words(item: Item) -> str:
    return item.full_text or item.transcript or ""
