"""A file whose checksum is known once it is written or read: nobody reads it again for that."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from vidvec_msg.checksums import Checksum

_BLOCK = 1 << 20  # bytes that are read or written at once


class HashedFile:
    """A new file, written front to back.

    ``checksum`` is there when the file is closed; as a context manager it closes itself.

    Args:
        path: the file; one that is there is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.checksum = ""
        self._made = Checksum()
        self._stream = path.open("wb", buffering=0)
        self._buffer = bytearray()

    def write(self, content: Any) -> None:
        """Writes bytes, or whatever has a buffer of them.

        Raises:
            OSError: as ``write`` of the system: the disk is full, for example.
        """
        view = memoryview(content).cast("B")
        if len(self._buffer) + len(view) < _BLOCK:
            self._buffer += view  # many small pieces become one block
            return
        self._flush()
        self._put(view)

    def _flush(self) -> None:
        if self._buffer:
            self._put(memoryview(self._buffer))
            self._buffer = bytearray()

    def _put(self, content: memoryview) -> None:
        for first in range(0, len(content), _BLOCK):  # hashed while a core's cache still holds it
            block = content[first : first + _BLOCK]
            self._made.update(block)
            while block:
                block = block[self._stream.write(block) or 0 :]

    def close(self, *, whole: bool = True) -> None:
        """Ends the file; ``checksum`` is there afterwards if it is ``whole``."""
        try:
            if whole:
                self._flush()
        finally:
            self._stream.close()
        if whole:
            self.checksum = str(self._made)

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None)


class HashedReader:
    """A file, read front to back.

    ``checksum``, of the whole file, is there when the reader is closed, however far it was read; as a
    context manager it closes itself.

    Args:
        path: the file.
        like: the checksum that it is compared with, see :class:`vidvec_msg.checksums.Checksum`.
    """

    def __init__(self, path: Path, *, like: str = "") -> None:
        self.checksum = ""
        self._made = Checksum(like)
        self._stream = path.open("rb", buffering=0)
        self._block = memoryview(b"")  # what was read from the disk and not asked for yet

    def read(self, size: int) -> bytes:
        """The next bytes, ``size`` of them, or fewer at the end of the file."""
        parts = []
        while size > 0 and (self._block or self._fill()):
            part = self._block[:size]
            self._block = self._block[len(part) :]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _fill(self) -> bool:
        self._block = memoryview(self._stream.read(_BLOCK))
        self._made.update(self._block)
        return bool(self._block)

    def close(self, *, whole: bool = True) -> None:
        """Reads what was not read, if it is to know the ``whole`` file, and ends."""
        try:
            while whole and self._fill():
                pass
        finally:
            self._stream.close()
        if whole:
            self.checksum = str(self._made)

    def __enter__(self) -> HashedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None or issubclass(kind, Exception))  # Ctrl-C does not wait for the disk
