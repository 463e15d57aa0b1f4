"""ActivityNet Captions (Krishna et al. 2017) as video-paragraph retrieval."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import find, optional, read_json
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material


def _read(folder: Path, part: str) -> Material:
    path = find(folder, f"{part}.json")
    content = read_json(path)
    if not isinstance(content, dict) or not all("sentences" in one for one in content.values()):
        raise RefusedRequest(f"{path} is not ActivityNet Captions': an object of id → duration and sentences")
    listed = optional(folder, "val_ids.json") if part == "val_1" else None
    wanted = list(content) if listed is None else list(dict.fromkeys(read_json(listed)))
    found = Material()
    for clip in wanted:
        if clip not in content:
            continue
        found.add_clip(clip, clip, clip.removeprefix("v_"))
        found.add_text(clip, " ".join(str(sentence).strip() for sentence in content[clip]["sentences"]))
        found.judge(clip, clip)
    found.remarks.append("text and clip of a pair have the same id: leave --exclude_self off")
    if missing := len(wanted) - len(found.clips):
        found.remarks.append(f"{missing} ids of val_ids.json have no sentences in {path.name}")
    return found


ACTIVITYNET = Benchmark(
    name="activitynet",
    title="ActivityNet Captions",
    source="cs.stanford.edu/people/ranjaykrishna/densevid; val1 as in CLIP4Clip",
    licence="not stated by its authors; clips belong to their uploaders",
    layout="val_1.json (id → duration, timestamps, sentences), val_ids.json if you have it; "
    "clips v_ID.mp4 or ID.mp4",
    layout_published=True,
    parts={"val_1": {"clips": 4917, "texts": 4917}, "val_2": {"clips": 4885, "texts": 4885}},
    read=_read,
    looked_up=False,
)
