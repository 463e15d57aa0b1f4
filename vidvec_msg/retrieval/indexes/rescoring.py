"""``vectors.npy``: the unit vectors in full length beside an index that shortens or rounds them.

Searching takes more candidates from the index than are wanted, computes their cosines from these rows, and
keeps the best. The file is opened memory-mapped: it costs disk, and memory only for rows that are looked at.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.lib import format as npy

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.retrieval.indexes.hashed_file import HashedFile

Rescore = Literal["none", "float16", "float32"]

OVERSAMPLE = 4  # candidates per wanted result; SQ8 and RaBitQ of 4 bits reach 0.99 of recall@10 with it


class ExactVectors:
    """Writes ``vectors.npy``, block by block, so that the whole is never in memory.

    Args:
        path: the file.
        count: rows that will come.
        dim: of each row.
        dtype: "float16" (half the disk, cosines off by about 1e-4) or "float32".
    """

    def __init__(self, path: Path, count: int, dim: int, dtype: Rescore) -> None:
        self._file = HashedFile(path)
        self._dtype = np.dtype(dtype)
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (count, dim)}
        npy.write_array_header_1_0(self._file, header)

    def add(self, rows: Vectors) -> None:
        """Adds the next rows, (rows, dim) float32 of norm 1."""
        self._file.write(np.ascontiguousarray(rows, dtype=self._dtype))

    @property
    def checksum(self) -> str:
        """Of the file, when it is closed."""
        return self._file.checksum

    def __enter__(self) -> ExactVectors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close(whole=kind is None)
