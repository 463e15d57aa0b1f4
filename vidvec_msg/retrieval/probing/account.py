"""What a probe found, for people: Markdown for the terminal and ``probe.md``, and the page ``probe.html``."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vidvec_msg.retrieval.comparison.tables import change, probability
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.probing.trial import WAYS, Outcome
from vidvec_msg.retrieval.reports.page_parts import (
    Row,
    Section,
    chance_row,
    comparison_table,
    heading,
    joined,
    page,
    plain_table,
)
from vidvec_msg.retrieval.reports.tables import interval_text, shown
from vidvec_msg.runs import write_json, write_text

REPORT = "probe.json"

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings, and rows of cells; the first column is words."""


def honesty(outcome: Outcome) -> str:
    """How much of the value comes from choosing, in words."""
    metric, choice = outcome.rule.metric, outcome.choice
    told = outcome.tested[outcome.rule.way][metric]
    unseen = (
        ""
        if choice.unseen is None
        else (
            f" Choosing by nine tenths of them and measuring on the last tenth gives "
            f"{shown(metric, choice.unseen)}: what is above that is the luck of the best of so many, and the "
            "rest of the difference is that the test's queries are others."
        )
    )
    return (
        f"Of {len(outcome.names)} compared, by {outcome.rule.way} {metric}: {shown(metric, choice.value)} on "
        f"the queries that chose it, {shown(metric, told[0].value)} on the test.{unseen}"
    )


def test_table(outcome: Outcome, way: Any) -> Table:
    """The chosen one beside the given one on the test, one metric a row, with paired tests."""
    rows = []
    for metric, (chosen, given) in outcome.tested[way].items():
        found = outcome.differences[way].get(metric)
        rows.append([
            metric,
            shown(metric, given.value), interval_text(metric, given),
            shown(metric, chosen.value), interval_text(metric, chosen),
            "–" if found is None else change(metric, found.difference),
            "" if found is None else f"{change(metric, found.low)} … {change(metric, found.high)}",
            "" if found is None else probability(found.p),
            shown(metric, chosen.chance),
        ])  # fmt: skip
    return (
        [
            "metric",
            "given",
            "95% interval",
            "chosen",
            "95% interval",
            "difference",
            "95% interval",
            "p",
            "chance",
        ],
        rows,
    )


def _markdown(head: Sequence[str], outcome: Outcome, tables: Mapping[str, Table]) -> str:
    lines = [f"# {head[0]}", "", *head[1:], ""]
    for title, table in tables.items():
        lines += [f"## {title}", "", *_markdown_table(table), ""]
    for way in WAYS:
        lines += [f"## test, {outcome.labels[way]}", "", *_markdown_table(test_table(outcome, way)), ""]
    lines += [f"given: {outcome.names[0]}; chosen: {outcome.names[outcome.best]}.", ""]
    return "\n".join([*lines, honesty(outcome), ""])


def head_of(content: Mapping[str, Any], outcome: Outcome, *, among: str, sure: str) -> list[str]:
    """Title and first sentence.

    Args:
        content: of the report.
        outcome: what came out.
        among: what was compared: "12 cells".
        sure: how sure the choice is.
    """
    name, halves = outcome.names[outcome.best], content["halves"]
    return [
        f"{content['model']['name']} on {Path(content['collection']).name}: {name}",
        f"{halves['how']}: {halves['validation']['queries']} queries choose, {halves['test']['queries']} "
        f"tell. Chosen by {content['choose_by']} among {among}: **{name}** ({sure}).",
    ]


def write(
    out: Path,
    content: Mapping[str, Any],
    outcome: Outcome,
    head: Sequence[str],
    *,
    short: Mapping[str, Table],
    whole: Mapping[str, Table],
    picture: str,
    how_to_read: str,
) -> str:
    """Writes what people read, and the report last; returns the Markdown.

    Args:
        out: the folder; the picture is there.
        content: of the report.
        outcome: what came out.
        head: title, and sentences below it.
        short: tables of the Markdown, by title.
        whole: tables of the page, by title.
        picture: name of the PNG.
        how_to_read: a paragraph at the end of the page.
    """
    told = _markdown(head, outcome, short)
    browsed = _html(
        [line.replace("**", "") for line in head],
        outcome,
        whole,
        picture=out / picture,
        facts=[("model", content["model"]["fingerprint"]), ("embedder", content["embedder"])],
        how_to_read=how_to_read,
    )
    for file, text in (("probe.md", told), ("probe.html", browsed)):
        write_text(out / file, text)
    write_json(out / REPORT, content)  # last: its presence means that the folder is complete
    return told


def _html(
    head: Sequence[str],
    outcome: Outcome,
    tables: Mapping[str, Table],
    *,
    picture: Path,
    facts: Sequence[tuple[str, str]],
    how_to_read: str,
) -> str:
    data = base64.b64encode(picture.read_bytes()).decode()
    image = Markup('<img alt="{}" src="data:image/png;base64,{}">').format(f"{head[0]}: the picture", data)
    sections = [
        Section("What was chosen", joined(*(Markup("<p>{}</p>").format(line) for line in head[1:]), image)),
        Section(
            "On the test",
            joined(*(_told(outcome, way) for way in WAYS)),
            "The choice did not see these queries.",
        ),
        Section("What choosing is worth", Markup("<p>{}</p>").format(honesty(outcome))),
    ]
    sections += [
        Section(title, plain_table(headings, rows, texts=1)) for title, (headings, rows) in tables.items()
    ]
    sections.append(Section("How to read this", Markup("<p>{}</p>").format(how_to_read)))
    return page(head[0], sections, eyebrow="Probe, both ways", facts=facts)


def _told(outcome: Outcome, way: Any) -> Markup:
    scores = outcome.tested[way]
    rows = [
        Row(outcome.names[0], {metric: pair[1] for metric, pair in scores.items()}, note="as given"),
        Row(
            outcome.names[outcome.best],
            {metric: pair[0] for metric, pair in scores.items()},
            note="chosen",
            style="marked",
        ),
        chance_row({metric: pair[0] for metric, pair in scores.items()}),
    ]
    headings, cells = test_table(outcome, way)
    differences = plain_table([headings[0], *headings[5:8]], [[row[0], *row[5:8]] for row in cells], texts=1)
    return joined(heading(outcome.labels[way]), comparison_table(rows, list(scores)), differences)


def cells_of(outcome: Outcome, numbers: Sequence[int]) -> list[list[str]]:
    """Rows of validation values: name, and the rule's metric with its interval in both directions."""
    metric = outcome.rule.metric
    rows = []
    for number in numbers:
        row = [outcome.names[number]]
        for way in WAYS:
            low, high = float(outcome.lows[way][number]), float(outcome.highs[way][number])
            score = Score(float(outcome.validation[way][metric][number]), low, high)
            row += [shown(metric, score.value), interval_text(metric, score)]
        rows.append(row)
    return rows


def headings_of(outcome: Outcome, first: str) -> list[str]:
    """Of :func:`cells_of`."""
    metric = outcome.rule.metric
    ways = [(f"{outcome.labels[way]} {metric}", "95% interval") for way in WAYS]
    return [first, *(cell for pair in ways for cell in pair)]


def _markdown_table(table: Table) -> list[str]:
    headings, rows = table
    lines = [f"| {' | '.join(headings)} |", f"| --- {'| ---: ' * (len(headings) - 1)}|"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
