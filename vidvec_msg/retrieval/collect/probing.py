"""Every file of a collection is looked into once; what was found survives an interrupted run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vidvec_msg.media.facts import Depth, MediaFacts
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.video import VideoError
from vidvec_msg.retrieval.collect.candidates import relative

_AHEAD = 256  # files that wait for a decoder; more would only cost memory


@dataclass(frozen=True, slots=True)
class Probe:
    """What is known about a file.

    Args:
        facts: None for a file that cannot be used.
        reason: why not.
    """

    facts: MediaFacts | None
    reason: str = ""


class ProbeFile:
    """Probes on disk, one JSON line a file; keyed by path, size and time of change.

    Args:
        path: the file; lines of an earlier run are read, a last one that was cut short is ignored.
        root: folder that the paths in it start from.
        depth: how much of a file was tried; probes of another depth do not count.
    """

    def __init__(self, path: Path, root: Path, depth: Depth) -> None:
        self.path, self.root, self.depth = path, root, depth
        self._known: dict[str, tuple[list[Any], Probe]] = {}
        self._states: dict[str, list[Any]] = {}
        for row in _rows(path):
            self._states.setdefault(row["path"], [row["size"], row["changed"]])
            if row.get("depth") == depth and row.get("facts") is not None:
                key = [row["size"], row["changed"]]
                self._known[row["path"]] = (key, Probe(MediaFacts(**row["facts"])))

    def get(self, path: Path) -> Probe | None:
        """An earlier probe of the file as it is now; failures are tried again."""
        key, probe = self._known.get(relative(path, self.root), ([], None))
        return probe if probe is not None and key == _state(path) else None

    def has_changed(self, path: Path) -> bool:
        """Whether the file is known to have been another one when the last complete run looked into it."""
        before = self._states.get(relative(path, self.root))
        return before is not None and before != _state(path)

    def line(self, path: Path, probe: Probe) -> str:
        """A probe's line."""
        size, changed = _state(path)
        row = {
            "path": relative(path, self.root),
            "size": size,
            "changed": changed,
            "depth": self.depth,
            "facts": None if probe.facts is None else asdict(probe.facts),
            **({"reason": probe.reason} if probe.reason else {}),
        }
        return json.dumps(row, ensure_ascii=False) + "\n"


def probe_all(
    paths: Iterable[Path], kept: ProbeFile, *, workers: int, timeout: float, name: str
) -> dict[Path, Probe]:
    """Probes of files that exist, each once; those that are new are appended to the file as they come.

    Args:
        paths: absolute.
        kept: earlier ones.
        workers: files that are looked into at once.
        timeout: seconds that one may take.
        name: of the bar.
    """
    found: dict[Path, Probe] = {}
    todo = []
    for path in dict.fromkeys(paths):
        before = kept.get(path)
        if before is None:
            todo.append(path)
        else:
            found[path] = before
    if not todo:
        return found
    pool = DecodePool(workers, timeout)
    failed = 0
    with (
        ThreadPoolExecutor(workers) as threads,
        kept.path.open("a", encoding="utf-8") as stream,
        tqdm(total=len(todo), desc=f"probe {name}", unit="file", disable=not sys.stderr.isatty()) as bar,
    ):
        for start in range(0, len(todo), _AHEAD):
            part = todo[start : start + _AHEAD]
            for path, probe in zip(
                part, threads.map(lambda p: _probe(p, pool, kept.depth), part), strict=True
            ):
                found[path] = probe
                stream.write(kept.line(path, probe))
                failed += probe.facts is None
                bar.update()
                bar.set_postfix(broken=failed, refresh=False)
            stream.flush()
    pool.close()
    return found


def _probe(path: Path, pool: DecodePool, depth: Depth) -> Probe:
    try:
        return Probe(pool.facts(path, depth=depth))
    except VideoError as error:
        return Probe(None, str(error).removeprefix(f"{path}: "))


def _state(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                yield json.loads(line)
            except ValueError:  # the line that was being written when the run was killed
                continue
