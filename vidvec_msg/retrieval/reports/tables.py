"""The numbers of a report as people write them: Markdown, tables for the terminal, and single figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vidvec_msg.retrieval.benchmarks.published import beside, published_table
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.metrics import RANKS, parse_metrics

# of these, the first three that were asked for
_GROUP_COLUMNS = (
    "hit_rate@1",
    "recall@10",
    "map",
    "ndcg@10",
    "recall@1",
    "mrr",
)
_GROUP_WIDTH = 3  # columns that fit beside each other on a phone

HOW_TO_READ = (
    "recall@k is the share of all positives found within the first k ranks, so with 8 positives recall@1 "
    "cannot exceed 1/8; hit_rate@k says whether at least one is there. Papers call either of them R@k. mrr "
    "looks at the first positive, map and ndcg at all of them. The two directions have different candidates "
    "and different numbers of positives and must not be averaged."
)


def markdown_report(report: Mapping[str, Any]) -> str:
    """``report.md``: the numbers of ``report.json`` for a pull request or a notebook."""
    model = report["model"]
    head = [
        f"# {model['name']} on {report['collection']}",
        "",
        f"Split {report['split']}, embedder {report['embedder']}, fingerprint {model['fingerprint']}. "
        "Values in percent, 95% bootstrap intervals over queries; chance is what a random ranking scores.",
        "",
    ]
    return "\n".join(head) + markdown_tables(report) + f"\n{HOW_TO_READ}\n"


def markdown_tables(report: Mapping[str, Any]) -> str:
    """The tables of both directions as Markdown, groups included."""
    lines: list[str] = []
    for name in ("forward", "reverse"):
        part = report[name]
        lines += [f"## {part['label']}", "", _sizes(part), ""]
        lines += [f"> {warning}\n" for warning in part["warnings"]]
        lines += ["| metric | value | 95% interval | chance |", "| --- | ---: | ---: | ---: |"]
        for metric, score in _scores(part).items():
            cells = (
                metric,
                shown(metric, score.value),
                interval_text(metric, score),
                shown(metric, score.chance),
            )
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
        if found := part.get("separation"):
            lines += [
                f"Pairwise AUC {found['auc']:.3f} ({found['positives']:,} positive pairs, "
                f"{found['mismatched']:,} mismatched).",
                "",
            ]
        lines += _markdown_groups(part)
        lines += published_table(report, name)
    lines += _markdown_dual_softmax(report)
    if found := report.get("reranked"):
        from vidvec_msg.retrieval.reports.reranked import reranked_markdown

        lines.append(reranked_markdown(found))
    return "\n".join(lines)


def terminal_tables(report: Mapping[str, Any]) -> str:
    """The tables of both directions, drawn for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(force_terminal=True)
    with console.capture() as capture:
        for name in ("forward", "reverse"):
            part = report[name]
            console.print(f"[bold]{part['label']}[/bold]  {_sizes(part)}", highlight=False)
            table = Table(box=SIMPLE_HEAD)
            for heading in ("metric", "value", "95% interval", "chance"):
                table.add_column(heading, justify="left" if heading == "metric" else "right")
            for metric, score in _scores(part).items():
                table.add_row(
                    metric,
                    shown(metric, score.value),
                    interval_text(metric, score),
                    shown(metric, score.chance),
                )
            console.print(table)
            for warning in part["warnings"]:
                console.print(f"[yellow]{warning}[/yellow]")
            if found := beside(report, name):
                table = Table(box=SIMPLE_HEAD)
                for place, heading in enumerate(found.heads):
                    table.add_column(heading, justify="left" if place < 2 else "right")
                table.add_row(*found.own, style="bold")
                for row in found.rows:
                    table.add_row(*row)
                console.print(table, *found.sources, highlight=False)
    if found := report.get("reranked"):
        from vidvec_msg.retrieval.reports.reranked import reranked_markdown

        return capture.get() + reranked_markdown(found)
    return capture.get()


def shown(metric: str, value: float | None) -> str:
    """A value as people read it: percent with one decimal; ranks with one; counts and gains as they are; a
    dash for none."""
    if value is None:
        return "–"
    if metric in RANKS:
        return f"{value:,.1f}"
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.3f}"


def interval_text(metric: str, score: Score) -> str:
    """An interval as "12.3 – 45.6"; empty if there is none."""
    if score.low is None or score.high is None:
        return ""
    return f"{shown(metric, score.low)} – {shown(metric, score.high)}"


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 (all but hits, undivided gains, graded rbp, ranks)."""
    return parse_metrics([metric])[0].kind not in ("hits", "dcg", "dcg_burges", "rbp", *RANKS)


def _scores(part: Mapping[str, Any]) -> dict[str, Score]:
    return {name: Score(**score) for name, score in part["metrics"].items()}


def _sizes(part: Mapping[str, Any]) -> str:
    text = f"{part['queries']:,} queries, {part['candidates']:,} candidates"
    if part["skipped"]:
        text += f", {len(part['skipped']):,} skipped"
    if part["tied_queries"]:
        text += f", {part['tied_queries']:,} tied"
    return text


def _markdown_groups(part: Mapping[str, Any]) -> list[str]:
    metrics = group_columns(part["metrics"])
    lines: list[str] = []
    for key, groups in part["groups"].items():
        lines += [
            f"| {key} | queries | {' | '.join(metrics)} |",
            "| --- " + "| ---: " * (len(metrics) + 1) + "|",
        ]
        for value, group in groups.items():
            cells = [shown(metric, group["metrics"].get(metric)) for metric in metrics]
            mark = " †" if group["small"] else ""
            lines.append(
                f"| {value.replace('|', '&#124;')}{mark} | {group['queries']} | {' | '.join(cells)} |"
            )
        lines.append("")
    if part["groups"]:
        lines += [f"† fewer than {SMALL_GROUP} queries", ""]
    return lines


def _markdown_dual_softmax(report: Mapping[str, Any]) -> list[str]:
    found = report.get("dual_softmax")
    if not found:
        return []
    lines = ["## With dual softmax", "", found["note"], ""]
    for name in ("forward", "reverse"):
        part = found[name]
        lines += [
            f"{report[name]['label']}: temperature {part['temperature']:g}, chosen by {found['chosen_by']} "
            f"on {part['validation_queries']:,} queries of {found['validation']}.",
            "",
            "| metric | with dual softmax | 95% interval | raw |",
            "| --- | ---: | ---: | ---: |",
        ]
        raw = _scores(report[name])
        for metric, score in _scores(part).items():
            cells = (
                shown(metric, score.value),
                interval_text(metric, score),
                shown(metric, raw[metric].value),
            )
            lines.append(f"| {metric} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def group_columns(metrics: Mapping[str, Any]) -> list[str]:
    """The few metrics that tables of groups show."""
    chosen = [name for name in _GROUP_COLUMNS if name in metrics] or list(metrics)
    return chosen[:_GROUP_WIDTH]


def counted(count: int, one: str, many: str) -> str:
    """A number of things in words."""
    return f"{count:,} {one if count == 1 else many}"
