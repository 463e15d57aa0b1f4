"""Answers that were paid for: append-only JSON lines, each flushed as soon as it is known.

A folder of one kind of question::

    NAME.jsonl            usable answers: key of the request, what was made of the answer, raw text, tokens
    NAME_failed.jsonl     answers that could not be used and requests that were refused: reason and raw text

Only usable answers count as answered: a failure of yesterday is asked again today. A process that is killed
leaves at most a torn last line, which the next one cuts off, and whose request it asks again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

from filelock import FileLock, Timeout

from vidvec_msg.data_synth.chat import Tally
from vidvec_msg.errors import RefusedRequest

Record = dict[str, Any]


class ReplyStore:
    """The answers to one kind of question, open for writing; a context manager.

    Memory holds the keys (about 120 bytes each), not the answers.

    Args:
        folder: made if it is not there.
        name: of the kind.

    Raises:
        RefusedRequest: another process writes there.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.failed_path = folder / f"{name}_failed.jsonl"
        self.answered: set[str] = set()
        self.spent = Tally()  # by this kind of question
        self.elsewhere = 0.0  # dollars that the other kinds in the folder cost
        self._streams: list[IO[bytes]] = []
        self._lock = FileLock(str(folder / f".{name}.lock"))

    def __enter__(self) -> Self:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RefusedRequest(
                f"{self.path.parent} is being written by another process; wait for it, or give another --out"
            ) from None
        for path in (self.path, self.failed_path):
            _cut_torn_line(path)
            for record in read_records(path):
                if path == self.path:
                    if record["key"] in self.answered:
                        continue
                    self.answered.add(record["key"])
                self.spent.add(record.get("in", 0), record.get("out", 0), record.get("dollars", 0.0))
        for path in self.path.parent.glob("*.jsonl"):
            if path not in (self.path, self.failed_path):
                self.elsewhere += sum(record.get("dollars", 0.0) for record in read_records(path))
        self._streams = [path.open("ab", buffering=0) for path in (self.path, self.failed_path)]
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            os.fsync(stream.fileno())
            stream.close()
        self._streams = []
        self._lock.release()

    @property
    def dollars(self) -> float:
        """Spent in the folder so far."""
        return self.spent.dollars + self.elsewhere

    def keep(self, record: Record) -> None:
        """Appends a usable answer; one whose key is there already is dropped."""
        if record["key"] not in self.answered:
            self.answered.add(record["key"])
            self._append(0, record)

    def keep_failed(self, record: Record) -> None:
        """Appends what could not be used."""
        self._append(1, record)

    def _append(self, which: int, record: Record) -> None:
        # one unbuffered write: it is in the system's hands when the call returns, whatever happens to us
        self._streams[which].write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self.spent.add(record.get("in", 0), record.get("out", 0), record.get("dollars", 0.0))


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file, one after the other; none if there is no file. Damaged lines count as absent."""
    if not path.is_file():
        return
    with path.open("rb") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("key"), str):
                yield record


def _cut_torn_line(path: Path) -> None:
    """Cuts what a killed process left after the last line break."""
    if not path.is_file():
        return
    with path.open("rb+") as stream:
        end = stream.seek(0, os.SEEK_END)
        keep = end
        while keep:
            begin = max(0, keep - 65536)
            stream.seek(begin)
            found = stream.read(keep - begin).rfind(b"\n")
            if found >= 0:
                keep = begin + found + 1
                break
            keep = begin
        if keep < end:
            stream.truncate(keep)
