"""Checksums of what the toolkit writes: vectors, indexes, caches. They find damage, not forgery.

XXH3-128 takes a tenth of SHA-256's time, which for an index of gigabytes is what opening it costs. A checksum
says how it was computed, ``xxh3_128:HEX`` or ``sha256:HEX``; one without a name is a SHA-256, as earlier
versions wrote it. What identifies something (weights, training pairs, requests) is still a SHA-256, see
:func:`vidvec_msg.runs.file_digest`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import xxhash

from vidvec_msg.errors import RefusedRequest

_BLOCK = 1 << 20  # bytes read at once
_OURS, _UNNAMED = "xxh3_128", "sha256"
_ALGORITHMS: dict[str, Callable[[], _Hash]] = {_OURS: xxhash.xxh3_128, _UNNAMED: hashlib.sha256}


class _Hash(Protocol):
    def update(self, content: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class Checksum:
    """A checksum in the making.

    Args:
        like: the checksum that it will be compared with: it is computed the same way. Empty for a new one.

    Raises:
        RefusedRequest: ``like`` was computed in a way that this version does not know.
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


def named(found: str) -> str:
    """A checksum with the name of its algorithm, which those of earlier versions lack.

    Raises:
        RefusedRequest: this version does not know the algorithm.
    """
    name, colon, _ = found.rpartition(":")
    if not colon:
        return f"{_UNNAMED}:{found}"
    if name not in _ALGORITHMS:
        raise RefusedRequest(
            f"a checksum of the kind {name!r} is not known here (known: {', '.join(_ALGORITHMS)}); the "
            "folder was written by a newer version of vidvec-msg: update it."
        )
    return found
