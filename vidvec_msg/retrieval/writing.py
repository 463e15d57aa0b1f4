"""A vectors folder while it is being written: what is done survives a kill, and the manifest comes last.

All unfinished work lies in ``OUT/.work``. A *stretch* is a run of consecutive items that are done: one
``.npy`` with their rows and one ``.json`` with their ids and failures, which is written second and makes
the stretch count. Stretches that fill a shard are joined into it. Only when the last item is done do the
files move up into ``OUT``, the manifest last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from vidvec_msg.errors import Failure, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.vectors import FAILURES, IDS, MANIFEST
from vidvec_msg.runs import digest_of, file_digest, read_json, replacing, require_new, write_json

WORK = ".work"
SNIPPET = 200  # characters of an item's text that ids.parquet keeps, enough to recognise it in a result list

# what the parts of a request are called in an error message
_NAMES = {
    "fingerprint": "embedder fingerprint",
    "items": "digest of the items",
    "count": "number of items",
    "shard_size": "items per shard",
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive items that are done.

    Args:
        first: position of the first item.
        stop: position after the last item.
        ids: ids of the rows, in order: the items without the failed ones.
        failures: the failed ones, in order.
        file: name of the ``.npy`` file, shape (len(ids), dim).
        sha256: of that file.
    """

    first: int
    stop: int
    ids: tuple[str, ...]
    failures: tuple[Failure, ...]
    file: str
    sha256: str


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
    def failures(self) -> list[Failure]:
        """Everything that failed so far, in the order of the items."""
        saved = [failure for stretch in (*self._shards, *self._parts) for failure in stretch.failures]
        return saved + self._failures

    @property
    def failed(self) -> int:
        """How many items failed so far."""
        saved = sum(len(stretch.failures) for stretch in (*self._shards, *self._parts))
        return saved + len(self._failures)

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

    def save(self) -> None:
        """Saves what was added since the last time, so that a kill does not cost it."""
        if self.done > self._saved:
            self._parts.append(self._write(f"part-{self._saved:012d}", self._saved, self._rows))
            self._forget_saved()

    def resume(self) -> None:
        """Takes up the stretches that an interrupted run left; torn or altered ones are done again."""
        left = sorted(self._readable(), key=lambda stretch: (stretch.first, -stretch.stop))
        for stretch in left:
            if stretch.first != self.done:
                continue  # inside a shard that was joined, or after a gap
            self.done = self._saved = stretch.stop
            is_shard = stretch.file.startswith("shard-")
            (self._shards if is_shard else self._parts).append(stretch)
        if self._parts and self.done in (self._count, self._parts[0].first + self._shard_size):
            self._seal()  # killed after its last part and before the shard

    def finish(self, items: Sequence[Item], manifest: Mapping[str, Any]) -> None:
        """Moves the shards up and writes ids, failures and, last, the manifest.

        Args:
            items: the items of the request, for their metadata.
            manifest: what to record beside the counts, the key and the shards.
        """
        for shard in self._shards:
            if (self.work / shard.file).exists():  # else an interrupted finish moved it already
                (self.work / shard.file).replace(self.out / shard.file)
        kept = {name for shard in self._shards for name in shard.ids}
        failures = self.failures
        metadata = metadata_table(item for item in items if item.id in kept)
        self._move_up(IDS, lambda path: pq.write_table(metadata, path))
        lines = [json.dumps(asdict(failure), ensure_ascii=False) + "\n" for failure in failures]
        self._move_up(FAILURES, lambda path: path.write_text("".join(lines), encoding="utf-8"))
        content = {
            "format": 1,
            **manifest,
            "count": len(kept),
            "dim": self.request["dim"],
            "dtype": self.request["dtype"],
            "failed": len(failures),
            "key": digest_of(self.request),
            "request": self.request,
            "shards": [{"file": s.file, "rows": len(s.ids), "sha256": s.sha256} for s in self._shards],
        }
        self._move_up(MANIFEST, lambda path: write_json(path, content))
        self.discard_work()

    def discard_work(self) -> None:
        """Removes the unfinished work, and the folder if nothing else is in it."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self.out.is_dir() and not any(self.out.iterdir()):
            self.out.rmdir()

    def _seal(self) -> None:
        """Joins the saved parts and the rest into a shard; the parts go once the shard counts."""
        first = self._parts[0].first if self._parts else self._saved
        parts, self._parts = self._parts, []
        rows = [np.load(self.work / part.file, allow_pickle=False) for part in parts] + self._rows
        self._ids = [name for part in parts for name in part.ids] + self._ids
        self._failures = [failure for part in parts for failure in part.failures] + self._failures
        self._shards.append(self._write(f"shard-{first // self._shard_size:05d}", first, rows))
        self._forget_saved()
        for part in parts:
            (self.work / part.file).with_suffix(".json").unlink()
            (self.work / part.file).unlink()

    def _write(self, name: str, first: int, rows: Sequence[npt.NDArray[Any]]) -> Stretch:
        empty = np.zeros((0, self.request["dim"]), dtype=self.request["dtype"])
        matrix = np.concatenate([empty, *rows])  # (rows, dim)
        path = self.work / f"{name}.npy"
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, matrix, allow_pickle=False)
        digest = file_digest(path)
        stretch = Stretch(first, self.done, tuple(self._ids), tuple(self._failures), path.name, digest)
        write_json(path.with_suffix(".json"), asdict(stretch))
        return stretch

    def _forget_saved(self) -> None:
        self._rows, self._ids, self._failures = [], [], []
        self._saved = self.done

    def _readable(self) -> Iterator[Stretch]:
        for record in self.work.glob("*-*.json"):
            content = json.loads(record.read_text(encoding="utf-8"))
            content["ids"] = tuple(content["ids"])
            content["failures"] = tuple(Failure(**failure) for failure in content["failures"])
            stretch = Stretch(**content)
            moved = self.out / stretch.file
            path = moved if moved.exists() else self.work / stretch.file
            if path.exists() and file_digest(path) == stretch.sha256:
                yield stretch

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
    require_new(out, option="--out", resumable=WORK)
    writer = VectorsWriter(out, request)
    writer.work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(writer.work / "lock", timeout=0):
            begun = writer.work / "request.json"
            if begun.exists():
                found = read_json(begun, what="vectors folder", made_by="vidvec-msg embed")
                refuse_other_request(out, found, request)
                writer.resume()
            else:
                write_json(begun, writer.request)
            yield writer
    except Timeout:
        raise RefusedRequest(
            f"another process is writing into --out {out}; wait until it ends, or give another folder."
        ) from None


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


def metadata_table(items: Iterable[Item]) -> pa.Table:
    """What a result list shows of each item: one row an item, in their order.

    Returns:
        columns ``id``, ``text`` (its first 200 characters), ``video``, ``image``, ``audio`` (paths),
        ``start``, ``end`` (seconds) and ``groups`` (JSON).
    """
    kept = list(items)
    media = {
        name: pa.array([_path(getattr(item, name)) for item in kept], pa.string())
        for name in ("video", "image", "audio")
    }
    return pa.table(
        {
            "id": pa.array([item.id for item in kept], pa.string()),
            "text": pa.array([_snippet(item) for item in kept], pa.string()),
            **media,
            "start": pa.array([item.start for item in kept], pa.float64()),
            "end": pa.array([item.end for item in kept], pa.float64()),
            "groups": pa.array([_groups(item) for item in kept], pa.string()),
        }
    )


def _groups(item: Item) -> str:
    return json.dumps(dict(item.groups), ensure_ascii=False)


def _path(source: object) -> str | None:
    return str(source) if isinstance(source, Path) else None


def _snippet(item: Item) -> str | None:
    text = " ".join((item.full_text or item.transcript or "").split())
    if not text:
        return None
    return text if len(text) <= SNIPPET else text[: SNIPPET - 1] + "…"
