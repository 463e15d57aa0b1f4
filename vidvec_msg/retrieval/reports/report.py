"""What people look at: the report of an evaluation as an HTML page that is one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, reverse
from vidvec_msg.retrieval.evaluation.directions import Direction, Evaluation
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.evaluation.ranking import best_first
from vidvec_msg.retrieval.reports.page_parts import (
    Card,
    Example,
    Result,
    Row,
    Section,
    chance_row,
    columns,
    comparison_table,
    group_table,
    heading,
    histogram_key,
    interval_key,
    joined,
    listed,
    metric_table,
    page,
    query_sheet,
    rank_histogram,
)
from vidvec_msg.retrieval.reports.reranked import reranked_body
from vidvec_msg.retrieval.reports.sections import (
    confusion_body,
    diverging_body,
    dual_softmax_body,
    message_words,
    published_body,
    separation_body,
)
from vidvec_msg.retrieval.reports.tables import HOW_TO_READ, counted, group_columns

__all__ = [
    "Card", "Example", "Result", "Row", "Section", "chance_row", "choose_examples", "columns",
    "comparison_table", "counts_text", "direction_head", "example", "examples", "group_table",
    "histogram_key", "html_report", "interval_key", "joined", "metric_table", "page", "query_sheet",
    "rank_histogram", "titled_histogram",
]  # fmt: skip

RESULTS = 5  # of a query, shown on the page
EXAMPLES = 4  # best and as many worst queries a direction
_LISTED = 200  # skipped queries named on the page


def direction_head(direction: Direction) -> Markup:
    """Label, sizes and warnings of a direction."""
    return heading(direction.label, counts_text(direction), direction.warnings)


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
    sections += _more_sections(report, queries, items)
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
        *([("dimensions", f"{model['dim']:,}")] if model["dim"] else [("lists", report["embedder"])]),
        ("depth", f"{report['depth']:,}"),
        *([("base model", model["base_model"])] if model["base_model"] else []),
        ("fingerprint", model["fingerprint"]),
    ]
    footer = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    name = str(report["collection"]).rstrip("/").rpartition("/")[2]
    return page(
        f"{model['name']} on {name}", sections, eyebrow="Retrieval, both ways", facts=facts, footer=footer
    )


def _more_sections(
    report: Mapping[str, Any], queries: Sequence[Item], items: tuple[Mapping[str, Item], Mapping[str, Item]]
) -> list[Section]:
    """What there is of confusions, score distributions, diverging pairs and dual softmax."""
    both = report["forward"], report["reverse"]
    found = [
        Section("Reranked", reranked_body(report.get("reranked"))),
        Section("What papers publish", published_body(report), "Their numbers, not rerun here."),
        Section(
            "What is taken for what",
            confusion_body(both, message_words(queries)),
            f"Items of one {report.get('confusion', 'group')} (row), and that of what came first for them "
            "(column, by number); cells in queries, coloured by their share of the row.",
        ),
        Section(
            "How scores separate",
            separation_body(both),
            "Share of pairs with a similarity up to the one below. The pairwise AUC is the chance that a "
            "positive pair scores above a mismatched one; it says less than rank 1, which the hardest "
            "mismatch decides.",
        ),
        Section(
            "Found one way and not the other",
            diverging_body(report, *items),
            "Relevant pairs whose places in the two directions differ most.",
        ),
        Section(
            "With dual softmax", dual_softmax_body(report), (report.get("dual_softmax") or {}).get("note", "")
        ),
    ]
    return [section for section in found if section.body]


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
    positive = [document for document, _ in best_first(qrels[query])]
    ranks = direction.gold.ranks[direction.gold.starts[row] : direction.gold.starts[row + 1]]  # as `positive`
    results = []
    for rank, (column, score) in enumerate(
        zip(direction.top[row, :RESULTS], direction.top_scores[row, :RESULTS], strict=True), start=1
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
            listed(
                f"{counted(len(direction.skipped), 'judged query', 'judged queries')} not in the means",
                lines,
            )
        )
    return joined(*parts)


def titled_histogram(title: str, direction: Direction) -> Markup:
    """:func:`rank_histogram` below a title."""
    return joined(heading(title), rank_histogram(direction.gold))


def _groups(direction: Direction) -> Markup:
    metrics = group_columns(direction.metrics)
    tables = [group_table(key, groups, metrics) for key, groups in direction.groups.items()]
    return joined(heading(direction.label), *tables)


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
    for title, rows in (("best", best), ("worst", worst)):
        if rows:
            shown_rows = [
                example(direction, row, queries, candidates, qrels, with_pictures=with_pictures)
                for row in rows
            ]
            parts += [Markup("<h4>{}</h4>").format(title), query_sheet(shown_rows)]
    return joined(*parts)
