"""Results for a person's eyes: rank, score, id, file, time in the clip, words."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vidvec_msg.retrieval.indexes.conditions import normal_path
from vidvec_msg.retrieval.searching.hits import Hit

_WIDE = 1000  # columns where nobody looks at a terminal: ids and texts are not wrapped
_GAP = 2  # columns between two cells
_SHORTEST = 12  # columns that a text gets at least


def drawn(hits: Sequence[Hit]) -> str:
    """A table as wide as the terminal, texts cut to fit; in a file or a pipe as wide as it needs."""
    looked_at = sys.stdout.isatty()
    console = Console() if looked_at else Console(file=io.StringIO(), width=_WIDE)
    with console.capture() as capture:
        console.print(_table(hits, console.width if looked_at else 0))
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


def _table(hits: Sequence[Hit], width: int) -> Table:
    """Columns that no result fills are left out.

    Args:
        hits: one a row.
        width: of the terminal; 0: as wide as needed.
    """
    columns = {
        "rank": [str(hit.rank) for hit in hits],
        "score": [f"{hit.score:.4f}" for hit in hits],
        "id": [hit.id for hit in hits],
        "file": ["" if hit.path is None else near(hit.path) for hit in hits],
        "time": [time_of(hit) for hit in hits],
        "text": [hit.metadata.get("text") or "" for hit in hits],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells) or name in ("rank", "score", "id")}
    needed = {name: max(map(cell_len, [name, *cells])) for name, cells in shown.items()}
    if width:
        for name in ("id", "file"):  # long ones are folded
            needed[name] = min(needed.get(name, 0), width // 3)
        others = sum(size + _GAP for name, size in needed.items() if name != "text")
        needed["text"] = max(width - others, _SHORTEST)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        justify: Literal["left", "right"] = "right" if name in ("rank", "score") else "left"
        cut = name == "text" and width > 0
        table.add_column(
            name,
            justify=justify,
            width=None if cut else needed[name],
            max_width=needed[name] if cut else None,
            no_wrap=cut,
            overflow="ellipsis" if cut else "fold",
        )
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*map(Text, cells))  # Text: brackets in an id or a text are no markup
    return table
