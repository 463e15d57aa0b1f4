"""One row of a corpus or of a query file: an id, and content in any modality."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from vidvec_msg.formats.kept_digests import kept_or_made

Modality = Literal["text", "image", "video", "audio"]
Pixels = npt.NDArray[np.uint8]

_WORDS = ("text", "title", "transcript", "ocr", "start", "end", "fps")
_MEDIA = ("video", "image", "audio")
_SAMPLED_BYTES = 1 << 16  # bytes hashed at each end of a media file


@dataclass(frozen=True, slots=True)
class Item:
    """Something to embed.

    Args:
        id: unique on its side of a collection.
        text: the text itself, or words that accompany the media.
        title: BEIR's title, placed before the text.
        video: a file, or frames in memory as uint8 ``(frames, height, width, 3)``.
        image: a file, or pixels in memory as uint8 ``(height, width, 3)``.
        audio: a file.
        start: first second of the segment, from the beginning of the file.
        end: last second of the segment.
        fps: frames per second of in-memory frames; files know their own.
        transcript: what is said in the clip.
        ocr: what is written in the clip.
        groups: for reports per group, for example ``{"topic": "education"}``.
    """

    id: str
    text: str | None = None
    title: str | None = None
    video: Path | Pixels | None = None
    image: Path | Pixels | None = None
    audio: Path | None = None
    start: float | None = None
    end: float | None = None
    fps: float | None = None
    transcript: str | None = None
    ocr: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def modality(self) -> Modality:
        """The medium that carries the item: video before image before audio before text."""
        if self.video is not None:
            return "video"
        if self.image is not None:
            return "image"
        if self.audio is not None:
            return "audio"
        return "text"

    @property
    def full_text(self) -> str:
        """Title and text, joined as BEIR does (a space), stripped; empty if there is none."""
        return " ".join(part.strip() for part in (self.title, self.text) if part and part.strip())


def item_digest(item: Item) -> str:
    """SHA-256 over everything that can change the item's vector; part of every cache key.

    A media file counts by its name, size and the bytes at both of its ends, so that a corpus of large
    files is hashed at the speed of its directory listing; within
    :func:`~vidvec_msg.formats.kept_digests.digests_kept_in`, one that has not changed is not read again.

    Raises:
        FileNotFoundError: a media file is missing.
    """
    words = "".join(f"{name}={getattr(item, name)!r}\0" for name in _WORDS).encode()
    sources = {name: source for name in _MEDIA if (source := getattr(item, name)) is not None}
    files = [source for source in sources.values() if isinstance(source, Path)]
    if not files or len(files) < len(
        sources
    ):  # frames in memory are cheap to hash, and known by nothing else
        return _digest(words, sources)
    return kept_or_made(words + repr([*sources]).encode(), files, lambda: _digest(words, sources))


def _digest(words: bytes, sources: Mapping[str, Path | Pixels]) -> str:
    digest = hashlib.sha256(words)
    for name, source in sources.items():
        digest.update(f"{name}\0".encode())
        if isinstance(source, np.ndarray):
            digest.update(f"{source.shape}{source.dtype}".encode())
            digest.update(np.ascontiguousarray(source).tobytes())
        else:
            _hash_file_ends(digest, source)
    return digest.hexdigest()


def _hash_file_ends(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    digest.update(f"{path.name}\0{size}\0".encode())
    with path.open("rb") as stream:
        digest.update(stream.read(_SAMPLED_BYTES))
        if size > 2 * _SAMPLED_BYTES:
            stream.seek(-_SAMPLED_BYTES, 2)
        digest.update(stream.read(_SAMPLED_BYTES))
