"""Single stage and reranked rows side by side: Markdown, and the parts of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.reports.page_parts import heading, joined, plain_table
from vidvec_msg.retrieval.reports.tables import interval_text, shown
from vidvec_msg.retrieval.reranking.calibration import TEMPERATURES

WAYS = ("forward", "reverse")
_WIDTH, _HEIGHT, _EDGE = 320, 320, 40  # units of the picture
_SHOWN = ("recall@1", "hit_rate@1", "recall@10", "mrr", "ndcg@10", "map")


def reranked_markdown(section: Mapping[str, Any]) -> str:
    """The part of ``report.md``: a table a direction, a row a metric; then the calibration."""
    lines = ["## Reranked", "", told(section), ""]
    for way in (way for way in WAYS if way in section):
        part = section[way]
        rows = list(part["rows"])
        lines += [f"### {part['label']}", "", f"| metric | {' | '.join(rows)} | last − first (95%) | p |"]
        lines += ["| --- " + "| ---: " * (len(rows) + 2) + "|"]
        tests = {(one["metric"], one["row"]): one for one in part["differences"]}
        for metric in part["rows"][rows[0]]:
            cells = [_cell(metric, part["rows"][row][metric]) for row in rows]
            lines.append(
                f"| {metric} | {' | '.join(cells)} | {_difference(metric, tests.get((metric, rows[-1])))} |"
            )
        lines += ["", *_fusion(part)]
    return "\n".join([*lines, *_calibration(section)]) + "\n"


def told(section: Mapping[str, Any]) -> str:
    """One sentence on what was done."""
    prior = {"none": "no prior", "both": "the priors of query and clip"}.get(
        section["prior"], f"the prior of the {section['prior']}"
    )
    words = (
        f"{section['reranker']['name']}, the first {section['depth']} candidates of each query; score "
        f"{section['score']}, {prior} taken off; {section['pairs']:,} pairs"
    )
    if section["failed"]:
        words += f", {section['failed']:,} of them not judged (failures.jsonl)"
    if section["mass"] is not None:
        words += f". Yes and No have {section['mass']:.1%} of the answer's probability"
    return words + "."


def reranked_body(section: Mapping[str, Any] | None) -> Markup:
    """The part of the page: tables of both directions, and the reliability of the probabilities; empty for a
    report without."""
    if section is None:
        return Markup("")
    tables = []
    for way in (way for way in WAYS if way in section):
        part = section[way]
        rows = list(part["rows"])
        tests = {(one["metric"], one["row"]): one for one in part["differences"]}
        cells = []
        for metric in part["rows"][rows[0]]:
            values = [shown(metric, part["rows"][row][metric]["value"]) for row in rows]
            difference, p = _difference(metric, tests.get((metric, rows[-1]))).split(" | ")
            cells.append((metric, *values, difference, p))
        table = plain_table(["metric", *rows, "last − first (95%)", "p"], cells, texts=1)
        told_ = [Markup('<p class="key">{}</p>').format(line) for line in _fusion(part) if line]
        tables.append(joined(heading(part["label"]), table, *told_))
    lead = Markup('<p class="key">{}</p>').format(told(section))
    found = section["calibration"]
    if not found["before"]:
        return joined(lead, *tables)
    said = [
        Markup('<p class="key">{}</p>').format(line) for line in _calibration(section) if line[:1] not in "#|"
    ]
    return joined(lead, *tables, Markup(reliability_svg(found)), *said)


def reliability_svg(calibration: Mapping[str, Any]) -> str:
    """The reliability curve: a bin's share of right pairs over its mean probability, before and after.

    Args:
        calibration: that of the section.
    """

    def x(value: float) -> float:
        return _EDGE + value * (_WIDTH - _EDGE - 10)

    def y(value: float) -> float:
        return 10 + (1 - value) * (_HEIGHT - _EDGE - 10)

    parts = [
        f'<rect x="{x(0)}" y="{y(1)}" width="{x(1) - x(0)}" height="{y(0) - y(1)}" fill="none" '
        'stroke="#999"/>',
        f'<line x1="{x(0)}" y1="{y(0)}" x2="{x(1)}" y2="{y(1)}" stroke="#999" stroke-dasharray="4 4"/>',
    ]
    for value in (0.0, 0.5, 1.0):
        parts.append(f'<text x="{x(value):.1f}" y="{y(0) + 15:.1f}" text-anchor="middle">{value:g}</text>')
        parts.append(f'<text x="{x(0) - 5:.1f}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(
        f'<text x="{x(0.5):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">mean probability of a bin</text>'
    )
    for name, colour, row in (("before", "#c60", 0), ("after", "#06c", 1)):
        found = calibration[name]
        if not found:
            continue
        points = [(x(one["probability"]), y(one["positive"]), one["pairs"]) for one in found["bins"]]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        most = max(pairs for *_, pairs in points)
        for across, up, pairs in points:
            radius = 2 + 5 * (pairs / most) ** 0.5
            parts.append(
                f'<circle cx="{across:.1f}" cy="{up:.1f}" r="{radius:.1f}" fill="{colour}" '
                'fill-opacity="0.6"/>'
            )
        label = f"{name}: ECE {found['ece']:.3f}, Brier {found['brier']:.3f}"
        parts.append(
            f'<text x="{x(0) + 8:.1f}" y="{y(1) + 18 + 16 * row:.1f}" fill="{colour}">{label}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'role="img" aria-label="Reliability: share of right pairs over mean probability" '
        f'fill="currentColor" font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _cell(metric: str, score: Mapping[str, Any]) -> str:
    found = Score(**score)
    interval = interval_text(metric, found)
    return f"{shown(metric, found.value)} ({interval})" if interval else shown(metric, found.value)


def _difference(metric: str, test: Mapping[str, Any] | None) -> str:
    if test is None:
        return "– | –"
    value, low, high = (_signed(metric, test[key]) for key in ("difference", "low", "high"))
    p = test["holm"]
    return f"{value} ({low} to {high}) | {'<0.001' if p < 0.0005 else f'{p:.3f}'}"


def _signed(metric: str, value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{shown(metric, abs(value))}"


def _fusion(part: Mapping[str, Any]) -> list[str]:
    found = part["fusion"]
    if found is None:
        return []
    tried = found["tried"]
    return [
        f"Weight of the reranker in the fusion: {found['weight']:g}, the best by {found['chosen_by']} of "
        f"{len(tried)} on {found['validation_queries']:,} validation queries "
        f"({100 * max(tried.values()):.1f} there; embedding alone {100 * tried['0']:.1f}, reranker alone "
        f"{100 * tried['1']:.1f}).",
        "",
    ]


def _calibration(section: Mapping[str, Any]) -> list[str]:
    found = section["calibration"]
    before, after = found["before"], found["after"]
    if not before:
        return []
    lines = [
        "### Reliability of the probabilities",
        "",
        "| | ECE | Brier | log loss | mean probability | right |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, one in (("before", before), ("after", after)):
        if one:
            mean = sum(bin_["pairs"] * bin_["probability"] for bin_ in one["bins"]) / one["pairs"]
            lines.append(
                f"| {name} | {one['ece']:.3f} | {one['brier']:.3f} | {one['log_loss']:.3f} | {mean:.3f} | "
                f"{one['positive']:.3f} |"
            )
    lines.append("")
    if after:
        ends = found["temperature"] < TEMPERATURES[0] * 1.01 or found["temperature"] > TEMPERATURES[1] * 0.99
        at_end = " (the end of its range)" if ends else ""
        bias = f" and bias {found['bias']:.2f}" if found["bias"] else ""
        lines += [
            f"Temperature {found['temperature']:.3g}{at_end}{bias}, fitted by likelihood on "
            f"{found['validation_pairs']:,} validation pairs; measured on {after['pairs']:,} pairs of the "
            "test.",
            "",
        ]
    return lines
