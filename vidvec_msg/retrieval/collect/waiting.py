"""Judgements by hand whose query the sources do not hold now: they wait, and come back with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.runs import write_json

WAITING = ".collect.waiting.json"


class Waiting:
    """The judgements that wait, on disk until none is left.

    Args:
        out: the collection.
    """

    def __init__(self, out: Path) -> None:
        self.path = out / WAITING
        found: dict[str, Any] = (
            json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        )
        self.asked: dict[str, str] = found.get("asked", {})
        """Id → words of the queries that judgements meant when a run began that did not end."""
        self._lines: dict[str, list[tuple[str, str]]] = {
            name: [(words, line) for words, line in lines] for name, lines in found.get("lines", {}).items()
        }  # name of the file → words of the query, and the line

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def names(self) -> set[str]:
        """Names of the files that judgements wait for."""
        return set(self._lines)

    def begin(self, asked: Mapping[str, str]) -> None:
        """Notes what judgements mean before the file of queries is written."""
        self.asked = dict(asked)
        self._save()

    def add(self, name: str, judgements: Iterable[tuple[str, str]]) -> None:
        """Has judgements wait: words of the query, and the line. They are on disk when this returns."""
        every = dict.fromkeys([*self.of(name), *judgements])  # a killed run may have had some wait already
        if len(every) > len(self.of(name)):
            self._lines = {**self._lines, name: [*every]}
            self._save()

    def of(self, name: str) -> list[tuple[str, str]]:
        """Words of the query, and the line, of the judgements that wait for a file."""
        return list(self._lines.get(name, []))

    def end(self, name: str, back: Iterable[tuple[str, str]]) -> None:
        """Lets judgements go that stand in their file again, or that the sources make now."""
        gone = set(back)
        if gone:
            left = [one for one in self.of(name) if one not in gone]
            self._lines = {**self._lines, name: left}
            self._save()

    def finish(self) -> None:
        """Says that all is written."""
        self.asked = {}
        self._save()

    def _save(self) -> None:
        self._lines = {name: lines for name, lines in self._lines.items() if lines}
        if self.asked or self._lines:
            write_json(self.path, {"asked": self.asked, "lines": self._lines})
        else:
            self.path.unlink(missing_ok=True)
