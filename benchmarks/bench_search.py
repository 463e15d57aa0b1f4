"""What the index folder costs beside bare FAISS, same factory string: time to build and search, and memory.

    python benchmarks/bench_search.py                      # 50,000 × 384, about two minutes on two cores
    python benchmarks/bench_search.py --vectors 200000     # about four times as long

Both read the same ``.npy`` shards, train on equally many of them, fill the same kind of index and write it.
Ours also checks every vector, normalises it, keeps ids and metadata, and hashes what it reads and writes.
Builds run in processes of their own, searches in turn in one process; the best of ``--repeats`` counts.
Memory is what a build adds to a process that has loaded both libraries (read from /proc: Linux only).

One JSON object a line; a ratio is how many times better ours is. All of the above costs something, so the
bars lie below 1 and say how much it may cost at the size that runs by default; smaller sizes miss them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index_build import build_index, sample_size
from vidvec_msg.retrieval.vector_index import VectorIndex

QUERIES = 100  # in one block
ROUNDS = 10  # blocks per repeat: short ones in turn, so that the rest of the machine hits both sides alike
SINGLE = 10  # queries asked one at a time
NEIGHBOURS = 10
SHARDS = 5  # memory is bounded by one, so there must be several
# measure → unit, and the lowest ratio that we accept for each kind of index
# At this size what a build adds is mostly fixed or linear work: every shard is hashed and its norms are
# checked on each pass (an index with lists takes two, to train and to add), and files are synced to disk.
MEASURES = {
    "build": ("s", {"Flat": 0.2, "IVF": 0.5}),
    "search": ("ms/query", {"Flat": 0.9, "IVF": 0.8}),
    "search, one query at a time": ("ms/query", {"Flat": 0.9, "IVF": 0.6}),
    "peak memory": ("MB", {"Flat": 0.6, "IVF": 0.6}),
}


class RandomUnits:
    """An embedder that costs nothing: what is left is the pipeline."""

    def __init__(self, dim: int) -> None:
        self.card = EmbedderCard(name="random", dim=dim, weights="0")
        self._random = np.random.default_rng(0)

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors, (items, dim)."""
        return units(self._random, len(items), self.card.dim)


def units(random: np.random.Generator, count: int, dim: int) -> Vectors:
    """Random directions, (count, dim)."""
    rows = random.standard_normal((count, dim), dtype=np.float32)
    scaled: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def build_ours(vectors: Path, out: Path, factory: str) -> None:
    """The package."""
    build_index(vectors, out, factory=factory)


def build_peer(vectors: Path, out: Path, factory: str) -> None:
    """Bare FAISS, written as its tutorial does, shard by shard."""
    shards = sorted(vectors.glob("shard-*.npy"))
    index = faiss.index_factory(
        np.load(shards[0], mmap_mode="r").shape[1], factory, faiss.METRIC_INNER_PRODUCT
    )
    if not index.is_trained:
        rows = np.concatenate([np.load(shard) for shard in shards])
        index.train(rows[: sample_size(factory, len(rows))])
    for shard in shards:
        index.add(np.load(shard))
    faiss.write_index(index, str(out))


def build_once(side: str, vectors: Path, factory: str) -> dict[str, float]:
    """Seconds and peak memory of one build, in this process."""
    build = {"ours": build_ours, "peer": build_peer}[side]
    with tempfile.TemporaryDirectory() as scratch:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = megabytes("VmRSS")
        start = time.perf_counter()
        build(vectors, Path(scratch) / "index", factory)
        seconds = time.perf_counter() - start
    return {"build": seconds, "peak memory": megabytes("VmHWM") - before}


