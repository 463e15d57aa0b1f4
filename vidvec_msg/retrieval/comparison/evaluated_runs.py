"""Evaluation folders, read back: the values of every query, and whether two folders may be compared."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.collections import load_side
from vidvec_msg.formats.vectors import read_parquet
from vidvec_msg.retrieval.evaluate import read_report
from vidvec_msg.retrieval.evaluation.held_apart import changed_sides
from vidvec_msg.retrieval.evaluation.per_query import FILE, GROUP
from vidvec_msg.retrieval.evaluation.ranking import Ints
from vidvec_msg.retrieval.metrics import PerQuery, parse_metrics

log = logging.getLogger(__name__)

Way = Literal["forward", "reverse"]
WAYS: tuple[Way, ...] = ("forward", "reverse")

# settings that change numbers; what else may differ (the embedder, the items' content) is what is compared
_WORDS = 160  # characters of a query's text in a table
_SETTINGS = ("split", "pool", "exclude_self", "depth")
_DATA = {"corpus": "the documents", "queries": "the queries", "qrels": "the judgements"}


@dataclass(frozen=True)
class Values:
    """One direction of a run, query by query.

    Args:
        queries: ids.
        metrics: metric → ``(queries,)``.
        best_rank: ``(queries,)`` rank of the best positive; 0 if none is among the candidates.
        groups: key → ``(queries,)`` value, or None where the query has none.
    """

    queries: tuple[str, ...]
    metrics: dict[str, PerQuery]
    best_rank: Ints
    groups: dict[str, list[str | None]]

    def of(self, queries: Sequence[str]) -> Values:
        """Only these queries, in this order."""
        place = {query: row for row, query in enumerate(self.queries)}
        rows = np.asarray([place[query] for query in queries], dtype=np.int64)
        return Values(
            tuple(queries),
            {name: values[rows] for name, values in self.metrics.items()},
            self.best_rank[rows],
            {key: [values[row] for row in rows.tolist()] for key, values in self.groups.items()},
        )


@dataclass(frozen=True)
class EvaluatedRun:
    """An evaluation folder.

    Args:
        name: for tables.
        folder: where it is.
        report: content of ``report.json``.
        values: of both directions.
    """

    name: str
    folder: Path
    report: dict[str, Any]
    values: Mapping[Way, Values]


def read_runs(folders: Sequence[Path], names: Sequence[str] | None = None) -> list[EvaluatedRun]:
    """Opens evaluation folders.

    Args:
        folders: made by ``vidvec-msg evaluate``.
        names: one a folder; by default :func:`names_apart`.

    Raises:
        RefusedRequest: a folder that is no complete evaluation, or given twice; all of them in one message.
            Or names that are too few, too many or given twice.
    """
    problems = Problems("the evaluations cannot be read")
    reports, seen = [], set()
    for folder in folders:
        if folder.resolve() in seen:
            problems.add(f"{folder} is given twice")
            continue
        seen.add(folder.resolve())
        try:
            report = read_report(folder)
            if "data" not in report or not (folder / FILE).is_file():
                raise RefusedRequest(
                    f"evaluation {folder} was made before evaluations recorded what a comparison needs; run "
                    "the same evaluate again (its vectors are there: nothing is embedded)"
                )
            reports.append(report)
        except RefusedRequest as error:
            problems.add(str(error))
    problems.refuse_if_any()
    called = _names(folders, reports, names)
    return [
        EvaluatedRun(name, folder, report, _read_values(folder, report))
        for name, folder, report in zip(called, folders, reports, strict=True)
    ]


def refuse_incomparable(runs: Sequence[EvaluatedRun]) -> None:
    """Refuses runs whose numbers are of different queries, candidates or settings, naming each difference.

    Raises:
        RefusedRequest: see there. The items' content may differ (with and without transcripts, for
            example), and so may the embedders.
    """
    first = runs[0].report
    problems = Problems("these evaluations cannot be compared; evaluate them in the same way")
    for run in runs[1:]:
        both = f"{runs[0].folder} and {run.folder}"
        for key in _SETTINGS:
            if first[key] != run.report[key]:
                problems.add(f"{both}: {key} is {first[key]!r} and {run.report[key]!r}")
        different = [name for key, name in _DATA.items() if first["data"][key] != run.report["data"][key]]
        if different:
            problems.add(
                f"{both}: {', '.join(different)} differ (collections {first['collection']} and "
                f"{run.report['collection']})"
            )
    problems.refuse_if_any()


def warn_of_other_contents(runs: Sequence[EvaluatedRun]) -> dict[str, str]:
    """Warns of runs in which the same ids showed other clips or texts than in the first one.

    That is no mistake where they are views of the same items (frames in one collection, captions in another),
    and it is one where files or texts were replaced between two evaluations: nobody but the user knows.

    Returns:
        The name of each such run → what is told of it.
    """
    first = runs[0]
    told = {}
    for run in runs[1:]:
        changed = changed_sides(first.report.get("contents"), run.report.get("contents"))
        if changed:
            told[run.name] = (
                f"{' and '.join(_DATA[side] for side in changed)} of {run.folder} showed other clips or "
                f"texts under the ids of {first.folder}, or their files were missing; unless they are two "
                "views of the same items (frames and captions), evaluate both again on what the collection "
                "holds now"
            )
            log.warning("%s", told[run.name])
    return told


def query_words(run: EvaluatedRun, way: Way) -> dict[str, str]:
    """The words of the queries of a direction, by id; empty if the collection is no longer where it was."""
    collection = Path(run.report["collection"])
    if not (collection / "corpus.jsonl").is_file():
        return {}
    try:
        items = load_side(collection, "queries" if way == "forward" else "corpus")
    except RefusedRequest:
        return {}
    words = {item.id: " ".join((item.full_text or item.transcript or "").split()) for item in items}
    return {name: text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…" for name, text in words.items()}


def names_apart(folders: Sequence[Path], reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """The embedders' names, each once: where several evaluations share one, their folders stand behind it.

    Args:
        folders: of the evaluations.
        reports: content of their ``report.json``.
    """
    own = [str(report["model"]["name"]) for report in reports]
    short = [f"{name} ({folder.resolve().name})" for name, folder in zip(own, folders, strict=True)]
    return [
        name if own.count(name) == 1 else place if short.count(place) == 1 else f"{name} ({folder})"
        for name, place, folder in zip(own, short, folders, strict=True)
    ]


def _names(
    folders: Sequence[Path], reports: Sequence[Mapping[str, Any]], names: Sequence[str] | None
) -> list[str]:
    if names is not None:
        if len(names) != len(folders) or len(set(names)) != len(names):
            raise RefusedRequest(
                f"names: {len(folders)} different ones are needed, one a run; given were {', '.join(names)}"
            )
        return list(names)
    return names_apart(folders, reports)


def _read_values(folder: Path, report: Mapping[str, Any]) -> dict[Way, Values]:
    table = read_parquet(folder / FILE)
    directions = np.asarray(table["direction"].to_pylist())
    metrics = [
        metric.name for metric in parse_metrics(report["metrics"]) if metric.name in table.column_names
    ]
    found: dict[Way, Values] = {}
    for way in WAYS:
        part = table.take(np.flatnonzero(directions == way))
        found[way] = Values(
            tuple(part["query"].to_pylist()),
            {name: np.asarray(part[name].to_pylist(), dtype=np.float64) for name in metrics},
            np.asarray([rank or 0 for rank in part["best_rank"].to_pylist()], dtype=np.int64),
            {
                name.removeprefix(GROUP): part[name].to_pylist()
                for name in part.column_names
                if name.startswith(GROUP)
            },
        )
    return found
