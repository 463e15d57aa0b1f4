"""What people look at: the report of an evaluation as an HTML page that is one file.

The parts of the page (:func:`metric_table`, :func:`comparison_table`, :func:`group_table`,
:func:`rank_histogram`, :func:`query_sheet`, :func:`page`) are functions of their own, so that other
reports are set from the same pieces. They return safe HTML; every text given to them is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, reverse
from vidvec_msg.retrieval.directions import Direction, Evaluation, Score
from vidvec_msg.retrieval.groups import SMALL_GROUP
from vidvec_msg.retrieval.pictures import interval_bar, item_picture, rank_bins
from vidvec_msg.retrieval.ranking import GoldRanks
from vidvec_msg.retrieval.tables import HOW_TO_READ, counted, group_columns, interval_text, is_share, shown

EXAMPLES = 4  # best and as many worst queries a direction
_GROUP_ROWS = 30  # values of a group shown on the page; report.json has all
_WORDS = 400  # characters of a text shown on the page
_LISTED = 200  # skipped queries named on the page


@dataclass(frozen=True, slots=True)
class Row:
    """One system in a comparison.

    Args:
        name: what the row is about.
        scores: metric → score.
        note: a second line in small print.
        style: "marked" for the row to look at, "chance" for a row that is no system.
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


def comparison_table(rows: Sequence[Row], metrics: Sequence[str], *, caption: str = "") -> Markup:
    """Several systems in one direction, one a row, one metric a column, intervals below the values.

    Args:
        rows: the systems. A metric that a row lacks is shown as a dash.
        metrics: the columns.
        caption: a line below the table.
    """
    lines = []
    for row in rows:
        scores = {metric: row.scores.get(metric, Score(None)) for metric in metrics}
        cells = [{"value": shown(m, s.value), "interval": interval_text(m, s)} for m, s in scores.items()]
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


def columns(*bodies: Markup, narrow: bool = False) -> Markup:
    """Bodies side by side where the screen is wide enough; more of them if they may be narrow."""
    return _part("columns", bodies, narrow)


def joined(*bodies: Markup) -> Markup:
    """Bodies one below the other."""
    return Markup("\n").join(bodies)


def direction_head(direction: Direction) -> Markup:
    """Label, sizes and warnings of a direction."""
    return _part("direction_head", direction.label, counts_text(direction), direction.warnings)


def interval_key() -> Markup:
    """The legend of the bars in :func:`metric_table`."""
    return _part("interval_key")


def histogram_key() -> Markup:
    """The legend of :func:`rank_histogram`."""
    return _part("histogram_key")


# --- the page of an evaluation ----------------------------------------------------------------------


def html_report(
    report: Mapping[str, Any],
    evaluation: Evaluation,
    queries: Sequence[Item],
    corpus: Sequence[Item],
    qrels: Qrels,
    with_pictures: bool,
) -> str:
    """The page ``report.html`` of an evaluation folder.

    Args:
        report: the content of ``report.json``.
        evaluation: the numbers.
        queries: items of the queries' side.
        corpus: items of the corpus.
        qrels: judgements of the split.
        with_pictures: decode clips and images for the examples.
    """
    both = (evaluation.forward, evaluation.reverse)
    items = {item.id: item for item in queries}, {item.id: item for item in corpus}
    sections = [
        Section("Results", joined(columns(*(_numbers(direction) for direction in both)), interval_key())),
        Section(
            "Where the best positive came out",
            joined(columns(*(titled_histogram(d.label, d) for d in both)), histogram_key()),
        ),
    ]
    if any(direction.groups for direction in both):
        lead = f"Means in percent. † fewer than {SMALL_GROUP} queries: each moves the mean by several points."
        sections.append(Section("By group", columns(*(_groups(direction) for direction in both)), lead))
    for direction, sides, judged in (
        (evaluation.forward, items, qrels),
        (evaluation.reverse, items[::-1], reverse(qrels)),
    ):
        body = examples(direction, sides[0], sides[1], judged, with_pictures=with_pictures)
        if body:
            sections.append(
                Section(f"Examples, {direction.label}", body, "The queries that went best and worst.")
            )
    sections.append(Section("How to read this", Markup("<p>{}</p>").format(HOW_TO_READ)))
    model = report["model"]
    facts = [
        ("split", report["split"]),
        ("dimensions", f"{model['dim']:,}"),
        ("depth", f"{report['depth']:,}"),
        *([("base model", model["base_model"])] if model["base_model"] else []),
        ("fingerprint", model["fingerprint"]),
    ]
    footer = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    name = str(report["collection"]).rstrip("/").rpartition("/")[2]
    return page(
        f"{model['name']} on {name}", sections, eyebrow="Retrieval, both ways", facts=facts, footer=footer
    )


