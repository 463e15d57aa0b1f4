"""MSVD (Chen and Dolan 2011): 670 test clips with about 40 captions each."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    cell,
    find,
    optional,
    read_json,
    read_list,
    read_rows,
    require_columns,
)
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

_TEXT = ("AllVideoDescriptions.txt",)
_JSON = ("raw-captions.json",)
_TABLE = ("captions.csv", "captions.jsonl")
_PICKLE = "raw-captions.pkl"


def _read(folder: Path, part: str) -> Material:
    wanted = read_list(find(folder, f"{part}_list.txt"))
    captions = _captions(folder)
    lacking = [clip for clip in wanted if not captions.get(clip)]
    if lacking:
        shown = ", ".join(lacking[:3])
        raise RefusedRequest(
            f"{len(lacking)} clips of {part}_list.txt have no caption ({shown}, …); are list and captions of "
            "the same release?"
        )
    found = Material()
    for clip in wanted:
        found.add_clip(clip)
        for caption in captions[clip]:
            found.add_caption(clip, caption)
    return found


def _captions(folder: Path) -> dict[str, list[str]]:
    """Clip → captions, of whichever form is there."""
    if path := optional(folder, *_TEXT):
        return _of_text(path)
    if path := optional(folder, *_JSON):
        content = read_json(path)
        if not isinstance(content, dict):
            raise RefusedRequest(f"{path} is not an object of clip → captions")
        # the pickle that it was made of holds each caption as a list of words
        return {
            clip: [one if isinstance(one, str) else " ".join(one) for one in captions]
            for clip, captions in content.items()
        }
    if path := optional(folder, *_TABLE):
        rows = read_rows(path)
        require_columns(path, rows, ("video_id", "caption"))
        captions: dict[str, list[str]] = {}
        for row in rows:
            captions.setdefault(cell(row, "video_id"), []).append(cell(row, "caption"))
        return captions
    if (pickled := optional(folder, _PICKLE)) is not None:
        raise RefusedRequest(
            f"{pickled} is a pickle, and opening a pickle runs whatever is in it: this project does not. If "
            'you trust the file, make JSON of it yourself and run this again: python -c "import '
            f"json, pickle; json.dump(pickle.load(open('{_PICKLE}', 'rb')), open('{_JSON[0]}', 'w'))\""
        )
    raise RefusedRequest(f"--source {folder} holds none of {', '.join((*_TEXT, *_JSON, *_TABLE))}")


def _of_text(path: Path) -> dict[str, list[str]]:
    """The authors' own file: ``CLIP words of the caption`` a line, comments begin with #."""
    captions: dict[str, list[str]] = {}
    for line in read_list(path):
        clip, _, caption = line.partition(" ")
        if not line.startswith("#") and caption.strip():
            captions.setdefault(clip, []).append(caption)
    return captions


MSVD = Benchmark(
    name="msvd",
    title="MSVD",
    source="University of Texas, Microsoft Research Video Description Corpus; lists as in CLIP4Clip's "
    "msvd_data.zip",
    licence="not stated by its authors; clips belong to their uploaders",
    layout=f"test_list.txt and one of {_TEXT[0]}, {_JSON[0]}, {_TABLE[0]} (video_id, caption); clips by id",
    layout_published=True,
    parts={"test": {"clips": 670}, "val": {"clips": 100}},
    read=_read,
    looked_up=False,
)
