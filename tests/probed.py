"""A small collection of texts and a tiny deep model, for the probes' tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = ("apple", "bridge", "candle", "dog", "engine", "forest", "guitar", "harbour", "island", "jacket")

HALVING: dict[str, Any] = {
    "test": "test",
    "validation": None,
    "share": 0.5,
    "keep_together": None,
    "pool": "corpus",
    "seed": 0,
    "what": "the layer",
}
"""Arguments of ``read_halves`` beside the collection: half of the test split's queries choose."""


def write_texts(root: Path, *, queries: int = 10, each: int = 3, splits: bool = False) -> Path:
    """Queries of a word, and texts that hold it; with ``splits``, half of the queries are for validation."""
    (root / "qrels").mkdir(parents=True)
    rows = [
        {"_id": f"q{n}", "text": f"about the {WORDS[n]}", "groups": {"topic": str(n % 3)}}
        for n in range(queries)
    ]
    documents = [
        {"_id": f"d{n}-{m}", "text": f"{WORDS[n]} and {WORDS[(n + m) % queries]}, {'so ' * m}it goes on"}
        for n in range(queries)
        for m in range(each)
    ]
    for name, lines in (("queries", rows), ("corpus", documents)):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    halves = (
        {"test": range(0, queries, 2), "validation": range(1, queries, 2)}
        if splits
        else {"test": range(queries)}
    )
    for split, numbers in halves.items():
        judged = "".join(f"q{n}\td{n}-{m}\t1\n" for n in numbers for m in range(each))
        (root / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return root
