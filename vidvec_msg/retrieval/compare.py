"""The verb ``compare``: evaluations of the same collection side by side, with paired tests."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.comparison.evaluated_runs import (
    WAYS,
    EvaluatedRun,
    Values,
    Way,
    query_words,
    read_runs,
    refuse_incomparable,
    warn_of_other_contents,
)
from vidvec_msg.retrieval.evaluation.groups import SMALL_GROUP
from vidvec_msg.retrieval.evaluation.intervals import Kind, bootstrap_intervals, refuse_other_kind
from vidvec_msg.retrieval.evaluation.paired_tests import bonferroni, holm, paired_differences
from vidvec_msg.retrieval.metrics import MEDIANS, means
from vidvec_msg.runs import require_new, software_versions, write_json, write_text

log = logging.getLogger(__name__)

FORMAT = 1
EXTREMES = 10  # queries on which two runs differ most, a pair and direction
_PLOTTED = ("map", "ndcg@10", "mrr")  # the first of them that there is; graded, so that most queries differ
_CURVE_POINTS = 400


def compare(
    runs: list[Path],
    *,
    out: Path | None = None,
    names: list[str] | None = None,
    metrics: list[str] | None = None,
    baseline: str | None = None,
    interval: Kind = "percentile",
    seed: int = 0,
    json: bool = False,
) -> Path | None:
    """Puts evaluations side by side, in both directions, with paired tests over the queries that all have.

    With --out, writes a folder with compare.html (to look at), compare.json, compare.md and compare.tex (rows
    for a paper: best bold, second underlined).

    Args:
        runs: evaluation folders, two or more, of the same collection, split and pool.
        out: the folder to make; without it the tables are only printed.
        names: of the runs, for the tables; by default those of the embedders.
        metrics: which of the runs' metrics; by default all that every run has.
        baseline: name of a run; only differences from it are tested, and not those of all pairs.
        interval: bootstrap interval: "percentile", or "bca" (bias-corrected and accelerated).
        seed: of bootstrap and randomisation.
        json: print compare.json instead of the tables.

    Returns:
        the folder, if there is one.

    Raises:
        RefusedRequest: a folder that is no evaluation, or evaluations of different data or settings; the
            message names what differs.
    """
    if out is not None:
        require_new(out, option="out", resumable="compare.json")
    content = compare_runs(
        runs, names=names, metrics=metrics, baseline=baseline, interval=interval, seed=seed
    )
    if out is not None:
        _write(out, content)
        log.info("comparison in %s: open %s", out, out / "compare.html")
    sys.stdout.write(dumps(content, ensure_ascii=False, indent=2) + "\n" if json else _tables(content))
    return out


def compare_runs(
    folders: Sequence[Path],
    *,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    baseline: str | None = None,
    interval: Kind = "percentile",
    seed: int = 0,
) -> dict[str, Any]:
    """What :func:`compare` does, for programs: the content of ``compare.json``.

    Raises:
        RefusedRequest: as there.
    """
    refuse_other_kind(interval)
    if len(folders) < 2:
        raise RefusedRequest(f"a comparison needs two runs or more; given was {len(folders)}")
    runs = read_runs(folders, names)
    refuse_incomparable(runs)
    others = warn_of_other_contents(runs)
    chosen = _chosen_metrics(runs, metrics)
    pairs = _pairs(runs, baseline)
    first = runs[0].report
    return {
        "format": FORMAT,
        "collection": first["collection"],
        **{key: first[key] for key in ("split", "pool", "depth")},
        "runs": [
            {
                "name": run.name,
                "folder": str(run.folder),
                "collection": run.report["collection"],
                "embedder": run.report["embedder"],
                "model": run.report["model"],
            }
            for run in runs
        ],
        "metrics": chosen,
        "baseline": baseline,
        "interval": interval,
        "seed": seed,
        **{way: _direction(runs, way, chosen, pairs, others, interval, seed) for way in WAYS},
        "versions": software_versions(),
    }


# --- the numbers of one direction -------------------------------------------------------------------


def _direction(
    runs: Sequence[EvaluatedRun],
    way: Way,
    metrics: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    others: Mapping[str, str],
    interval: Kind,
    seed: int,
) -> dict[str, Any]:
    common = set.intersection(*(set(run.values[way].queries) for run in runs))
    queries = [query for query in runs[0].values[way].queries if query in common]
    if not queries:
        raise RefusedRequest(
            f"no query of the {way} direction is in all of the runs: nothing can be compared"
        )
    values = [run.values[way].of(queries) for run in runs]
    plotted = next((metric for metric in _PLOTTED if metric in metrics), metrics[0])
    words = query_words(runs[0], way)
    everywhere = set().union(*(run.values[way].queries for run in runs))
    return {
        "label": runs[0].report[way]["label"],
        "queries": len(queries),
        "candidates": runs[0].report[way]["candidates"],
        "left_out": {
            run.name: sorted(everywhere - set(run.values[way].queries))
            for run in runs
            if everywhere - set(run.values[way].queries)
        },
        "warnings": {
            run.name: told
            for run in runs
            if (told := [*run.report[way]["warnings"], *([others[run.name]] if run.name in others else [])])
        },
        "scores": _scores(runs, values, way, metrics, interval, seed),
        "differences": _differences(runs, values, metrics, pairs, interval, seed),
        "groups": _groups(runs, values, metrics),
        "pairs": [
            {
                "first": runs[one].name,
                "second": runs[two].name,
                "plotted": plotted,
                "curve": _curve(values[two].metrics[plotted] - values[one].metrics[plotted]),
                "queries": _extremes(queries, values[one], values[two], words),
            }
            for one, two in pairs
        ],
    }


def _scores(
    runs: Sequence[EvaluatedRun],
    values: Sequence[Values],
    way: Way,
    metrics: Sequence[str],
    interval: Kind,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Run → metric → value, interval and chance, over the queries that all runs have."""
    found: dict[str, dict[str, Any]] = {}
    for run, value in zip(runs, values, strict=True):
        chosen = {metric: value.metrics[metric] for metric in metrics}
        ends = bootstrap_intervals(chosen, seed=seed, kind=interval, medians=MEDIANS)
        mean = means(chosen)
        # chance is of all of the run's queries; with some left out it may be off in its last digit
        chance = {metric: run.report[way]["metrics"][metric]["chance"] for metric in metrics}
        found[run.name] = {
            m: {"value": mean[m], "low": ends[m][0], "high": ends[m][1], "chance": chance[m]} for m in metrics
        }
    return found


