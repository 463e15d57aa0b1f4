"""The ids and metadata of an index: ids in memory, as compact as Arrow has them; metadata read when asked."""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.vectors import ROW_GROUP
from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.folder import REMAKE
from vidvec_msg.retrieval.indexes.hashed_file import HashedFile

_LARGEST_KEPT = 4 * ROW_GROUP  # rows of a row group that are copied as they are
_KEPT_ROWS = 1 << 18  # of row groups that stay in memory, about 60 MB of them

Mask = npt.NDArray[np.bool_]


class ItemTable:
    """What the ``ids.parquet`` of every segment says, one after the other; a row is a position of the index.

    The files are opened at once and stay open, so that a writer may put others in their place. Safe to share
    between threads.

    Args:
        paths: the Parquet files, in the order of the segments.

    Raises:
        RefusedRequest: one of them is no Parquet file with a column ``id``.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._lock = Lock()
        self._files, arrays = [], []
        for path in paths:
            try:
                file = pq.ParquetFile(path)
                arrays.append(file.read(columns=["id"])["id"].cast(pa.large_string()).combine_chunks())
            except (pa.ArrowException, KeyError, OSError) as error:
                raise RefusedRequest(f"{path} is not a Parquet file with a column `id`: {error}") from error
            self._files.append(file)
        self.counts = [len(array) for array in arrays]  # rows of each file
        self.ids = pa.chunked_array(arrays, pa.large_string()).combine_chunks()  # (rows,)
        _, ends, letters = self.ids.buffers()
        self._ends = np.frombuffer(ends, np.int64)[self.ids.offset :]  # (rows + 1,)
        self._letters = memoryview(letters)
        self._first_rows = [0, *accumulate(self._group_sizes)]
        self._groups: OrderedDict[int, Any] = OrderedDict()  # row group → its table, the last used at the end

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return len(self.ids)

    @cached_property
    def column_names(self) -> list[str]:
        """Columns that any of the files has."""
        return list(dict.fromkeys(name for file in self._files for name in file.schema_arrow.names))

    def __getitem__(self, name: str) -> Any:
        """A column of all files, read now: a chunked array, null where a file does not have it."""
        import pyarrow as pa

        chunks: list[Any] = []
        with self._lock:
            for file, count in zip(self._files, self.counts, strict=True):
                if name in file.schema_arrow.names:
                    chunks += file.read(columns=[name])[name].chunks
                else:
                    chunks.append(pa.nulls(count))
        wanted = next((chunk.type for chunk in chunks if not pa.types.is_null(chunk.type)), pa.null())
        return pa.chunked_array([chunk.cast(wanted) for chunk in chunks], wanted)

    def names(self, positions: Positions) -> list[str]:
        """Ids of positions, in their order."""
        # straight from Arrow's buffers: `take` costs ten times as much for the few ids of a query
        starts, ends = self._ends[positions].tolist(), self._ends[positions + 1].tolist()
        return [self._letters[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]

    def rows(self, positions: Sequence[int], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Metadata of positions, in their order; ``groups`` as a map."""
        found = []
        for position in positions:
            group = bisect_right(self._first_rows, position) - 1
            row = self._group(group).slice(position - self._first_rows[group], 1).to_pylist()[0]
            row["id"] = str(row["id"])
            if "groups" in self.column_names or columns is None:
                row["groups"] = json.loads(row.get("groups") or "{}")
            found.append(row if columns is None else {name: row.get(name) for name in columns})
        return found

    def among(self, names: Sequence[str]) -> Mask:
        """Which rows have one of these ids, (rows,)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        written = [name.encode() for name in names]
        ends = np.cumsum([0, *map(len, written)], dtype=np.int64)
        wanted = pa.Array.from_buffers(
            pa.large_string(), len(names), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(written))]
        )
        return self._mask(pc.is_in(self.ids, value_set=wanted))

    def candidates(self, name: str) -> Iterator[int]:
        """Positions of an id, ascending; several if an item was replaced."""
        order = self._by_id
        low, high = 0, len(order)
        asked = name.encode()
        while low < high:  # bytes, as Arrow sorts
            middle = (low + high) // 2
            if self.ids[int(order[middle])].as_py().encode() < asked:
                low = middle + 1
            else:
                high = middle
        while low < len(order) and self.ids[int(order[low])].as_py() == name:
            yield int(order[low])
            low += 1

    @cached_property
    def _by_id(self) -> npt.NDArray[np.uint32]:
        """Positions in the order of their ids: four bytes an item, where a dictionary takes 130."""
        import pyarrow.compute as pc

        order = pc.array_sort_indices(self.ids)  # equal ids stay in their order
        return np.frombuffer(order.buffers()[1], np.uint64, count=len(order)).astype(np.uint32)

    @cached_property
    def schema(self) -> Any:
        """Columns of all files with their types; ids are strings, whatever another tool wrote."""
        import pyarrow as pa

        joined = pa.unify_schemas([file.schema_arrow for file in self._files], promote_options="permissive")
        place = joined.get_field_index("id")
        return joined.set(place, pa.field("id", pa.string())).remove_metadata()

    def groups(self) -> Iterator[tuple[Any, int]]:
        """Every row group as a table of :attr:`schema`, and the position of its first row."""
        import pyarrow as pa

        for (file, number), first in zip(self._places, self._first_rows, strict=False):
            with self._lock:
                table = file.read_row_group(number)
            columns = [
                table[field.name].cast(field.type) if field.name in table.column_names
                else pa.nulls(len(table), field.type)
                for field in self.schema
            ]  # fmt: skip
            yield pa.table(columns, schema=self.schema), first

    def _mask(self, found: Any) -> Mask:
        """A boolean array of Arrow's as numpy's."""
        bits = np.frombuffer(found.buffers()[1], np.uint8)
        return np.unpackbits(bits, count=self.num_rows, bitorder="little").astype(np.bool_)

    @property
    def _group_sizes(self) -> list[int]:
        return [
            file.metadata.row_group(number).num_rows
            for file in self._files
            for number in range(file.metadata.num_row_groups)
        ]

    @cached_property
    def _places(self) -> list[tuple[Any, int]]:
        """Of each row group: its file, and its number there."""
        return [(file, number) for file in self._files for number in range(file.metadata.num_row_groups)]

    def _group(self, group: int) -> Any:
        with self._lock:
            if group not in self._groups:
                file, number = self._places[group]
                self._groups[group] = file.read_row_group(number)
                while len(self._groups) > 1 and sum(map(len, self._groups.values())) > _KEPT_ROWS:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(group)
            return self._groups[group]


def live_positions(paths: Mapping[str, Path], manifest: Mapping[str, Any], count: int) -> Mask | None:
    """Which positions are not deleted.

    Args:
        paths: name in the manifest → where the file is.
        manifest: of the index.
        count: positions of all segments.

    Returns:
        (count,), or None if nothing is deleted.

    Raises:
        RefusedRequest: the file of deleted positions is not what the manifest says.
    """
    if not manifest["deleted"]:
        return None
    path, expected = paths[manifest["deleted"]["file"]], manifest["deleted"]["count"]
    try:
        deleted = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RefusedRequest(
            f"index {path.parent}: {path.name} cannot be read ({error}). Copy it again, or make the index "
            f"again: `{REMAKE}`."
        ) from error
    within = deleted.ndim == 1 and bool(((deleted >= 0) & (deleted < count)).all())
    if not within or not len(np.unique(deleted)) == len(deleted) == expected:
        raise RefusedRequest(
            f"index {path.parent}: {path.name} does not hold {expected} different positions below {count}, "
            f"as index.json says; the files are not of one index. Make it again: `{REMAKE}`."
        )
    live: Mask = np.ones(count, dtype=np.bool_)
    live[deleted] = False
    return live


def first_with_id(tables: Sequence[ItemTable], rows: Positions) -> Positions:
    """For each of some rows, the first of them that has its id; one pass over the ids, however many tables.

    Args:
        tables: rows are counted through them, one after the other.
        rows: those that are compared, in any order, each once.

    Returns:
        (rows,): a row that no earlier one shares its id with comes back itself.
    """
    import pyarrow as pa

    ids = pa.chunked_array([items.ids for items in tables], pa.large_string())
    numbers = ids.dictionary_encode().combine_chunks().indices.buffers()[1] if len(ids) else b""
    number_of = np.frombuffer(numbers, np.int32, count=len(ids))  # the same number, the same id
    asked = number_of[rows]  # (rows,)
    first = np.empty(int(number_of.max(initial=-1)) + 1, dtype=np.int64)
    first[asked[::-1]] = rows[::-1]  # of several values for one place the last one stays
    found: Positions = first[asked]
    return found


def write_items(path: Path, items: ItemTable, kept: Mask) -> str:
    """Writes the metadata of some rows, in their order, so that looking one up decodes little.

    Args:
        path: the Parquet file to make.
        items: where the rows come from.
        kept: (rows,) which of them.

    Returns:
        the checksum of the file.
    """
    import pyarrow.parquet as pq

    with HashedFile(path) as file, pq.ParquetWriter(_Sink(file), items.schema) as writer:
        for table, first in items.groups():
            part = table.take(_as_arrow(np.flatnonzero(kept[first : first + len(table)])))
            if len(part):
                writer.write_table(part, row_group_size=ROW_GROUP)
    return file.checksum


def copy_items(source: Path, target: Path) -> str:
    """Copies ids and metadata: as they are, or in smaller row groups where another tool wrote large ones.

    Looking ten items up in groups of 50,000 rows took 170 ms, in groups of :data:`ROW_GROUP` 19 ms.

    Returns:
        its checksum.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    if max(groups, default=0) > _LARGEST_KEPT:
        items = ItemTable([source])
        return write_items(target, items, np.ones(items.num_rows, dtype=np.bool_))
    shutil.copyfile(source, target)
    return checksum(target)


def _as_arrow(positions: Positions) -> Any:
    """Positions for Arrow, whose own conversions from and to numpy would import pandas: half a second."""
    import pyarrow as pa

    content = np.ascontiguousarray(positions, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(content), [None, pa.py_buffer(content)])


class _Sink:
    """A hashed file as Arrow writes into it."""

    def __init__(self, file: HashedFile) -> None:
        self._file, self._position, self.closed = file, 0, False

    def write(self, block: Any) -> int:
        self._file.write(block)
        self._position += len(block)
        return len(block)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Whoever opened the file closes it."""
