"""The contract of a provider of clips, and what it gives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qs, urlsplit

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import JobFailed

_YOUTUBE_ID = re.compile(r"[\w-]{11}")
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Clip:
    """A candidate. Nothing of it is downloaded.

    Args:
        id: without spaces, unique with its provider.
        video: address or absolute path; None for a text that stands for a clip, which ``about`` holds.
        title: empty if unknown.
        description: words about the clip, its transcript included where that is known.
        duration: seconds; None if unknown.
        about: further fields of its rows: channel, start, end (seconds), transcript, ocr, text.
        left_out: why it cannot be a candidate; empty if it can.
    """

    id: str
    video: str | None
    title: str = ""
    description: str = ""
    duration: float | None = None
    about: Mapping[str, Any] | None = None
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched for.

    Args:
        query: the words.
        message_id: of the message behind it, for lists that say which clip was found for which message.
        limit: clips that can be candidates.
        max_seconds: that a candidate is shorter than.
    """

    query: str
    message_id: str
    limit: int
    max_seconds: float


class Exhausted(JobFailed):
    """A provider gives no more for now; the same command goes on later."""


class Provider(Protocol):
    """Finds clips."""

    @property
    def name(self) -> str:
        """Stands in every row that it found."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Whatever decides, beside the query, what it finds; a change of it makes searches anew."""
        ...

    def search(self, wanted: Wanted) -> Sequence[Clip]:
        """Clips for a query, best first; those that cannot be candidates are among them, with the reason.

        Raises:
            Exhausted: a quota is used up.
            RefusedRequest: the provider refuses.
            JobFailed: it does not answer.
        """
        ...

    def most(self, searches: int) -> str:
        """What so many searches cost at most, in words; empty if nothing."""
        ...

    def close(self) -> None:
        """Ends what it holds open."""
        ...


@runtime_checkable
class Embeds(Protocol):
    """A provider that has embedded its clips, with the embedder of the build."""

    def vector(self, clip: Clip) -> Vectors | None:
        """The clip's vector, (dim,), of norm 1; None if there is none of just this clip, or no exact one."""
        ...


def youtube_id(address: str) -> str | None:
    """The video's id in any form of a YouTube address; None if it is none."""
    parts = urlsplit(address if "//" in address else f"https://{address}")
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.").removeprefix("music.")
    path = [part for part in parts.path.split("/") if part]
    found: str | None = None
    if host == "youtu.be" and path:
        found = path[0]
    elif host in ("youtube.com", "youtube-nocookie.com"):
        if path[:1] == ["watch"]:
            found = (parse_qs(parts.query).get("v") or [""])[0]
        elif len(path) > 1 and path[0] in ("shorts", "embed", "live", "v"):
            found = path[1]
    return found if found and _YOUTUBE_ID.fullmatch(found) else None


def youtube_address(video_id: str) -> str:
    """The usual address of a video."""
    return f"https://www.youtube.com/watch?v={video_id}"


def seconds_of(text: str) -> float | None:
    """A length in seconds from ``PT1M3S`` (ISO 8601, as YouTube writes it), ``1:03``, or ``63``.

    Returns:
        None if it is none of these.
    """
    text = text.strip()
    if text[:1] == "P" and text[-1:] not in ("P", "T"):
        found = _ISO.fullmatch(text)
        if found is None:
            return None
        weeks, days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return (((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if found := _CLOCK.fullmatch(text):
        return (int(found[1] or 0) * 60 + int(found[2])) * 60 + float(found[3])
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def too_long(duration: float | None, max_seconds: float) -> str:
    """Why a clip of this length is none; empty if it is one, or if its length is unknown."""
    if duration is None or duration < max_seconds:
        return ""
    return f"too long: {duration:g} s, not under {max_seconds:g} s"
