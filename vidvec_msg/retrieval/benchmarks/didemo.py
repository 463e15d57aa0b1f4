"""DiDeMo (Hendricks et al. 2017) as video-paragraph retrieval: a clip's descriptions are one text."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import entry, find, optional, read_json, read_list
from vidvec_msg.retrieval.benchmarks.clip_files import file_names
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

_SECONDS = 30.0  # annotators saw no more of longer clips (LocalizingMoments' README)


def _read(folder: Path, part: str) -> Material:
    path = find(folder, f"{part}_data.json")
    content = read_json(path)
    if not isinstance(content, list):
        raise RefusedRequest(f"{path} is not DiDeMo's: a list of objects with video and description")
    listed = optional(folder, f"{part}_list.txt")
    wanted = None if listed is None else set(read_list(listed))
    paragraphs: dict[str, list[str]] = {}
    for one in content:
        clip = entry(one, "video", path)
        if wanted is None or clip in wanted:
            paragraphs.setdefault(clip, []).append(entry(one, "description", path))
    found = Material()
    for clip, sentences in paragraphs.items():
        found.add_clip(clip, *file_names(clip), start=0.0, end=_SECONDS)
        found.add_text(clip, " ".join(sentences))
        found.judge(clip, clip)
    found.remarks.append("text and clip of a pair have the same id: leave --exclude_self off")
    if wanted is not None and len(wanted - paragraphs.keys()):
        found.remarks.append(
            f"{len(wanted - paragraphs.keys())} clips of {part}_list.txt have no description"
        )
    return found


DIDEMO = Benchmark(
    name="didemo",
    title="DiDeMo",
    source="github.com/LisaAnne/LocalizingMoments; test_list.txt as in collaborative-experts",
    licence="annotations BSD-2-Clause; clips are Flickr's YFCC100M under Creative Commons licences",
    layout="test_data.json (a list with video, description, times), test_list.txt if you have it; "
    "clips by name",
    layout_published=True,
    parts={"test": {"clips": 1004, "texts": 1004}, "val": {"clips": 1065, "texts": 1065}},
    read=_read,
    looked_up=False,
)
