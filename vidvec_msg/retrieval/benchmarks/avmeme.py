"""AVMeme Exam: clips with a summary, a usage, and a multiple-choice question each."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.benchmarks.annotations import (
    Row,
    cell,
    find,
    groups_of,
    number,
    parts_of,
    read_rows,
    require_columns,
    table_names,
)
from vidvec_msg.retrieval.benchmarks.clip_files import file_names
from vidvec_msg.retrieval.benchmarks.material import Benchmark, Material

FIELDS = ("summary", "usage")
_GROUPS = (
    "category",
    "language",
    "question_type",
    "visual_hint",
    "visual_cheat",
    "sensitivity",
    "text_cheat",
)
_TRUE = ("true", "1", "yes")


def _read(folder: Path, part: str) -> Material:
    path = find(folder, *table_names("annotations"))
    rows = read_rows(path)
    require_columns(path, rows, ("id", "video", "question", "candidates", "answer"))
    if part == "main":
        require_columns(path, rows, ("text_cheat",))
        rows = [row for row in rows if cell(row, "text_cheat").lower() not in _TRUE]
    found = Material()
    for count, row in enumerate(rows, start=1):
        name, groups = cell(row, "id"), groups_of(row, _GROUPS)
        found.add_clip(
            name,
            *file_names(cell(row, "video")),
            start=number(row, "start", path),
            end=number(row, "end", path),
            transcript=cell(row, "transcript"),
            groups=groups,
        )
        for field in FIELDS:
            if cell(row, field):
                text = f"{name}#{field}"
                found.add_text(text, cell(row, field), groups={"field": field})
                found.judge(text, name)
                found.judge(text, name, split=field)
        found.questions.append(_question(row, name, groups, f"{path}, row {count}"))
    if not found.texts:
        raise RefusedRequest(f"{path} has neither summary nor usage: there is no text to retrieve clips by")
    found.sizes["questions"] = len(found.questions)
    found.remarks.append("sound carries most of these clips: an embedder that does not hear is at a loss")
    return found


def _question(row: Row, clip: str, groups: dict[str, str], where: str) -> dict[str, object]:
    """A row of ``questions.jsonl``."""
    options, answer = parts_of(row, "candidates"), cell(row, "answer")
    if len(set(options)) != len(options) or len(options) < 2:
        raise RefusedRequest(
            f"{where}: its candidates are {options!r}; there must be two or more, all different"
        )
    if answer not in options:
        raise RefusedRequest(f"{where}: the answer {answer!r} is none of the candidates {options!r}")
    return {
        "_id": clip, "clip": clip, "question": cell(row, "question"), "options": options,
        "answer": options.index(answer), "groups": groups,
    }  # fmt: skip


AVMEME = Benchmark(
    name="avmeme",
    title="AVMeme Exam",
    source="its authors; the columns question, candidates, answer and summary are those of mteb's copy, "
    "mteb/AVMeme-Exam",
    licence="annotations CC-BY-4.0 (as mteb states it); clips belong to their uploaders",
    layout="annotations.csv, .jsonl or .parquet: id, video, question, candidates (a list; in CSV a JSON list "
    "or | between them), answer (one of them); if you have them summary, usage, transcript, start, end, "
    "category, language, question_type, visual_hint, visual_cheat, sensitivity, text_cheat",
    layout_published=False,
    parts={"full": {"clips": 1032, "questions": 1032}, "main": {"clips": 846, "questions": 846}},
    read=_read,
)
