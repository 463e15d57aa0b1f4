"""The parts of a page: tables, histograms, sheets of queries, and the page around them.

Functions of their own, so that every report is set from the same pieces (:func:`metric_table`,
:func:`comparison_table`, :func:`group_table`, :func:`rank_histogram`, :func:`query_sheet`, :func:`page`).
They return safe HTML; every text given to them is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.evaluation.ranking import GoldRanks
from vidvec_msg.retrieval.reports.latex import marks
from vidvec_msg.retrieval.reports.pictures import interval_bar, item_picture, rank_bins
from vidvec_msg.retrieval.reports.tables import interval_text, is_share, shown

_GROUP_ROWS = 30  # values of a group shown on the page; report.json has all
_WORDS = 400  # characters of a text shown on the page


@dataclass(frozen=True, slots=True)
class Row:
    """One system in a comparison.

    Args:
        name: what the row is about.
        scores: metric → score.
        note: a second line in small print.
        style: "marked" for the row to look at, "chance" for a row that is no system, "partial" for one whose
            means are over fewer queries; the last two are never best or second.
    """

    name: str
    scores: Mapping[str, Score]
    note: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """An item on the page: its words, its picture (a data URI), or both."""

    id: str
    words: str = ""
    picture: str | None = None

    @classmethod
    def of(cls, item: Item, *, with_picture: bool = True) -> Card:
        """The card of an item; clips and images show their frames, others their words."""
        words = item.full_text or (item.transcript or "" if item.modality != "text" else "")
        words = words if len(words) <= _WORDS else words[: _WORDS - 1] + "…"
        return cls(item.id, words, item_picture(item) if with_picture else None)


@dataclass(frozen=True, slots=True)
class Result:
    """A retrieved item.

    Args:
        card: the item.
        rank: from 1.
        score: its similarity to the query.
        relevant: whether it is a positive.
        far: it is not among the first ones and shown because it is the best positive.
    """

    card: Card
    rank: int
    score: float | None
    relevant: bool
    far: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """A query and what was retrieved for it.

    Args:
        query: the query.
        best_rank: rank of its best positive; 0 if none is among the candidates.
        candidates: how many were ranked.
        results: best first.
    """

    query: Card
    best_rank: int
    candidates: int
    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page.

    Args:
        title: its heading.
        body: safe HTML, made by the functions here.
        lead: a sentence below the heading.
    """

    title: str
    body: Markup
    lead: str = ""


# --- the parts --------------------------------------------------------------------------------------


def page(
    title: str,
    sections: Sequence[Section],
    *,
    eyebrow: str = "",
    facts: Sequence[tuple[str, str]] = (),
    footer: str = "",
) -> str:
    """A complete page that needs nothing from the network, in light and dark, for wide and narrow screens.

    Args:
        title: the heading.
        sections: what the page says, in order.
        eyebrow: a few words above the heading.
        facts: name and value pairs below the heading.
        footer: small print at the end.
    """
    template = _environment().get_template("report.html.jinja")
    return template.render(title=title, sections=sections, eyebrow=eyebrow, facts=facts, footer=footer)


def metric_table(scores: Mapping[str, Score]) -> Markup:
    """The metrics of one system in one direction, one a row, with interval and chance."""
    rows = []
    for name, score in scores.items():
        unit = is_share(name)
        rows.append({
            "name": name,
            "value": shown(name, score.value),
            "interval": interval_text(name, score),
            "chance": shown(name, score.chance),
            "bar": interval_bar(score.value, score.low, score.high, score.chance) if unit else Markup(""),
        })  # fmt: skip
    with_chance = any(score.chance is not None for score in scores.values())
    with_intervals = any(score.low is not None for score in scores.values())
    return _part("metric_table", rows, with_chance, with_intervals)


def comparison_table(
    rows: Sequence[Row], metrics: Sequence[str], *, caption: str = "", marked: bool = False
) -> Markup:
    """Several systems in one direction, one a row, one metric a column, intervals below the values.

    Args:
        rows: the systems. A metric that a row lacks is shown as a dash.
        metrics: the columns.
        caption: a line below the table.
        marked: the best value of a column is set bold and the second underlined.
    """
    lines = []
    systems = [row for row in rows if row.style not in ("chance", "partial")] if marked else []
    found: dict[tuple[str, str], str] = {}
    for metric in metrics:
        values = [row.scores.get(metric, Score(None)).value for row in systems]
        found |= {(row.name, metric): mark for row, mark in zip(systems, marks(metric, values), strict=True)}
    for row in rows:
        scores = {metric: row.scores.get(metric, Score(None)) for metric in metrics}
        cells = [
            {
                "value": shown(metric, score.value),
                "interval": interval_text(metric, score),
                "mark": found.get((row.name, metric), "") if marked else "plain",
            }
            for metric, score in scores.items()
        ]
        lines.append({"name": row.name, "note": row.note, "style": row.style, "cells": cells})
    return _part("comparison_table", lines, metrics, caption)


