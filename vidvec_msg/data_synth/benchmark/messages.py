"""The target messages: read from any table or text, checked, and kept as the build's first file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.benchmark.stage_file import Form, StageFile, source_of
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import rows_of
from vidvec_msg.runs import digest_of

FORM = Form(
    "messages", "messages", "id", ("id",), {"id": (str,), "topic": (str, None), "message": (str,)},
    "their row in --messages",
)  # fmt: skip

_IDS = ("id", "_id", "message_id")
_WORDS = ("message", "text")
_ID_CHARS = 8  # of a digest: two of a thousand messages share one with a chance of 0.01%


@dataclass(frozen=True, slots=True)
class Message:
    """A target message.

    Args:
        id: without spaces.
        topic: that it belongs to; empty if unknown.
        text: the message.
    """

    id: str
    topic: str
    text: str


def read_messages(path: Path) -> list[Message]:
    """Reads messages.

    A table (.jsonl, .csv, .parquet) has the columns ``message`` (or ``text``), and may have ``id`` (or
    ``_id``) and ``topic`` (or ``groups.topic``): the queries of a collection are one. A text (.txt, .md) has
    one message a line; a line that begins with ``#`` names the topic of those below it. A message without an
    id has one of its words: it stays the same wherever the message stands, and whatever stands beside it.

    Raises:
        RefusedRequest: with every problem of the file.
    """
    problems = Problems(f"messages {path}")
    rows = list(_of_text(path, problems) if path.suffix in (".txt", ".md") else _of_table(path, problems))
    if not rows and not problems.found:
        problems.add("no message in it; one row, or one line of a text, is one message")
    messages = []
    for where, row in rows:
        given = next((str(row[name]).strip() for name in _IDS if row.get(name) not in (None, "")), "")
        text = next((row[name] for name in _WORDS if row.get(name) not in (None, "")), None)
        if not isinstance(text, str) or not text.strip():
            problems.add(f"{where}: no message; it stands in the column message (or text)")
            continue
        if len(given.split()) > 1:
            problems.add(f"{where}: id {given!r} holds a space; ids go into files that spaces divide")
        groups = row.get("groups")
        topic = row.get("topic") or (groups.get("topic") if isinstance(groups, Mapping) else None) or ""
        text = " ".join(text.split())
        messages.append(Message(given or f"m{digest_of(text)[:_ID_CHARS]}", str(topic).strip(), text))
    for kind, values in (("id", [one.id for one in messages]), ("message", [one.text for one in messages])):
        for value, times in Counter(values).items():
            if times > 1:
                problems.add(f"{kind} {value!r} stands there {times} times")
    problems.refuse_if_any()
    return messages


def settled(messages: list[Message], file: StageFile) -> list[Message]:
    """The messages as the build's own file has them, in which a person may have changed or added some."""
    by_id = {one.id: one for one in messages}
    wanted = {one.id: source_of(one.id, one.topic, one.text) for one in messages}
    for unit, rows in file.units.items():
        if unit not in wanted and not any("made_from" in row for row in rows):
            wanted[unit] = ""  # a person's own
    units = file.settle(wanted, lambda ids: {one: [_row(by_id[one])] for one in ids})
    file.prune(list(wanted))
    found = [Message(row["id"], row.get("topic") or "", row["message"]) for [row] in units.values()]
    problems = Problems(str(file.path))
    for text, times in Counter(one.text for one in found).items():
        if times > 1:
            problems.add(f"message {text!r} stands there {times} times")
    problems.refuse_if_any()
    return found


def _row(message: Message) -> dict[str, Any]:
    return {"id": message.id, "topic": message.topic, "message": message.text}


def _of_table(path: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        yield from rows_of(path, problems)
    except RefusedRequest as refusal:
        problems.add(str(refusal))


def _of_text(path: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        problems.add("no such file; give a .jsonl, .csv, .parquet or .txt file")
        return
    except UnicodeDecodeError as error:
        problems.add(f"it is not UTF-8 ({error.reason} at byte {error.start}); convert it first")
        return
    topic = ""
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("#"):
            topic = line.lstrip().lstrip("#").strip()
        elif line.strip():
            yield f"line {number}", {"topic": topic, "message": line}
