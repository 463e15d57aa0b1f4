"""Results for a person's eyes: rank, score, id, file, time in the clip, words."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vidvec_msg.retrieval.index_filter import normal_path
from vidvec_msg.retrieval.searcher import Hit

_WIDE = 1000  # columns where nobody looks at a terminal: ids and texts are not wrapped


def drawn(hits: Sequence[Hit]) -> str:
    """A table as wide as the terminal; in a file or a pipe as wide as it needs. One result a line."""
    looked_at = sys.stdout.isatty()
    console = Console() if looked_at else Console(file=io.StringIO(), width=_WIDE)
    with console.capture() as capture:
        console.print(_table(hits, looked_at))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss, with a tenth if there is one.

    >>> clock(75), clock(3601.5)
    ('1:15', '1:00:01.5')
    """
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    ending = f"{rest // 10:02d}" + (f".{rest % 10}" if rest % 10 else "")
    return f"{minutes // 60}:{minutes % 60:02d}:{ending}" if minutes >= 60 else f"{minutes}:{ending}"


def time_of(hit: Hit) -> str:
    """The segment as "0:30–1:00"; empty for a whole file."""
    start, end = hit.segment
    if start is None and end is None:
        return ""
    return f"{clock(start or 0)}–{'end' if end is None else clock(end)}"


def near(path: str) -> str:
    """A path below the current folder as a person would type it; others as they are."""
    plain = normal_path(path)
    try:
        return str(Path(plain).relative_to(Path.cwd()))
    except ValueError:
        return plain


def _table(hits: Sequence[Hit], looked_at: bool) -> Table:
    """Columns that no result fills are left out."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    files = ["" if hit.path is None else near(hit.path) for hit in hits]
    times = [time_of(hit) for hit in hits]
    texts = [hit.metadata.get("text") or "" for hit in hits]
    columns = [
        ("rank", [str(hit.rank) for hit in hits]),
        ("score", [f"{hit.score:.4f}" for hit in hits]),
        ("id", [hit.id for hit in hits]),
        ("file", files),
        ("time", times),
        ("text", texts),
    ]
    shown = [(name, cells) for name, cells in columns if any(cells) or name in ("rank", "score", "id")]
    for name, _ in shown:
        match name:
            case "rank" | "score":
                table.add_column(name, justify="right", no_wrap=True)
            case "text":
                table.add_column(name, no_wrap=looked_at, overflow="ellipsis", ratio=1 if looked_at else None)
            case _:
                table.add_column(name, overflow="fold", no_wrap=name == "time")
    for cells in zip(*(cells for _, cells in shown), strict=True):
        table.add_row(*map(Text, cells))  # Text: brackets in an id or a text are no markup
    return table
