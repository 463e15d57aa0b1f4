"""The candidates of a benchmark: which clip may convey which message, one row of ``ranked.jsonl`` each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems
from vidvec_msg.formats.rows import scan_rows
from vidvec_msg.retrieval.collect.candidates import clean_id
from vidvec_msg.runs import digest_of

_NEEDED = ("message_id", "message", "clip_id")
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_TASK_CHARS = 12  # of a digest: two of a million tasks share one with a chance of 0.2%


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clip that may convey a message.

    Args:
        message_id: of the message.
        message: its words.
        topic: of the message; empty if it has none.
        clip_id: of the clip.
        video: its address, or the path of a file; empty for a candidate that is a text (``text`` of the row).
        row: the whole row: title, description, duration, source, rank, …
        file: the file of ``video``; None if that is an address or no file.
    """

    message_id: str
    message: str
    topic: str
    clip_id: str
    video: str
    row: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    @property
    def task(self) -> str:
        """Id of the question whether this clip conveys this message; another wording is another question."""
        return "t" + digest_of([self.message_id, self.message, self.clip_id])[:_TASK_CHARS]

    @property
    def address(self) -> str:
        """Where a person can watch the clip on the web; empty for files, and for other schemes than http."""
        return self.video if re.match("https?://", self.video, re.IGNORECASE) else ""

    def get(self, name: str) -> str:
        """A further field as text; empty if there is none."""
        value = self.row.get(name)
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)


def read_candidates(path: Path) -> list[Candidate]:
    """The candidates in the order of the file.

    Args:
        path: JSON lines with message_id, message, clip_id, video (or text, of what is no clip), and further
            fields. Paths of clips are relative to its folder.

    Raises:
        RefusedRequest: every problem in one message: no file, rows without these fields, ids that a qrels
            file cannot hold, a candidate twice, one message id with two texts, one clip id with two videos.
    """
    problems = Problems(f"candidates {path}")
    if not path.is_file():
        problems.add("there is no such file; `vidvec-msg build-benchmark` writes ranked.jsonl")
        problems.refuse_if_any()
    found: dict[tuple[str, str], Candidate] = {}
    messages: dict[str, str] = {}
    videos: dict[str, str] = {}
    for number, _, row in scan_rows(path, problems):
        where = f"{path.name}:{number}"
        one = _candidate(row, where, path.parent, problems)
        if one is None:
            continue
        if found.setdefault((one.message_id, one.clip_id), one) is not one:
            problems.add(f"{where}: clip {one.clip_id!r} is a candidate of {one.message_id!r} twice")
        if messages.setdefault(one.message_id, one.message) != one.message:
            problems.add(f"{where}: message {one.message_id!r} has another text than in a row above")
        if videos.setdefault(one.clip_id, one.video) != one.video:
            problems.add(f"{where}: clip {one.clip_id!r} has another video than in a row above")
    if not found and not problems.found:
        problems.add("it holds no row")
    problems.refuse_if_any()
    return list(found.values())


def _candidate(row: object, where: str, folder: Path, problems: Problems) -> Candidate | None:
    if not isinstance(row, dict):
        problems.add(f"{where}: a JSON {type(row).__name__}; each line must be an object")
        return None
    missing = [name for name in _NEEDED if not _said(row, name)]
    if not _said(row, "video") and not _said(row, "text"):
        missing.append("video (or text)")
    if missing:
        problems.add(f"{where}: without {', '.join(missing)}, which must be texts")
        return None
    odd = [name for name in ("message_id", "clip_id") if clean_id(row[name]) != row[name]]
    if odd:
        problems.add(f"{where}: {odd[0]} {row[odd[0]]!r} has a control character, or a space at an end")
        return None
    video = row["video"].strip() if _said(row, "video") else ""
    file = None if not video or _ADDRESS.match(video) else (folder / video).resolve()
    topic = row.get("topic")
    return Candidate(
        row["message_id"],
        " ".join(row["message"].split()),
        topic if isinstance(topic, str) else "",
        row["clip_id"],
        video,
        row,
        file if file is not None and file.is_file() else None,
    )


def _said(row: Mapping[str, Any], name: str) -> bool:
    return isinstance(row.get(name), str) and bool(row[name].strip())


def first_of_each(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """The first candidates of each message, in the order of the file; all of them if ``most`` is 0."""
    seen: dict[str, int] = {}
    kept = []
    for one in candidates:
        seen[one.message_id] = seen.get(one.message_id, 0) + 1
        if not most or seen[one.message_id] <= most:
            kept.append(one)
    return kept
