"""One file of vectors that another environment wrote: ids and a matrix.

=====================  ==========================================  ==========================================
file                   vectors                                     ids
=====================  ==========================================  ==========================================
``NAME.npz``           array ``vectors``                           array ``ids``
``NAME.npy``           the array                                   beside it
``NAME.parquet``       column ``vector``, a list of floats a row   column ``id``
``NAME.safetensors``   tensor ``vectors``                          metadata ``ids``, a JSON list; or beside it
=====================  ==========================================  ==========================================

``vector``, ``embeddings`` and ``embedding`` do for ``vectors``, and ``id`` and ``_id`` for ``ids``. Beside it
stands exactly one of ``NAME.ids.txt`` (an id a line), ``NAME.ids.jsonl`` (an object with ``_id`` or ``id`` a
line) and ``NAME.ids.parquet`` (a column ``id``).

Vectors are (items, dim) in float16, bfloat16, float32 or float64. Nothing is ever unpickled. All but Parquet
and compressed .npz are memory-mapped: memory holds the ids and the rows that are asked for.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.foreign_files import BESIDE, READERS, Matrix, some

FORMATS = tuple(READERS)

Part = TypeVar("Part")

_NPZ = "np.savez(file, ids=np.array(ids, dtype=str), vectors=vectors)"
# what a file may be instead, and what to do about it
_OTHERS = {
    **dict.fromkeys(
        (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib"),
        "it is a pickle, which can run any program when it is opened, and nothing here opens one; save its "
        f"content where it was made: {_NPZ}",
    ),
    **dict.fromkeys((".h5", ".hdf5", ".mat", ".csv", ".tsv", ".json", ".jsonl"), f"save its content: {_NPZ}"),
}


@dataclass(frozen=True)
class ForeignVectors:
    """Ids and vectors of one file. Make one with :meth:`open`.

    Args:
        path: the file.
        files: what was read: the file, and the ids beside it if they stand there.
        ids: each once, in row order.
        matrix: (ids, dim) as stored; bfloat16 as its bits, uint16.
        bfloat16: whether it is that.
    """

    path: Path
    files: tuple[Path, ...]
    ids: tuple[str, ...]
    matrix: npt.NDArray[Any] = field(repr=False)
    bfloat16: bool = False

    @classmethod
    def open(cls, path: Path | str) -> ForeignVectors:
        """Reads the ids, and of the vectors no more than it must.

        Raises:
            RefusedRequest: all that is wrong with the file, in one message: no such file or format, no
                vectors or no ids in it, pickled objects, ids that are blank or stand twice, counts that
                differ, vectors that are not (items, dim) or no floats.
        """
        path = Path(path)
        _refuse_other_files(path)
        problems = Problems(f"vectors {path}")
        files = [path]
        matrix = _tried(lambda: _checked_matrix(READERS[path.suffix].vectors(path)), problems)
        ids = _tried(lambda: _checked_ids(_read_ids(path, files)), problems)
        if matrix is not None and ids is not None and len(ids) != len(matrix.values):
            problems.add(f"{len(ids)} ids for {len(matrix.values)} vectors; each row needs its own id")
        problems.refuse_if_any()
        if matrix is None or ids is None:
            raise RuntimeError(f"{path}: a part is missing that no problem was noted for")
        return cls(path, tuple(files), tuple(ids), matrix.values, matrix.bfloat16)

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return int(self.matrix.shape[1])

    def rows(self, positions: Sequence[int]) -> npt.NDArray[np.float32]:
        """The vectors at these positions, (positions, dim), as stored: of any norm, perhaps not finite."""
        found = self.matrix[np.asarray(positions, dtype=np.int64)]
        if self.bfloat16:  # the upper half of a float32
            return (found.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, and is named for that
            return found.astype(np.float32)


def _refuse_other_files(path: Path) -> None:
    if path.suffix not in FORMATS:
        advice = _OTHERS.get(path.suffix)
        raise RefusedRequest(
            f"vectors {path}: {path.suffix or 'a name without ending'} is not one of {', '.join(FORMATS)}"
            + (f"; {advice}" if advice else "")
        )
    if not path.is_file():
        raise RefusedRequest(f"vectors {path}: there is no such file")


def _tried(read: Callable[[], Part], problems: Problems) -> Part | None:
    """What ``read`` returns; None if it fails, which is noted."""
    try:
        return read()
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if (words := str(error)) not in problems.found:  # a broken file breaks both parts alike
            problems.add(words)
        return None


def _checked_matrix(matrix: Matrix) -> Matrix:
    values = matrix.values
    if values.ndim > 2:
        raise ValueError(
            f"the vectors have the shape {values.shape}: several an item, of frames or tokens? Make one of "
            "them first; for frames: v /= np.linalg.norm(v, axis=-1, keepdims=True); v = v.mean(axis=1)"
        )
    if values.ndim < 2 or not all(values.shape):
        raise ValueError(
            f"the vectors have the shape {values.shape}; it must be (items, dim), neither of them 0"
        )
    if values.dtype.kind != "f" and not matrix.bfloat16:
        raise ValueError(
            f"the vectors are {values.dtype}; they must be float16, bfloat16, float32 or float64 (quantised "
            "ones are given back their scale where they were made)"
        )
    return matrix


def _read_ids(path: Path, files: list[Path]) -> list[str]:
    """The ids in the file or beside it; where they stand beside it, ``files`` gets that file too."""
    there = [one for ending in BESIDE if (one := path.with_suffix(ending)).is_file()]
    inside = READERS[path.suffix].ids(path)
    if len(there) + (inside is not None) > 1:
        places = ([path.name] if inside is not None else []) + [one.name for one in there]
        raise ValueError(f"ids stand in more than one place: {', '.join(places)}; leave one")
    if inside is not None:
        return inside
    if not there:
        names = ", ".join(path.with_suffix(ending).name for ending in BESIDE)
        raise ValueError(
            f"there are no ids: neither in the file (docs/external_vectors.md says where) nor in {names}"
        )
    files.append(there[0])
    return BESIDE["".join(there[0].suffixes[-2:])](there[0])


def _checked_ids(ids: list[str]) -> list[str]:
    problems = []
    if blank := [f"row {row}" for row, one in enumerate(ids) if not one.strip()]:
        problems.append(f"ids that are blank: {some(blank)}")
    if len(set(ids)) < len(ids):
        twice = [
            f"{one!r} ({times} times)" for one, times in Counter(ids).items() if times > 1 and one.strip()
        ]
        if twice:
            problems.append(f"ids that stand more than once: {some(twice)}")
    if problems:
        raise ValueError("; ".join(problems))
    return ids
