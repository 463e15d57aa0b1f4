"""A comparison as people write it: Markdown, tables for the terminal, and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.metrics import RANKS
from vidvec_msg.retrieval.reports.latex import BEST, SECOND, latex_table, marks
from vidvec_msg.retrieval.reports.tables import group_columns, interval_text, is_share, shown

HOW_TO_READ = (
    "Best value bold, second underlined; printed alike, they share the mark. A difference is the mean over "
    "queries of the second run's value less the first one's, in points of percent (ranks: in ranks), with "
    "its 95% bootstrap interval; p is of the paired randomisation test, t of the paired t test, both "
    "two-sided. Holm and Bonferroni correct p for the pairs of runs of one metric in one direction, not for "
    "the number of metrics. With few queries a p above 0.05 says that the difference was not shown, not that "
    "there is none."
)
_FEW_PAIRS = 1  # with more pairs of runs, the tables of differences are of a few metrics


def markdown_comparison(content: Mapping[str, Any]) -> str:
    """``compare.md``."""
    names = [run["name"] for run in content["runs"]]
    lines = [f"# {', '.join(names)}", ""]
    lines += [f"Collection {content['collection']}, split {content['split']}, pool {content['pool']}.", ""]
    for way in WAYS:
        part = content[way]
        lines += [f"## {part['label']}", "", sizes(part), ""]
        lines += [f"> {name}: {warning}\n" for name, told in part["warnings"].items() for warning in told]
        lines += _markdown_scores(part, content["metrics"])
        lines += _markdown_differences(part, content["metrics"])
        lines += _markdown_groups(part, content["metrics"])
    return "\n".join(lines) + f"\n{HOW_TO_READ}\n"


def terminal_comparison(content: Mapping[str, Any]) -> str:
    """The scores and differences of both directions, drawn for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(force_terminal=True)
    with console.capture() as capture:
        for way in WAYS:
            part = content[way]
            console.print(f"[bold]{part['label']}[/bold]  {sizes(part)}", highlight=False)
            table = Table(box=SIMPLE_HEAD)
            for heading in ("metric", *part["scores"], "chance"):
                table.add_column(heading, justify="left" if heading == "metric" else "right")
            styles = {BEST: "bold", SECOND: "underline"}
            for metric, cells, chance in score_rows(part, content["metrics"]):
                marked = [
                    f"[{styles[mark]}]{text}[/] [dim]{ends}[/]" if mark else f"{text} [dim]{ends}[/]"
                    for text, ends, mark in cells
                ]
                table.add_row(metric, *marked, chance)
            console.print(table)
            table = Table(box=SIMPLE_HEAD, title="differences", title_justify="left")
            for heading in DIFFERENCE_HEADINGS:
                table.add_column(heading, justify="left" if heading in ("metric", "runs") else "right")
            for row in difference_rows(part, content["metrics"]):
                table.add_row(*row)
            console.print(table)
    return capture.get()


def latex_comparison(content: Mapping[str, Any]) -> str:
    """``compare.tex``: a booktabs table a direction."""
    tables = []
    for way in WAYS:
        part = content[way]
        rows = {
            name: {metric: score["value"] for metric, score in scores.items()}
            for name, scores in part["scores"].items()
        }
        first = next(iter(part["scores"].values()))
        rows["chance"] = {metric: first[metric]["chance"] for metric in content["metrics"]}
        caption = f"{part['label']}: {sizes(part)}. In percent."
        tables.append(latex_table(caption, rows, content["metrics"], unmarked=["chance"]))
    return "% \\usepackage{booktabs}\n" + "\n".join(tables)


def sizes(part: Mapping[str, Any]) -> str:
    """Sizes of a direction, and what not all runs have."""
    text = f"{part['queries']:,} queries that all runs have, {part['candidates']:,} candidates"
    left = [f"{name} lacks {len(queries):,}" for name, queries in part["left_out"].items()]
    return f"{text}; {', '.join(left)} (listed in compare.json)" if left else text


