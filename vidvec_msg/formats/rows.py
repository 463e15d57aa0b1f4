"""One row of a collection's file: what it may hold, what it is refused for, and the item that it becomes.

- ``_id`` (a string, or an integer that becomes one) is unique on its side. It holds no tab, line break or
  other control character and no space at either end, because the qrels are tab-separated. Spaces inside
  are fine; the TREC files write them as ``%20``, as :mod:`vidvec_msg.formats.trec` says.
- Content is any of ``text``, ``title``, ``video``, ``image``, ``audio``, ``transcript``, ``ocr``. A null is
  the same as leaving the field out. A row without any is refused; a row whose text is blank (BEIR's
  corpora have some) is loaded, and the embedder records it as failed.
- Paths are relative to the folder. ``start`` and ``end`` are seconds; ``groups`` maps names to values.
- ``transcript_info`` and ``ocr_info`` say where a recognised text comes from; they are not read into items.
- Half of a surrogate pair (``\\ud83d`` alone, left where a text was cut inside an emoji) is refused:
  JSON can hold it, and neither UTF-8, Parquet nor a tokenizer can.
- Other fields (BEIR's ``metadata``, for instance) are ignored, except one that looks like a slip of the
  pen for a known one, such as ``texts``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems, nearest
from vidvec_msg.formats.items import Item

_TEXTS = ("text", "title", "transcript", "ocr")
_FILES = ("video", "image", "audio")
_SECONDS = ("start", "end")
_INFOS = ("transcript_info", "ocr_info")
FIELDS = ("_id", *_TEXTS, *_FILES, *_SECONDS, "groups", *_INFOS)

_TYPO = 0.82  # likeness above which an unknown field is taken for a slip: "texts" 0.89, "stars" 0.80


def scan_rows(path: Path, problems: Problems) -> Iterator[tuple[int, int, Any]]:
    """The rows of a JSONL file, blank lines left out.

    Yields:
        the line's number (the first is 1), the byte where it begins, and its JSON value. Lines that are not
        JSON are told to ``problems`` instead.
    """
    begin = 0
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if raw.strip():
                try:
                    yield number, begin, json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
                except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both
                    problems.add(f"{path.name}:{number}: not a JSON object ({error})")
            begin += len(raw)


def checked_item(row: object, where: str, root: Path, problems: Problems) -> Item | None:
    """The item of a row, or None after telling ``problems`` what is wrong with it.

    Args:
        row: its JSON value.
        where: file and line, for the message.
        root: folder that relative media paths start from, absolute.
        problems: gathers what is wrong.
    """
    if not isinstance(row, dict):
        problems.add(f"{where}: a JSON {type(row).__name__}; each line must be an object with an _id")
        return None
    before = len(problems.found)
    _check_field_names(row, where, problems)
    _check_identity(row, where, problems)
    for name in (*_TEXTS, *_FILES):
        _check_string(row, name, where, problems)
    _check_segment(row, where, problems)
    _check_groups(row, where, problems)
    _check_letters(row, where, problems)
    if len(problems.found) == before and all(row.get(name) is None for name in (*_TEXTS, *_FILES)):
        identity = str(row["_id"])
        problems.add(f"{where}: row {identity!r} has no content; give one of {', '.join((*_TEXTS, *_FILES))}")
    return item_of(row, root) if len(problems.found) == before else None


def item_of(row: Mapping[str, Any], root: Path) -> Item:
    """The item of a row that has passed the checks.

    Args:
        row: its JSON object.
        root: folder that relative media paths start from; an absolute path stays as it is.
    """
    get = row.get
    video, image, audio = get("video"), get("image"), get("audio")
    start, end = get("start"), get("end")
    groups = get("groups")
    return Item(
        str(row["_id"]),
        text=get("text"),
        title=get("title"),
        video=None if video is None else root / video,
        image=None if image is None else root / image,
        audio=None if audio is None else root / audio,
        start=None if start is None else float(start),
        end=None if end is None else float(end),
        transcript=get("transcript"),
        ocr=get("ocr"),
        groups={str(key): str(value) for key, value in groups.items() if value is not None} if groups else {},
    )


def _check_field_names(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    for name in row:
        if name in FIELDS or name == "id":
            continue
        near = nearest(name.lower(), FIELDS, likeness=_TYPO)
        if near is not None and near not in row:
            problems.add(f"{where}: unknown field {name!r} (did you mean {near!r}?)")


def _check_identity(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    value = row.get("_id")
    if isinstance(value, int) and not isinstance(value, bool):
        return
    if value is None:
        hint = "; it has an 'id', which must be called '_id'" if "id" in row else ""
        problems.add(f"{where}: no _id{hint}")
    elif not isinstance(value, str):
        problems.add(f"{where}: _id is {value!r}; it must be a string")
    elif not value or value != value.strip() or any(ord(c) < 32 or ord(c) == 127 for c in value):
        problems.add(
            f"{where}: _id {value!r} is empty, or has a space at an end, a tab or a control character; "
            "qrels files are tab-separated and cannot hold it"
        )


def _check_string(row: Mapping[str, Any], name: str, where: str, problems: Problems) -> None:
    value = row.get(name)
    if value is None or (isinstance(value, Path) and name in _FILES):
        return
    if not isinstance(value, str):
        problems.add(f"{where}: {name} is a {type(value).__name__}; it must be a string")
    elif name in _FILES and not value.strip():
        problems.add(f"{where}: {name} is an empty path; leave the field out instead")


def _check_segment(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    fine = []
    for name in _SECONDS:
        value = row.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value) and value >= 0:
            fine.append(float(value))
        else:
            problems.add(f"{where}: {name} is {value!r}; it must be a number of seconds, 0 or more")
    if len(fine) == len(_SECONDS) and fine[1] <= fine[0]:
        problems.add(f"{where}: end {fine[1]} is not after start {fine[0]} (both in seconds)")


def _check_groups(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    value = row.get("groups")
    if value is None:
        return
    if not isinstance(value, dict) or any(isinstance(v, dict | list) for v in value.values()):
        problems.add(f'{where}: groups is {value!r}; it must be a flat map such as {{"topic": "education"}}')


def _check_letters(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    """A lone surrogate would end a job hours later, where metadata is written."""
    for name in ("_id", *_TEXTS, *_FILES, "groups"):
        value = row.get(name)
        if value is None or (isinstance(value, str) and value.isascii()):
            continue
        text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict) else str(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            problems.add(
                f"{where}: {name} holds half of a surrogate pair ({half!a}), which cannot be written as "
                "UTF-8; take it out, or write the whole character"
            )
