"""The report of a large evaluation: how long a browser takes to show it, and how large it is.

    python benchmarks/bench_report.py                         10,000 queries × 10,000 documents, some minutes
    python benchmarks/bench_report.py --items 1000 --keep e   smaller, and the evaluation is kept

Random vectors stand for an embedder, so nothing is embedded in earnest; texts, groups and judgements are as
large as a real collection's. Headless Chromium lays the page out and writes its document; an empty page,
timed in the same way, is taken off. Without Chromium only the size is told.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg import EmbedderCard, Item
from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.retrieval.evaluate import evaluate_collection

DIM = 64
SECONDS = 2.0  # the project's promise
REPEATS = 3
GROUPS = 40
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class ByNumber:
    """Random vectors of norm 1; a query lies near the document of its number, some of them very near."""

    card = EmbedderCard(name="random", dim=DIM, weights="by number")

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """``(items, 64)``."""
        vectors = np.empty((len(items), DIM), dtype=np.float32)
        for row, item in enumerate(items):
            number = int(item.id[1:])
            vectors[row] = np.random.default_rng(number).normal(size=DIM)
            own = np.random.default_rng(zlib.crc32(item.id.encode()))
            vectors[row] += own.normal(size=DIM) * (0.5 + number % 3)
        scaled: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return scaled


def collection(root: Path, items: int) -> Path:
    """As many messages as documents of 60 words, in groups."""
    words = [f"word{n}" for n in range(997)]
    corpus: list[dict[str, Any]] = [
        {
            "_id": f"d{n}",
            "text": " ".join(words[(n * k) % 997] for k in range(1, 61)),
            "groups": {"topic": f"topic {n % GROUPS}", "modality": ("audio", "text", "visual")[n % 3]},
        }
        for n in range(items)
    ]
    queries = [
        {
            "_id": f"q{n}",
            "text": " ".join(words[(n * k) % 997] for k in range(1, 11)),
            "groups": {"topic": f"topic {n % GROUPS}"},
        }
        for n in range(items)
    ]
    qrels = {"test": {f"q{n}": {f"d{n}": 1} for n in range(items)}}
    write_collection(root, corpus=corpus, queries=queries, qrels=qrels)
    return root


def seconds_to_open(browser: str, page: Path, profile: Path) -> float:
    """The best of some runs of a headless browser on a page."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                "--dump-dom", page.resolve().as_uri(),
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    """Evaluates, opens, prints one JSON line for run.py."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000, help="queries, and as many documents")
    parser.add_argument("--keep", type=Path, help="folder for the evaluation")
    options = parser.parse_args()
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with tempfile.TemporaryDirectory() as scratch:
        root = collection(Path(scratch) / "collection", options.items)
        out = options.keep or Path(scratch) / "e"
        began = time.process_time()
        evaluate_collection(root, "bench_report:ByNumber", out, pictures=False)
        spent = time.process_time() - began
        page = out / "report.html"
        note = f"{page.stat().st_size / 1000:.0f} kB; evaluating took {spent:.0f} s of processor time"
        mine = None
        if browser is None:
            note = f"not measured: no Chromium here; {note}"
        else:
            empty = Path(scratch) / "empty.html"
            empty.write_text("<!doctype html><title>empty</title>", encoding="utf-8")
            profile = Path(scratch) / "profile"
            start = seconds_to_open(browser, empty, profile)
            mine = max(seconds_to_open(browser, page, profile) - start, 1e-3)
            note = f"beyond an empty page, which took {start:.2f} s; {note}"
    size = f"{options.items:,} × {options.items:,}"
    line = {
        "claim": f"a report of {size} opens, beside the promise of {SECONDS:g} s",
        "ours": None if mine is None else round(mine, 3),
        "peer": SECONDS,
        "unit": "s",
        "ratio": None if mine is None else round(SECONDS / mine, 2),
        "bar": 1.0,
        "ok": None if mine is None else mine <= SECONDS,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
