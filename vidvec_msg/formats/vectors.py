"""The vectors folder, read: numbered shards, ids in the same row order, failures, a manifest written last.

``retrieval.embedding.writing`` writes it; an index is built from it, and the ``vectors:`` embedder answers
from it. The format is open to whoever makes vectors elsewhere: ``shard-00000.npy`` … (float16 or float32,
rows × dim), ``ids.parquet`` with a column ``id``, and ``manifest.json`` with ``card``, ``count``, ``dim`` and
``shards``, a list of ``{"file", "rows", "checksum"}``; the checksum, if given, is ``xxh3_128:HEX`` or
``sha256:HEX``, and a key ``sha256`` with the bare digest will do; any other is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.checksums import checksum, named
from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.runs import read_json

MANIFEST = "manifest.json"
IDS = "ids.parquet"
FAILURES = "failures.jsonl"
ROW_GROUP = 4096  # rows of a row group in ids.parquet: looking one item up decodes so many

_MADE_BY = "vidvec-msg embed"
_ENTRY = '{"file": NAME, "rows": COUNT} (and "checksum", if there is one)'


@dataclass(frozen=True)
class Shard:
    """One file of vectors, as the manifest lists it.

    Args:
        file: name inside the folder.
        rows: vectors in it.
        checksum: of the file (:mod:`vidvec_msg.checksums`); empty if the writer gave none.
    """

    file: str
    rows: int
    checksum: str = ""


@dataclass(frozen=True)
class VectorsFolder:
    """A complete vectors folder. Make one with :meth:`open`.

    Args:
        path: the folder.
        manifest: content of ``manifest.json``, keys of other writers included.
    """

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> VectorsFolder:
        """Opens a folder and checks that its parts belong together; vectors are read later, shard by shard,
        and ids when they are asked for.

        Raises:
            RefusedRequest: no manifest (interrupted), a manifest that lacks something, names files outside
                the folder or holds checksums that are none, a missing shard, or counts that differ.
        """
        path = Path(path)
        manifest = read_json(path / MANIFEST, what="vectors folder", made_by=_MADE_BY)
        lacking = [key for key in ("card", "count", "dim", "shards") if key not in manifest]
        if lacking:
            raise RefusedRequest(f"vectors folder {path}: {MANIFEST} lacks {', '.join(lacking)}")
        folder, ids = cls(path, manifest), _count_ids(path / IDS)
        rows = sum(shard.rows for shard in folder.files)
        if not ids == rows == manifest["count"]:
            raise RefusedRequest(
                f"vectors folder {path}: {IDS} holds {ids} ids, the shards {rows} rows, and "
                f"{MANIFEST} says {manifest['count']}; make it again with `{_MADE_BY}`"
            )
        if outside := [shard.file for shard in folder.files if not _is_inside(shard.file)]:
            raise RefusedRequest(
                f"vectors folder {path}: {MANIFEST} names {', '.join(map(repr, outside))}; shards lie in the "
                "folder, under names that start from it"
            )
        if missing := [shard.file for shard in folder.files if not (path / shard.file).is_file()]:
            raise RefusedRequest(
                f"vectors folder {path}: {', '.join(missing)} missing; make it again with `{_MADE_BY}`"
            )
        return folder

    @property
    def card(self) -> dict[str, Any]:
        """The embedder's card, as ``EmbedderCard.to_dict`` gives it."""
        card = self.manifest["card"]
        if not isinstance(card, dict):
            raise RefusedRequest(
                f"vectors folder {self.path}: its card is a {type(card).__name__}, not an object"
            )
        return card

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Of the items, in row order: 65 bytes and more an id, from the first call on."""
        return tuple(str(one) for one in read_parquet(self.path / IDS, columns=["id"])["id"].to_pylist())

    def repeated_ids(self) -> dict[str, int]:
        """Ids that stand more than once, and how often, the most frequent first."""
        import pyarrow.compute as pc

        column = read_parquet(self.path / IDS, columns=["id"])["id"]
        if len(pc.unique(column)) == len(column):
            return {}
        counted = ((str(one["values"]), int(one["counts"])) for one in pc.value_counts(column).to_pylist())
        return dict(sorted((one for one in counted if one[1] > 1), key=lambda one: -one[1]))

    def ids_by_shard(self) -> Iterator[list[str]]:
        """The same, with no more than a shard's in memory."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path / IDS) as file:
            batches = file.iter_batches(columns=["id"])
            waiting: list[str] = []
            for shard in self.files:
                while len(waiting) < shard.rows:
                    waiting += map(str, next(batches)["id"].to_pylist())
                yield waiting[: shard.rows]
                waiting = waiting[shard.rows :]

    @property
    def count(self) -> int:
        """Vectors in all shards."""
        return int(self.manifest["count"])

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return int(self.manifest["dim"])

    @property
    def fingerprint(self) -> str:
        """Of the embedder that made the vectors; empty if the writer gave none."""
        return str(self.card.get("fingerprint", ""))

    @cached_property
    def files(self) -> tuple[Shard, ...]:
        """The shards in row order.

        Raises:
            RefusedRequest: the manifest, which another tool may have written, does not describe them.
        """
        entries = self.manifest["shards"]
        problems = Problems(f"vectors folder {self.path}: {MANIFEST}")
        if not isinstance(entries, list):
            problems.add(f"'shards' is a {type(entries).__name__}; it must be a list of {_ENTRY}")
            entries = []
        found = []
        for place, entry in enumerate(entries):
            try:
                found.append(_shard(entry))
            except RefusedRequest as error:
                problems.add(f"shard {place}: {error}")
        problems.refuse_if_any()
        return tuple(found)

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Items that have no vector, with the reason, in item order."""
        return tuple(self.read_failures())

    def read_failures(self) -> Iterator[Failure]:
        """The same, one at a time."""
        path = self.path / FAILURES
        if not path.is_file():
            return
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if line.strip():
                    row = json.loads(line)
                    yield Failure(row["item"], row["reason"])

    def shards(self) -> Iterator[npt.NDArray[Any]]:
        """The vectors, shard by shard: (rows, dim), in the dtype they are stored in, checksums verified.

        Raises:
            RefusedRequest: a shard was changed or is not what the manifest says.
        """
        for shard in self.files:
            yield self.read(shard)

    def matrix(self) -> npt.NDArray[np.float32]:
        """All vectors in memory: float32 (count, dim)."""
        whole = np.empty((self.count, self.dim), dtype=np.float32)
        first = 0
        for vectors in self.shards():
            whole[first : first + len(vectors)] = vectors
            first += len(vectors)
        return whole

    def read(self, shard: Shard, *, verify: bool = True) -> npt.NDArray[Any]:
        """One shard: (rows, dim), in the dtype it is stored in.

        Args:
            shard: one of :attr:`files`.
            verify: compares its checksum, which reads it once more.

        Raises:
            RefusedRequest: it was changed or is not what the manifest says.
        """
        path = self.path / shard.file
        if verify and shard.checksum:
            found, expected = checksum(path, like=shard.checksum), named(shard.checksum)
            if found != expected:
                raise RefusedRequest(
                    f"vectors folder {self.path}: {shard.file} was changed or damaged (checksum {found}, the "
                    f"manifest says {expected}); make it again with `{_MADE_BY}`"
                )
        try:
            vectors: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise RefusedRequest(
                f"vectors folder {self.path}: {shard.file} cannot be read: {error}"
            ) from error
        if vectors.shape != (shard.rows, self.dim):
            raise RefusedRequest(
                f"vectors folder {self.path}: {shard.file} has shape {vectors.shape}, the manifest says "
                f"({shard.rows}, {self.dim})"
            )
        return vectors


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file as an Arrow table; ``pq.read_table`` would import pandas, a second for every search."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(columns=columns)


def _shard(entry: Any) -> Shard:
    """A shard as the manifest lists it.

    Raises:
        RefusedRequest: it lists none.
    """
    if not isinstance(entry, dict):
        raise RefusedRequest(f"found {entry!r}; it must be {_ENTRY}")
    file, rows = entry.get("file"), entry.get("rows")
    if not isinstance(file, str) or type(rows) is not int or rows < 0:
        raise RefusedRequest(f"found file {file!r} and rows {rows!r}; it must be {_ENTRY}")
    given = entry.get("checksum") or entry.get("sha256") or ""
    if given:
        named(given)  # a wrong one is told at once, not behind hours of the shards before it
    return Shard(file, rows, given)


def _is_inside(name: str) -> bool:
    """Whether a manifest, which may come from elsewhere, names a file of its own folder."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _count_ids(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise RefusedRequest(
            f"vectors folder {path.parent}: {path.name} is missing; make it again with `{_MADE_BY}`"
        )
    try:
        with pq.ParquetFile(path) as file:
            file.schema_arrow.field("id")
            return int(file.metadata.num_rows)
    except (pa.ArrowException, KeyError) as error:
        raise RefusedRequest(f"{path} is not a Parquet file with a column `id`: {error}") from error
