"""Sections of a report beyond the tables: what is confused with what, how scores separate, what diverges.

Each takes the parts of ``report.json`` and returns safe HTML; empty where there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.benchmarks.published import beside
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.reports.drawings import curves
from vidvec_msg.retrieval.reports.page_parts import (
    columns,
    heading,
    heat_map,
    joined,
    metric_table,
    plain_table,
)

_MOST_LABELS = 25  # of a matrix that is drawn; beyond, its most frequent confusions are listed
_MOST_MATRICES = 16  # of messages within topics
_LISTED = 10  # confusions and pairs
_WORDS = 110  # characters of a message beside a matrix

SEPARATION_KEY = Markup(
    '<p class="key"><i class="dash"></i>positive pairs<i class="dash other"></i>mismatched pairs</p>'
)


def separation_body(parts: Sequence[Mapping[str, Any]]) -> Markup:
    """Score distributions of both directions, with their pairwise AUC."""
    drawn = []
    for part in parts:
        found = part.get("separation")
        if not found:
            continue
        uncertain = f" ± {found['error']:.1g}" if found["error"] >= 5e-4 else ""
        told = (
            f"pairwise AUC {found['auc']:.3f}{uncertain} · {found['positives']:,} positive pairs, "
            f"{found['mismatched']:,} mismatched"
        )
        drawing = curves(
            found["thresholds"],
            [("mismatched", found["mismatched_below"]), ("positive", found["positive_below"])],
            across="similarity",
            label=f"{part['label']}: share of pairs up to each similarity; {told}",
        )
        drawn.append(joined(heading(part["label"], told), drawing))
    return joined(columns(*drawn), SEPARATION_KEY) if drawn else Markup("")


def confusion_body(parts: Sequence[Mapping[str, Any]], words: Mapping[str, str]) -> Markup:
    """Topic matrices of both directions, and the matrices of messages within each topic.

    Args:
        parts: of both directions.
        words: of messages, by id.
    """
    bodies = []
    for part in parts:
        found = part.get("confusion")
        if not found:
            continue
        body = [heading(part["label"], _right(found["topics"])), matrix(found["topics"], {})]
        within = [one for one in found["within"] if one["total"]]
        if within:
            drawn = [
                joined(Markup("<h4>{}</h4>").format(f"{one['title']}: {_right(one)}"), matrix(one, words))
                for one in within[:_MOST_MATRICES]
            ]
            rest = len(within) - len(drawn)
            more = (
                Markup('<p class="key">and {} topics more, in report.json</p>').format(rest) if rest else ""
            )
            body.append(
                Markup("<details><summary>messages within {} topics</summary>{}{}</details>").format(
                    len(within), joined(*drawn), more
                )
            )
        bodies.append(joined(*body))
    return columns(*bodies) if bodies else Markup("")


def matrix(content: Mapping[str, Any], words: Mapping[str, str]) -> Markup:
    """One confusion matrix, as ``Confusion.to_dict`` writes it; a large one as the list of its most frequent
    confusions."""
    rows, across = content["rows"], content["columns"]
    if len(across) > _MOST_LABELS:
        wrong = sorted((cell for cell in content["cells"] if cell[0] != cell[1]), key=lambda cell: -cell[2])
        listed = [
            (_said(rows[row], words), _said(across[column], words), f"{count:,}")
            for row, column, count in wrong[:_LISTED]
        ]
        return plain_table(["asked for", "came first", "queries"], listed, texts=2, wrap=True)
    counts = np.zeros((len(rows), len(across)), dtype=np.int64)
    for row, column, count in content["cells"]:
        counts[row, column] = count
    lines = []
    for place, label in enumerate(rows):
        total = int(counts[place].sum())
        if not total:
            continue
        cells = [
            {"count": int(count), "percent": round(100 * int(count) / total), "right": column == place}
            for column, count in enumerate(counts[place])
        ]
        lines.append(
            {"label": _said(label, words), "number": place + 1, "cells": cells}
            | {"right": f"{100 * int(counts[place, place]) / total:.0f}%"}
        )
    numbers = [str(place + 1) if place < len(rows) else "…" for place in range(len(across))]
    return heat_map(lines, numbers)


def diverging_body(
    report: Mapping[str, Any], queries: Mapping[str, Item], corpus: Mapping[str, Item]
) -> Markup:
    """The pairs that one direction finds and the other does not."""
    rows = [
        (
            pair["query"],
            _words_of(queries.get(pair["query"])),
            _words_of(corpus.get(pair["document"])) or pair["document"],
            f"{pair['forward']:,} of {pair['forward_of']:,}",
            f"{pair['reverse']:,} of {pair['reverse_of']:,}",
        )
        for pair in report.get("diverging", [])
    ]
    if not rows:
        return Markup("")
    headings = ["query", "", "document", report["forward"]["label"], report["reverse"]["label"]]
    return plain_table(headings, rows, texts=3, wrap=True)


def dual_softmax_body(report: Mapping[str, Any]) -> Markup:
    """The second numbers, under their own name."""
    found = report.get("dual_softmax")
    if not found:
        return Markup("")
    tables = []
    for way in ("forward", "reverse"):
        scores = {name: Score(**score) for name, score in found[way]["metrics"].items()}
        told = (
            f"temperature {found[way]['temperature']:g}, chosen by {found['chosen_by']} on "
            f"{found[way]['validation_queries']:,} queries of {found['validation']}"
        )
        tables.append(joined(heading(report[way]["label"], told), metric_table(scores)))
    return columns(*tables)


def published_body(report: Mapping[str, Any]) -> Markup:
    """This run beside what papers publish for its benchmark, a table a direction; percent, metrics by the
    papers' names."""
    tables = []
    for way in ("forward", "reverse"):
        found = beside(report, way)
        if found is not None:
            rows, quiet = (found.own, *found.rows), [""] * len(found.heads)
            styles = [["best"] * len(found.heads), *(quiet for _ in found.rows)]
            table = plain_table(found.heads, rows, texts=2, styles=styles)
            sources = [Markup('<p class="key">{}</p>').format(text) for text in found.sources]
            tables.append(joined(heading(report[way]["label"]), table, *sources))
    return columns(*tables) if tables else Markup("")


def message_words(items: Sequence[Item]) -> dict[str, str]:
    """The words of items, cut to what stands beside a matrix."""
    return {item.id: _words_of(item) for item in items}


def _right(content: Mapping[str, Any]) -> str:
    return f"{content['right']:,} of {content['total']:,} right at rank 1"


def _said(label: str, words: Mapping[str, str]) -> str:
    return words.get(label) or label


def _words_of(item: Item | None) -> str:
    if item is None:
        return ""
    text = " ".join((item.full_text or item.transcript or "").split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"
