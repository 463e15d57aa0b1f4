"""How vectors and ids stand in a file of each format: .npz, .npy, .parquet and .safetensors.

Nothing here unpickles. A reader raises ``ValueError`` with what is wrong with its part of the file; what the
parts must be together is checked in :mod:`vidvec_msg.formats.foreign_vectors`.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

VECTOR_NAMES = ("vectors", "vector", "embeddings", "embedding")
ID_NAMES = ("ids", "id", "_id")

_SHOWN = 3  # rows that a message spells out
_PARQUET_ROWS = 65_536  # that are decoded at once
_SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_OBJECTS = (
    "holds Python objects, which only pickle could read, and nothing here opens a pickle; save {what} "
    "where it was made"
)


class Matrix(NamedTuple):
    """Vectors as they are stored.

    Args:
        values: any shape and dtype; bfloat16 as its bits, uint16.
        bfloat16: whether they are that.
    """

    values: npt.NDArray[Any]
    bfloat16: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """One format.

    Args:
        vectors: reads them.
        ids: reads them from the same file; returns None where it holds none.
    """

    vectors: Callable[[Path], Matrix]
    ids: Callable[[Path], list[str] | None]


# --- .npz and .npy ----------------------------------------------------------------------------------------


def _npz_vectors(path: Path) -> Matrix:
    with np.load(path, allow_pickle=False) as arrays:
        name = the_one(arrays.files, VECTOR_NAMES, what="array of vectors")
        mapped = _mapped(path, name)
        return Matrix(
            _array(arrays, name, "lists of one length: np.stack(vectors)") if mapped is None else mapped
        )


def _npz_ids(path: Path) -> list[str] | None:
    with np.load(path, allow_pickle=False) as arrays:
        if not set(arrays.files) & set(ID_NAMES):
            return None
        name = the_one(arrays.files, ID_NAMES, what="array of ids")
        return ids_of(_array(arrays, name, "np.array(ids, dtype=str)"), what=f"array {name!r}")


def _array(arrays: Any, name: str, what: str) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = arrays[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ValueError(f"array {name!r} {_OBJECTS.format(what=what)}") from None
        raise
    return found


def _mapped(path: Path, name: str) -> npt.NDArray[Any] | None:
    """An array inside an uncompressed .npz (np.savez makes those), mapped; None of a compressed one."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as stream:
        stream.seek(entry.header_offset + 26)  # of a local header: 26 bytes, two lengths, name, extra
        name_length, extra_length = struct.unpack("<HH", stream.read(4))
        stream.seek(name_length + extra_length, 1)
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            return None  # names of fields that are not ASCII: not an array of floats
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read_header(stream)
        if dtype.hasobject or not np.prod(shape):
            return None
        return np.memmap(path, dtype, "r", stream.tell(), shape, order="F" if fortran else "C")


def _npy_vectors(path: Path) -> Matrix:
    try:
        return Matrix(np.load(path, mmap_mode="r", allow_pickle=False))
    except ValueError as error:
        if "object" in str(error).lower():
            raise ValueError(f"it {_OBJECTS.format(what='np.stack(vectors)')}") from None
        raise


# --- .parquet ---------------------------------------------------------------------------------------------


def _parquet_vectors(path: Path) -> Matrix:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        name = the_one(schema.names, VECTOR_NAMES, what="column of vectors")
        kind = schema.field(name).type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not lists or not pa.types.is_floating(kind.value_type):
            raise ValueError(f"column {name!r} is {kind}; it must hold lists of floats, one a row")
        whole: npt.NDArray[Any] | None = None
        faulty: list[str] = []
        first = 0
        for batch in file.iter_batches(columns=[name], batch_size=_PARQUET_ROWS):
            column = batch.column(0)
            lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
            if whole is None:
                dtype = kind.value_type.to_pandas_dtype()
                whole = np.zeros((file.metadata.num_rows, max(lengths[0], 0)), dtype=dtype)
            wrong = np.flatnonzero(lengths != whole.shape[1])
            faulty += [f"row {first + row}: {'null' if lengths[row] < 0 else lengths[row]}" for row in wrong]
            if not faulty:
                values = column.flatten().to_numpy(zero_copy_only=False)
                whole[first : first + len(column)] = values.reshape(len(column), whole.shape[1])
            first += len(column)
    if whole is None:
        return Matrix(np.zeros((0, 0), dtype=np.float32))
    if faulty:
        raise ValueError(
            f"column {name!r} holds lists of several lengths: the first has {whole.shape[1]} numbers, "
            f"{some(faulty)}"
        )
    return Matrix(whole)


