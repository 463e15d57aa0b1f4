"""The folder of a synthesis or a filtering: pairs, rejects, splits, card, and last the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.data_synth import card, funnel
from vidvec_msg.data_synth.clusters import COSINE, VALIDATION, grouped, split_of
from vidvec_msg.data_synth.diversity import Vectors, diversity
from vidvec_msg.data_synth.filters.chain import Reject
from vidvec_msg.data_synth.filters.meaning import near_vectors
from vidvec_msg.data_synth.filters.words import words_of
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.formats.pairs_file import write_pairs
from vidvec_msg.runs import replacing, write_json, write_text

PAIRS, REJECTS, SUMMARY, CARD, PICTURE = (
    "pairs.jsonl", "rejects.jsonl", "summary.json", "card.md", "funnel.png",
)  # fmt: skip


def write_result(
    out: Path,
    pairs: Sequence[Pair],
    rejects: Iterable[Mapping[str, Any]],
    way: Sequence[funnel.Stage],
    about: Mapping[str, Any],
    *,
    validation_share: float,
    seed: int,
    vectors: Vectors | None = None,
) -> dict[str, Any]:
    """Writes everything that a run found.

    Args:
        out: the folder.
        pairs: that stay, with ids.
        rejects: rows of ``rejects.jsonl``.
        way: of the funnel.
        about: what the summary says beside counts: model, prompt, personas, cost, …
        validation_share: of the pairs, by group; 0 makes no splits.
        seed: of the splits.
        vectors: ``(pairs, dim)`` of the messages, where an embedder was given.

    Returns:
        the summary.
    """
    near = [] if vectors is None else near_vectors(vectors, COSINE)
    rows = grouped(pairs, near)
    if validation_share:
        rows = [
            replace(row, provenance={**row.provenance, "split": split_of(row, validation_share, seed)})
            for row in rows
        ]
    for name in (PAIRS, Path(PAIRS).with_suffix(".parquet").name):
        write_pairs(out / name, rows)
    for old in (out / "splits").glob("*.jsonl"):
        old.unlink()  # of an earlier run here, with other pairs
    if validation_share:
        for split in sorted({row.provenance["split"] for row in rows}):
            some = [row for row in rows if row.provenance["split"] == split]
            write_pairs(out / "splits" / f"{split}.jsonl", some)
    count_rejects = _write_rejects(out / REJECTS, rejects)
    with replacing(out / PICTURE) as temporary:
        funnel.draw(way, temporary)
    summary = {
        **about,
        "pairs": len(rows),
        "rejects": count_rejects,
        "funnel": [
            {"step": one.name, "given": one.given, "left": one.left, "reasons": dict(one.codes)}
            for one in way
        ],
        "groups": _groups(rows),
        "validation_pairs": sum(row.provenance.get("split") == VALIDATION for row in rows),
        "lengths": {
            "message_words": _spread([len(words_of(row.positive)) for row in rows]),
            "storyline_words": _spread([len(words_of(row.anchor)) for row in rows]),
        },
        "diversity": diversity(rows, vectors, seed=seed),
    }
    write_text(out / CARD, card.page(summary, rows, way))
    write_json(out / SUMMARY, summary)
    return summary


def reject_row(reject: Reject) -> dict[str, Any]:
    """A filter's reject as a row of ``rejects.jsonl``."""
    pair = reject.pair
    return {
        "id": pair.id,
        "persona": pair.provenance.get("persona"),
        "step": reject.filter,
        "code": reject.reason.code,
        "reason": str(reject.reason),
        "message": pair.positive,
        "storyline": pair.anchor,
        **reject.about,
    }


def _write_rejects(path: Path, rejects: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for row in rejects:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _groups(rows: Sequence[Pair]) -> dict[str, int]:
    sizes = Counter(row.group for row in rows if row.group)
    return {
        "groups": len(sizes),
        "pairs_in_groups": sum(sizes.values()),
        "largest": max(sizes.values(), default=0),
    }


def _spread(values: Sequence[int]) -> dict[str, float]:
    if not values:
        return {}
    quantiles = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
    names = ("least", "25%", "median", "75%", "most")
    spread = {name: round(quantile, 1) for name, quantile in zip(names, quantiles, strict=True)}
    return {**spread, "mean": round(float(np.mean(values)), 1)}
