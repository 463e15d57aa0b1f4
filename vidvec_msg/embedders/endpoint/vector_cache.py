"""Vectors that were paid for once: an append-only file of records, each the key of a text and its vector.

A folder holds the vectors of one endpoint, model and size::

    about.json     what they are of: whatever the owner gives, and ``dim``
    vectors.bin    records of 32 bytes key, dim x 4 bytes float32 (little endian), 4 bytes CRC-32 of both

A record is written in one piece, under a lock, as soon as it is known. A process that is killed leaves at
most a torn last record, which the next one cuts off; a damaged record counts as absent. Texts are not kept,
only their digests.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import digest_of, read_json, write_json

ABOUT = "about.json"
RECORDS = "vectors.bin"
KEY_BYTES = 32  # of SHA-256


def user_cache() -> Path:
    """Where this package keeps what can be made again: ``$XDG_CACHE_HOME/vidvec-msg``, or in ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path is to be ignored
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "vidvec-msg"


class VectorCache:
    """One folder of the cache; safe for several threads and several processes.

    Memory holds the keys (about 150 bytes a record); vectors are read from the disk when asked for.

    Args:
        root: the cache; the folder's name in it is the digest of ``about``.
        about: everything that the vectors have in common, JSON-like; stands in ``about.json``.

    Raises:
        RefusedRequest: the folder cannot be made, or its ``about.json`` is damaged.
    """

    def __init__(self, root: Path, about: Mapping[str, Any]) -> None:
        self.folder = root / digest_of(dict(about))[:16]
        self._about = dict(about)
        self._file = self.folder / RECORDS
        self._rows: dict[bytes, int] = {}
        self._seen = 0  # records of the file that are in _rows or were found damaged
        self._lock = threading.Lock()
        self._dim: int | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedRequest(
                f"the cache folder {self.folder} cannot be made ({error.strerror}); name another one with "
                "cache=FOLDER, or do without: cache=none"
            ) from error
        if (self.folder / ABOUT).is_file():
            found = read_json(self.folder / ABOUT, what="vector cache", made_by="the same command")
            self._dim = int(found["dim"])
        self._between_processes = FileLock(str(self.folder / ".lock"))

    @property
    def dim(self) -> int | None:
        """Dimensions of the vectors; None as long as nobody knows them."""
        return self._dim

    def settle(self, dim: int) -> None:
        """Writes down how many dimensions the vectors have.

        Raises:
            RefusedRequest: the vectors that are there have another number.
        """
        if self._dim is None:
            write_json(self.folder / ABOUT, {**self._about, "dim": dim})
            self._dim = dim
        elif self._dim != dim:
            raise RefusedRequest(
                f"the cache {self.folder} holds vectors of {self._dim} dimensions, and now they have {dim}: "
                "another model answers under the same name. Remove that folder, or use cache=none."
            )

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Vectors]:
        """The vectors that are there, (dim,) each; what other processes have added meanwhile included."""
        with self._lock:
            if self._dim is None or not self._file.is_file():
                return {}
            count = self._file.stat().st_size // self._record.itemsize
            if not count:
                return {}
            records = np.memmap(self._file, dtype=self._record, mode="r", shape=(count,))
            self._notice(records)
            found = {}
            for key in keys:
                row = self._rows.get(key)
                if row is None:
                    continue
                if _checksum(key, records["vector"][row].tobytes()) == int(records["crc"][row]):
                    found[key] = np.array(records["vector"][row], dtype=np.float32)
                else:
                    del self._rows[key]  # damaged: asked for again, and appended anew
            return found

    def put(self, vectors: Mapping[bytes, Vectors]) -> None:
        """Appends records at once.

        Args:
            vectors: key (32 bytes) → (dim,) finite float32.
        """
        if not vectors:
            return
        records = np.zeros(len(vectors), dtype=self._record)
        for row, (key, vector) in enumerate(vectors.items()):
            records[row] = (np.void(key), vector, _checksum(key, np.asarray(vector, "<f4").tobytes()))
        with self._lock, self._between_processes, self._file.open("ab") as stream:
            torn = stream.tell() % self._record.itemsize
            if torn:
                stream.truncate(stream.tell() - torn)  # of a process that was killed; nobody else writes now
            stream.write(records.tobytes())

    @property
    def _record(self) -> np.dtype[np.void]:
        return np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f4", (self._dim,)), ("crc", "<u4")])

    def _notice(self, records: Any) -> None:
        """Takes in the keys of records that were added since the last look."""
        keys = records["key"][self._seen :].tobytes()
        for row in range(self._seen, len(records)):
            first = (row - self._seen) * KEY_BYTES
            self._rows[keys[first : first + KEY_BYTES]] = row
        self._seen = len(records)


def _checksum(key: bytes, vector: bytes) -> int:
    return zlib.crc32(key + vector)
