"""VATEX (Wang et al. 2019): ten English captions a clip."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import entry, find, read_json, read_list
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

_FILES = {
    "1500": ("vatex_validation_v1.0.json",),
    "validation": ("vatex_validation_v1.0.json",),
    "public_test": ("vatex_public_test_english_v1.1.json",),
}
_LISTS = ("test_list.txt", "tst_list.txt")


def _read(folder: Path, part: str) -> Material:
    path = find(folder, *_FILES[part])
    content = read_json(path)
    if not isinstance(content, list):
        raise RefusedRequest(f"{path} is not VATEX's: a list of objects with videoID and enCap")
    captions = {entry(one, "videoID", path): [str(text) for text in one.get("enCap", ())] for one in content}
    wanted = read_list(find(folder, *_LISTS)) if part == "1500" else list(captions)
    if lacking := [clip for clip in wanted if not captions.get(clip)]:
        raise RefusedRequest(f"{len(lacking)} clips have no English caption in {path} ({lacking[0]}, …)")
    found = Material()
    for clip in wanted:
        found.add_clip(clip)  # YOUTUBEID_START_END; a file that is called YOUTUBEID may be the whole video
        for caption in captions[clip]:
            found.add_caption(clip, caption)
    return found


VATEX = Benchmark(
    name="vatex",
    title="VATEX",
    source="eric-xw.github.io/vatex-website; the 1,500 test clips are HGR's (Chen et al. 2020)",
    licence="captions CC-BY-4.0; clips belong to their uploaders",
    layout="1500: vatex_validation_v1.0.json and test_list.txt (an id a line); validation: the JSON alone; "
    "public_test: vatex_public_test_english_v1.1.json; clips videoID.mp4",
    layout_published=True,
    parts={
        "1500": {"clips": 1500, "texts": 15_000},
        "validation": {"clips": 3000, "texts": 30_000},
        "public_test": {"clips": 6000, "texts": 60_000},
    },
    read=_read,
    looked_up=False,
)