def chance_row(scores: Mapping[str, Score], *, name: str = "chance") -> Row:
    """The level of chance as a row of its own for :func:`comparison_table`."""
    return Row(name, {metric: Score(score.chance) for metric, score in scores.items()}, style="chance")


def group_table(key: str, groups: Mapping[str, Mapping[str, Any]], metrics: Sequence[str]) -> Markup:
    """Means per value of a group; values with fewer than 15 queries carry a dagger.

    Args:
        key: name of the group, for example "topic".
        groups: value → {"queries": n, "small": bool, "metrics": {name: mean}}, as in ``report.json``.
        metrics: the columns.
    """
    largest = sorted(groups, key=lambda value: -int(groups[value]["queries"]))[:_GROUP_ROWS]
    rows = [
        {
            "name": value,
            "queries": group["queries"],
            "small": group["small"],
            "cells": [shown(metric, group["metrics"].get(metric)) for metric in metrics],
        }
        for value, group in groups.items()
        if value in largest
    ]
    return _part("group_table", key, rows, metrics, len(groups) - len(rows))


def rank_histogram(gold: GoldRanks) -> Markup:
    """Queries by the rank of their best positive, with what a random ranking would give."""
    bins = rank_bins(gold)
    most = max([1e-9, *(bin.share for bin in bins), *(bin.by_chance or 0.0 for bin in bins)])
    return _part("rank_histogram", bins, most)


def query_sheet(examples: Sequence[Example]) -> Markup:
    """Queries with what was retrieved for them; relevant results are marked."""
    sheets = [
        {
            "query": example.query,
            "verdict": f"rank {example.best_rank:,} of {example.candidates:,}"
            if example.best_rank
            else "no rank: it has no vector",
            "results": [
                {
                    "id": result.card.id,
                    "words": result.card.words,
                    "picture": result.card.picture,
                    "rank": f"{result.rank:,}",
                    "score": "" if result.score is None else f"{result.score:.3f}",
                    "relevant": result.relevant,
                    "far": result.far,
                }
                for result in example.results
            ],
        }
        for example in examples
    ]
    return _part("query_sheet", sheets)


def plain_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 1,
    wrap: bool = False,
    styles: Sequence[Sequence[str]] | None = None,
) -> Markup:
    """Cells under headings.

    Args:
        headings: of the columns.
        rows: of cells.
        texts: how many columns, from the left, are words and not figures.
        wrap: words may go over several lines.
        styles: of the cells, "best", "second" or "".
    """
    marked = styles or [[""] * len(headings)] * len(rows)
    body = [list(zip(row, style, strict=True)) for row, style in zip(rows, marked, strict=True)]
    return _part("plain_table", headings, body, texts, wrap)


def heading(label: str, counts: str = "", warnings: Sequence[str] = ()) -> Markup:
    """A heading inside a section, with sizes and warnings below it."""
    return _part("direction_head", label, counts, warnings)


def columns(*bodies: Markup, narrow: bool = False) -> Markup:
    """Bodies side by side where the screen is wide enough; more of them if they may be narrow."""
    return _part("columns", bodies, narrow)


def joined(*bodies: Markup) -> Markup:
    """Bodies one below the other."""
    return Markup("\n").join(bodies)


def interval_key() -> Markup:
    """The legend of the bars in :func:`metric_table`."""
    return _part("interval_key")


def histogram_key() -> Markup:
    """The legend of :func:`rank_histogram`."""
    return _part("histogram_key")


def listed(summary: str, lines: Sequence[str]) -> Markup:
    """Lines behind a summary that opens them."""
    return _part("listed", summary, lines)


def heat_map(rows: Sequence[Mapping[str, Any]], across: Sequence[str]) -> Markup:
    """A confusion matrix whose cells are coloured by their share of the row.

    Args:
        rows: {"label", "number", "cells": [{"count", "percent", "right"}], "right"}.
        across: headings of the columns.
    """
    return _part("heat_map", rows, across)


# --- below ------------------------------------------------------------------------------------------


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vidvec_msg.retrieval.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _part(macro: str, *arguments: Any) -> Markup:
    module: Any = _environment().get_template("parts.html.jinja").module
    return Markup(getattr(module, macro)(*arguments))
