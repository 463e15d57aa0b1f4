"""``curves.png``: the loss, and retrieval in both directions, against the steps of a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.runs import replacing
from vidvec_msg.train.ending import Table, split_name
from vidvec_msg.train.measurement import DIRECTIONS

CURVES = "curves.png"

_COLOURS = {"forward": "#1f5fa8", "reverse": "#c2571a"}
_WAYS = {"forward": "queries → corpus", "reverse": "corpus → queries"}
_WAYS_OF_PAIRS = {"forward": "anchors → positives", "reverse": "positives → anchors"}
_GREY = "#8a8a8a"
_MOST = 5  # measurements that are drawn, beside the loss


def draw_curves(path: Path, table: Table, *, best: int | None = None) -> None:
    """Draws a picture of a run; one panel for the loss, one per measurement (map, or its first metric).

    Args:
        path: the PNG.
        table: rows of metrics.csv; row n is the model after n optimizer steps.
        best: step that the embedder is made from, marked if given.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = _shown(table)
    figure = Figure(figsize=(4.6 * (1 + len(shown)), 3.6), layout="constrained", dpi=150)
    panels = figure.subplots(1, 1 + len(shown), squeeze=False)[0]
    _draw_loss(panels[0], table)
    for panel, (prefix, metric) in zip(panels[1:], shown, strict=True):
        _draw_measurement(panel, table, prefix, metric)
    for panel in panels:
        panel.set_xlabel("optimizer steps")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_xlim(0, max(table, default=1) or 1)
        if best is not None:
            panel.axvline(best, color=_GREY, linewidth=1, linestyle=":")
            panel.annotate(
                f"embedder: step {best}",
                (best, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3 if best > max(table) / 2 else 3, -2),
                textcoords="offset points",
                ha="right" if best > max(table) / 2 else "left",
                va="top",
                fontsize=7,
                color=_GREY,
            )
    with replacing(path) as temporary, temporary.open("wb") as stream:
        FigureCanvasAgg(figure).print_png(stream)


def _draw_loss(panel: Any, table: Table) -> None:
    steps, losses = _line(table, "train/loss")
    # a mean over a twentieth of the run shows the trend that single batches hide; odd, to have a middle
    width = 2 * (len(steps) // 40) + 1
    many = width > 1
    panel.plot(steps, losses, color="#c9c9c9" if many else "#333333", linewidth=1, label="of each batch")
    if many:
        smooth = np.convolve(losses, np.full(width, 1 / width), mode="valid")
        middle = steps[width // 2 : width // 2 + len(smooth)]
        panel.plot(middle, smooth, color="#333333", linewidth=1.6, label=f"mean of {width}")
    seen, values = _line(table, "val/loss")
    if len(seen):
        panel.plot(seen, values, color="#2f7d4f", marker="o", markersize=4, label="validation pairs")
    if many or len(seen):
        panel.legend(frameon=False, fontsize=8)
    panel.set_title("loss", loc="left", fontsize=10)
    panel.set_ylim(bottom=0)


def _draw_measurement(panel: Any, table: Table, prefix: str, metric: str) -> None:
    highest, before = 0.0, None
    for direction in DIRECTIONS:
        steps, values = _line(table, f"{prefix}/{direction}/{metric}")
        if not len(steps):
            continue
        highest = max(highest, values.max())
        colour = _COLOURS[direction]
        ways = _WAYS_OF_PAIRS if prefix.endswith("pairs") else _WAYS
        panel.plot(
            steps, values, color=colour, linewidth=1.6, marker="o", markersize=4, clip_on=False,
            label=f"{direction}: {ways[direction]}",
        )  # fmt: skip
        if steps[0] == 0:
            before = panel.axhline(values[0], color=colour, linewidth=1, linestyle="--")
    lines, names = panel.get_legend_handles_labels()
    if before is not None:
        lines, names = [*lines, before], [*names, "before training"]
    panel.legend(lines, names, frameon=False, fontsize=8, loc="best")
    panel.set_title(f"{prefix}: {metric}", loc="left", fontsize=10)
    panel.set_ylim(0, 1 if highest > 0.5 else None)


def _shown(table: Table) -> list[tuple[str, str]]:
    """Measurements, each with the metric that is drawn."""
    metrics: dict[str, list[str]] = {}
    for row in table.values():
        for name in row:
            prefix, direction, metric = split_name(name)
            if direction and metric not in metrics.setdefault(prefix, []):
                metrics[prefix].append(metric)
    return [
        (prefix, "map" if "map" in found else found[0]) for prefix, found in sorted(metrics.items())[:_MOST]
    ]


def _line(table: Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of a metric, where it is a number."""
    points = [
        (step, table[step][name]) for step in sorted(table) if np.isfinite(table[step].get(name, np.nan))
    ]
    steps, values = zip(*points, strict=True) if points else ((), ())
    return np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
