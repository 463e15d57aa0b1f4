"""What opening and searching an index folder costs beside the bare FAISS index inside it.

How long building one takes is bench_index.py's matter.

    python benchmarks/bench_search.py                      # 50,000 × 384, about a minute on two cores
    python benchmarks/bench_search.py --vectors 200000     # about four times as long

Ours also checks the queries, asks for one more result to settle ties, and maps positions to ids; opening
compares the checksums of all files. Searches and openings run in turn in one process; the best of
``--repeats`` counts. The file is in the system's cache: from a disk both take the time of the disk.

One JSON object a line; a ratio is how many times better ours is. All of the above costs something, so the
bars lie below 1 and say how much it may cost at the size that runs by default; smaller sizes miss them.
"""

from __future__ import annotations

import argparse
import json
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
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.delete import delete_items
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

QUERIES = 100  # in one block
ROUNDS = 10  # blocks per repeat: short ones in turn, so that the rest of the machine hits both sides alike
SINGLE = 10  # queries asked one at a time
NEIGHBOURS = 10
SHARDS = 5  # memory is bounded by one, so there must be several
# measure → unit, and the lowest ratio that we accept for each kind of index
MEASURES = {
    "search": ("ms/query", {"Flat": 0.9, "IVF": 0.8}),
    "search, one query at a time": ("ms/query", {"Flat": 0.9, "IVF": 0.6}),
}
OPENING_BAR = 0.5  # a checksum may cost as much again as reading


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


def measure_openings(folder: Path, repeats: int) -> dict[str, float]:
    """Milliseconds that opening takes, ours with every checksum compared; the best of each."""
    opens: dict[str, Callable[[], Any]] = {
        "ours": lambda: VectorIndex.open(folder),
        "peer": lambda: faiss.read_index(str(folder / "index.faiss")),
    }
    best: dict[str, float] = {}
    for _ in range(ROUNDS * repeats):
        for side, open_index in opens.items():
            start = time.perf_counter()
            open_index()
            keep_best(best, side, 1000 * (time.perf_counter() - start))
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
            index = build_index(vectors, Path(scratch) / factory, factory=factory)
            kind = factory[:3] if factory.startswith("IVF") else factory
            openings = measure_openings(index, repeats)
            claim = f"index opened and verified ({kind}), beside faiss.read_index"
            note = f"{size}, {factory}, every checksum compared; the peer checks nothing"
            print_line(claim, openings["ours"], openings["peer"], "ms", OPENING_BAR, note)
            for changed in ("", ", one of them deleted"):  # from ours; the peer goes on finding it
                if changed:
                    delete_items(index, ["d0"])
                searches = measure_searches(index, dim, repeats)
                mine, theirs = searches["ours"], searches["peer"]
                for name, (unit, bars) in MEASURES.items():
                    note = f"{size}{changed}, {factory}, k={NEIGHBOURS}, {threads} thread{'s'[: threads > 1]}"
                    claim = f"index {name} ({kind}{changed}), beside bare FAISS"
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
        "bar": None if bar is None else round(bar, 3),
        "ok": ratio is None or bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=50_000, help="how many")
    parser.add_argument("--dim", type=int, default=384, help="dimensions")
    parser.add_argument("--repeats", type=int, default=2, help="measurements; the best counts")
    given = parser.parse_args()
    compare(given.vectors, given.dim, given.repeats)


if __name__ == "__main__":
    main()
