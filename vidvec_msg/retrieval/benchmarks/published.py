"""Rows that papers publish for these benchmarks, to stand beside a user's run: *published, not rerun*."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml

MARK = "published, not rerun"

Direction = Literal["text_to_video", "video_to_text", "multiple_choice"]
OF_REPORT: Mapping[str, Direction] = {"forward": "text_to_video", "reverse": "video_to_text"}
"""Direction of a report → what the papers call it: texts are the queries of every benchmark here."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One model in one setting and direction.

    Args:
        model: as the paper calls it.
        direction: "text_to_video" is our forward direction where texts are the queries, "video_to_text" the
            reverse one; or "multiple_choice".
        setting: of the paper's columns, for example "with transcripts"; empty if there is only one.
        values: the paper's name of the metric → percent.
        metrics: the paper's name → ours, where the paper says enough to tell.
        source: paper and table.
        remark: what the numbers mean.
    """

    model: str
    direction: Direction
    setting: str
    values: Mapping[str, float]
    metrics: Mapping[str, str]
    source: str
    remark: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form, for reports."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def value(self, metric: str) -> float | None:
        """The value of one of our metrics as a share, 0 to 1; None if the row has none that is surely it."""
        name = next((paper for paper, ours in self.metrics.items() if ours == metric), None)
        return self.values[name] / 100 if name is not None and name in self.values else None


def published_rows(benchmark: str) -> tuple[PublishedRow, ...]:
    """What papers publish for a benchmark, in the order of their tables.

    Args:
        benchmark: its name, as ``import-benchmark`` knows it.

    Returns:
        Nothing for a benchmark whose rows this package does not have.
    """
    return _rows(benchmark)


def published_for(collection: Path | str) -> tuple[PublishedRow, ...]:
    """The rows for a collection that ``import-benchmark`` made; nothing for any other.

    A collection of other sizes than the published ones (clips are missing) has none either: its numbers do
    not stand beside them.
    """
    path = Path(collection) / "benchmark.json"
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return published_rows(str(made.get("name"))) if made.get("as_published") else ()


@cache
def _rows(benchmark: str) -> tuple[PublishedRow, ...]:
    path = files("vidvec_msg.retrieval.benchmarks") / "published" / f"{benchmark}.yaml"
    if not benchmark.isidentifier() or not path.is_file():
        return ()
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(row for table in content["tables"] for row in _of_table(table))


def _of_table(table: Mapping[str, Any]) -> list[PublishedRow]:
    """A row per model, direction and setting that has a number."""
    rows = []
    for model, *numbers in table["rows"]:
        cells: dict[tuple[Direction, str], dict[str, float]] = {}
        for column, number in zip(table["columns"], numbers, strict=True):
            if number is not None:
                cells.setdefault((column["direction"], column["setting"]), {})[column["metric"]] = number
        rows += [
            PublishedRow(
                model, direction, setting, values, table["metrics"], table["source"], table["remark"].strip()
            )
            for (direction, setting), values in cells.items()
        ]
    return rows


@dataclass(frozen=True, slots=True)
class Beside:
    """Published rows of one direction with a run's own on top, as text.

    Args:
        heads: model, setting, and the papers' names of the metrics.
        own: the run's row; a dash where the papers do not say enough of a metric to tell which of ours it is.
        rows: the published ones.
        sources: where those are from and what they mean.
    """

    heads: tuple[str, ...]
    own: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...]


def beside(report: Mapping[str, Any], name: str) -> Beside | None:
    """A run beside the published rows of its benchmark; values in percent.

    Args:
        report: content of ``report.json``.
        name: "forward" or "reverse".

    Returns:
        None if there is no published row of this direction.
    """
    rows = [PublishedRow(**row) for row in report.get("published", ())]
    rows = [row for row in rows if row.direction == OF_REPORT[name]]
    if not rows:
        return None
    metrics = list(dict.fromkeys(metric for row in rows for metric in row.values))
    meaning = {paper: ours for row in rows for paper, ours in row.metrics.items()}
    mine = {paper: report[name]["metrics"].get(meaning.get(paper, ""), {}).get("value") for paper in metrics}
    return Beside(
        (MARK, "setting", *metrics),
        (str(report["model"]["name"]), "this run", *(_percent(mine[m], 100) for m in metrics)),
        tuple((row.model, row.setting, *(_percent(row.values.get(m), 1) for m in metrics)) for row in rows),
        tuple(dict.fromkeys(f"{row.source}: {row.remark}" for row in rows)),
    )


def published_table(report: Mapping[str, Any], name: str) -> list[str]:
    """:func:`beside` as lines of Markdown; nothing if there is no published row."""
    found = beside(report, name)
    if found is None:
        return []
    lines = [f"| {' | '.join(found.heads)} |", "| --- | --- " + "| ---: " * (len(found.heads) - 2) + "|"]
    own = [f"**{cell}**" for cell in found.own]
    lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in (own, *found.rows)]
    return [*lines, "", *found.sources, ""]


def _percent(value: float | None, factor: int) -> str:
    return "–" if value is None else f"{factor * value:.1f}"
