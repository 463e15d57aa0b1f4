"""A FAISS file, opened: read and compared with its checksum in one pass, or mapped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from vidvec_msg.checksums import named
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.faiss_engine import faiss_module, read_index, words_of
from vidvec_msg.retrieval.indexes.folder import REMAKE, damaged
from vidvec_msg.retrieval.indexes.hashed_file import HashedReader

_BLOCK = 1 << 20  # bytes that FAISS asks for at once
_UNBOUNDED = 1 << 40  # FAISS's own bound of a part, bytes
_TABLES = 2 << 30  # bytes of the tables that FAISS makes of codes with lists when it has read them, at most
_reading: list[int] = []  # bytes of the files that are being read now
_lock = Lock()


def read_checked(path: Path, *, expected: str = "", mmap: bool = False) -> Any:
    """An index from its file.

    Args:
        path: the file.
        expected: its checksum, which is compared while it is read; empty compares nothing.
        mmap: maps the file instead of reading it, which compares nothing.

    Raises:
        RefusedRequest: it has another checksum, or FAISS cannot read it.
        FileNotFoundError: it is gone.
    """
    try:
        with bounded_by(path):
            return read_index(path, mmap=mmap) if mmap or not expected else _compared(path, expected)
    except (RuntimeError, MemoryError) as error:
        words = words_of(error) if isinstance(error, RuntimeError) else "not enough memory"
        raise RefusedRequest(
            f"index {path.parent}: FAISS cannot read {path.name} ({words}). "
            f"Copy it again, or make it again: `{REMAKE}`."
        ) from error


def _compared(path: Path, expected: str) -> Any:
    """The index, if the bytes that it was read from have the checksum."""
    faiss = faiss_module()
    try:
        with HashedReader(path, like=expected) as file:
            found = faiss.read_index(faiss.PyCallbackIOReader(file.read, _BLOCK))
    except (RuntimeError, MemoryError) as error:
        if file.checksum != named(expected):
            raise damaged(path, file.checksum, expected) from error
        raise
    if file.checksum != named(expected):
        raise damaged(path, file.checksum, expected)
    return found


@contextmanager
def bounded_by(path: Path) -> Iterator[None]:
    """Has FAISS refuse a file that says of a part of itself that it is far larger than the file.

    It makes room before it reads: one wrong bit of such a number could take all memory. The bound is one for
    all threads, so it is that of the largest file that is being read; it also holds for tables that FAISS
    makes afterwards (``precomputed_table_max_bytes``).
    """
    faiss, size = faiss_module(), path.stat().st_size
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):  # an older FAISS
        yield
        return
    with _lock:
        _reading.append(size)
        faiss.set_deserialization_vector_byte_limit(max(_reading) + _TABLES)
    try:
        yield
    finally:
        with _lock:
            _reading.remove(size)
            bound = max(_reading) + _TABLES if _reading else _UNBOUNDED
            faiss.set_deserialization_vector_byte_limit(bound)
