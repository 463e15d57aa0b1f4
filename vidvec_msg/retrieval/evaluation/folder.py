"""The evaluation folder: what is written beside the runs, ``report.json`` last."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.formats.trec import write_trec_qrels
from vidvec_msg.retrieval.evaluation.directions import Evaluation
from vidvec_msg.retrieval.evaluation.mteb_result import mteb_result
from vidvec_msg.retrieval.evaluation.per_query import FILE, write_per_query
from vidvec_msg.retrieval.evaluation.scoring import groups_of_sides
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.runs import write_json, write_text


def write_folder(
    out: Path, report: Mapping[str, Any], evaluation: Evaluation, sides: Sides, *, with_pictures: bool
) -> None:
    """Writes everything but the runs, which were written while the queries were ranked.

    Args:
        out: the folder.
        report: content of ``report.json``.
        evaluation: both directions.
        sides: who took part.
        with_pictures: decode clips and images for the page.
    """
    from vidvec_msg.retrieval.reports.report import html_report
    from vidvec_msg.retrieval.reports.tables import markdown_report

    judged = {"forward": sides.qrels, "reverse": sides.backwards}
    for name, direction in (("forward", evaluation.forward), ("reverse", evaluation.reverse)):
        qrels = {query: judged[name][query] for query in direction.query_ids}
        write_trec_qrels(out / "qrels" / f"{name}.trec", qrels)
    write_per_query(out / FILE, evaluation, sides.qrels, groups_of_sides(sides))
    for file, text in (
        ("report.md", markdown_report(report)),
        (
            "report.html",
            html_report(report, evaluation, sides.queries, sides.corpus, sides.qrels, with_pictures),
        ),
    ):
        write_text(out / file, text)
    for name in ("forward", "reverse"):
        write_json(out / "mteb" / f"{name}.json", mteb_result(report, name))
    write_json(out / "report.json", report)  # last: its presence means that the folder is complete


def tables_for_stdout(report: Mapping[str, Any]) -> str:
    """The tables for stdout: drawn for a terminal, Markdown for a file or a pipe."""
    from vidvec_msg.retrieval.reports.tables import markdown_tables, terminal_tables

    return terminal_tables(report) if sys.stdout.isatty() else markdown_tables(report)
