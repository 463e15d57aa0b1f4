"""A file whose SHA-256 is known once it is written or read: nobody reads it again to hash it."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

_BLOCK = 1 << 20  # bytes that are read or written, and hashed, at once
_WAITING = 8  # blocks that may wait to be hashed


class HashedFile:
    """A new file, written front to back; hashing goes on beside the writing, in a thread.

    ``digest`` is there when the file is closed; as a context manager it closes itself.

    Args:
        path: the file; one that is there is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.digest = ""
        self._hashing = _Hashing()
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
        if isinstance(content, bytes) and len(content) <= _BLOCK:
            self._put(content)  # nobody can change it meanwhile: no copy
            return
        for first in range(0, len(view), _BLOCK):
            self._put(bytes(view[first : first + _BLOCK]))

    def _flush(self) -> None:
        if self._buffer:
            self._put(bytes(self._buffer))
            self._buffer.clear()

    def _put(self, block: bytes) -> None:
        self._hashing.add(block)
        written = 0
        while written < len(block):
            written += self._stream.write(memoryview(block)[written:]) or 0

    def close(self, *, whole: bool = True) -> None:
        """Ends the file; ``digest`` is there afterwards if it is ``whole``."""
        try:
            if whole:
                self._flush()
        finally:
            digest = self._hashing.close()
            self._stream.close()
        if whole:
            self.digest = digest

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None)


class HashedReader:
    """A file, read front to back; hashing goes on beside the reading, in a thread.

    ``digest``, of the whole file, is there when the reader is closed, however far it was read; as a context
    manager it closes itself.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.digest = ""
        self._stream = path.open("rb", buffering=0)
        self._hashing = _Hashing()
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
        block = self._stream.read(_BLOCK)
        self._hashing.add(block)
        self._block = memoryview(block)
        return bool(block)

    def close(self, *, whole: bool = True) -> None:
        """Hashes what was not read, if it is to know the ``whole`` file, and ends."""
        try:
            while whole and self._fill():
                pass
        finally:
            digest = self._hashing.close()
            self._stream.close()
        if whole:
            self.digest = digest

    def __enter__(self) -> HashedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None or issubclass(kind, Exception))  # Ctrl-C does not wait for the disk


class _Hashing:
    """SHA-256 of blocks, in a thread: hashlib lets other threads run meanwhile, as reading and writing do."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._waiting: deque[Future[None]] = deque()

    def add(self, block: bytes) -> None:
        self._waiting.append(self._thread.submit(self._sha256.update, block))
        while len(self._waiting) > _WAITING:
            self._waiting.popleft().result()

    def close(self) -> str:
        """Ends the thread; the digest of all blocks, in hex."""
        self._thread.shutdown()
        return self._sha256.hexdigest()