def megabytes(field: str) -> float:
    """Memory of this process, as Linux counts it: VmRSS now, VmHWM at most.

    ``ru_maxrss`` will not do: a child process begins with the peak of its parent, which holds the vectors.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) / 1024


def measure_builds(vectors: Path, factory: str, repeats: int) -> dict[str, dict[str, float]]:
    """Both sides in turn, each time in a new process; the best of each measure."""
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(repeats):
        for side, found in runs.items():
            command = [
                sys.executable,
                __file__,
                "--side",
                side,
                "--folder",
                str(vectors),
                "--factory",
                factory,
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout))
    return {
        side: {name: min(run[name] for run in found) for name in found[0]} for side, found in runs.items()
    }


def measure_searches(folder: Path, dim: int, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds per query of our index and of the FAISS index inside it, in turn; the best of each.

    One index for both, since two copies would push each other out of the cache; and never the same query one
    after the other, since the second would find its vectors in the cache.
    """
    opened = VectorIndex.open(folder)
    bare = opened.segments[0].faiss_index
    searches: dict[str, Callable[[Vectors, int], Any]] = {"ours": opened.search, "peer": bare.search}
    best: dict[str, dict[str, float]] = {side: {} for side in searches}
    random = np.random.default_rng(1)
    for _ in range(ROUNDS * repeats):
        for side, search in searches.items():
            queries = units(random, QUERIES, dim)
            start = time.perf_counter()
            search(queries, NEIGHBOURS)
            keep_best(best[side], "search", 1000 * (time.perf_counter() - start) / QUERIES)
        for _ in range(SINGLE):
            for side, search in searches.items():
                query = units(random, 1, dim)
                start = time.perf_counter()
                search(query, NEIGHBOURS)
                keep_best(best[side], "search, one query at a time", 1000 * (time.perf_counter() - start))
    return best


def keep_best(found: dict[str, float], name: str, value: float) -> None:
    """Keeps the lowest value of a measure."""
    found[name] = min(value, found.get(name, value))


def compare(count: int, dim: int, repeats: int) -> None:
    """Prints a line for each measure and kind of index."""
    threads = faiss.omp_get_max_threads()
    with tempfile.TemporaryDirectory() as scratch:
        vectors = Path(scratch) / "vectors"
        items = [Item(f"d{i}", text=f"text {i}") for i in range(count)]
        start = time.perf_counter()
        embed_items(
            items,
            RandomUnits(dim),
            role="document",
            out=vectors,
            batch_size=1024,
            shard_size=-(-count // SHARDS),
            progress=False,
        )
        seconds = time.perf_counter() - start
        size = f"{count:,} × {dim}"
        print_line("embed pipeline, embedder for free", seconds, None, "s", None, f"{size}; no peer")
        for factory in ("Flat", f"IVF{max(count // 200, 1)},Flat"):
            builds = measure_builds(vectors, factory, repeats)
            searches = measure_searches(
                build_index(vectors, Path(scratch) / factory, factory=factory), dim, repeats
            )
            kind = factory[:3] if factory.startswith("IVF") else factory
            mine, theirs = ({**builds[side], **searches[side]} for side in ("ours", "peer"))
            for name, (unit, bars) in MEASURES.items():
                note = f"{size}, {factory}, k={NEIGHBOURS}, {threads} thread{'s' if threads > 1 else ''}"
                claim = f"index {name} ({kind}), beside bare FAISS"
                print_line(claim, mine[name], theirs[name], unit, bars[kind], note)


def print_line(
    claim: str, mine: float, theirs: float | None, unit: str, bar: float | None, note: str
) -> None:
    """One result; a claim without a peer is ok by itself."""
    ratio = None if theirs is None else theirs / mine
    line = {
        "claim": claim,
        "ours": round(mine, 4),
        "peer": None if theirs is None else round(theirs, 4),
        "unit": unit,
        "ratio": None if ratio is None else round(ratio, 3),
        "bar": bar,
        "ok": ratio is None or bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Reads the command line: the comparison, or (with --side) one measurement of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=50_000, help="how many")
    parser.add_argument("--dim", type=int, default=384, help="dimensions")
    parser.add_argument("--repeats", type=int, default=2, help="measurements; the best counts")
    parser.add_argument("--side", choices=["ours", "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--factory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is None:
        compare(given.vectors, given.dim, given.repeats)
        return
    print(json.dumps(build_once(given.side, given.folder, given.factory)))


if __name__ == "__main__":
    main()
