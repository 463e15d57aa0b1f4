"""Digests of items with media, kept on disk: a file is read again only when its size or time has changed.

A digest of a clip costs two reads of its file, which for ten million clips on a network disk are hours. What
is kept is a digest under a key of what it was made from: the item's words and seconds, and path, size and
time of change of its files. So it can be missing, and is wrong only for a file changed with both kept.

    FOLDER/part-*.bin     records of 52 bytes: key (16), SHA-256 (32), CRC-32 of both (4)

Parts are only added, under names of their own, so several processes may share a folder; a torn or damaged
record is not found. To forget everything, remove the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest

log = logging.getLogger(__name__)

DIGESTS = ".digests"
"""The folder, beside an output."""
_RECORD = np.dtype([("key", "<u8", (2,)), ("digest", "V32"), ("check", "<u4")])
_SETTLED = 2.0  # seconds since a file's change: until then it may be changed again at the same time
_SAVE_EVERY = 30.0  # seconds of reading that a kill may cost
_IN_MEMORY = 1 << 18  # digests that are not sorted in among the others: 60 MB

_active: KeptDigests | None = None


@contextmanager
def digests_kept_in(folder: Path, *, known: Iterable[Path] = ()) -> Iterator[None]:
    """Within the block, :func:`~vidvec_msg.formats.items.item_digest` remembers, from run to run.

    The outermost of several such blocks is the one that counts. Nothing is written if the request is refused
    within half a minute, or if the folder's parent is not there in the end. Of a folder that cannot be
    written it is said once; the block goes on without it.

    Args:
        folder: where digests are kept.
        known: further folders with digests that count, and that are not written to.
    """
    global _active
    if _active is not None:
        yield
        return
    kept = _active = KeptDigests(folder, known)
    try:
        yield
    except RefusedRequest:
        kept.forget()
        raise
    finally:
        _active = None
        kept.close()


def kept_or_made(content: bytes, files: Sequence[Path], make: Callable[[], str]) -> str:
    """A digest from memory, if one is at work and the files have not changed; else a new one, remembered.

    Args:
        content: everything but the files that decides the digest.
        files: that it is made from.
        make: reads them.

    Raises:
        FileNotFoundError: a file is missing.
    """
    kept = _active
    if kept is None:
        return make()
    states = [(str(path), about.st_size, about.st_mtime_ns) for path in files for about in (path.stat(),)]
    key = hashlib.blake2b(content + repr(states).encode(), digest_size=16).digest()
    found = kept.get(key)
    if found is None:
        now = time.time()
        found = make()
        if all(changed / 1e9 < now - _SETTLED for _, _, changed in states):
            kept.put(key, found)
    return found


class KeptDigests:
    """The digests of a folder. Calls may come from several threads.

    Memory holds 16 bytes a digest: the order of their keys.

    Args:
        folder: made when something is written.
        known: further folders that are read.
    """

    def __init__(self, folder: Path, known: Iterable[Path] = ()) -> None:
        self.folder = folder
        self._folders = (folder, *known)
        self._lock = Lock()
        self._new: dict[bytes, bytes] = {}
        self._waiting: list[bytes] = []  # records that are not written yet
        self._stream: BinaryIO | None = None
        self._saved = time.monotonic()
        self._writable = True
        self._read()

    def get(self, key: bytes) -> str | None:
        """The digest under a key of 16 bytes, in hex."""
        with self._lock:
            found = self._new.get(key) or self._find(key)
        return None if found is None else found.hex()

    def put(self, key: bytes, digest: str) -> None:
        """Keeps a digest; written after half a minute, or by :meth:`close`."""
        content = bytes.fromhex(digest)
        with self._lock:
            if not self._writable and len(self._new) >= _IN_MEMORY:
                return
            self._new[key] = content
            if not self._writable:
                return
            self._waiting.append(key + content + zlib.crc32(key + content).to_bytes(4, "little"))
            if time.monotonic() - self._saved > _SAVE_EVERY or len(self._new) >= _IN_MEMORY:
                self._save()
            if len(self._new) >= _IN_MEMORY:
                self._read()
                self._new.clear()

    def forget(self) -> None:
        """Drops what is not written yet."""
        with self._lock:
            self._waiting.clear()

    def close(self) -> None:
        """Writes what is not written yet, if there is a place for it."""
        with self._lock:
            there = os.path.isdir(self.folder.parent)  # noqa: PTH112 - Path.is_dir raises where it cannot look
            if self._waiting and (self._stream is not None or there):
                self._save()
            if self._stream is not None:
                with suppress(OSError):  # the rest of what a full disk refused, which was told
                    self._stream.close()

    def _save(self) -> None:
        self._saved = time.monotonic()
        try:
            if self._stream is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._stream = (self.folder / f"part-{uuid.uuid4().hex}.bin").open("xb")
            self._stream.write(b"".join(self._waiting))
            self._stream.flush()
        except OSError as error:
            log.info("digests are not kept in %s: %s", self.folder, error)
            self._writable = False
        self._waiting.clear()

    def _read(self) -> None:
        """Maps all parts, and sorts their keys."""
        paths = [path for folder in self._folders for path in parts_of(folder, "part-*.bin")]
        self._parts = [part for path in paths if (part := _records(path)) is not None]
        self._ends = np.cumsum([len(part) for part in self._parts], dtype=np.int64)
        keys = np.concatenate([np.empty(0, np.uint64), *(part["key"][:, 0] for part in self._parts)])
        self._order = np.argsort(keys, kind="stable").astype(np.int64)
        self._keys = keys[self._order]

    def _find(self, key: bytes) -> bytes | None:
        asked = np.frombuffer(key, "<u8")[0]
        at = int(np.searchsorted(self._keys, asked))
        while at < len(self._keys) and self._keys[at] == asked:
            row = int(self._order[at])
            part = int(np.searchsorted(self._ends, row, side="right"))
            record: bytes = self._parts[part][row - int(self._ends[part])].tobytes()
            own, digest, check = record[:16], record[16:48], record[48:]
            if own == key and zlib.crc32(own + digest) == int.from_bytes(check, "little"):
                return digest
            at += 1
        return None


def parts_of(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder, by name; none where nobody can look, as behind a folder of another user."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _records(path: Path) -> npt.NDArray[np.void] | None:
    """The whole records of a part; None if it cannot be read, or has none."""
    try:
        count = path.stat().st_size // _RECORD.itemsize
        return np.memmap(path, _RECORD, mode="r", shape=(count,)) if count else None
    except OSError as error:
        log.info("digests in %s are left out: %s", path, error)
        return None
