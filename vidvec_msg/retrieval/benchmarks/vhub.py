"""v-HUB: creative and descriptive captions of funny clips, for its caption matching."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    cell,
    find,
    groups_of,
    parts_of,
    read_rows,
    require_columns,
    table_names,
)
from vidvec_msg.retrieval.benchmarks.clip_files import file_names
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

KINDS = ("creative", "descriptive")
_GROUPS = ("modality", "humor_type", "culture", "source")


def _read(folder: Path, part: str) -> Material:
    path = find(folder, *table_names("annotations"))
    rows = read_rows(path)
    require_columns(path, rows, ("id", "video", *(f"{kind}_captions" for kind in KINDS)))
    found = Material()
    found.qrels = {"test": {}}  # the creative captions, those that are asked for
    for row in rows:
        name = cell(row, "id")
        found.add_clip(
            name,
            *file_names(cell(row, "video")),
            transcript=cell(row, "transcript"),
            groups=groups_of(row, _GROUPS),
        )
        for kind in KINDS:
            split = "test" if kind == "creative" else kind
            for caption in parts_of(row, f"{kind}_captions"):
                found.add_caption(name, caption, kind=f"{kind}-", split=split, groups={"caption": kind})
    creative = {clip for judged in found.qrels["test"].values() for clip in judged}
    if not creative:
        raise RefusedRequest(f"{path}: no row has a creative caption, so there is nothing to match")
    found.sizes["clips with a creative caption"] = len(creative)
    return found


VHUB = Benchmark(
    name="vhub",
    title="v-HUB",
    source="its authors; 267 clips of Chaplin's films, 951 of users",
    licence="academic research only, no redistribution; the copyright is the clips' owners'",
    layout="annotations.csv or .jsonl: id, video, creative_captions, descriptive_captions (each a list, in "
    "CSV a JSON list or | between captions); if you have them transcript, modality, humor_type, "
    "culture, source",
    layout_published=False,
    parts={"test": {"clips": 1218}},
    read=_read,
)
