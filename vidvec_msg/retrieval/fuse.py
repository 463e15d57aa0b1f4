"""The verb ``fuse``: evaluations of one collection → one, their lists joined."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.retrieval.benchmarks.published import published_for
from vidvec_msg.retrieval.comparison.evaluated_runs import (
    WAYS,
    EvaluatedRun,
    Way,
    read_runs,
    refuse_incomparable,
    warn_of_other_contents,
)
from vidvec_msg.retrieval.config_file import claim
from vidvec_msg.retrieval.evaluate import FORMAT
from vidvec_msg.retrieval.evaluation.chance import SIMULATED
from vidvec_msg.retrieval.evaluation.divergence import most_diverging
from vidvec_msg.retrieval.evaluation.folder import tables_for_stdout, write_folder
from vidvec_msg.retrieval.evaluation.held_apart import refuse_shared_queries
from vidvec_msg.retrieval.evaluation.intervals import Kind
from vidvec_msg.retrieval.evaluation.ranked import Options
from vidvec_msg.retrieval.evaluation.scoring import direction_parts
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.retrieval.fusing.choice import Choice, choose_weights
from vidvec_msg.retrieval.fusing.likeness import refuse_other_lists, refuse_two_scales
from vidvec_msg.retrieval.fusing.lists import Lists, refuse_unequal_lists
from vidvec_msg.retrieval.fusing.recipe import RRF_K, Method, Normalize, Recipe, checked_recipe
from vidvec_msg.retrieval.fusing.runs import lists_of, partial_queries, score_fused, sides_of
from vidvec_msg.retrieval.fusing.tables import beside
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS, parse_metrics
from vidvec_msg.runs import digest_of, require_new, software_versions

log = logging.getLogger(__name__)


def fuse(
    runs: list[Path],
    out: Path,
    *,
    method: Method = "rrf",
    normalize: Normalize = "min-max",
    weights: list[float] | None = None,
    validation: list[Path] | None = None,
    k: int = RRF_K,
    names: list[str] | None = None,
    metrics: list[str] | None = None,
    collection: Path | None = None,
    interval: Kind = "percentile",
    seed: int = 0,
    pictures: bool = True,
    json: bool = False,
) -> Path:
    """Joins the ranked lists of several evaluations (frames, transcript, OCR, captions), in both directions.

    Writes an evaluation folder that compare and leaderboard read. Nothing is embedded: the lists in the
    folders are joined.

    Args:
        runs: evaluation folders, two or more, of the same collection, split, pool and depth.
        out: the evaluation folder to make.
        method: "rrf" (reciprocal rank fusion), or of normalised scores "sum", "mnz" (the sum, times the
            number of lists that have the document) or "max".
        normalize: of each query's scores within a run, for all methods but rrf: "min-max" (0 to 1), "sum" (a
            least of 0, a sum of 1), "zmuv" (mean 0, variance 1; for lists of the same documents), "rank" (by
            place alone).
        weights: one a run, in their order, for "sum"; equal ones by default.
        validation: evaluation folders of the same embedders in the same order, on other queries; the weights
            in tenths with the best map there are taken, a direction at a time.
        k: of rrf: a document at rank r gets 1 / (k + r) from a list.
        names: of the runs, for the tables; by default those of the embedders.
        metrics: as of evaluate; by default those that all runs have.
        collection: where the collection is now; by default where the runs found it.
        interval: bootstrap interval: "percentile", or "bca" (bias-corrected and accelerated).
        seed: of the bootstrap that gives the intervals.
        pictures: show frames of the clips in report.html.
        json: print report.json instead of the tables.

    Returns:
        the evaluation folder.

    Raises:
        RefusedRequest: folders that are no evaluations, evaluations of different data or settings, validation
            queries that the test has too, scores that cannot be added up, or weights that do not fit; nothing
            was written.
    """
    require_new(out, option="out")  # an evaluation of another kind must not be written over
    report = fuse_runs(
        runs, out, method=method, normalize=normalize, weights=weights, validation=validation, k=k,
        names=names, metrics=metrics, collection=collection, interval=interval, seed=seed, pictures=pictures,
    )  # fmt: skip
    if json:
        sys.stdout.write(dumps(report, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.write(beside(report) + tables_for_stdout(report))
    log.info("fused evaluation in %s: open %s", out, out / "report.html")
    return out


def fuse_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    method: Method = "rrf",
    normalize: Normalize = "min-max",
    weights: Sequence[float] | None = None,
    validation: Sequence[Path] | None = None,
    k: int = RRF_K,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    collection: Path | None = None,
    interval: Kind = "percentile",
    seed: int = 0,
    pictures: bool = True,
) -> dict[str, Any]:
    """What :func:`fuse` does, for programs: the same folder, and the content of its ``report.json``.

    Raises:
        RefusedRequest: as there.
    """
    # 1. everything that can be wrong
    if len(folders) < 2:
        raise RefusedRequest(f"a fusion needs two runs or more; given was {len(folders)}")
    recipe = checked_recipe(
        method, normalize, weights, k, runs=len(folders), validated=validation is not None
    )
    runs = read_runs(folders, names)
    refuse_incomparable(runs)
    warn_of_other_contents(runs)
    first = runs[0].report
    sides = sides_of(runs, collection)
    options = Options(
        list(metrics) if metrics else _shared_metrics(runs), first["depth"], first["exclude_self"],
        first["unreachable"], seed=seed, interval=interval,
    )  # fmt: skip
    lists = {way: lists_of(runs, sides, way) for way in WAYS}
    refuse_two_scales(runs, recipe)
    _refuse_unequal(lists, recipe)
    chosen = None if validation is None else _chosen(validation, runs, sides, recipe, options)

    # 2. one list of each query's
    settings = {
        "runs": [str(folder) for folder in folders], "out": str(out), "method": recipe.method,
        "normalize": recipe.normalize, "weights": recipe.weights and list(recipe.weights), "k": recipe.k,
        "collection": None if collection is None else str(collection),
        "validation": None if validation is None else [str(folder) for folder in validation],
        "names": [run.name for run in runs], "metrics": list(options.metrics), "interval": interval,
        "seed": seed, "pictures": pictures,
    }  # fmt: skip
    recipes = {
        way: recipe if chosen is None else replace(recipe, weights=chosen[way].weights) for way in WAYS
    }
    claim(out, settings, "report.json")
    evaluation = score_fused(lists, sides, recipes, options, out)

    # 3. what people read
    ways: dict[str, Any] = {
        way: recipes[way].to_dict() | _of_choice(chosen, way) | {"partial": partial_queries(lists[way])}
        for way in WAYS
    }
    report = {
        "format": FORMAT,
        **{key: first[key] for key in ("split", "pool", "exclude_self", "unreachable", "depth", "confusion")},
        "collection": str(collection or first["collection"]),
        "embedder": _told(runs, recipes),
        "metrics": list(options.metrics),
        "seed": seed, "pictures": pictures, "interval": interval,
        "model": _model(runs, recipes),
        "data": sides.identity(),
        "contents": first.get("contents"),
        "failed": {"corpus": 0, "queries": 0},
        "chance_simulated": [m.name for m in parse_metrics(list(options.metrics)) if m.name in SIMULATED],
        **direction_parts(evaluation, sides, first["confusion"]),
        "diverging": [pair.to_dict() for pair in most_diverging(evaluation, sides.qrels, sides.backwards)],
        "dual_softmax": None,
        "fused": {"runs": [_of_run(run) for run in runs], **ways},
        "published": [row.to_dict() for row in published_for(collection or first["collection"])],
        "versions": software_versions(),
    }  # fmt: skip
    write_folder(out, report, evaluation, sides, with_pictures=pictures)
    return report


# --- the request ------------------------------------------------------------------------------------


def _shared_metrics(runs: Sequence[EvaluatedRun]) -> list[str]:
    shared = [m for m in runs[0].report["metrics"] if all(m in run.report["metrics"] for run in runs)]
    return shared or list(DEFAULT_METRICS)


def _refuse_unequal(lists: Mapping[Way, Sequence[Lists]], recipe: Recipe) -> None:
    if recipe.method != "rrf" and recipe.normalize == "zmuv":
        for way in WAYS:
            refuse_unequal_lists(lists[way])


def _chosen(
    folders: Sequence[Path], runs: Sequence[EvaluatedRun], test: Sides, recipe: Recipe, options: Options
) -> dict[Way, Choice]:
    """Weights of both directions, from evaluations on other queries.

    Raises:
        RefusedRequest: the evaluations are not of the runs' embedders, were made otherwise, or share queries
            with the test.
    """
    if len(folders) != len(runs):
        raise RefusedRequest(
            f"there are {len(runs)} runs and {len(folders)} validation runs; give one a run, in their order"
        )
    others = read_runs(folders, [run.name for run in runs])
    refuse_incomparable(others)
    warn_of_other_contents(others)
    for run, other in zip(runs, others, strict=True):
        if run.report["model"]["fingerprint"] != other.report["model"]["fingerprint"]:
            raise RefusedRequest(
                f"validation {other.folder} is of another embedder than run {run.folder} "
                f"({other.report['model']['name']}, fingerprint {other.report['model']['fingerprint']}, and "
                f"{run.report['model']['name']}, {run.report['model']['fingerprint']}); evaluate the run's "
                "on the validation split, and give them in the same order"
            )
    refuse_other_lists(runs, others)
    refuse_two_scales(others, recipe)
    sides = sides_of(others, None)
    same_folder = (
        Path(runs[0].report["collection"]).resolve() == Path(others[0].report["collection"]).resolve()
    )
    refuse_shared_queries(test, sides, what="weights", same_folder=same_folder)
    lists = {way: lists_of(others, sides, way) for way in WAYS}
    _refuse_unequal(lists, recipe)
    candidates: dict[Way, list[str]] = {
        "forward": [item.id for item in sides.corpus],
        "reverse": [item.id for item in sides.queries],
    }
    judged: dict[Way, Qrels] = {"forward": sides.qrels, "reverse": sides.backwards}
    return {way: choose_weights(lists[way], candidates[way], judged[way], recipe, options) for way in WAYS}


# --- the report -------------------------------------------------------------------------------------


def _told(runs: Sequence[EvaluatedRun], recipes: Mapping[Way, Recipe]) -> str:
    """What stands where an evaluation names its embedder."""
    words = list(dict.fromkeys(recipe.words for recipe in recipes.values()))
    return f"{'; reverse: '.join(words)} of {', '.join(run.name for run in runs)}"


def _model(runs: Sequence[EvaluatedRun], recipes: Mapping[Way, Recipe]) -> dict[str, Any]:
    decided_by = [
        [run.report["model"]["fingerprint"] for run in runs],
        [recipes[way].to_dict() for way in WAYS],
    ]
    name = f"{recipes['forward'].method}({', '.join(run.name for run in runs)})"
    return {"name": name, "dim": 0, "base_model": "", "fingerprint": digest_of(decided_by)[:16]}


def _of_run(run: EvaluatedRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "folder": str(run.folder),
        "embedder": run.report["embedder"],
        "fingerprint": run.report["model"]["fingerprint"],
        "contents": run.report.get("contents"),
        **{way: {name: score["value"] for name, score in run.report[way]["metrics"].items()} for way in WAYS},
    }


def _of_choice(chosen: Mapping[Way, Choice] | None, way: Way) -> dict[str, Any]:
    return {"validation": None if chosen is None else chosen[way].to_dict()}
