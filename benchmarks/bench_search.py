"""What the index folder costs beside bare FAISS, same factory string: time to build and search, and memory.

    python benchmarks/bench_search.py                      # 200 000 x 384, about three minutes on one core
    python benchmarks/bench_search.py --vectors 20000      # a quick look

Both read the same ``.npy`` shards, fill the same kind of index and write it. Ours also checks every vector,
normalises it, keeps ids and metadata, and hashes what it reads and writes. Each measurement is a process of
its own (its peak memory is what the system says of it), the best of ``--repeats``. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import VectorIndex, build_index

QUERIES = 500
SINGLE = 100  # queries asked one at a time
NEIGHBOURS = 10
SECONDS, MILLISECONDS, MEGABYTES = "s", "ms/query", "MB"
# measure → unit, highest ratio that we accept
MEASURES = {
    "build": (SECONDS, {"Flat": 5.0, "IVF": 1.25}),
    "search": (MILLISECONDS, {"Flat": 1.1, "IVF": 1.25}),
    "search, one query at a time": (MILLISECONDS, {"Flat": 1.1, "IVF": 1.25}),
    "peak memory": (MEGABYTES, {"Flat": 1.5, "IVF": 1.5}),
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


def ours(vectors: Path, out: Path, factory: str, queries: Vectors) -> dict[str, float]:
    """The package."""
    start = time.perf_counter()
    build_index(vectors, out, factory=factory)
    built = time.perf_counter() - start
    opened = VectorIndex.open(out)
    return {"build": built, **timed(lambda block: opened.search(block, NEIGHBOURS), queries)}


def peer(vectors: Path, out: Path, factory: str, queries: Vectors) -> dict[str, float]:
    """Bare FAISS, written as its tutorial does, shard by shard."""
    start = time.perf_counter()
    shards = sorted(vectors.glob("shard-*.npy"))
    index = faiss.index_factory(queries.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        sample = np.concatenate([np.load(shard) for shard in shards])
        index.train(sample)
        del sample
    for shard in shards:
        index.add(np.load(shard))
    if factory.startswith("IVF"):
        index.nprobe = max(index.nlist // 16, 1)
    faiss.write_index(index, str(out))
    built = time.perf_counter() - start
    index = faiss.read_index(str(out))
    return {"build": built, **timed(lambda block: index.search(block, NEIGHBOURS), queries)}


def timed(search: Any, queries: Vectors) -> dict[str, float]:
    """Milliseconds per query, in one block and one at a time, and the peak memory so far."""
    search(queries[:1])  # what is done once is not a query's cost
    start = time.perf_counter()
    search(queries)
    block = (time.perf_counter() - start) / len(queries)
    start = time.perf_counter()
    for row in range(SINGLE):
        search(queries[row : row + 1])
    single = (time.perf_counter() - start) / SINGLE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"search": 1000 * block, "search, one query at a time": 1000 * single, "peak memory": peak}


def measured(side: str, vectors: Path, factory: str, repeats: int) -> dict[str, float]:
    """The best of several processes, each measure for itself."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--side", side, "--folder", str(vectors), "--factory", factory]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {name: min(run[name] for run in runs) for name in MEASURES}


def compare(count: int, dim: int, repeats: int) -> None:
    """Prints a line for each measure and kind of index."""
    with tempfile.TemporaryDirectory() as scratch:
        vectors = Path(scratch) / "vectors"
        items = [Item(f"d{i}", text=f"text {i}") for i in range(count)]
        start = time.perf_counter()
        embed_items(items, RandomUnits(dim), role="document", out=vectors, batch_size=1024, progress=False)
        rate = count / (time.perf_counter() - start)
        print_line(
            "embed pipeline, embedder for free", rate, 0.0, "items/s", 0.0, f"{count} x {dim}; no peer"
        )
        for factory in ("Flat", f"IVF{max(count // 200, 1)},Flat"):
            kind = factory[:3] if factory.startswith("IVF") else factory
            mine, theirs = (measured(side, vectors, factory, repeats) for side in ("ours", "peer"))
            for name, (unit, bars) in MEASURES.items():
                note = f"{count} x {dim}, {factory}, k={NEIGHBOURS}, {faiss.omp_get_max_threads()} threads"
                print_line(f"index {name} ({kind})", mine[name], theirs[name], unit, bars[kind], note)


def print_line(claim: str, mine: float, theirs: float, unit: str, bar: float, note: str) -> None:
    """One result; a claim without a peer is ok by itself."""
    ratio = mine / theirs if theirs else None
    line = {
        "claim": claim,
        "ours": round(mine, 4),
        "peer": round(theirs, 4) if theirs else None,
        "unit": unit,
        "ratio": None if ratio is None else round(ratio, 3),
        "bar": bar or None,
        "ok": ratio is None or ratio <= bar,
        "note": note,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Reads the command line: the comparison, or (with --side) one measurement of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=200_000, help="how many")
    parser.add_argument("--dim", type=int, default=384, help="dimensions")
    parser.add_argument("--repeats", type=int, default=2, help="processes per measurement; the best counts")
    parser.add_argument("--side", choices=["ours", "peer"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--factory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is None:
        compare(given.vectors, given.dim, given.repeats)
        return
    with tempfile.TemporaryDirectory() as scratch:
        dim = np.load(given.folder / "shard-00000.npy", mmap_mode="r").shape[1]
        queries = units(np.random.default_rng(1), QUERIES, dim)
        side = {"ours": ours, "peer": peer}[given.side]
        print(json.dumps(side(given.folder, Path(scratch) / "index", given.factory, queries)))


if __name__ == "__main__":
    main()