def _parquet_ids(path: Path) -> list[str] | None:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        if not set(names) & set(ID_NAMES):
            return None
        name = the_one(names, ID_NAMES, what="column of ids")
        values = file.read(columns=[name])[name].to_pylist()
    strangers = {type(one).__name__ for one in values} - {"str", "int"}
    if strangers:
        raise ValueError(
            f"column {name!r} holds {', '.join(sorted(strangers))}; ids are strings or whole numbers"
        )
    return [str(one) for one in values]


# --- .safetensors -----------------------------------------------------------------------------------------


def _safetensors_vectors(path: Path) -> Matrix:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:  # checks the whole header
            name = the_one(list(file.keys()), VECTOR_NAMES, what="tensor of vectors")
    except SafetensorError as error:
        raise ValueError(f"it is no .safetensors file: {error}") from None
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        about = json.loads(stream.read(length))[name]
    if about["dtype"] not in _SAFETENSORS:
        known = ", ".join(_SAFETENSORS)
        raise ValueError(f"tensor {name!r} is {about['dtype']}; it must be one of {known}")
    dtype, shape = np.dtype(_SAFETENSORS[about["dtype"]]), tuple(about["shape"])
    if not np.prod(shape):
        return Matrix(np.zeros(shape, dtype=dtype))
    offset = 8 + length + about["data_offsets"][0]
    return Matrix(np.memmap(path, dtype, "r", offset, shape), bfloat16=about["dtype"] == "BF16")


def _safetensors_ids(path: Path) -> list[str] | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get("ids")
    except SafetensorError:
        return None  # said where the vectors are read
    if text is None:
        return None
    try:
        ids = json.loads(text)
    except ValueError as error:
        raise ValueError(f"metadata 'ids' is not JSON: {error}") from None
    if not isinstance(ids, list) or not all(isinstance(one, str | int) for one in ids):
        raise ValueError("metadata 'ids' must be a JSON list of strings: json.dumps(ids)")
    return [str(one) for one in ids]


READERS = {
    ".npz": Reader(_npz_vectors, _npz_ids),
    ".npy": Reader(_npy_vectors, lambda path: None),
    ".parquet": Reader(_parquet_vectors, _parquet_ids),
    ".safetensors": Reader(_safetensors_vectors, _safetensors_ids),
}


# --- ids beside the file ----------------------------------------------------------------------------------


def _txt_ids(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines  # the line break at the end begins no id


def _jsonl_ids(path: Path) -> list[str]:
    ids = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        row = json.loads(line)
        names = [name for name in ID_NAMES if isinstance(row, dict) and isinstance(row.get(name), str | int)]
        if len(names) != 1:
            raise ValueError(f"{path.name}, line {number}: it must be an object with one field _id or id")
        ids.append(str(row[names[0]]))
    return ids


def _required_parquet_ids(path: Path) -> list[str]:
    ids = _parquet_ids(path)
    if ids is None:
        raise ValueError(f"{path.name} has no column {', '.join(ID_NAMES)}")
    return ids


BESIDE: dict[str, Callable[[Path], list[str]]] = {
    ".ids.txt": _txt_ids,
    ".ids.jsonl": _jsonl_ids,
    ".ids.parquet": _required_parquet_ids,
}


# --- names and ids ----------------------------------------------------------------------------------------


def the_one(there: Iterable[str], accepted: Sequence[str], *, what: str) -> str:
    """The only one of these names that is accepted.

    Raises:
        ValueError: none or several.
    """
    there = list(there)
    found = [name for name in there if name in accepted]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"it holds more than one {what}: {', '.join(found)}; leave one")
    raise ValueError(
        f"it has no {what}: one of {', '.join(accepted)} (it holds {', '.join(there) or 'nothing'})"
    )


def ids_of(values: npt.NDArray[Any], *, what: str) -> list[str]:
    """Ids from an array of strings or whole numbers.

    Raises:
        ValueError: another dtype or shape.
    """
    if values.ndim != 1:
        raise ValueError(f"{what} has the shape {values.shape}; of ids it must be (items,)")
    if values.dtype.kind not in "USiu":
        raise ValueError(
            f"{what} is {values.dtype}; ids are strings or whole numbers: np.array(ids, dtype=str)"
        )
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return [str(one) for one in values.tolist()]


def some(things: Sequence[str]) -> str:
    """The first few of a list, and how many more there are."""
    rest = len(things) - _SHOWN
    return ", ".join(things[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
