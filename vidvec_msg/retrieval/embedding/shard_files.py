"""The files of a stretch of items that are done: their rows, and the record that makes them count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from vidvec_msg.checksums import named
from vidvec_msg.errors import Failure
from vidvec_msg.runs import write_text


@dataclass(frozen=True, slots=True)
class Record:
    """Consecutive items that are done, as the ``.json`` holds them.

    Args:
        first: position of the first item.
        stop: position after the last item.
        ids: ids of the rows, in order: the items without the failed ones.
        failures: the failed ones, in order.
        file: name of the ``.npy`` file, shape (len(ids), dim).
        checksum: of that file.
    """

    first: int
    stop: int
    ids: tuple[str, ...]
    failures: tuple[Failure, ...]
    file: str
    checksum: str

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file.

        Raises:
            RefusedRequest: its checksum is none that this version knows.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        # an earlier version called it so
        content["checksum"] = named(content.pop("sha256", None) or content.get("checksum"))
        content["ids"] = tuple(content["ids"])
        content["failures"] = tuple(Failure(**failure) for failure in content["failures"])
        return cls(**content)

    def write(self, work: Path) -> None:
        """Makes the stretch count: after its rows, and before anything relies on it."""
        path = (work / self.file).with_suffix(".json")
        write_text(path, json.dumps(asdict(self), ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Stretch:
    """What memory keeps of a :class:`Record`: its ids and failures are read again when they are needed.

    Args:
        first: position of the first item.
        stop: position after the last item.
        rows: how many have a vector.
        file: name of the ``.npy`` file.
        checksum: of that file.
    """

    first: int
    stop: int
    rows: int
    file: str
    checksum: str

    @classmethod
    def of(cls, record: Record) -> Stretch:
        """Without the ids."""
        return cls(record.first, record.stop, len(record.ids), record.file, record.checksum)

    @property
    def failed(self) -> int:
        """How many have none."""
        return self.stop - self.first - self.rows

    @property
    def is_shard(self) -> bool:
        """Whether it is a whole one."""
        return self.file.startswith("shard-")


def joined(rows: Sequence[npt.NDArray[Any]], dim: int, dtype: str) -> npt.NDArray[Any]:
    """The batches of a stretch as one matrix, (rows, dim), also where no item has a vector."""
    return np.concatenate([np.zeros((0, dim), dtype=dtype), *rows])


def write_matrix(stream: BinaryIO, matrix: npt.NDArray[Any]) -> None:
    """The bytes of ``np.save``, which does not notice a disk that fills up at the last block of a file."""
    header = np.lib.format.header_data_from_array_1_0(matrix)
    np.lib.format.write_array_header_1_0(stream, header)
    stream.write(np.ascontiguousarray(matrix).data)


def save_matrix(path: Path, matrix: npt.NDArray[Any]) -> None:
    """:func:`write_matrix` to a file of its own; OSError where the disk is full."""
    with path.open("wb") as stream:
        write_matrix(stream, matrix)


def shard_name(number: int) -> str:
    """Of a shard's files, without their endings; the first number is 0."""
    return f"shard-{number:05d}"
