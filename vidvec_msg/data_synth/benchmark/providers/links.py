"""Clips from a list of links that the user has: a table, searched by words or by any embedder."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.data_synth.benchmark.providers.contract import (
    Clip,
    Wanted,
    seconds_of,
    too_long,
    youtube_address,
    youtube_id,
)  # fmt: skip
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.data_synth.filters.meaning import vectors_of
from vidvec_msg.data_synth.filters.words import content_stems, stems_of, words_of
from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import Problems, did_you_mean
from vidvec_msg.formats.pairs import rows_of
from vidvec_msg.runs import file_digest

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_VIDEO, _ID, _LENGTH = ("video", "url", "link"), ("clip_id", "id", "_id"), ("duration", "seconds", "length")


@dataclass(frozen=True, slots=True)
class Link:
    """A row of the list.

    Args:
        clip: what it says of the clip.
        message_id: of the message that it was found for; empty for any.
    """

    clip: Clip
    message_id: str


def read_links(path: Path, problems: Problems) -> list[Link]:
    """Reads a list; what is wrong with it is noted.

    Columns: ``video`` (or ``url``, ``link``: an address, or a path relative to the table), and, where there
    are any, ``clip_id``, ``title``, ``description``, ``transcript``, ``duration`` (seconds, 1:03 or PT1M3S),
    ``channel``, and ``message_id``, which makes the row a candidate of that message alone.
    """
    inside = Problems(f"links {path}")
    links: list[Link] = []
    for where, row in rows_of(path, inside):
        link = _link(row, where, path.resolve().parent, inside)
        if link is not None:
            links.append(link)
    if not links and not inside.found:
        inside.add("it holds no row; each is a clip")
    videos: dict[str, str | None] = {}
    for link in links:
        if videos.setdefault(link.clip.id, link.clip.video) != link.clip.video:
            inside.add(
                f"clip_id {link.clip.id!r} has two videos: {videos[link.clip.id]} and {link.clip.video}"
            )
    for (identity, message), times in Counter((one.clip.id, one.message_id) for one in links).items():
        if times > 1:
            of = f" for message {message!r}" if message else ""
            inside.add(f"clip {identity!r} stands there {times} times{of}")
    for problem in inside.found:
        problems.add(f"{inside.subject}: {problem}")
    return links


def _link(row: Mapping[str, Any], where: str, folder: Path, problems: Problems) -> Link | None:
    video = _cell(row, _VIDEO)
    if not video:
        problems.add(f"{where}: no {', '.join(_VIDEO)}; one of these columns holds the clip's address")
        return None
    written = _cell(row, _LENGTH)
    duration = seconds_of(written) if written else None
    if written and duration is None:
        problems.add(f"{where}: duration is {written!r}; it must be seconds, 1:03 or PT1M3S")
    reason = ""
    identity = _cell(row, _ID)
    if found := youtube_id(video) if _ADDRESS.match(video) or "/" in video else None:
        video, identity = youtube_address(found), identity or found
    elif not _ADDRESS.match(video):
        path = (folder / video).resolve()
        reason = "" if path.is_file() else f"no file: {path}"
        video, identity = str(path), identity or path.stem
    identity = identity or "link-" + blake2b(video.encode(), digest_size=5).hexdigest()
    words = [_cell(row, ("description", "text")), _cell(row, ("transcript",))]
    about = {name: said for name in ("channel", "transcript") if (said := _cell(row, (name,)))}
    clip = Clip(
        identity, video, _cell(row, ("title",)), "\n".join(one for one in words if one), duration,
        about or None, reason,
    )  # fmt: skip
    return Link(clip, _cell(row, ("message_id",)))


def _cell(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these columns that says something."""
    return next((str(row[name]).strip() for name in names if str(row.get(name) or "").strip()), "")


@dataclass(slots=True)
class Links:
    """Searches a list.

    Args:
        path: of the list.
        links: its rows.
        vectors: of the embedder; without one, a clip is found by the words that it shares with a query.
    """

    path: Path
    links: Sequence[Link]
    vectors: MessageVectors
    name: str = field(init=False, default="links")
    _embedded: Vectors | None = field(init=False, repr=False, default=None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`."""
        return {"file": file_digest(self.path), "embedder": self.vectors.identity}

    def search(self, wanted: Wanted) -> Sequence[Clip]:
        """Clips that the list names for the message, and then those that fit the query.

        See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`.
        """
        own = [link.clip for link in self.links if link.message_id == wanted.message_id]
        found = [*own, *(self.links[row].clip for row in self._nearest(wanted.query))]
        clips, usable = [], 0
        for clip in {clip.id: clip for clip in found}.values():
            reason = clip.left_out or too_long(clip.duration, wanted.max_seconds)
            clips.append(
                Clip(clip.id, clip.video, clip.title, clip.description, clip.duration, clip.about, reason)
            )
            usable += not reason
            if usable == wanted.limit:
                break
        return clips

    def tell_unused(self, known: Collection[str]) -> None:
        """Warns of rows that name a message which is not known: they are nobody's candidates."""
        strange = [one.message_id for one in self.links if one.message_id and one.message_id not in known]
        if strange:
            log.warning(
                "links %s: %d rows are of messages that there are not, such as %r%s, and are nobody's "
                "candidates", self.path, len(strange), strange[0], did_you_mean(strange[0], known),
            )  # fmt: skip

    def most(self, searches: int) -> str:
        """Nothing."""
        return ""

    def close(self) -> None:
        """Nothing is open."""

    def _nearest(self, query: str) -> list[int]:
        """Rows that were found for no message in particular, best first."""
        free = [row for row, link in enumerate(self.links) if not link.message_id]
        known = self.vectors.vectors() if free else None
        if known is None:
            asked = content_stems(words_of(query))
            scores = {
                row: len(set(asked) & set(stems_of(words_of(_words(self.links[row].clip))))) for row in free
            }
            return sorted((row for row in free if scores[row]), key=lambda row: (-scores[row], row))
        if self._embedded is None:
            texts = [_words(self.links[row].clip) for row in free]
            self._embedded = vectors_of(texts, known.embedder, role="document")
        [vector] = vectors_of([query], known.embedder)  # (dim,)
        cosines = self._embedded @ vector  # (free,)
        return [free[place] for place in np.argsort(-cosines, kind="stable").tolist()]


def _words(clip: Clip) -> str:
    """What is known of a clip in words; never empty."""
    return f"{clip.title}\n{clip.description}".strip() or clip.id
