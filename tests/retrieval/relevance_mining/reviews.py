"""What a person makes of a review."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.retrieval.relevance_mining.review_files import Decision


def reviewed(
    path: Path, rows: Sequence[dict[str, Any]], who: str, accepts: Callable[[dict[str, Any]], bool]
) -> Path:
    """The rows with a decision on each, as the page saves them."""
    told = {"reviewer": who, "reviewed_at": "2026-11-30T10:00:00Z"}
    lines = (
        json.dumps({**row, **told, "decision": "accept" if accepts(row) else "reject"}) + "\n" for row in rows
    )
    path.write_text("".join(lines))
    return path


def decided_by(who: str, first: str, second: str, accept: bool) -> Decision:
    """One decision."""
    return Decision(first, second, accept, who, "2026-11-30")