def score_rows(
    part: Mapping[str, Any], metrics: Sequence[str]
) -> list[tuple[str, list[tuple[str, str, str]], str]]:
    """A row per metric: its name, (value, interval, mark) of each run, and chance."""
    rows = []
    for metric in metrics:
        scores = [Score(**one[metric]) for one in part["scores"].values()]
        found = marks(metric, [score.value for score in scores])
        cells = [
            (shown(metric, score.value), interval_text(metric, score), mark)
            for score, mark in zip(scores, found, strict=True)
        ]
        rows.append((metric, cells, shown(metric, scores[0].chance)))
    return rows


DIFFERENCE_HEADINGS = ("metric", "runs", "difference", "95% interval", "p", "t", "Holm", "Bonf.", "+/−/=")


def difference_rows(part: Mapping[str, Any], metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """The paired differences as cells under :data:`DIFFERENCE_HEADINGS`."""
    chosen = difference_metrics(part, metrics)
    rows = []
    for one in part["differences"]:
        metric = one["metric"]
        if metric not in chosen:
            continue
        same = one["queries"] - one["higher"] - one["lower"]
        rows.append(
            (
                metric,
                f"{one['second']} − {one['first']}",
                change(metric, one["difference"]),
                f"{change(metric, one['low'])} … {change(metric, one['high'])}",
                *(probability(one[name]) for name in ("p", "t", "holm", "bonferroni")),
                f"{one['higher']}/{one['lower']}/{same}",
            )
        )
    return rows


def difference_metrics(part: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    """The metrics whose differences the tables show: all of two runs, of more runs three."""
    return list(metrics) if len(part["pairs"]) <= _FEW_PAIRS else group_columns(dict.fromkeys(metrics))


def change(metric: str, value: float) -> str:
    """A difference with its sign; in points of percent where the metric is a share."""
    if is_share(metric):
        return f"{100 * value:+.1f}"
    return f"{value:+,.1f}" if metric in RANKS else f"{value:+.3f}"


def probability(p: float | None) -> str:
    """A p-value as people write it."""
    if p is None:
        return "–"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def _markdown_scores(part: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    names = [_cell(name) for name in part["scores"]]
    lines = [f"| metric | {' | '.join(names)} | chance |", f"| --- {'| ---: ' * (len(names) + 1)}|"]
    around = {BEST: ("**", "**"), SECOND: ("<u>", "</u>"), "": ("", "")}
    for metric, cells, chance in score_rows(part, metrics):
        texts = [f"{around[mark][0]}{text}{around[mark][1]} ({ends})" for text, ends, mark in cells]
        lines.append(f"| {metric} | {' | '.join(texts)} | {chance} |")
    return [*lines, ""]


def _markdown_differences(part: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    rows = difference_rows(part, metrics)
    lines = [f"| {' | '.join(DIFFERENCE_HEADINGS)} |", f"| --- | --- {'| ---: ' * 7}|"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    hidden = [m for m in metrics if m not in difference_metrics(part, metrics)]
    return [*lines, "", *([f"Of {', '.join(hidden)}: in compare.json.", ""] if hidden else [])]


def _markdown_groups(part: Mapping[str, Any], metrics: Sequence[str]) -> list[str]:
    lines: list[str] = []
    columns = group_columns(dict.fromkeys(metrics))
    names = list(part["scores"])
    for key, groups in part["groups"].items():
        headings = [f"{metric}, {_cell(name)}" for metric in columns for name in names]
        lines += [f"| {_cell(key)} | queries | {' | '.join(headings)} |"]
        lines += [f"| --- {'| ---: ' * (len(headings) + 1)}|"]
        for value, group in groups.items():
            cells = []
            for metric in columns:
                values = [group["metrics"][name][metric] for name in names]
                around = {BEST: "**", SECOND: "", "": ""}
                cells += [
                    f"{around[mark]}{shown(metric, one)}{around[mark]}"
                    for one, mark in zip(values, marks(metric, values), strict=True)
                ]
            mark = " †" if group["small"] else ""
            lines.append(f"| {_cell(value)}{mark} | {group['queries']} | {' | '.join(cells)} |")
        lines.append("")
    return [*lines, f"† fewer than {SMALL_GROUP} queries", ""] if part["groups"] else lines


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")
