"""Words that lie beside a clip: subtitles and transcripts in .srt, .vtt, .json and .txt files."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.media.files import file_problem

SUFFIXES = (".srt", ".vtt", ".json", ".txt")
"""In the order of preference: those with times first."""

_CLOCK = r"(?:(\d+):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_CUE = re.compile(rf"^\s*{_CLOCK}\s*-->\s*{_CLOCK}")
_TOUCHING = 0.1  # seconds between two cues of which one rolls on into the other
_MARKUP = re.compile(r"<[^>]*>|\{\\[^}]*\}")  # <i>, <00:00:01.000>, <v Name>, {\an8}


class SidecarError(ValueError):
    """A file of words cannot be read; the message is one line that a list of problems can hold."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Words and when they are said.

    Args:
        start: in seconds.
        end: in seconds.
        text: the words.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """What is said in a clip.

    Args:
        text: all of it.
        cues: with times; empty where the file has none.
    """

    text: str
    cues: tuple[Cue, ...] = ()

    @classmethod
    def of(cls, cues: Sequence[Cue]) -> Words:
        """The words of cues; a line that rolls on from one subtitle to the next is kept once."""
        lines: list[str] = []
        before: list[str] = []
        until = -1.0
        for cue in cues:
            own = cue.text.splitlines()
            lines += [line for line in own if cue.start > until + _TOUCHING or line not in before]
            before, until = own, cue.end
        return cls(" ".join(lines), tuple(cues))

    def between(self, start: float, end: float) -> str | None:
        """The words of a window: cues whose middle lies in it, so that each stands in one of the windows
        that follow each other; None for words without times."""
        if not self.cues:
            return None
        return Words.of([cue for cue in self.cues if start <= (cue.start + cue.end) / 2 < end]).text


def read_words(path: Path) -> Words:
    """Reads a sidecar by its suffix.

    ``.json`` is what Whisper and its relatives write (an object with ``text``, and ``segments`` of ``start``,
    ``end``, ``text``), or a list of such segments.

    Raises:
        SidecarError: it cannot be read as what its name says.
    """
    if not path.is_file():  # a pipe would be read for ever
        raise SidecarError(file_problem(path))
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SidecarError(f"{path}: it cannot be read as UTF-8 text ({error})") from error
    suffix = path.suffix.lower()
    if suffix == ".txt":
        return Words(" ".join(content.split()))
    if suffix == ".json":
        return _words_of_json(path, content)
    cues = _cues(content)
    if not cues and content.replace("WEBVTT", "").strip():
        raise SidecarError(f"{path}: no line like 00:00:01,000 --> 00:00:02,000 in it; it holds no subtitles")
    return Words.of(cues)


def _cues(content: str) -> list[Cue]:
    """Cues of SubRip and WebVTT, which differ in what is ignored here: numbers, comma or point, styles."""
    cues: list[Cue] = []
    for block in re.split(r"\n\s*\n", content.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.split("\n")
        at = next((number for number, line in enumerate(lines) if _CUE.match(line)), None)
        if at is None:
            continue
        found = _CUE.match(lines[at])
        clock = found.groups() if found else ()
        spoken = [html.unescape(_MARKUP.sub("", line)).strip() for line in lines[at + 1 :]]
        text = "\n".join(" ".join(line.split()) for line in spoken if line)
        if text:
            cues.append(Cue(_seconds(clock[:4]), _seconds(clock[4:]), text))
    return sorted(cues, key=lambda cue: cue.start)


def _seconds(clock: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = clock
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0) + float(f"0.{fraction}")


def _words_of_json(path: Path, content: str) -> Words:
    try:
        found: Any = json.loads(content)
    except ValueError as error:
        raise SidecarError(f"{path}: it is not JSON ({error})") from error
    segments = found.get("segments") if isinstance(found, dict) else found
    if isinstance(segments, list) and segments:
        try:
            cues = [
                Cue(float(one["start"]), float(one["end"]), " ".join(str(one["text"]).split()))
                for one in segments
            ]
        except (TypeError, KeyError, ValueError) as error:
            raise SidecarError(f"{path}: a segment is not an object with start, end and text") from error
        return Words.of([cue for cue in cues if cue.text])
    text = found.get("text", found.get("transcript")) if isinstance(found, dict) else None
    if isinstance(text, str):
        return Words(" ".join(text.split()))
    raise SidecarError(f"{path}: neither `text` nor `segments` in it; expected what Whisper writes")
