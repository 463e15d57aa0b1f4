"""What building an index folder costs beside bare FAISS with the same factory string: time, peak memory.

    python benchmarks/bench_index.py                   # the four cases, one after the other
    python benchmarks/bench_index.py --cases ivf       # 1,000,000 × 384, IVF1024,Flat
    python benchmarks/bench_index.py --cases flat wide # 1,000,000 × 384, Flat; 200,000 × 1,024, IVF1024,SQ8
    python benchmarks/bench_index.py --quick           # a twentieth of the vectors: shows that it runs

All sides read the same ``.npy`` shards, train on equally many of them, fill the same kind of index and write
it, each in a process of its own. Ours also checks checksums and norms, normalises, keeps ids and metadata,
hashes what it writes, and measures the recall of what is not exact by an exact search for 100 of the vectors.
On two cores none of that is free, so there is a second peer, "FAISS with the same checks": a script that
verifies the shards, looks at the norms, finds the true neighbours of 100 vectors with ``faiss.knn``, doubles
nprobe (efSearch) until the same recall is reached, and hashes the file.
Peak memory is what a build adds to a process that has loaded both libraries (VmHWM: Linux only); "peak RSS"
is the whole process. The vectors have structure (2,000 clusters in 48 dimensions, turned into more, with
noise): among random directions recall says nothing.

One JSON object a line; a ratio is how many times better ours is. Time may cost 5% more (0.95), memory 10%
(0.91), and the whole process may take 1.3 times the index and one shard (0.77). Flat has no bar for its time:
building it is nothing but copying, so whatever else is done shows. Codes have none for the whole process: the
sample that trains them is larger than they are. The small graph has none for memory: what is the same at
any size, about 70 MB, is a good part of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_search import print_line
from resident import megabytes_now, peak_megabytes, reset_peak

from vidvec_msg.checksums import checksum
from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.retrieval.indexes import build as index_build
from vidvec_msg.retrieval.indexes.request import sample_size
from vidvec_msg.retrieval.indexes.tuning import Neighbours

SHARD = 50_000  # vectors per file, as `embed` writes them
CLUSTERS, LATENT = 2000, 48
QUERIES, RECALL = 100, 0.95  # as a build of ours measures by default
TIME_BAR, MEMORY_BAR, RSS_BAR = 1 / 1.05, 1 / 1.10, 1 / 1.3


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: how many vectors, of how many dimensions, in which index."""

    count: int
    dim: int
    factory: str
    time_bar: float | None
    memory_bar: float | None = MEMORY_BAR
    rss_bar: float | None = None


CASES = {
    "flat": Case(1_000_000, 384, "Flat", None, rss_bar=RSS_BAR),
    "ivf": Case(1_000_000, 384, "IVF1024,Flat", TIME_BAR, rss_bar=RSS_BAR),
    "wide": Case(200_000, 1024, "IVF1024,SQ8", TIME_BAR),
    "graph": Case(50_000, 384, "HNSW32,Flat", TIME_BAR, memory_bar=None),
}


