"""What a probe looks like: retrieval against the layer, or a line per cell of a grid; PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.read_outs import ReadOut
from vidvec_msg.retrieval.probing.trial import MOST_TIED, WAYS, Outcome, Way
from vidvec_msg.retrieval.reports.tables import is_share
from vidvec_msg.runs import replacing

_COLOURS = {"last": "#1f5fa8", "mean": "#c2571a", "visual": "#2f7d4f"}
_NAMES = {"last": "last token", "mean": "mean", "visual": "mean of visual tokens"}
_GREY = "#8a8a8a"
_MOST = 40  # cells drawn; probe.json has all


def draw_curves(path: Path, outcome: Outcome, read_outs: Sequence[ReadOut], *, blocks: int) -> None:
    """Validation values against the layer, a panel per direction; the final state stands at the right end.

    Args:
        path: the PNG.
        outcome: of the read-outs, in their order.
        read_outs: all that were compared.
        blocks: of the model.
    """
    figure, panels = _panels(len(WAYS), width=6.2, height=4.0)
    for panel, way in zip(panels, WAYS, strict=True):
        _draw_layers(panel, outcome, read_outs, way, blocks)
    panels[0].legend(frameon=False, fontsize=7, loc="best", handlelength=3.5)
    _write(path, figure)


def _draw_layers(panel: Any, outcome: Outcome, read_outs: Sequence[ReadOut], way: Way, blocks: int) -> None:
    from matplotlib.ticker import MaxNLocator

    metric = outcome.rule.metric
    scale = 100 if is_share(metric) else 1
    values = scale * outcome.validation[way][metric]
    for pooling in dict.fromkeys(one.pooling for one in read_outs):
        for normed in (False, True):
            points = sorted(
                (blocks if one.layer == FINAL else one.layer, values[number])
                for number, one in enumerate(read_outs)
                if one.pooling == pooling
                and normed == (one.normed or one.layer == FINAL)
                and outcome.tied[way][number] <= MOST_TIED
            )
            if len(points) > 1:
                across, up = zip(*points, strict=True)
                panel.plot(
                    across, up, color=_COLOURS[pooling], linewidth=1.4, linestyle="-" if normed else "--",
                    marker="o", markersize=2.5, label=f"{_NAMES[pooling]}, {'normed' if normed else 'raw'}",
                )  # fmt: skip
    best = outcome.choices[way].best
    place = blocks if read_outs[best].layer == FINAL else read_outs[best].layer
    low, high = scale * outcome.lows[way][best], scale * outcome.highs[way][best]
    panel.errorbar(
        [place], [values[best]], yerr=[[values[best] - low], [high - values[best]]], color="#222222",
        marker="o", markersize=5, capsize=3, linewidth=1.2, zorder=5, label="best, 95% interval",
    )  # fmt: skip
    panel.axhline(values[0], color=_GREY, linewidth=1, linestyle=":", label=outcome.names[0])
    _title(panel, outcome, way)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("layer (0: embeddings; the normed line ends in the final state)")
    panel.set_xlim(-0.3, blocks + 0.3)


def draw_cells(path: Path, outcome: Outcome) -> None:
    """Validation values of a grid's cells with their intervals, best first, a panel per direction.

    Args:
        path: the PNG.
        outcome: of the cells.
    """
    metric = outcome.rule.metric
    scale = 100 if is_share(metric) else 1
    order = ranked(outcome)[:_MOST]
    figure, panels = _panels(len(WAYS), width=6.2, height=0.26 * len(order) + 1.2, share=True)
    for panel, way in zip(panels, WAYS, strict=True):
        values = scale * outcome.validation[way][metric]
        for row, number in enumerate(order):
            low, high = scale * outcome.lows[way][number], scale * outcome.highs[way][number]
            colour = "#1f5fa8" if number == outcome.best else "#c2571a" if number == 0 else _GREY
            panel.plot([low, high], [row, row], color=colour, linewidth=1.4)
            panel.plot([values[number]], [row], color=colour, marker="o", markersize=4)
        _title(panel, outcome, way)
    names = [_short(outcome.names[number]) for number in order]
    panels[0].set_yticks(range(len(order)), names, fontsize=7)
    panels[0].invert_yaxis()
    _write(path, figure)


def ranked(outcome: Outcome) -> list[int]:
    """Numbers of the candidates, the best by the rule first; the chosen one leads."""
    values = outcome.validation[outcome.rule.way][outcome.rule.metric]
    worth = values if outcome.choice.value == values.max() else -values
    rest = sorted(range(len(values)), key=lambda number: -worth[number])
    return [outcome.best, *(number for number in rest if number != outcome.best)]


def _title(panel: Any, outcome: Outcome, way: Way) -> None:
    unit = " (%)" if is_share(outcome.rule.metric) else ""
    panel.set_title(
        f"{outcome.labels[way]}: {outcome.rule.metric}{unit} on validation", loc="left", fontsize=9
    )


def _short(name: str, most: int = 70) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _panels(count: int, *, width: float, height: float, share: bool = False) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained", dpi=130)
    panels = figure.subplots(1, count, squeeze=False, sharey=share)[0]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="both" if share else "y", color="#e4e4e4", linewidth=0.8)
        panel.set_axisbelow(True)
    return figure, panels


def _write(path: Path, figure: Any) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)  # no window, whatever the user's backend is
    with replacing(path) as temporary, temporary.open("wb") as stream:
        figure.savefig(stream, format="png", metadata={"Software": None})
