"""A file whose SHA-256 is known when it is written: nobody reads it again to hash it."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

_BLOCK = 1 << 20  # bytes that are written and hashed at once
_WAITING = 8  # blocks that may wait to be hashed


class HashedFile:
    """A new file, written front to back; hashing goes on beside the writing, in a thread.

    ``digest`` is there when the file is closed; as a context manager it closes itself.

    Args:
        path: the file; one that is there is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.digest = ""
        self._sha256 = hashlib.sha256()
        self._hashing = ThreadPoolExecutor(max_workers=1)
        self._waiting: deque[Future[None]] = deque()
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
        # hashlib lets other threads run meanwhile, as writing does
        self._waiting.append(self._hashing.submit(self._sha256.update, block))
        while len(self._waiting) > _WAITING:
            self._waiting.popleft().result()
        written = 0
        while written < len(block):
            written += self._stream.write(memoryview(block)[written:]) or 0

    def close(self, *, whole: bool = True) -> None:
        """Ends the file; ``digest`` is there afterwards if it is ``whole``."""
        try:
            if whole:
                self._flush()
        finally:
            self._hashing.shutdown()
            self._stream.close()
        if whole:
            self.digest = self._sha256.hexdigest()

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None)