def write_clusters(folder: Path, count: int, dim: int) -> None:
    """A vectors folder of clustered unit vectors, shard by shard."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    centres = random.standard_normal((CLUSTERS, LATENT), dtype=np.float32)
    turned = random.standard_normal((LATENT, dim), dtype=np.float32)
    shards: list[dict[str, Any]] = []
    for first in range(0, count, SHARD):
        rows = min(SHARD, count - first)
        hidden = centres[random.integers(0, CLUSTERS, rows)]
        hidden = hidden + 0.8 * random.standard_normal((rows, LATENT), dtype=np.float32)  # (rows, latent)
        vectors = hidden @ turned + random.standard_normal((rows, dim), dtype=np.float32)  # (rows, dim)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        path = folder / f"shard-{len(shards):05d}.npy"
        np.save(path, vectors)
        shards.append({"file": path.name, "rows": rows, "checksum": checksum(path)})
    pq.write_table(pa.table({"id": [f"item-{i:08d}" for i in range(count)]}), folder / "ids.parquet")
    card = EmbedderCard(name="clusters", dim=dim, weights="0").to_dict()
    manifest = {"card": card, "count": count, "dim": dim, "shards": shards}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def build_ours(vectors: Path, out: Path, factory: str) -> dict[str, Any]:
    """The package; also the seconds that measuring recall took of it."""
    seconds = [0.0]
    for owner, name in ((Neighbours, "add"), (index_build, "tune"), (index_build, "own_sample")):
        setattr(owner, name, timed(getattr(owner, name), seconds))
    index_build.build_index(vectors, out, factory=factory)
    recall = json.loads((out / "index.json").read_text(encoding="utf-8"))["recall"]
    size = (out / "index.faiss").stat().st_size / 1e6
    told = "" if recall is None else f"recall@10 {recall['recall']:.3f} at {recall['search_parameters']}"
    return {"measuring": seconds[0], "index": size, "told": told}


def timed(call: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The same function, adding what it takes to ``seconds``."""

    def wrapped(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            seconds[0] += time.perf_counter() - start

    return wrapped


def build_peer(vectors: Path, out: Path, factory: str) -> dict[str, Any]:
    """Bare FAISS, as its tutorial does it, shard by shard; trained on as many vectors as ours."""
    shards = sorted(vectors.glob("shard-*.npy"))
    sizes = [np.load(shard, mmap_mode="r").shape for shard in shards]
    count, dim = sum(rows for rows, _ in sizes), sizes[0][1]
    index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        step = max(count // sample_size(factory, count), 1)
        sample: Vectors = np.concatenate([np.load(shard, mmap_mode="r")[::step] for shard in shards])
        index.train(sample)
        del sample
    for shard in shards:
        index.add(np.load(shard))
    faiss.write_index(index, str(out))
    return {}


def build_checked(vectors: Path, out: Path, factory: str) -> dict[str, Any]:
    """Bare FAISS, and around it what a careful script would do: the same duties as ours."""
    shards = json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))["shards"]
    rows_in_all = sum(shard["rows"] for shard in shards)
    mapped = [np.load(vectors / shard["file"], mmap_mode="r") for shard in shards]
    queries = np.concatenate([rows[:: rows_in_all // QUERIES] for rows in mapped])
    near: list[tuple[Vectors, Any]] = []
    first = 0
    for shard in shards:
        if checksum(vectors / shard["file"]) != shard["checksum"]:
            raise SystemExit(f"{shard['file']} was changed")
        rows = np.load(vectors / shard["file"])
        if not np.abs(np.einsum("ij,ij->i", rows, rows) - 1).max() < 1e-3:
            raise SystemExit(f"{shard['file']} holds vectors that are not of norm 1")
        if factory != "Flat":
            scores, places = faiss.knn(queries, rows, 11, metric=faiss.METRIC_INNER_PRODUCT)
            near.append((scores, places + first))
        first += len(rows)
    build_peer(vectors, out, factory)
    checksum(out)
    if near:
        order = np.argsort(-np.concatenate([scores for scores, _ in near], axis=1), axis=1)[:, :11]
        truth = np.take_along_axis(np.concatenate([places for _, places in near], axis=1), order, axis=1)
        least_parameter(faiss.read_index(str(out), faiss.IO_FLAG_MMAP_IFC), queries, truth)
    return {}


def least_parameter(index: Any, queries: Vectors, truth: Any) -> None:
    """Doubles nprobe or efSearch until 0.95 of the true neighbours are found."""
    name, value = ("efSearch", 16) if isinstance(index, faiss.IndexHNSW) else ("nprobe", 1)
    recall = 0.0
    while recall < RECALL and value <= 1024:
        faiss.ParameterSpace().set_index_parameter(index, name, value)
        _, found = index.search(queries, truth.shape[1])
        hits = (found[:, :, None] == truth[:, None, :]).any(axis=2)  # (queries, k)
        recall, value = float(hits.mean()), 2 * value


def build_once(side: str, vectors: Path, factory: str) -> dict[str, Any]:
    """Seconds and peak memory of one build, in this process."""
    build = {"ours": build_ours, "peer": build_peer, "checked": build_checked}[side]
    with tempfile.TemporaryDirectory(dir=vectors.parent) as scratch:
        reset_peak()
        before = megabytes_now()
        start = time.perf_counter()
        more = build(vectors, Path(scratch) / "index", factory)
        seconds = time.perf_counter() - start
    peak = peak_megabytes()
    return {"build": seconds, "peak": peak - before, "whole": peak, **more}


def measure(vectors: Path, factory: str, repeats: int) -> dict[str, dict[str, Any]]:
    """The sides in turn, each time in a new process; the fastest build of each, the lowest peak."""
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": [], "checked": []}
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
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(json.loads(done.stdout))
    best = {side: min(found, key=lambda run: run["build"]) for side, found in runs.items()}
    for side, found in runs.items():
        best[side]["peak"] = min(run["peak"] for run in found)
        best[side]["whole"] = min(run["whole"] for run in found)
    return best


def touch_memory(size: int) -> None:
    """Fills so many bytes and lets them go.

    A virtual machine is given each page of its memory when it first writes to it, which is slow: without
    this, whichever side is measured first would pay for it.
    """
    np.empty(size, np.uint8).fill(1)


def compare(case: Case, repeats: int) -> None:
    """Prints the lines of one case."""
    touch_memory(2 * case.count * case.dim * 4)  # the index, and the pages of the files
    with tempfile.TemporaryDirectory() as scratch:
        vectors = Path(scratch) / "vectors"
        write_clusters(vectors, case.count, case.dim)
        found = measure(vectors, case.factory, repeats)
    mine, theirs = found["ours"], found["peer"]
    threads = faiss.omp_get_max_threads()
    note = f"{case.count:,} × {case.dim}, {case.factory}, {threads} thread{'s' if threads > 1 else ''}"
    kind = f"({case.factory})"
    told = f"{note}; {mine['told']}" if mine["told"] else note
    index = mine["index"]
    print_line(
        f"index build {kind}, beside bare FAISS", mine["build"], theirs["build"], "s", case.time_bar, told
    )
    careful = found["checked"]["build"]
    print_line(
        f"index build {kind}, beside FAISS with the same checks", mine["build"], careful, "s", TIME_BAR, note
    )
    print_line(f"index build's peak memory {kind}, beside bare FAISS", mine["peak"], theirs["peak"], "MB",
               case.memory_bar, note)  # fmt: skip
    shard = min(SHARD, case.count) * case.dim * 4 / 1e6
    print_line(f"index build's peak RSS {kind}, beside index and one shard", mine["whole"], index + shard,
               "MB", case.rss_bar, f"{note}; index {index:.0f} MB, shard {shard:.0f} MB")  # fmt: skip
    if mine["told"]:
        share = mine["measuring"] / mine["build"]
        print_line(
            f"measuring recall {kind}",
            mine["measuring"],
            None,
            "s",
            None,
            f"{note}; {share:.1%} of the build",
        )


def main() -> None:
    """Reads the command line: the comparison, or (with --side) one build of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", choices=sorted(CASES), default=list(CASES), help="all by default"
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the vectors; bars mean little")
    parser.add_argument("--repeats", type=int, default=1, help="builds of each side; the best counts")
    parser.add_argument("--side", choices=["ours", "peer", "checked"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--factory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is not None:
        print(json.dumps(build_once(given.side, given.folder, given.factory)))
        return
    for name in given.cases:
        case = CASES[name]
        if given.quick:
            case = Case(case.count // 20, case.dim, case.factory.replace("1024", "64"), case.time_bar)
        compare(case, given.repeats)


if __name__ == "__main__":
    main()
