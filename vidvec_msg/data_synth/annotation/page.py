"""The page on which a person rates: a message, a clip, the keys 1 to 6."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vidvec_msg.data_synth.annotation.candidates import Candidate
from vidvec_msg.data_synth.annotation.scale import MEANINGS, TOO_OBVIOUS
from vidvec_msg.retrieval.human_judgement.page import judgement_page

_TEMPLATE = "vidvec_msg.data_synth.annotation/rate.html.jinja"


def rating_page(tasks: Sequence[Candidate], folder: Path, *, title: str, who: str = "") -> str:
    """The HTML: clips that are files play on the page, others are links. It fetches nothing by itself.

    Args:
        tasks: in the order in which they are shown.
        folder: in which the page will lie: files are named from there.
        title: of the benchmark.
        who: the rater, if the page is for one.
    """
    rows = [_row(one, folder) for one in tasks]
    return judgement_page(
        _TEMPLATE,
        rows,
        about=[one.task for one in tasks],
        whose=who,
        title=title,
        meanings=MEANINGS,
        too_obvious=TOO_OBVIOUS,
        data={"who": who},
    )


def _row(one: Candidate, folder: Path) -> dict[str, Any]:
    source = ""
    if one.file is not None:
        try:
            source = quote(Path(os.path.relpath(one.file, folder.resolve())).as_posix())
        except ValueError:  # another drive of Windows
            source = one.file.as_uri()
        source += _segment(one)
    return {
        "task_id": one.task,
        "message_id": one.message_id,
        "message": one.message,
        "clip_id": one.clip_id,
        "source": source,
        "address": one.address,
        "video": one.video,
        "text": "" if one.video else one.get("text"),
    }


def _segment(one: Candidate) -> str:
    """The part of a file that is the clip, as browsers take it: ``#t=12,20`` in seconds."""
    bounds = [one.row.get(name) for name in ("start", "end")]
    start, end = (value if isinstance(value, int | float) else None for value in bounds)
    if start is None and end is None:
        return ""
    return f"#t={start or 0:g}" + (f",{end:g}" if end is not None else "")
