"""Queries and judgements: collect writes them, people add to them. A line that it did not write is theirs."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from vidvec_msg.runs import digest_of, replacing, set_aside, write_json

log = logging.getLogger(__name__)

QUERIES = "queries.jsonl"
LINES = ".collect.lines.json"
"""Digests of the lines that collect wrote, by file."""
JUDGED = "query-id\tcorpus-id\tscore"
"""The first line of judgements."""


class SharedFiles:
    """The files of both.

    Args:
        out: the collection.
        ours: names of the files that an earlier run wrote. Of one whose lines were not noted, all are taken
            for its own.
    """

    def __init__(self, out: Path, ours: Collection[str]) -> None:
        self.out, self.kept = out, 0  # lines of people's that stayed
        noted = json.loads((out / LINES).read_text(encoding="utf-8")) if (out / LINES).is_file() else {}
        self._ours = {
            name: set(noted[name]) if name in noted else _digests(_lines(out / name)) for name in ours
        }
        self._new: dict[str, list[str]] = {}
        self._asked: dict[str, str] = {}  # id → words of the queries, as judgements that were added mean them

    def write(self, files: Mapping[str, Sequence[str]]) -> None:
        """Writes what the sources hold now, and behind it the lines that people added.

        A file whose lines all are an earlier run's, and that the sources have no more, is taken away.

        Args:
            files: name → lines.
        """
        self._asked = self._queries()
        self._new = {name: sorted(_digests(lines)) for name, lines in files.items()}
        known = self._ours.keys() | self._new.keys()
        # a run that is killed on the way must not be taken for a person
        self._note({name: sorted(self._ours.get(name, set()) | {*self._new.get(name, ())}) for name in known})
        for name in sorted(known, reverse=True):  # queries.jsonl before the judgements of what it holds
            self._write(name, files.get(name, [JUDGED] if name.endswith(".tsv") else []))

    def finish(self) -> None:
        """Says that all is written."""
        self._note(self._new)

    def _note(self, lines: Mapping[str, Sequence[str]]) -> None:
        if lines or (self.out / LINES).is_file():
            write_json(self.out / LINES, lines)

    def _write(self, name: str, lines: Sequence[str]) -> None:
        path = self.out / name
        before = _lines(path)
        wanted, taken = {*lines}, {_subject(line) for line in lines}
        ours = self._ours.get(name, set())
        added = [line for line in before if line not in wanted and digest_of(line)[:16] not in ours]
        # as it was written → as it has to be written now
        theirs = dict(zip(added, added if name == QUERIES else self._of_now(added), strict=True))
        theirs = {line: now for line, now in theirs.items() if now not in wanted}
        lost = [line for line, now in theirs.items() if now is None or _subject(now) in taken]
        if name not in self._ours and before and before != [*lines]:
            self._set_aside(path, "was not written by collect")
            theirs = {}
        elif lost:
            self._set_aside(
                path,
                "has lines that contradict the sources, or judge a query that is gone or another one "
                f"by now ({lost[0]!r})",
            )
        kept = [now for line, now in theirs.items() if now is not None and line not in lost]
        if {*lines, *kept} <= {JUDGED}:
            path.unlink(missing_ok=True)
            return
        self.kept += len(kept)
        write_lines(path, (*lines, *kept))

    def _of_now(self, judgements: Sequence[str]) -> list[str | None]:
        """Judgements with the id that their query has now; None for one whose query is gone or not known.

        A query is known by its words: a person may have reworded one, and earlier versions gave ids by place.
        """
        now = self._queries()
        named: dict[str, list[str]] = {}
        for query, words in now.items():
            named.setdefault(words, []).append(query)
        found: list[str | None] = []
        for line in judgements:
            query, _, rest = line.partition("\t")
            same = named.get(self._asked[query], []) if query in self._asked else []
            if query in same:
                found.append(line)
            else:
                found.append(f"{same[0]}\t{rest}" if len(same) == 1 else None)
        return found

    def _queries(self) -> dict[str, str]:
        return {_subject(line): _words(line) for line in _lines(self.out / QUERIES)}

    def _set_aside(self, path: Path, why: str) -> None:
        kept = set_aside(path, suffix=f"{path.suffix}.kept")
        log.warning("%s %s: it is now %s, since the sources hold others", path, why, kept)


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Replaces a file; lines end as on Unix everywhere."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(line + "\n" for line in lines)


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    return [line for line in text.split("\n") if line.strip()]


def _digests(lines: Sequence[str]) -> set[str]:
    return {digest_of(line)[:16] for line in lines}


def _subject(line: str) -> str:
    """What no other line may speak of: a query, or a query and a document."""
    if not line.startswith("{"):
        return "\t".join(line.split("\t")[:2])
    try:
        return str(json.loads(line).get("_id"))
    except ValueError:
        return line


def _words(line: str) -> str:
    """What a query says; the line itself where that is not in words."""
    try:
        return str(json.loads(line)["text"])
    except (ValueError, KeyError, TypeError):
        return line
