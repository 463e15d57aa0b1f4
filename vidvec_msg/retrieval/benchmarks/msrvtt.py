"""MSR-VTT (Xu et al. 2016): the 1k-A split of JSFusion (Yu et al. 2018), and the official test part."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    cell,
    entry,
    find,
    read_json,
    read_rows,
    require_columns,
)
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

_CSV = ("MSRVTT_JSFUSION_test.csv",)
_JSON = ("MSRVTT_data.json", "test_videodatainfo.json", "videodatainfo_2017.json")


def _read(folder: Path, part: str) -> Material:
    return _one_k_a(find(folder, *_CSV)) if part == "1k-A" else _official(find(folder, *_JSON))


def _one_k_a(path: Path) -> Material:
    """One caption per clip: ``key, vid_key, video_id, sentence``."""
    rows = read_rows(path)
    require_columns(path, rows, ("key", "video_id", "sentence"))
    found = Material()
    for row in rows:
        clip = cell(row, "video_id")
        found.add_clip(clip)
        found.add_text(cell(row, "key"), cell(row, "sentence"))
        found.judge(cell(row, "key"), clip)
    return found


def _official(path: Path) -> Material:
    """All captions of the clips whose ``split`` is "test": 20 a clip."""
    content = read_json(path)
    if not isinstance(content, dict) or not {"videos", "sentences"} <= content.keys():
        raise RefusedRequest(f"{path} is not MSR-VTT's: an object with the lists videos and sentences")
    chosen = {
        entry(one, "video_id", path): one for one in content["videos"] if entry(one, "split", path) == "test"
    }
    if not chosen:
        raise RefusedRequest(f"{path} holds no video with the split 'test'")
    found = Material()
    for clip, one in chosen.items():
        category = one.get("category")
        found.add_clip(clip, groups={} if category is None else {"category": str(category)})
    for one in content["sentences"]:
        clip = entry(one, "video_id", path)
        if clip in chosen:
            name = entry(one, "sen_id", path)
            found.add_text(name, entry(one, "caption", path))
            found.judge(name, clip)
    return found


MSRVTT = Benchmark(
    name="msrvtt",
    title="MSR-VTT",
    source="Microsoft Research, MSR-VTT 2016; 1k-A lists as CLIP4Clip's msrvtt_data.zip has them",
    licence="not stated by its authors; clips belong to their uploaders",
    layout=f"1k-A: {_CSV[0]} (key, vid_key, video_id, sentence); official: {_JSON[0]}; clips videoN.mp4",
    layout_published=True,
    parts={"1k-A": {"clips": 1000, "texts": 1000}, "official": {"clips": 2990, "texts": 59_800}},
    read=_read,
    looked_up=False,
)
