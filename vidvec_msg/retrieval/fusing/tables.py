"""What a fusion prints first: the runs beside what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS
from vidvec_msg.retrieval.reports.tables import shown


def beside(report: Mapping[str, Any]) -> str:
    """A Markdown table a direction, a row a metric; then how weights were chosen.

    Args:
        report: content of the fused folder's ``report.json``.
    """
    fused, lines = report["fused"], []
    names = [run["name"].replace("|", "&#124;") for run in fused["runs"]]
    for way in WAYS:
        part = report[way]
        lines += [f"## {part['label']}: runs and fusion", ""]
        lines += [f"| metric | {' | '.join(names)} | fused |", "| --- " + "| ---: " * (len(names) + 1) + "|"]
        for metric, score in part["metrics"].items():
            cells = [shown(metric, run[way].get(metric)) for run in fused["runs"]]
            lines.append(f"| {metric} | {' | '.join(cells)} | {shown(metric, score['value'])} |")
        lines += ["", *_chosen(fused[way], names), *_partial(fused[way])]
    return "\n".join(lines) + "\n"


def _chosen(part: Mapping[str, Any], names: list[str]) -> list[str]:
    found = part["validation"]
    if found is None:
        return []
    weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(names, part["weights"], strict=True))
    alone = ", ".join(
        f"{name} alone {100 * value:.1f}" for name, value in zip(names, found["single"], strict=True)
    )
    return [
        f"Weights: {weights}; the best of {found['settings']:,} settings by {found['chosen_by']} on "
        f"{found['queries']:,} validation queries ({100 * found['value']:.1f} there; equal weights "
        f"{100 * found['even']:.1f}, {alone}).",
        "",
    ]


def _partial(part: Mapping[str, Any]) -> list[str]:
    count = part["partial"]
    return [f"{count:,} queries are in some of the runs only.", ""] if count else []
