"""The page of a comparison, ``compare.html``: one file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS
from vidvec_msg.retrieval.comparison.tables import (
    DIFFERENCE_HEADINGS,
    HOW_TO_READ,
    difference_metrics,
    difference_rows,
    sizes,
)
from vidvec_msg.retrieval.evaluation.directions import Score
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.reports.drawings import differences
from vidvec_msg.retrieval.reports.latex import marks
from vidvec_msg.retrieval.reports.page_parts import (
    Row,
    Section,
    chance_row,
    columns,
    comparison_table,
    heading,
    joined,
    page,
    plain_table,
)
from vidvec_msg.retrieval.reports.tables import group_columns, is_share, shown

_GROUP_ROWS = 30  # values of a group shown on the page; compare.json has all
_PLOTS = 6  # pairs of runs whose differences are drawn


def html_comparison(content: Mapping[str, Any]) -> str:
    """The page.

    Args:
        content: of ``compare.json``.
    """
    names = [run["name"] for run in content["runs"]]
    sections = [Section("Results", joined(*(_scores(content[way], content["metrics"]) for way in WAYS)))]
    sections.append(
        Section("Differences", joined(*(_differences(content[way], content["metrics"]) for way in WAYS)))
    )
    lead = "A bar is a query: above 0 the second run is better at it, below 0 the first."
    sections.append(Section("Query by query", joined(*(_plots(content[way]) for way in WAYS)), lead))
    if any(content[way]["groups"] for way in WAYS):
        lead = (
            f"Means, best marked. † fewer than {SMALL_GROUP} queries: each moves the mean by several points."
        )
        body = joined(*(_groups(content[way], content["metrics"]) for way in WAYS))
        sections.append(Section("By group", body, lead))
    if any(pair["queries"] for way in WAYS for pair in content[way]["pairs"]):
        lead = "Rank of the best positive under either run; the queries where the two differ most."
        sections.append(
            Section("Where they disagree", joined(*(_extremes(content[way]) for way in WAYS)), lead)
        )
    sections.append(Section("How to read this", Markup("<p>{}</p>").format(HOW_TO_READ)))
    facts = [("split", content["split"]), ("pool", content["pool"]), ("interval", content["interval"])]
    facts += [(run["name"], f"{run['embedder']} · {run['model']['fingerprint']}") for run in content["runs"]]
    footer = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    where = str(content["collection"]).rstrip("/").rpartition("/")[2]
    return page(
        f"{' · '.join(names)} on {where}",
        sections,
        eyebrow="Comparison, both ways",
        facts=facts,
        footer=footer,
    )


def _head(part: Mapping[str, Any]) -> Markup:
    warnings = [f"{name}: {text}" for name, told in part["warnings"].items() for text in told]
    return heading(part["label"], sizes(part), warnings)


def _scores(part: Mapping[str, Any], metrics: Sequence[str]) -> Markup:
    rows = [
        Row(name, {metric: Score(**score) for metric, score in scores.items()})
        for name, scores in part["scores"].items()
    ]
    rows.append(chance_row(rows[0].scores))
    return joined(_head(part), comparison_table(rows, metrics, marked=True))


def _differences(part: Mapping[str, Any], metrics: Sequence[str]) -> Markup:
    table = plain_table(DIFFERENCE_HEADINGS, difference_rows(part, metrics), texts=2)
    hidden = [metric for metric in metrics if metric not in difference_metrics(part, metrics)]
    note = Markup('<p class="key">of {}: in compare.json</p>').format(", ".join(hidden)) if hidden else ""
    return joined(heading(part["label"]), table, Markup(note))


def _plots(part: Mapping[str, Any]) -> Markup:
    drawn = []
    for pair in part["pairs"][:_PLOTS]:
        share = is_share(pair["plotted"])
        title = f"{pair['second']} − {pair['first']}, {pair['plotted']}"
        drawing = differences(
            pair["curve"],
            scale=100 if share else 1,
            unit="%" if share else "",
            queries=part["queries"],
            label=f"{title}: differences of single queries",
        )
        drawn.append(joined(Markup("<h4>{}</h4>").format(title), drawing))
    return joined(heading(part["label"]), columns(*drawn))


def _groups(part: Mapping[str, Any], metrics: Sequence[str]) -> Markup:
    chosen = group_columns(dict.fromkeys(metrics))
    names = list(part["scores"])
    tables = []
    for key, groups in part["groups"].items():
        largest = sorted(groups, key=lambda value: -int(groups[value]["queries"]))[:_GROUP_ROWS]
        rows, styles = [], []
        for value, group in groups.items():
            if value not in largest:
                continue
            cells, found = [], []
            for metric in chosen:
                values = [group["metrics"][name][metric] for name in names]
                cells += [shown(metric, one) for one in values]
                found += marks(metric, values)
            rows.append((f"{value} †" if group["small"] else value, f"{group['queries']:,}", *cells))
            styles.append(["", "", *found])
        headings = [key, "queries", *(f"{metric} {name}" for metric in chosen for name in names)]
        tables.append(plain_table(headings, rows, texts=1, styles=styles))
        if len(groups) > len(rows):
            tables.append(
                Markup('<p class="key">and {} more, in compare.json</p>').format(len(groups) - len(rows))
            )
    return joined(heading(part["label"]), *tables)


def _extremes(part: Mapping[str, Any]) -> Markup:
    tables = []
    for pair in part["pairs"][:_PLOTS]:
        if not pair["queries"]:
            continue
        rows = [
            (row["query"], row["words"], f"{row['first']:,}", f"{row['second']:,}") for row in pair["queries"]
        ]
        headings = ["query", "", pair["first"], pair["second"]]
        tables.append(plain_table(headings, rows, texts=2, wrap=True))
    return joined(heading(part["label"]), *tables)
