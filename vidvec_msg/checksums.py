"""Checksums of what the toolkit writes: vectors, indexes, caches. They find damage, not forgery.

XXH3-128 costs little beside reading a file (benchmarks/bench_search.py opens indexes with it). A checksum
says how it was computed, ``xxh3_128:HEX`` or ``sha256:HEX``; one without a name is a SHA-256, as earlier
versions wrote it. Capitals do not matter, since some tools print them. What identifies something (weights,
training pairs, requests) is still a SHA-256, see :func:`vidvec_msg.runs.file_digest`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import xxhash

from vidvec_msg.errors import RefusedRequest

_BLOCK = 1 << 20  # bytes read at once
_OURS, _UNNAMED = "xxh3_128", "sha256"
_ALGORITHMS: dict[str, Callable[[], _Hash]] = {_OURS: xxhash.xxh3_128, _UNNAMED: hashlib.sha256}
_DIGITS = {name: 2 * make().digest_size for name, make in _ALGORITHMS.items()}


class _Hash(Protocol):
    @property
    def digest_size(self) -> int: ...
    def update(self, content: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class Checksum:
    """A checksum in the making.

    Args:
        like: the checksum that it will be compared with: it is computed the same way. Empty for a new one.

    Raises:
        RefusedRequest: ``like`` is none that this version knows.
    """

    def __init__(self, like: str = "") -> None:
        self._name = named(like).partition(":")[0] if like else _OURS
        self._hash = _ALGORITHMS[self._name]()

    def update(self, content: bytes | memoryview) -> None:
        """Takes the next bytes in."""
        self._hash.update(content)

    def __str__(self) -> str:
        return f"{self._name}:{self._hash.hexdigest()}"


def checksum(path: Path, *, like: str = "") -> str:
    """The checksum of a file.

    Args:
        path: the file.
        like: see :class:`Checksum`.
    """
    made = Checksum(like)
    block = bytearray(_BLOCK)
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(block):
            made.update(memoryview(block)[:size])
    return str(made)


def named(found: object) -> str:
    """A checksum with the name of its algorithm, which those of earlier versions lack, in lower case.

    Args:
        found: as it stands in a manifest, which another tool may have written.

    Raises:
        RefusedRequest: it is no checksum, or of an algorithm that this version does not know.
    """
    name, colon, digits = found.strip().lower().rpartition(":") if isinstance(found, str) else ("", "", "")
    name = name if colon else _UNNAMED
    if len(digits) == _DIGITS.get(name) and re.fullmatch("[0-9a-f]+", digits):
        return f"{name}:{digits}"
    known = ", ".join(f"{known}:HEX ({count} digits)" for known, count in _DIGITS.items())
    raise RefusedRequest(
        f"the checksum {found!r} is not known here; known are {known} and a bare SHA-256. If a newer version "
        "of vidvec-msg wrote it, update vidvec-msg; if another tool did, let it write one of these"
    )
