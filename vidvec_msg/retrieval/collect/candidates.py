"""What a source offers for a collection, before anybody has looked into its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vidvec_msg.media.facts import Medium

MEDIA: tuple[Medium, ...] = ("video", "image", "audio")


@dataclass(slots=True)
class Candidate:
    """A row to be.

    Args:
        id: unique in its source.
        where: the file or row that it comes from, for messages.
        media: file per medium, absolute.
        fields: text, title, transcript, ocr, start, end, and whatever else the source keeps in its rows.
        groups: for reports per group.
        sidecar: words beside a clip.
        asked: texts that ask for this row.
        unpack: contents of media that the source holds inside itself: medium → suffix and bytes.
    """

    id: str
    where: str
    media: dict[Medium, Path] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    sidecar: Path | None = None
    asked: list[str] = field(default_factory=list)
    unpack: Mapping[Medium, tuple[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of a source that does not become a row.

    Args:
        where: the file or row.
        reason: in one line.
        broken: it was meant to be a row; counts as a failure.
    """

    where: str
    reason: str
    broken: bool = False


def clean_id(text: str) -> str:
    """An id that a TSV can hold: control characters and spaces at the ends are percent-encoded."""
    inner = "".join(quote(char) if ord(char) < 32 or ord(char) == 127 else char for char in text)
    head = inner[: len(inner) - len(inner.lstrip())]
    tail = inner[len(inner.rstrip()) :] if inner.strip() else ""
    return quote(head) + inner.strip() + quote(tail)


def relative(path: Path, folder: Path) -> str:
    """How a row of the folder names a file: relative where both are on one drive, with forward slashes."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive of Windows
        return path.as_posix()
