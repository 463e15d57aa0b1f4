"""Embedding without a model: how much memory a corpus takes, and how many items a second come through.

    python benchmarks/bench_ingest.py                     up to a million texts: four minutes on two cores
    python benchmarks/bench_ingest.py --sizes 10000 50000

Texts of about 130 characters in a collection on disk → a vectors folder, by the verb ``embed``, each size
in a process of its own. The embedder adds up directions from a table and costs little: what is measured is
the pipeline. Peak resident memory as Linux counts it (VmHWM). It is bounded by a shard of 5,000 items, and
by what stays for each item: 8 bytes, its place in the file, and 24 more while the ids are checked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from resident import peak_megabytes

from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed

DIM, SHARD = 384, 5_000
SIZES = (10_000, 100_000, 1_000_000)
PER_ITEM = 8 + 24  # bytes, see above
BAR = 1.25  # × the smallest corpus, and the bytes per item
WORDS = (
    "red",
    "ball",
    "dog",
    "runs",
    "over",
    "the",
    "hill",
    "while",
    "a",
    "slow",
    "train",
    "waits",
    "for",
    "rain",
)


class Hashed:
    """A direction for each word of a small vocabulary, added up: unit vectors for next to nothing."""

    def __init__(self) -> None:
        self.card = EmbedderCard(name="hashed", dim=DIM, weights="0")
        self._table = np.random.default_rng(0).standard_normal((4096, DIM)).astype(np.float32)

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors, (items, dim)."""
        rows = self._table[[len(item.full_text) * 31 % 4096 for item in items]]  # (items, dim)
        rows = rows + self._table[[hash_of(item.id) % 4096 for item in items]]
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


def hash_of(text: str) -> int:
    """The same in every process, which ``hash`` is not."""
    return int.from_bytes(text.encode()[-8:], "little")


def write_corpus(folder: Path, count: int) -> None:
    """A corpus of ``count`` texts."""
    random = np.random.default_rng(count)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        for first in range(0, count, 10_000):
            chosen = random.integers(0, len(WORDS), (min(10_000, count - first), 28))
            for number, row in enumerate(chosen.tolist(), start=first):
                text = " ".join(WORDS[word] for word in row)
                stream.write(json.dumps({"_id": f"text-{number}", "text": text}) + "\n")


def measured(count: int) -> dict[str, float]:
    """Peak memory in bytes and seconds of one size, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), count)
        words = [sys.executable, __file__, "--one", folder]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    sys.stderr.write(
        f"    {count:,} texts: {found['bytes'] / 1e6:.0f} MB, {count / found['seconds']:,.0f} items/s\n"
    )
    return found


def one(folder: Path) -> None:
    """Embeds a corpus and prints what it took."""
    began = time.perf_counter()
    embed(folder, "bench_ingest:Hashed", folder / "vectors", shard_size=SHARD)
    seconds = time.perf_counter() - began
    print(json.dumps({"bytes": peak_megabytes() * 1e6, "seconds": seconds}))


def main() -> None:
    """Reads the command line, measures, and prints a line for each claim."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="texts of each corpus")
    parser.add_argument("--one", type=Path, help="embed this corpus only; for the script itself")
    given = parser.parse_args()
    if given.one is not None:
        one(given.one)
        return
    found = {size: measured(size) for size in sorted(given.sizes)}
    smallest, *others = found
    for size in others:
        print_line(size, smallest, found)
    largest = max(found)
    rate = largest / found[largest]["seconds"]
    line = {"claim": "embed texts from a collection, embedder for free", "ours": round(rate), "peer": None}
    line |= {"unit": "items/s", "ratio": None, "bar": None, "ok": True}
    print(json.dumps(line | {"note": f"{largest:,} × {DIM}; no peer"}, ensure_ascii=False), flush=True)


def print_line(size: int, smallest: int, found: dict[int, dict[str, float]]) -> None:
    """Whether memory is flat: the small corpus is the peer of the large one."""
    mine, theirs = found[size]["bytes"], found[smallest]["bytes"]
    ratio = theirs / (mine - (size - smallest) * PER_ITEM)
    line = {
        "claim": f"peak memory of embedding {size:,} texts, beside {smallest:,}",
        "ours": round(mine / 1e6, 1),
        "peer": round(theirs / 1e6, 1),
        "unit": "MB",
        "ratio": round(ratio, 3),
        "bar": round(1 / BAR, 3),
        "ok": ratio >= 1 / BAR,
        "note": f"{DIM} dimensions, shards of {SHARD:,}; less {PER_ITEM} bytes for each further item",
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
