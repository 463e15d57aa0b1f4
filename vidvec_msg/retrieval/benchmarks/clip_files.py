"""The files of a folder of clips, found by the names that annotations use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from vidvec_msg.media.facts import medium_of_name

_YOUTUBE = re.compile(r"(?:youtu\.be/|[?&]v=|/shorts/|/embed/)([\w-]{11})")


class ClipFiles:
    """Clips and sounds below a folder.

    A file is found by its path below the folder, by its name, or by its name without the suffix, in that
    order. A name that several files have finds none of them: the first would often be the wrong one.

    Args:
        folder: looked through once, links to folders not followed; hidden files are passed over.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: tuple[dict[str, list[Path]], ...] = ({}, {}, {}, {})
        for path in sorted(_media(folder)):
            below = path.relative_to(folder)
            names = (below.as_posix(), below.with_suffix("").as_posix(), path.name, path.stem)
            for known, name in zip(self._known, names, strict=True):
                known.setdefault(name, []).append(path)

    def __len__(self) -> int:
        return len(self._known[0])

    def find(self, names: Sequence[str]) -> tuple[Path | None, str]:
        """The file of a clip, or why there is none.

        Args:
            names: what it may be called, the likeliest first.
        """
        for name in names:
            for known in self._known:
                found = known.get(name, [])
                if len(found) == 1:
                    return found[0], ""
                if found:
                    shown = ", ".join(path.relative_to(self.folder).as_posix() for path in found[:3])
                    return None, f"{len(found)} files are called {name!r}: {shown}"
        return None, f"no file called {' or '.join(map(repr, names))} below {self.folder}"


def _media(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if not name.startswith(".") and medium_of_name(path) in ("video", "audio"):
                yield path


def file_names(text: str) -> tuple[str, ...]:
    """What the file of a clip may be called whose annotation holds a file's name, an id or an address.

    Args:
        text: ``clips/a.mp4``, ``a.mp4``, ``a``, or an address of YouTube, whose id is then the name.
    """
    if "://" in text or _YOUTUBE.search(text):
        return (clip_id(text),)
    return tuple(dict.fromkeys((text, clip_id(text), Path(text).name, Path(clip_id(text)).name)))


def clip_id(text: str) -> str:
    """An id for a clip of which the annotation holds no other: the YouTube id, or the path without suffix."""
    if found := _YOUTUBE.search(text):
        return found[1]
    if "://" in text:
        return text.rstrip("/").rpartition("/")[2]
    return Path(text).with_suffix("").as_posix() if medium_of_name(Path(text)) else text
