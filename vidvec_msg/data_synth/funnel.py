"""The way from requests to pairs, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vidvec_msg.data_synth.filters.chain import Step


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the way.

    Args:
        name: what was looked at.
        given: that came in.
        codes: reason → how many went.
    """

    name: str
    given: int
    codes: Mapping[str, int]

    @property
    def left(self) -> int:
        """That went on."""
        return self.given - sum(self.codes.values())


def stages(asked: int | None, failed: Mapping[str, int], steps: Sequence[Step]) -> list[Stage]:
    """The whole way.

    Args:
        asked: questions; None if the pairs were there before.
        failed: reason → questions without a usable answer.
        steps: of the filters.
    """
    first = [] if asked is None else [Stage("answers", asked, dict(failed))]
    return [*first, *(Stage(step.filter, step.given, dict(step.codes)) for step in steps)]


def terminal_table(way: Sequence[Stage]) -> str:
    """For the terminal: a row per stage, and one per reason."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for name in ("step", "given", "rejected", "share", "left"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for stage in way:
        gone = stage.given - stage.left
        table.add_row(
            stage.name, f"{stage.given:,}", f"{gone:,}", _share(gone, stage.given), f"{stage.left:,}"
        )
        for code, number in sorted(stage.codes.items(), key=lambda entry: -entry[1]):
            table.add_row(f"  {code}", "", f"{number:,}", _share(number, stage.given), "")
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def markdown_table(way: Sequence[Stage]) -> str:
    """For the card."""
    lines = [
        "| step | given | rejected | share | left | reasons |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for stage in way:
        gone = stage.given - stage.left
        ordered = sorted(stage.codes.items(), key=lambda entry: -entry[1])
        reasons = ", ".join(f"{code} {number:,}" for code, number in ordered)
        share = _share(gone, stage.given)
        lines.append(f"| {stage.name} | {stage.given:,} | {gone:,} | {share} | {stage.left:,} | {reasons} |")
    return "\n".join(lines)


def draw(way: Sequence[Stage], path: Path) -> None:
    """A bar per stage: what is left of what was asked for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.42 * len(way) + 1.1), layout="constrained")
    FigureCanvasAgg(figure)  # no window, whatever the user's backend is
    axes = figure.subplots()
    names = [stage.name.replace("_", " ") for stage in way]
    places = range(len(way))
    axes.barh(places, [stage.given for stage in way], color="#d9d9d9", label="given")
    axes.barh(places, [stage.left for stage in way], color="#3b6ea5", label="left")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel("pairs")
    for place, stage in enumerate(way):
        gone = stage.given - stage.left
        if gone:
            axes.text(stage.given, place, f" −{gone:,}", va="center", fontsize=8)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=130, metadata={"Software": None})


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
