"""The items of one side of a collection, left in their file and read when they are asked for."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, overload

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import JobFailed, Problems
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.formats.rows import checked_item, item_of, scan_rows

_READ_AT_ONCE = 1024  # items


class ItemFile(Sequence[Item]):
    """Items in the order of their file, a sequence like any other: iterated, indexed and cut into slices.

    The file is checked as a whole when it is opened. From then on memory holds 8 bytes an item, the place
    where its row begins, and the few items that are being read. A slice is a view of the same file. Rows are
    parsed anew each time, so whoever needs an item twice keeps it.

    Args:
        path: the file.
        root: folder that relative media paths start from, absolute.
        places: where the rows begin, and where the last one ends, in bytes: (items + 1,).
        modalities: that occur in the whole file, also in a view of a part of it.
        stamp: size and time of the last change when it was checked; see :func:`stamp_of`.
    """

    def __init__(
        self,
        path: Path,
        root: Path,
        places: npt.NDArray[np.int64],
        modalities: frozenset[Modality],
        stamp: tuple[int, int],
    ) -> None:
        self.path = path
        self.root = root
        self.places = places
        self.modalities = modalities
        self.stamp = stamp

    @classmethod
    def open(cls, path: Path, root: Path, problems: Problems) -> ItemFile:
        """Reads a file once to check it.

        Args:
            path: the file.
            root: folder that relative media paths start from, absolute.
            problems: gathers faulty rows and ids given twice; the result is for use if there are none.
        """
        with path.open("rb") as stream:
            stamp = stamp_of(stream)
        places, hashes = array("q"), array("q")
        modalities: set[Modality] = set()
        for number, begin, row in scan_rows(path, problems):
            item = checked_item(row, f"{path.name}:{number}", root, problems)
            if item is not None:
                places.append(begin)
                hashes.append(hash(item.id))
                modalities.add(item.modality)
        _tell_repeated_ids(path, root, hashes, problems)
        places.append(stamp[0])
        return cls(path, root, np.frombuffer(places, np.int64), frozenset(modalities), stamp)

    def __len__(self) -> int:
        return len(self.places) - 1

    def __iter__(self) -> Iterator[Item]:
        with self.path.open("rb") as stream:
            for first in range(0, len(self), _READ_AT_ONCE):
                yield from self._read(stream, first, min(first + _READ_AT_ONCE, len(self)))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> ItemFile: ...
    def __getitem__(self, index: int | slice) -> Item | ItemFile:
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of a file's items is one run of them; the step is {step}, not 1")
            part = self.places[first : max(first, stop) + 1]
            return ItemFile(self.path, self.root, part, self.modalities, self.stamp)
        position = range(len(self))[index]  # raises IndexError, counts from the end below 0
        with self.path.open("rb") as stream:
            return self._read(stream, position, position + 1)[0]

    def _read(self, stream: BinaryIO, first: int, stop: int) -> list[Item]:
        begin, end = int(self.places[first]), int(self.places[stop])
        return items_in(read_block(stream, begin, end, stamp=self.stamp, path=self.path), self.root)


def modalities_of(items: Sequence[Item]) -> frozenset[Modality]:
    """Which modalities occur; of a file, in all of it, whichever part of it ``items`` is."""
    return items.modalities if isinstance(items, ItemFile) else frozenset(item.modality for item in items)


def stamp_of(stream: BinaryIO) -> tuple[int, int]:
    """Size in bytes and time of the last change in nanoseconds: whether a file is still the same."""
    found = os.fstat(stream.fileno())
    return found.st_size, found.st_mtime_ns


def read_block(stream: BinaryIO, begin: int, end: int, *, stamp: tuple[int, int], path: Path) -> bytes:
    """The bytes of some rows.

    Raises:
        JobFailed: the file is no longer the one that was checked.
    """
    stream.seek(begin)
    block = stream.read(end - begin)
    if stamp_of(stream) != stamp:
        raise JobFailed(
            f"{path} was changed while it was in use; leave it as it is while a job runs, and start the job "
            "again"
        )
    return block


def items_in(block: bytes, root: Path) -> list[Item]:
    """The items of some rows that have passed the checks."""
    lines = block.decode("utf-8-sig").split("\n")  # a byte-order mark can only be the file's
    return [item_of(json.loads(line), root) for line in lines if line.strip()]


def _tell_repeated_ids(path: Path, root: Path, hashes: array[int], problems: Problems) -> None:
    """Looks at 8 bytes an id; only where two hashes agree, which chance alone hardly does, the file is read
    again for the ids themselves."""
    ordered = np.sort(np.frombuffer(hashes, np.int64))
    suspicious = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not suspicious:
        return
    first_line: dict[str, int] = {}
    unheard = Problems("")  # faulty rows were told in the first reading
    for number, _, row in scan_rows(path, unheard):
        item = checked_item(row, f"{path.name}:{number}", root, unheard)
        if item is None or hash(item.id) not in suspicious:
            continue
        if item.id in first_line:
            line = first_line[item.id]
            problems.add(f"{path.name}:{number}: _id {item.id!r} was already used in line {line}")
        else:
            first_line[item.id] = number
