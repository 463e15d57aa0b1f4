"""A vectors folder while it is being written: what is done survives a kill, and the manifest comes last.

All unfinished work lies in ``OUT/.work``. A *stretch* is a run of consecutive items that are done: one
``.npy`` with their rows and one ``.json`` with their ids and failures, which is written second and makes
the stretch count. Stretches that fill a shard are joined into it. Only when the last item is done do the
files move up into ``OUT``, the manifest last. Memory holds one shard, and a few numbers of each other one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import Failure, JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.kept_digests import DIGESTS
from vidvec_msg.formats.vectors import FAILURES, IDS, MANIFEST, ROW_GROUP
from vidvec_msg.retrieval.disk_space import free_bytes, in_words
from vidvec_msg.retrieval.embedding.metadata import METADATA, metadata_table
from vidvec_msg.retrieval.embedding.shard_files import Record, Stretch, joined, shard_name, write_matrix
from vidvec_msg.runs import (
    digest_of,
    only_writer,
    read_json,
    replacing,
    require_new,
    write_json,
)

WORK = ".work"
# what the parts of a request are called in an error message
_NAMES = {
    "fingerprint": "embedder fingerprint",
    "items": "digest of the items",
    "count": "number of items",
    "shard_size": "items per shard",
}


class VectorsWriter:
    """Writes one vectors folder; use it inside :func:`writing`.

    Args:
        out: the folder.
        request: everything that decides its content; holds at least ``count`` (items), ``shard_size``
            (items per shard), ``dim`` and ``dtype``.
    """

    def __init__(self, out: Path, request: Mapping[str, Any]) -> None:
        self.out = out
        self.work = out / WORK
        self.request = dict(request)
        self._count: int = self.request["count"]
        self._shard_size: int = self.request["shard_size"]
        self._shards: list[Stretch] = []  # full shards
        self._parts: list[Stretch] = []  # saved stretches of the shard being filled
        self._ahead: dict[int, Stretch] = {}  # saved ones that come later, by their first position
        self._rows: list[npt.NDArray[Any]] = []  # not saved yet, as are the next two
        self._ids: list[str] = []
        self._failures: list[Failure] = []
        self._saved = 0
        self.done = 0

    @property
    def shard_end(self) -> int:
        """Position after the last item of the shard being filled."""
        return min(self.done - self.done % self._shard_size + self._shard_size, self._count)

    @property
    def failures(self) -> Iterator[Failure]:
        """Everything that failed so far, in the order of the items."""
        for stretch in (*self._shards, *self._parts):
            if stretch.failed:
                yield from self._record(stretch).failures
        yield from self._failures

    @property
    def processed(self) -> int:
        """How many items are done, those of shards that come later included."""
        return self.done + sum(stretch.stop - stretch.first for stretch in self._ahead.values())

    @property
    def failed(self) -> int:
        """How many of those failed."""
        saved = (*self._shards, *self._parts, *self._ahead.values())
        return sum(stretch.failed for stretch in saved) + len(self._failures)

    def add(self, vectors: npt.NDArray[Any], ids: Sequence[str], failures: Sequence[Failure]) -> None:
        """Takes the next items, none beyond :attr:`shard_end`; a full shard is saved at once.

        Args:
            vectors: (len(ids), dim).
            ids: ids of the rows.
            failures: the items that have no row.
        """
        stop = self.done + len(ids) + len(failures)
        full = stop == self.shard_end
        self._rows.append(np.asarray(vectors, dtype=self.request["dtype"]))
        self._ids += ids
        self._failures += failures
        self.done = stop
        if full:
            self._seal()
            self._take_up()

    def save(self) -> None:
        """Saves what was added since the last time, so that a kill does not cost it."""
        if self.done > self._saved:
            self._parts.append(self._write(f"part-{self._saved:012d}", self._saved, self._rows))
            self._forget_saved()

    def resume(self) -> None:
        """Takes up the stretches that an interrupted run left; torn or altered ones are done again.

        Raises:
            RefusedRequest: a newer version left them.
        """
        left = sorted(self._readable(), key=lambda stretch: stretch.stop)
        whole = {stretch.first for stretch in left if stretch.is_shard}
        for stretch in left:
            if stretch.is_shard or stretch.first - stretch.first % self._shard_size not in whole:
                self._ahead[stretch.first] = stretch  # of two that begin at one item the longer one
        self._take_up()

    def missing_shards(self) -> list[tuple[int, int]]:
        """First position and the one after the last of the shards that are not done, in order."""
        there = {stretch.first for stretch in self._ahead.values() if stretch.is_shard}
        begins = range(self.done - self.done % self._shard_size, self._count, self._shard_size)
        if self.done == self._count:
            return []
        return [(at, min(at + self._shard_size, self._count)) for at in begins if at not in there]

    def add_shard(
        self, first: int, matrix: memoryview, ids: Sequence[str], failures: Sequence[Failure]
    ) -> None:
        """Takes a whole shard, in any order of shards.

        Args:
            first: position of its first item.
            matrix: the content of its ``.npy`` file.
            ids: ids of the rows.
            failures: the items that have no row.
        """
        stop = first + len(ids) + len(failures)
        path = self.work / f"{shard_name(first // self._shard_size)}.npy"
        with self._told_when_full(), replacing(path) as temporary:
            temporary.write_bytes(matrix)
        shard = self._count_in(path, first, stop, ids, failures)
        self._ahead = {at: one for at, one in self._ahead.items() if not first <= at < stop} | {first: shard}
        if first <= self.done < stop:  # parts of it were done before
            for part in self._parts:
                self._remove(part)
            self._parts = []
            self.done = self._saved = first
        self._take_up()

    def finish(self, items: Sequence[Item], manifest: Mapping[str, Any]) -> None:
        """Moves the shards up and writes ids, failures and, last, the manifest.

        Args:
            items: the items of the request, for their metadata.
            manifest: what to record beside the counts, the key and the shards.
        """
        for shard in self._shards:
            if (self.work / shard.file).exists():  # else an interrupted finish moved it already
                (self.work / shard.file).replace(self.out / shard.file)
        with self._told_when_full():
            self._move_up(IDS, lambda path: self._write_metadata(path, items))
            self._move_up(FAILURES, self._write_failures)
            content = {
                "format": 1,
                **manifest,
                "count": sum(shard.rows for shard in self._shards),
                "dim": self.request["dim"],
                "dtype": self.request["dtype"],
                "failed": self.failed,
                "key": digest_of(self.request),
                "request": self.request,
                "shards": [{"file": s.file, "rows": s.rows, "checksum": s.checksum} for s in self._shards],
            }
            self._move_up(MANIFEST, lambda path: write_json(path, content))
        self.discard_work()

    def discard_work(self) -> None:
        """Removes the unfinished work, and the folder if nothing else is in it."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self.out.is_dir() and not any(self.out.iterdir()):
            self.out.rmdir()

    def _take_up(self) -> None:
        """Goes on behind whatever is done already from here on."""
        while (stretch := self._ahead.pop(self.done, None)) is not None:
            self.done = self._saved = stretch.stop
            if stretch.is_shard:
                self._shards.append(stretch)
                continue
            self._parts.append(stretch)
            if self.done in (self._count, self._parts[0].first + self._shard_size):
                self._seal()  # killed after its last part and before the shard
        self._ahead = {first: stretch for first, stretch in self._ahead.items() if first > self.done}

    def _seal(self) -> None:
        """Joins the saved parts and the rest into a shard; the parts go once the shard counts."""
        first = self._parts[0].first if self._parts else self._saved
        parts, self._parts = self._parts, []
        records = [self._record(part) for part in parts]
        rows = [np.load(self.work / part.file, allow_pickle=False) for part in parts] + self._rows
        self._ids = [name for record in records for name in record.ids] + self._ids
        self._failures = [failure for record in records for failure in record.failures] + self._failures
        self._shards.append(self._write(shard_name(first // self._shard_size), first, rows))
        self._forget_saved()
        for part in parts:
            self._remove(part)

    def _remove(self, part: Stretch) -> None:
        (self.work / part.file).with_suffix(".json").unlink()
        (self.work / part.file).unlink()

    def _write(self, name: str, first: int, rows: Sequence[npt.NDArray[Any]]) -> Stretch:
        matrix = joined(rows, self.request["dim"], self.request["dtype"])  # (rows, dim)
        path = self.work / f"{name}.npy"
        with self._told_when_full(), replacing(path) as temporary, temporary.open("wb") as stream:
            write_matrix(stream, matrix)
        return self._count_in(path, first, self.done, self._ids, self._failures)

    def _count_in(
        self, path: Path, first: int, stop: int, ids: Sequence[str], failures: Sequence[Failure]
    ) -> Stretch:
        record = Record(first, stop, tuple(ids), tuple(failures), path.name, checksum(path))
        with self._told_when_full():
            record.write(self.work)
        return Stretch.of(record)

    def _forget_saved(self) -> None:
        self._rows, self._ids, self._failures = [], [], []
        self._saved = self.done

    def _readable(self) -> Iterator[Stretch]:
        for path in self.work.glob("*-*.json"):
            try:
                stretch = Stretch.of(Record.read(path))
            except RefusedRequest as error:
                raise RefusedRequest(f"--out {self.out}: {WORK}/{path.name}: {error}") from error
            moved = self.out / stretch.file
            path = moved if moved.exists() else self.work / stretch.file
            if path.exists() and checksum(path, like=stretch.checksum) == stretch.checksum:
                yield stretch

    def _record(self, stretch: Stretch) -> Record:
        return Record.read((self.work / stretch.file).with_suffix(".json"))

    def _write_metadata(self, path: Path, items: Sequence[Item]) -> None:
        """Shard by shard, so that no more is in memory."""
        with pq.ParquetWriter(path, METADATA) as writer:
            for shard in self._shards:
                ids = set(self._record(shard).ids)
                kept = (item for item in items[shard.first : shard.stop] if item.id in ids)
                if ids:
                    writer.write_table(metadata_table(kept), row_group_size=ROW_GROUP)

    def _write_failures(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for failure in self.failures:
                stream.write(json.dumps(asdict(failure), ensure_ascii=False) + "\n")

    @contextmanager
    def _told_when_full(self) -> Iterator[None]:
        """A disk that is full, or a quota that is used up, ends the job in plain words."""
        try:
            yield
        except OSError as error:
            saved = sum(s.stop - s.first for s in (*self._shards, *self._parts, *self._ahead.values()))
            raise JobFailed(
                f"cannot write into --out {self.out}: {error} ({in_words(free_bytes(self.out))} free there); "
                f"{saved:,} of {self._count:,} items are saved. Make room, and the same command goes on."
            ) from error

    def _move_up(self, name: str, write: Callable[[Path], object]) -> None:
        write(self.work / name)
        (self.work / name).replace(self.out / name)


@contextmanager
def writing(out: Path, request: Mapping[str, Any]) -> Iterator[VectorsWriter]:
    """Opens a folder for writing, new or interrupted; one process at a time.

    Args:
        out: the folder.
        request: see :class:`VectorsWriter`; a folder begun with another one is refused.

    Raises:
        RefusedRequest: the folder holds something else, was begun with another request, or another
            process is writing into it.
    """
    begun_by = WORK if (out / WORK).exists() else DIGESTS  # a kill may have come before the first item
    require_new(out, option="--out", resumable=begun_by)
    writer = VectorsWriter(out, request)
    writer.work.mkdir(parents=True, exist_ok=True)
    with only_writer(writer.work, what=f"--out {out}"):
        begun = writer.work / "request.json"
        if begun.exists():
            found = read_json(begun, what="vectors folder", made_by="vidvec-msg embed")
            refuse_other_request(out, found, request)
            writer.resume()
        else:
            write_json(begun, writer.request)
        yield writer


def is_complete(out: Path, request: Mapping[str, Any]) -> bool:
    """Whether ``out`` holds the whole result of this request.

    Raises:
        RefusedRequest: it holds the result of another one.
    """
    if not (out / MANIFEST).is_file():
        return False
    manifest = read_json(out / MANIFEST, what="vectors folder", made_by="vidvec-msg embed")
    if manifest.get("key") != digest_of(request):
        refuse_other_request(out, manifest.get("request", {}), request)
    shutil.rmtree(out / WORK, ignore_errors=True)  # left by a kill between the manifest and the tidying up
    return True


def refuse_other_request(out: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuses a folder that was begun, or made, for another request.

    Raises:
        RefusedRequest: naming every difference, found and expected, and the two ways on.
    """
    names = [name for name in expected if found.get(name) != expected[name]]
    if not names:
        return
    lines = [f"--out {out} holds vectors of another request:"]
    lines += [f"  - {_NAMES.get(n, n)}: found {found.get(n)!r}, expected {expected[n]!r}" for n in names]
    lines.append("Give another --out, repeat the first request, or remove the folder to embed anew.")
    raise RefusedRequest("\n".join(lines))
