"""Our choice of an index beside autofaiss's, at equal memory: time to build, recall@10 of what was built.

    python benchmarks/bench_autofaiss.py                            # 200,000 × 384, autofaiss installed here
    python benchmarks/bench_autofaiss.py --python VENV/bin/python   # autofaiss in an environment of its own

autofaiss asks for older packages than this project, so it usually needs an environment of its own:
``python -m venv VENV && VENV/bin/pip install autofaiss``. Without it the line says "not measured".

Both get the same ``.npy`` shards and the same bound on the index in memory, by default a quarter of the
vectors (``--memory`` gives another: with a quarter autofaiss takes codes behind a learned rotation, whose
training it estimates at 17 minutes whatever the count); ours is asked for recall 0.95, autofaiss for 15 ms a
query (its ways of saying what is wanted differ). Recall is
measured here, with one exact search for 100 vectors, each without itself, for both indexes as they were left.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
from bench_index import write_clusters
from bench_search import print_line

from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.tuning import Neighbours, own_sample

THEIRS = """
import sys, time
from autofaiss import build_index
start = time.perf_counter()
build_index(embeddings=sys.argv[1], index_path=sys.argv[2], index_infos_path=sys.argv[2] + ".json",
            max_index_memory_usage=sys.argv[3], current_memory_available="8GB", metric_type="ip",
            max_index_query_time_ms=15, file_format="npy", save_on_disk=True)
print("seconds", time.perf_counter() - start)
"""


def recall_of(index: Path, vectors: Path) -> float:
    """Recall@10 of an index file, with the search parameters stored in it."""
    folder = VectorsFolder.open(vectors)
    sample = own_sample(folder)
    assert sample.own is not None
    neighbours = Neighbours(sample)
    for shard in folder.shards():
        neighbours.add(np.asarray(shard, dtype=np.float32))
    truth = neighbours.found()[1][:, :10]  # (queries, 10)
    _, found = faiss.read_index(str(index)).search(sample.queries, 11)
    shares = []
    for row, own, right in zip(found, sample.own, truth, strict=True):
        results = [place for place in row if place != own][:10]
        shares.append(len(set(results) & set(right.tolist())) / 10)
    return float(np.mean(shares))


def compare(count: int, dim: int, python: str, memory: str | None) -> None:
    """Prints both lines."""
    memory = memory or f"{count * dim // 10**6 + 1}MB"  # a quarter of the vectors in float32
    size = f"{count:,} × {dim}"
    with tempfile.TemporaryDirectory() as scratch:
        vectors, theirs = Path(scratch) / "vectors", Path(scratch) / "theirs.index"
        if subprocess.run([python, "-c", "import autofaiss"], check=False, capture_output=True).returncode:
            print_nothing(f"{python} has no autofaiss")
            return
        write_clusters(vectors, count, dim)
        (Path(scratch) / "npy").mkdir()
        for shard in vectors.glob("shard-*.npy"):
            (Path(scratch) / "npy" / shard.name).symlink_to(shard)
        start = time.perf_counter()
        ours = build_index(vectors, Path(scratch) / "ours", memory=memory)
        mine = time.perf_counter() - start
        arguments = [str(Path(scratch) / "npy"), str(theirs), memory]
        done = subprocess.run([python, "-c", THEIRS, *arguments], check=False, capture_output=True, text=True)
        if done.returncode:
            words = (done.stderr.strip() or "no words").splitlines()[-1]
            print_nothing(f"autofaiss failed on {size} with at most {memory}: {words}")
            return
        their_seconds = float(done.stdout.rpartition("seconds ")[2])
        sizes = [(ours / "index.faiss").stat().st_size / 1e6, theirs.stat().st_size / 1e6]
        recalls = [recall_of(ours / "index.faiss", vectors), recall_of(theirs, vectors)]
        manifest = json.loads((ours / "index.json").read_text(encoding="utf-8"))
        made = json.loads(Path(f"{theirs}.json").read_text(encoding="utf-8"))["index_key"]
    note = (
        f"{size}, at most {memory} in memory; ours {manifest['factory']} {manifest['search_parameters']} "
        f"({sizes[0]:.0f} MB), autofaiss {made} ({sizes[1]:.0f} MB)"
    )
    print_line("build, auto beside autofaiss", mine, their_seconds, "s", None, note)
    # of recall more is better: the ratio is ours to theirs
    line = {"claim": "recall@10, auto beside autofaiss", "ours": recalls[0], "peer": recalls[1], "unit": ""}
    ratio = round(recalls[0] / max(recalls[1], 1e-9), 3)
    print(json.dumps({**line, "ratio": ratio, "bar": 1.0, "ok": ratio >= 1, "note": note}), flush=True)


def print_nothing(why: str) -> None:
    """Both lines where there is nothing to compare with."""
    for what, unit in (("build", "s"), ("recall@10", "")):
        nothing = dict.fromkeys(("ours", "peer", "ratio", "bar", "ok"))
        line = {"claim": f"{what}, auto beside autofaiss", **nothing, "unit": unit}
        print(json.dumps({**line, "note": f"not measured: {why}"}), flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=int, default=200_000, help="how many")
    parser.add_argument("--dim", type=int, default=384, help="dimensions")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has autofaiss")
    parser.add_argument("--memory", help="bound of both, such as 500MB; a quarter of the vectors by default")
    given = parser.parse_args()
    compare(given.vectors, given.dim, given.python, given.memory)


if __name__ == "__main__":
    main()