def choose_examples(direction: Direction, count: int = EXAMPLES) -> tuple[list[int], list[int]]:
    """Rows of the queries that went best (surest first) and worst (furthest first); disjoint."""
    best = direction.gold.best
    far = np.where(best == 0, np.iinfo(np.int64).max, best)
    sure = direction.top_scores[:, 0] if direction.top_scores.shape[1] else np.zeros(len(best))
    order = np.lexsort((-sure, far)).tolist()  # by rank of the best positive, then by the score of rank 1
    count = min(count, (len(order) + 1) // 2)
    worst = [row for row in order[::-1] if row not in order[:count]][:count]
    return order[:count], worst


def example(
    direction: Direction,
    row: int,
    queries: Mapping[str, Item],
    candidates: Mapping[str, Item],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    with_pictures: bool = True,
) -> Example:
    """A query of a direction with its first results, and its best positive if that is not among them."""
    query = direction.query_ids[row]
    positive = [d for d, grade in sorted(qrels[query].items(), key=lambda pair: -pair[1]) if grade > 0]
    ranks = direction.gold.ranks[direction.gold.starts[row] : direction.gold.starts[row + 1]]  # as `positive`
    results = []
    for rank, (column, score) in enumerate(
        zip(direction.top[row], direction.top_scores[row], strict=True), start=1
    ):
        if np.isfinite(score):
            identity = direction.candidate_ids[column]
            card = Card.of(candidates[identity], with_picture=with_pictures)
            results.append(Result(card, rank, float(score), identity in positive))
    best = int(direction.gold.best[row])
    if best > len(results):
        identity = positive[int(np.flatnonzero(ranks == best)[0])]
        card = Card.of(candidates[identity], with_picture=with_pictures)
        results.append(Result(card, best, None, True, far=True))
    size = int(direction.gold.candidates[row])
    return Example(Card.of(queries[query], with_picture=with_pictures), best, size, results)


def counts_text(direction: Direction) -> str:
    """Sizes of a direction in words."""
    mean = direction.gold.counts.mean() if len(direction.gold) else 0.0
    parts = [
        counted(len(direction.query_ids), "query", "queries"),
        f"{len(direction.candidate_ids):,} candidates",
        "1 positive a query" if mean == 1 else f"{mean:.3g} positives a query",
        f"{len(direction.skipped):,} skipped" if direction.skipped else "",
        f"{direction.tied_queries:,} tied" if direction.tied_queries else "",
    ]
    return " · ".join(part for part in parts if part)


def _numbers(direction: Direction) -> Markup:
    parts = [direction_head(direction), metric_table(direction.metrics)]
    if direction.skipped:
        lines = [f"{failure.item}: {failure.reason}" for failure in direction.skipped[:_LISTED]]
        rest = len(direction.skipped) - len(lines)
        lines += [f"and {rest:,} more, in report.json"] if rest else []
        parts.append(
            _part(
                "listed",
                f"{counted(len(direction.skipped), 'judged query', 'judged queries')} not in the means",
                lines,
            )
        )
    return joined(*parts)


def titled_histogram(title: str, direction: Direction) -> Markup:
    """:func:`rank_histogram` below a title."""
    return joined(_part("direction_head", title, "", []), rank_histogram(direction.gold))


def _groups(direction: Direction) -> Markup:
    metrics = group_columns(direction.metrics)
    tables = [group_table(key, groups, metrics) for key, groups in direction.groups.items()]
    return joined(_part("direction_head", direction.label, "", []), *tables)


def examples(
    direction: Direction,
    queries: Mapping[str, Item],
    candidates: Mapping[str, Item],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    with_pictures: bool = True,
) -> Markup:
    """The queries that went best and worst, with what was retrieved for them; empty if there are none."""
    best, worst = choose_examples(direction)
    parts = []
    for heading, rows in (("best", best), ("worst", worst)):
        if rows:
            shown_rows = [
                example(direction, row, queries, candidates, qrels, with_pictures=with_pictures)
                for row in rows
            ]
            parts += [Markup("<h4>{}</h4>").format(heading), query_sheet(shown_rows)]
    return joined(*parts)


# --- below ------------------------------------------------------------------------------------------


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vidvec_msg.retrieval"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _part(macro: str, *arguments: Any) -> Markup:
    module: Any = _environment().get_template("parts.html.jinja").module
    return Markup(getattr(module, macro)(*arguments))
