"""VidMsg: 52 messages, 400 clips, 5 to 9 clips a message, 9 topics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    cell,
    find,
    groups_of,
    read_rows,
    require_columns,
    table_names,
)
from vidvec_msg.retrieval.benchmarks.clip_files import clip_id, file_names
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material
from vidvec_msg.runs import digest_of

_CLIPS_OF_A_MESSAGE = (5, 9)
_CLIPS_OF_A_TOPIC = (35, 49)
_ID_CHARS = 10  # of a digest, for messages without an id


def _read(folder: Path, part: str) -> Material:
    path = find(folder, *table_names("annotations"))
    rows = read_rows(path)
    require_columns(path, rows, ("clip", "message", "topic"))
    found = Material()
    messages: dict[tuple[str, str], str] = {}
    for number, row in enumerate(rows, start=1):
        clip, message, topic = (cell(row, name) for name in ("clip", "message", "topic"))
        if not (clip and message and topic):
            raise RefusedRequest(f"{path}, row {number}: clip, message and topic must not be empty")
        groups = {"topic": topic, **groups_of(row, ("modality", "language"))}
        named = cell(row, "message_id") or f"m{digest_of([topic, message])[:_ID_CHARS]}"
        name = messages.setdefault((topic, message), named)
        clip, files = clip_id(clip), file_names(clip)
        found.add_clip(clip, *files, transcript=cell(row, "transcript"), groups=groups)
        found.add_text(name, message, groups={"topic": topic})
        found.judge(name, clip)
    of_message = Counter(len(judged) for judged in found.qrels["test"].values())
    of_topic = Counter(row["groups"]["topic"] for row in found.clips.values())
    found.sizes["topics"] = len(of_topic)
    _remark(found, "clips of a message", min(of_message), max(of_message), _CLIPS_OF_A_MESSAGE)
    _remark(found, "clips of a topic", min(of_topic.values()), max(of_topic.values()), _CLIPS_OF_A_TOPIC)
    return found


def _remark(found: Material, what: str, least: int, most: int, published: tuple[int, int]) -> None:
    if (least, most) != published:
        found.remarks.append(f"{what}: {least} to {most}; published: {published[0]} to {published[1]}")


VIDMSG = Benchmark(
    name="vidmsg",
    title="VidMsg",
    source="annotations and YouTube addresses from its authors; you bring the clips",
    licence="annotations CC-BY-4.0; clips Standard YouTube License",
    layout="annotations.csv or .jsonl: clip (file, YouTube id or address), message, topic; if you have them "
    "message_id, transcript, modality, language",
    layout_published=False,
    parts={"test": {"clips": 400, "texts": 52, "topics": 9}},
    read=_read,
)
