"""Queries and judgements: collect writes them, people add to them. A line that it did not write is theirs.

Sources may lose their queries for a run and have them again later. What people added stays all the while, and
judgements of queries that are gone wait (``waiting.py``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from vidvec_msg.retrieval.collect.waiting import Waiting
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
        ours: names of the files that the last run wrote. Of one whose lines were not noted, all are taken for
            its own. Files of runs before it are known by their notes.
    """

    def __init__(self, out: Path, ours: Collection[str]) -> None:
        self.out, self.kept = out, 0  # lines of people's that stayed
        noted = json.loads((out / LINES).read_text(encoding="utf-8")) if (out / LINES).is_file() else {}
        self._ours = {
            name: set(noted[name]) if name in noted else _digests(_lines(out / name))
            for name in {*ours, *noted}
        }
        self.waiting = Waiting(out)
        self._new: dict[str, list[str]] = {}
        self._asked: dict[str, str] = {}  # id → words of the queries, as judgements that were added mean them

    def write(self, files: Mapping[str, Sequence[str]]) -> None:
        """Writes what the sources hold now, and behind it the lines that people added.

        A file whose lines all are an earlier run's, and that the sources have no more, is taken away.

        Args:
            files: name → lines.
        """
        self._asked = {**self._queries(), **self.waiting.asked}
        self._new = {name: sorted(_digests(lines)) for name, lines in files.items()}
        known = self._ours.keys() | self._new.keys() | self.waiting.names
        self._ours |= {name: set() for name in self.waiting.names if name not in self._ours}
        # a run that is killed on the way must not be taken for a person
        self._note({name: sorted(self._ours.get(name, set()) | {*self._new.get(name, ())}) for name in known})
        self.waiting.begin(self._meant(files))
        for name in sorted(known, reverse=True):  # queries.jsonl before the judgements of what it holds
            self._write(name, files.get(name, [JUDGED] if name.endswith(".tsv") else []))

    def finish(self) -> None:
        """Says that all is written."""
        # what was ours once is shared from then on, also while it holds people's lines alone, or is gone
        self._note({**{name: [] for name in self._ours}, **self._new})
        self.waiting.finish()

    def _note(self, lines: Mapping[str, Sequence[str]]) -> None:
        if lines or (self.out / LINES).is_file():
            write_json(self.out / LINES, lines)

    def _added(self, name: str, lines: Sequence[str]) -> list[str]:
        """The lines of a file, as it is, that neither an earlier run wrote nor this one will."""
        wanted, ours = {*lines}, self._ours.get(name, set())
        return [
            line
            for line in _lines(self.out / name)
            if line not in wanted and digest_of(line)[:16] not in ours
        ]

    def _meant(self, files: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Id → words of the queries of judgements that people added."""
        judged = {
            line.partition("\t")[0]
            for name in self._ours
            if name != QUERIES
            for line in self._added(name, files.get(name, []))
        }
        return {query: self._asked[query] for query in sorted(judged & self._asked.keys())}

    def _write(self, name: str, lines: Sequence[str]) -> None:
        path = self.out / name
        before = _lines(path)
        wanted, taken = {*lines}, {_subject(line) for line in lines}
        theirs: dict[str, str | None] = {}  # as it was written → as it has to be written now
        if name not in self._ours and before and before != [*lines]:
            self._set_aside(path, "was not written by collect")
        else:
            added = self._added(name, lines)
            theirs = {line: line for line in added} if name == QUERIES else self._of_now(name, added)
            theirs = {line: now for line, now in theirs.items() if now not in wanted}
        lost = [line for line, now in theirs.items() if now is None or _subject(now) in taken]
        if lost:
            self._set_aside(
                path,
                f"has lines that contradict the sources, or judge a query that is not known ({lost[0]!r})",
            )
        kept = [now for line, now in theirs.items() if now is not None and line not in lost]
        back = {} if name == QUERIES else self._back(name, [*lines, *kept])
        kept = [line for line in dict.fromkeys([*kept, *back.values()]) if line not in wanted]
        if {*lines, *kept} <= {JUDGED}:
            path.unlink(missing_ok=True)
        else:
            self.kept += len(kept)
            write_lines(path, (*lines, *kept))
        self.waiting.end(name, back.keys())

    def _of_now(self, name: str, judgements: Sequence[str]) -> dict[str, str | None]:
        """Judgements → with the id that their query has now; None for one whose query is not known.

        A query is known by its words: a person may have reworded one, and earlier versions gave ids by place.
        The judgements of one that is gone wait, and are left out.
        """
        named, gone = self._named(), []
        found: dict[str, str | None] = {}
        for line in judgements:
            words = self._asked.get(line.partition("\t")[0])
            if words is not None and words not in named:
                gone.append((words, line))
            else:
                found[line] = None if words is None else _for_query(line, named[words])
        self.waiting.add(name, gone)
        return found

    def _back(self, name: str, lines: Sequence[str]) -> dict[tuple[str, str], str]:
        """What waits for a file of these lines and may stand in it now: words of the query, line → as of now.

        One that stands there already waited twice: a run was killed, or it was added under two ids.
        """
        named, back = self._named(), dict[tuple[str, str], str]()
        standing = {_subject(line): line for line in lines}
        for words, line in self.waiting.of(name):
            now = _for_query(line, named.get(words, []))
            if now is not None and standing.setdefault(_subject(now), now) == now:
                back[words, line] = now
        return back

    def _named(self) -> dict[str, list[str]]:
        """Words → ids of the queries that there are now."""
        named: dict[str, list[str]] = {}
        for query, words in self._queries().items():
            named.setdefault(words, []).append(query)
        return named

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


def _for_query(judgement: str, ids: Sequence[str]) -> str | None:
    """A judgement under one of the ids that its query has: its own, or the only one; None if neither is."""
    query, _, rest = judgement.partition("\t")
    if query in ids:
        return judgement
    return f"{ids[0]}\t{rest}" if len(ids) == 1 else None


def _words(line: str) -> str:
    """What a query says; the line itself where that is not in words."""
    try:
        return str(json.loads(line)["text"])
    except (ValueError, KeyError, TypeError):
        return line