def _differences(
    runs: Sequence[EvaluatedRun],
    values: Sequence[Values],
    metrics: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    interval: Kind,
    seed: int,
) -> list[dict[str, Any]]:
    """Each metric and pair, with its tests. A metric's pairs are one family for the corrections."""
    tested = [metric for metric in metrics if metric not in MEDIANS]  # a difference of medians is no mean
    cases = [(metric, one, two) for metric in tested for one, two in pairs]
    outcomes = paired_differences(
        [(values[one].metrics[metric], values[two].metrics[metric]) for metric, one, two in cases],
        seed=seed,
        kind=interval,
    )
    rows = []
    for start in range(0, len(cases), len(pairs)):
        family = outcomes[start : start + len(pairs)]
        raw = [outcome.p for outcome in family]
        for (metric, one, two), outcome, by_holm, by_bonferroni in zip(
            cases[start : start + len(pairs)], family, holm(raw), bonferroni(raw), strict=True
        ):
            rows.append(
                {"metric": metric, "first": runs[one].name, "second": runs[two].name, **asdict(outcome)}
                | {"holm": float(by_holm), "bonferroni": float(by_bonferroni)}
            )
    return rows


def _groups(
    runs: Sequence[EvaluatedRun], values: Sequence[Values], metrics: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Key → value → queries, whether they are few, and run → metric → mean."""
    found: dict[str, dict[str, Any]] = {}
    for key, column in values[0].groups.items():
        members: dict[str, list[int]] = {}
        for row, name in enumerate(column):
            if name is not None:
                members.setdefault(name, []).append(row)
        alike = len(members) == 1 and len(next(iter(members.values()))) == len(column)
        if members and not alike:  # a value that all queries share says nothing
            found[key] = {
                name: {
                    "queries": len(rows),
                    "small": len(rows) < SMALL_GROUP,
                    "metrics": {
                        run.name: means({m: value.metrics[m][rows] for m in metrics})
                        for run, value in zip(runs, values, strict=True)
                    },
                }
                for name, rows in sorted(members.items())
            }
    return found


def _curve(differences: npt.NDArray[np.float64]) -> list[float]:
    """Differences in rising order, at evenly spaced queries where there are too many to draw."""
    places = np.unique(np.linspace(0, len(differences) - 1, _CURVE_POINTS).round().astype(np.int64))
    return [round(float(value), 6) for value in np.sort(differences)[places]]


def _extremes(
    queries: Sequence[str], first: Values, second: Values, words: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The queries whose best positive stands at the most different ranks, the widest difference first."""
    both = (first.best_rank > 0) & (second.best_rank > 0)
    apart = np.where(both, np.abs(first.best_rank - second.best_rank), 0)
    order = np.argsort(-apart, kind="stable")[:EXTREMES].tolist()
    return [
        {
            "query": queries[row],
            "words": words.get(queries[row], ""),
            "first": int(first.best_rank[row]),
            "second": int(second.best_rank[row]),
        }
        for row in order
        if apart[row]
    ]


# --- the request and the folder ---------------------------------------------------------------------


def _chosen_metrics(runs: Sequence[EvaluatedRun], wanted: Sequence[str] | None) -> list[str]:
    shared = [
        metric for metric in runs[0].report["metrics"] if all(metric in run.report["metrics"] for run in runs)
    ]
    if wanted is None:
        if not shared:
            raise RefusedRequest("the runs have no metric in common; evaluate them with the same --metrics")
        return shared
    unknown = [metric for metric in wanted if metric not in shared]
    if unknown:
        hints = ", ".join(f"{metric!r}{did_you_mean(metric, shared)}" for metric in unknown)
        raise RefusedRequest(f"not all runs have {hints}; they share {', '.join(shared) or 'no metric'}")
    return list(dict.fromkeys(wanted))


def _pairs(runs: Sequence[EvaluatedRun], baseline: str | None) -> list[tuple[int, int]]:
    names = [run.name for run in runs]
    if baseline is None:
        return list(combinations(range(len(runs)), 2))
    if baseline not in names:
        raise RefusedRequest(
            f"baseline {baseline!r} is none of the runs{did_you_mean(baseline, names)}; they are "
            f"{', '.join(names)}"
        )
    base = names.index(baseline)
    return [(base, other) for other in range(len(runs)) if other != base]


def _write(out: Path, content: dict[str, Any]) -> None:
    from vidvec_msg.retrieval.comparison.page import html_comparison
    from vidvec_msg.retrieval.comparison.tables import latex_comparison, markdown_comparison

    for file, text in (
        ("compare.md", markdown_comparison(content)),
        ("compare.tex", latex_comparison(content)),
        ("compare.html", html_comparison(content)),
    ):
        write_text(out / file, text)
    write_json(out / "compare.json", content)  # last: its presence means that the folder is complete


def _tables(content: dict[str, Any]) -> str:
    from vidvec_msg.retrieval.comparison.tables import markdown_comparison, terminal_comparison

    return terminal_comparison(content) if sys.stdout.isatty() else markdown_comparison(content)
