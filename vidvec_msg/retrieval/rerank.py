"""The verb ``rerank``: an evaluation, or a run, with the top of its lists in a new order."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Literal, get_args

from vidvec_msg.errors import Problems, RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.benchmarks.published import published_for
from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS, EvaluatedRun, Way, read_runs
from vidvec_msg.retrieval.config_file import claim, refuse_other
from vidvec_msg.retrieval.embedding.request import allowed_failures, note_max_failures
from vidvec_msg.retrieval.evaluate import FORMAT
from vidvec_msg.retrieval.evaluation.chance import SIMULATED
from vidvec_msg.retrieval.evaluation.directions import Evaluation
from vidvec_msg.retrieval.evaluation.divergence import most_diverging
from vidvec_msg.retrieval.evaluation.folder import write_folder
from vidvec_msg.retrieval.evaluation.groups import add_groups
from vidvec_msg.retrieval.evaluation.held_apart import changed_sides, contents_of, refuse_shared_queries
from vidvec_msg.retrieval.evaluation.intervals import Kind
from vidvec_msg.retrieval.evaluation.ranked import Options
from vidvec_msg.retrieval.evaluation.scoring import direction_parts, groups_of_sides
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.retrieval.fusing.lists import Lists, read_lists
from vidvec_msg.retrieval.fusing.runs import lists_of, sides_of
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS, parse_metrics
from vidvec_msg.retrieval.reports.reranked import reliability_svg, reranked_markdown
from vidvec_msg.retrieval.reranking.calibration import Calibrate
from vidvec_msg.retrieval.reranking.contract import Reranker
from vidvec_msg.retrieval.reranking.job import Reranked, Settings, rerank_stage
from vidvec_msg.retrieval.reranking.judgements import JUDGEMENTS
from vidvec_msg.retrieval.reranking.load import check_reranker, load_reranker
from vidvec_msg.retrieval.reranking.scores import Score
from vidvec_msg.retrieval.reranking.stage import Prior, Stage, blank_kind, depth_of, refuse_other_kinds
from vidvec_msg.runs import digest_of, only_writer, software_versions, write_json, write_text

log = logging.getLogger(__name__)

WHAT = "temperature and weights of a reranker"
_FREE = ("out", "collection", "judgements", "max_failures", "pictures")  # these do not reach the numbers


def rerank(
    run: Path,
    reranker: str,
    out: Path,
    *,
    depth: int | Literal["zero-shot", "fitted"] = "zero-shot",
    score: Score = "full",
    prior: Prior = "none",
    validation: Path | None = None,
    calibrate: Calibrate = "temperature",
    metrics: list[str] | None = None,
    judgements: Path | None = None,
    collection: Path | None = None,
    split: str = "test",
    direction: Way = "forward",
    max_failures: float = 0,
    interval: Kind = "percentile",
    seed: int = 0,
    pictures: bool = True,
    json: bool = False,
) -> Path:
    """Judges the best candidates of a run pair by pair and puts them in a new order, in both directions.

    Judgements are kept as they come (judgements.jsonl): an interrupted job goes on where it stopped. Writes
    an evaluation folder that compare reads.

    Args:
        run: an evaluation folder, or a TREC run file of one direction.
        reranker: what judges: mllm:MODEL, tinyworld, st-cross:FOLDER or endpoint:MODEL.
        out: the folder to make.
        depth: candidates of each query that are judged: "zero-shot" is 100 and "fitted" 10, as in VidVec.
        score: what is read of an answer: "full" is P(Yes) by the softmax over the whole vocabulary,
            "two-way" P(Yes) against No alone, "log-odds" log P(Yes) - log P(No).
        prior: what is taken off: how much the text is said Yes to with a blank clip ("query"), the clip with
            an empty query ("clip"), "both" or "none".
        validation: an evaluation folder of the same embedder on other queries; temperature and
            the weight of a fusion with the embedding's score are chosen there, and "fused" is the last row.
        calibrate: what is fitted on validation pairs: a "temperature", or "platt", a temperature and a bias.
        metrics: as of evaluate; by default those of the run.
        judgements: file of judgements to read and add to, for several rerankings of the same pairs; by
            default judgements.jsonl in ``out``.
        collection: where the collection is; by default where the evaluation found it.
        split: of a run file's judgements.
        direction: of a run file.
        max_failures: pairs that may fail: a count, or a share of all pairs if below 1.
        interval: bootstrap interval: "percentile", or "bca" (bias-corrected and accelerated).
        seed: of the bootstrap that gives the intervals.
        pictures: show frames of the clips in report.html.
        json: print the numbers as JSON instead of the tables.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request, validation queries are the test's too, or lists
            are shorter than the depth; nothing was judged.
        TooManyFailures: the folder was written, with more failed pairs than allowed.
    """
    # 1. everything that can be wrong, before a model is loaded
    _refuse_choices(score, prior, calibrate, max_failures)
    check_reranker(reranker)
    test, others = _first_stages(run, validation, collection, split, direction)
    stages = [test.stage] if others is None else [test.stage, others.stage]
    first = test.report
    options = Options(
        list(metrics or first.get("metrics") or DEFAULT_METRICS), first.get("depth", 1000),
        first.get("exclude_self", False), first.get("unreachable", "keep"), seed=seed, interval=interval,
    )  # fmt: skip
    wanted = max(depth_of(depth, stage, exclude_self=options.exclude_self) for stage in stages)
    if prior in ("query", "both"):
        blank_kind(test.stage.clips)
    settings = {
        "run": str(run), "reranker": reranker, "out": str(out), "depth": wanted, "score": score,
        "prior": prior, "judgements": None if judgements is None else str(judgements),
        "validation": None if validation is None else str(validation), "calibrate": calibrate,
        "metrics": list(options.metrics), "collection": str(test.collection), "split": split,
        "direction": direction, "max_failures": max_failures, "interval": interval, "seed": seed,
        "pictures": pictures,
    }  # fmt: skip
    keep = f" (and the judgements of this one: --judgements {out / JUDGEMENTS})"
    refuse_other(out, settings, what="reranking", free=_FREE, keep=keep)

    # 2. judgements, and the numbers of every way of using them
    model = load_reranker(reranker)
    for stage in stages:
        refuse_other_kinds(stage, model.modalities, model.name)
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out, what=f"--out {out}"):
        claim(out, settings, "report.json")
        done = rerank_stage(
            test.stage,
            None if others is None else others.stage,
            model,
            Settings(wanted, score, prior, calibrate),
            options,
            out,
            spec=reranker,
            judgements=judgements,
        )

        # 3. what people read
        if run.is_dir():
            report = write_evaluation(out, done, test, model, settings, options)
        else:
            report = {"format": FORMAT, **settings, "reranked": done.section, "versions": software_versions()}
            write_extras(out, done.section)
            write_json(out / "report.json", report)
    sys.stdout.write(
        dumps(report, ensure_ascii=False, indent=2) + "\n" if json else reranked_markdown(done.section)
    )
    log.info("reranked in %s", out)
    _refuse_too_many_failures(done, out, allowed_failures(max_failures, done.pairs))
    return out


@dataclass(frozen=True)
class First:
    """A first stage: where it comes from, and its lists.

    Args:
        stage: lists and sides.
        report: content of its ``report.json``; empty for a run file.
        collection: where its collection is.
        path: the folder or file.
    """

    stage: Stage
    report: dict[str, Any]
    collection: Path
    path: Path


def write_evaluation(
    out: Path,
    done: Reranked,
    test: First,
    reranker: Reranker,
    settings: Mapping[str, Any],
    options: Options,
) -> dict[str, Any]:
    """Writes the evaluation folder of a reranking, and returns the content of its ``report.json``.

    Args:
        out: the folder; its runs are there.
        done: the outcome.
        test: the first stage.
        reranker: that judged.
        settings: of the request.
        options: how lists were scored.
    """
    sides, first = test.stage.sides, test.report
    of_queries, of_corpus = groups_of_sides(sides)
    evaluation = Evaluation(
        add_groups(done.directions["forward"], of_queries), add_groups(done.directions["reverse"], of_corpus)
    )
    decided_by = [first["model"]["fingerprint"], reranker.fingerprint, *_decides(done.section)]
    report = {
        "format": FORMAT,
        **{key: first[key] for key in ("split", "pool", "exclude_self", "unreachable", "depth", "confusion")},
        "collection": str(test.collection),
        "embedder": f"{first['embedder']}, reranked by {done.section['reranker']['spec']}",
        "metrics": list(options.metrics),
        "seed": options.seed,
        "pictures": settings["pictures"],
        "interval": options.interval,
        "model": {
            **first["model"],
            "name": f"{first['model']['name']} + {reranker.name}",
            "fingerprint": digest_of(decided_by)[:16],
        },
        "data": sides.identity(),
        "contents": first.get("contents"),
        "failed": first["failed"],
        "chance_simulated": [m.name for m in parse_metrics(list(options.metrics)) if m.name in SIMULATED],
        **direction_parts(evaluation, sides, first["confusion"]),
        "diverging": [pair.to_dict() for pair in most_diverging(evaluation, sides.qrels, sides.backwards)],
        "dual_softmax": None,
        "reranked": done.section,
        "published": [row.to_dict() for row in published_for(test.collection)],
        "versions": software_versions(),
    }
    write_extras(out, done.section)
    write_folder(out, report, evaluation, sides, with_pictures=bool(settings["pictures"]))
    return report


def write_extras(out: Path, section: Mapping[str, Any]) -> None:
    """Writes ``rerank.md``, the rows side by side, and ``reliability.svg``."""
    files = {"rerank.md": reranked_markdown(section)}
    if section["calibration"]["before"]:
        files["reliability.svg"] = reliability_svg(section["calibration"])
    for name, text in files.items():
        write_text(out / name, text)


def _decides(section: Mapping[str, Any]) -> list[Any]:
    """What makes the ranking another one, as far as the two models do not: not what was measured of it, which
    is another thing for other queries."""
    fitted = section["calibration"]
    fusions = [section[way]["fusion"] or {} for way in WAYS]
    return [
        *(section[key] for key in ("depth", "score", "prior")),
        *(fitted[key] for key in ("temperature", "bias")),
        *((fusion.get("weight"), fusion.get("spreads")) for fusion in fusions),
    ]


# --- the request ------------------------------------------------------------------------------------


def _refuse_choices(score: str, prior: str, calibrate: str, max_failures: float) -> None:
    problems = Problems("this reranking is not possible")
    for name, given, known in (
        ("score", score, Score),
        ("prior", prior, Prior),
        ("calibrate", calibrate, Calibrate),
    ):
        if given not in get_args(known):
            problems.add(f"{name} is {given!r}; it is one of {', '.join(get_args(known))}")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()


def _first_stages(
    run: Path, validation: Path | None, collection: Path | None, split: str, direction: Way
) -> tuple[First, First | None]:
    """The first stage of the test, and that of the validation.

    Raises:
        RefusedRequest: they cannot be read, are of different embedders, or share queries.
    """
    test = _opened(run, collection, split, direction)
    if validation is None:
        return test, None
    if not (run.is_dir() and validation.is_dir()):
        raise RefusedRequest(
            "a validation needs evaluation folders on both sides: a run file does not say which embedder "
            f"made it. Given were run {run} and validation {validation}"
        )
    (found,) = read_runs([validation])
    moved = collection if found.report["collection"] == test.report["collection"] else None
    others = first_of(found, moved)
    one, other = (first.report["model"]["fingerprint"] for first in (test, others))
    if one != other:
        raise RefusedRequest(
            f"validation {validation} is of another embedder than {run} (fingerprints {other} and {one}); "
            "the weight of a fusion holds for one embedder"
        )
    same = test.collection.resolve() == others.collection.resolve()
    refuse_shared_queries(test.stage.sides, others.stage.sides, what=WHAT, same_folder=same)
    return test, others


def _opened(path: Path, collection: Path | None, split: str, direction: Way) -> First:
    """The first stage in an evaluation folder, or in a run file."""
    if path.is_dir():
        (found,) = read_runs([path])
        return first_of(found, collection)
    if not path.is_file():
        raise RefusedRequest(
            f"there is no {path}; a run is an evaluation folder that `vidvec-msg evaluate` wrote, or a TREC "
            "run file"
        )
    if collection is None:
        raise RefusedRequest(f"{path} is a run file: say with --collection what it is a run of")
    if direction not in WAYS:
        raise RefusedRequest(f"direction is {direction!r}; it is forward or reverse")
    sides = Sides.of(Collection.load(collection, split=split, unreachable="keep"), split, "corpus")
    candidates = [item.id for item in (sides.corpus if direction == "forward" else sides.queries)]
    lists: dict[Way, Lists] = {direction: read_lists(path, path.stem, candidates)}
    return First(Stage(sides, lists), {}, collection, path)


def first_of(run: EvaluatedRun, collection: Path | None) -> First:
    """The first stage in an evaluation folder.

    Raises:
        RefusedRequest: its collection is not where it was, is another one, or shows other things by now.
    """
    sides = sides_of([run], collection)
    place = Path(collection or run.report["collection"])
    before = run.report.get("contents")
    changed = changed_sides(before, contents_of(sides) if before else None)
    if changed:
        raise RefusedRequest(
            f"collection {place} is no longer what {run.folder} was made of ({' and '.join(changed)}): clips "
            "or texts were replaced, or their files are gone, and its lists are of the earlier ones. "
            "Evaluate again into a new folder (with a cache, only what changed is embedded), or give the "
            "earlier ones with --collection"
        )
    lists = {way: lists_of([run], sides, way)[0] for way in WAYS}
    return First(Stage(sides, lists), run.report, place, run.folder)


def _refuse_too_many_failures(done: Reranked, out: Path, allowed: int) -> None:
    if done.failed > allowed:
        raise TooManyFailures(
            f"{done.failed} of {done.pairs} pairs could not be judged and {allowed} may (max_failures). "
            f"{out} was written: such candidates stand behind the judged ones in their old order; why, is "
            f"in {out / 'failures.jsonl'}."
        )
