"""Candidates as the ranking leaves them, and tables as raters give them back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.annotation.candidates import Candidate, read_candidates

MESSAGES = {
    "m1": ("Small steps add up to a big change", "growth"),
    "m2": ("A good neighbour asks before judging", "culture"),
}


def row(message: str, clip: str, /, **fields: Any) -> dict[str, Any]:
    """A line of ranked.jsonl."""
    text, topic = MESSAGES[message]
    return {
        "message_id": message, "message": text, "topic": topic, "clip_id": clip,
        "video": f"https://www.youtube.com/watch?v={clip:_<11}", "title": f"title of {clip}",
        "description": "", "duration": 40, "source": "youtube", "keywords": ["stairs", "morning"],
        "rank": 1, "score": 0.5, **fields,
    }  # fmt: skip


def ranked(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ranked.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def candidates(folder: Path, *pairs: tuple[str, str]) -> list[Candidate]:
    """Candidates of (message, clip)."""
    return read_candidates(ranked(folder, [row(*pair) for pair in pairs]))


def wide(path: Path, found: Sequence[Candidate], given: Mapping[str, Sequence[Any]]) -> Path:
    """A column per rater, ratings in the order of the candidates; None is an empty cell."""
    lines = [",".join(["task_id", *given])]
    for place, one in enumerate(found):
        cells = ["" if ratings[place] is None else str(ratings[place]) for ratings in given.values()]
        lines.append(",".join([one.task, *cells]))
    path.write_text("\n".join(lines) + "\n")
    return path
