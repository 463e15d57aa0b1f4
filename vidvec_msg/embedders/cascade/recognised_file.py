"""What was recognised once: an append-only file of JSON lines, each a key, a text and where it comes from.

A line is written in one piece, under a lock, as soon as it is known. A process that is killed leaves at most
a torn last line, which the next one cuts off. Failures are not written: the next run tries them again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from vidvec_msg.errors import RefusedRequest


@dataclass(frozen=True, slots=True)
class Recognised:
    """A text that was recognised.

    Args:
        text: empty where there is nothing to recognise.
        info: engine, model, version, and what the engine says about its own certainty; JSON-like.
    """

    text: str
    info: Mapping[str, Any] = field(default_factory=dict)


class RecognisedFile:
    """One such file; safe for several threads, and for several processes (each sees its own lines and those
    that were there when it began).

    Args:
        path: made with the first line.

    Raises:
        RefusedRequest: the file or its folder cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[str, Recognised] = {}
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.is_file() else b""
        except OSError as error:
            raise RefusedRequest(
                f"{path}, which keeps what was recognised, cannot be used ({error.strerror})"
            ) from error
        self._between_processes = FileLock(str(path.with_name(f".{path.name}.lock")))
        for line in content.split(b"\n")[:-1]:  # what follows the last line break was torn by a kill
            record = _record(line)
            if record is not None:
                self._found[record[0]] = record[1]

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Recognised | None:
        """What was recognised under a key."""
        return self._found.get(key)

    def put(self, key: str, found: Recognised) -> None:
        """Appends a line at once."""
        content = {"key": key, "text": found.text, "info": dict(found.info)}
        line = json.dumps(content, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        with self._lock, self._between_processes, self.path.open("ab+") as stream:
            stream.truncate(_end_of_whole_lines(stream.seek(0, 2), stream))
            stream.write(line)
            self._found[key] = found


def _end_of_whole_lines(size: int, stream: Any) -> int:
    """Where the last whole line ends; what follows was torn by a kill, and nobody else writes now."""
    end = size
    while end:
        begin = max(end - 65_536, 0)
        stream.seek(begin)
        newline = stream.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return int(begin + newline + 1)
        end = begin
    return 0


def _record(line: bytes) -> tuple[str, Recognised] | None:
    try:
        content = json.loads(line)
        return str(content["key"]), Recognised(str(content["text"]), dict(content["info"]))
    except (ValueError, KeyError, TypeError):
        return None
