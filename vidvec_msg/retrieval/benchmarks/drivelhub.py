"""DrivelHub+: 1,000 clips, a narrative each, and further pairs that people judged to mean the same."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    cell,
    find,
    groups_of,
    optional,
    read_rows,
    require_columns,
    table_names,
)
from vidvec_msg.retrieval.benchmarks.clip_files import file_names
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

_GROUPS = ("modality", "speech_language", "caption_language", "category")


def _read(folder: Path, part: str) -> Material:
    path = find(folder, *table_names("annotations"))
    rows = read_rows(path)
    require_columns(path, rows, ("id", "video", "narrative"))
    found = Material()
    for row in rows:
        name, groups = cell(row, "id"), groups_of(row, _GROUPS)
        words = {field: cell(row, field) for field in ("transcript", "ocr")}
        found.add_clip(name, *file_names(cell(row, "video")), groups=groups, **words)
        found.add_text(name, cell(row, "narrative"))
        found.judge(name, name)
    found.remarks.append("text and clip of a pair have the same id: leave --exclude_self off")
    _add_judged_pairs(found, folder)
    return found


def _add_judged_pairs(found: Material, folder: Path) -> None:
    """Two samples that mean the same: each one's narrative is right for the other's clip."""
    path = optional(folder, *table_names("relevance"))
    if path is None:
        found.complete = False
        found.remarks.append(
            "no relevance.csv: every narrative has its own clip alone, and Table 2 was made with further "
            "judged pairs; the numbers are not comparable with it"
        )
        return
    rows = read_rows(path)
    require_columns(path, rows, ("id", "other"))
    pairs = set()
    for number, row in enumerate(rows, start=1):
        one, other = cell(row, "id"), cell(row, "other")
        for name in (one, other):
            if name not in found.clips:
                raise RefusedRequest(f"{path}, row {number}: {name!r} is no id of the annotations")
        if one != other:
            pairs.add(frozenset((one, other)))
            found.judge(one, other)
            found.judge(other, one)
    found.sizes["judged pairs"] = len(pairs)


DRIVELHUB = Benchmark(
    name="drivelhub",
    title="DrivelHub+",
    source="Hugging Face, gated; you apply to its authors",
    licence="research use only, by application",
    layout="annotations.csv or .jsonl: id, video, narrative; if you have them transcript, ocr, modality, "
    "speech_language, caption_language, category; relevance.csv or .jsonl: id, other "
    "(two samples of the same meaning)",
    layout_published=False,
    parts={"test": {"clips": 1000, "texts": 1000}},
    read=_read,
)
