"""Reranking from start to end: pairs are judged once, and every way of using the judgements is a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.errors import JobFailed
from vidvec_msg.formats.trec import run_writer
from vidvec_msg.retrieval.comparison.evaluated_runs import Way
from vidvec_msg.retrieval.evaluation.directions import Direction, score_ranked
from vidvec_msg.retrieval.evaluation.paired_tests import holm, paired_differences
from vidvec_msg.retrieval.evaluation.ranked import Embedded, Options, Ranked, rank_lists
from vidvec_msg.retrieval.evaluation.ranking import ABSENT, Gold, Scores, tie_order
from vidvec_msg.retrieval.evaluation.scoring import side_names
from vidvec_msg.retrieval.fusing.lists import Lists
from vidvec_msg.retrieval.metrics import MEDIANS, per_query
from vidvec_msg.retrieval.reranking.calibration import Calibrate, fit, reliability
from vidvec_msg.retrieval.reranking.contract import Reranker, Unjudged
from vidvec_msg.retrieval.reranking.judgements import JUDGEMENTS, Judgements, Outcome, Pair, judge_all
from vidvec_msg.retrieval.reranking.scores import (
    Calibration,
    Fusion,
    Score,
    logits_of,
    reranked,
    value_of,
)
from vidvec_msg.retrieval.reranking.stage import NOTHING, Prior, Stage, blank_clip, groups_of
from vidvec_msg.runs import write_json_lines

SINGLE = "single stage"
RERANKED = "reranked"
LESS_PRIOR = "less the prior"
FUSED = "fused"

FAILURES = "failures.jsonl"
CHOSEN_BY = "map"
WEIGHTS = tuple(step / 20 for step in range(21))
"""Weights of the reranker that are tried in a fusion."""

_BLOCK_BYTES = 32 << 20  # float32 scores of one block of queries


@dataclass(frozen=True, slots=True)
class Settings:
    """How judgements are used.

    Args:
        depth: candidates of each query.
        score: what is read of a judgement.
        prior: content-free pairs that are taken off.
        calibrate: what is fitted on validation pairs.
    """

    depth: int
    score: Score = "full"
    prior: Prior = "none"
    calibrate: Calibrate = "temperature"


@dataclass(frozen=True)
class Reranked:
    """The outcome.

    Args:
        directions: of the last row, the one that all that was asked for went into.
        section: what ``report.json`` says of it.
        pairs: that were judged or failed, those of priors and validation included.
        failed: of them.
    """

    directions: dict[Way, Direction]
    section: dict[str, Any]
    pairs: int
    failed: int


def rerank_stage(
    test: Stage,
    validation: Stage | None,
    reranker: Reranker,
    settings: Settings,
    options: Options,
    out: Path,
    *,
    spec: str,
    judgements: Path | None = None,
) -> Reranked:
    """Judges the top of all lists, and scores each way of using the judgements.

    Args:
        test: what the numbers are of.
        validation: other queries, on which temperature and weights are chosen; None for neither.
        reranker: that judges.
        settings: how the judgements are used.
        options: how lists are scored.
        out: folder of ``judgements.jsonl``, ``failures.jsonl`` and the last row's ``runs/``.
        spec: the reranker's, for the report.
        judgements: file of judgements, where it is not in ``out``.
    """
    path = judgements or out / JUDGEMENTS
    blank = blank_clip(test.clips) if settings.prior in ("query", "both") else None
    stages = [test] if validation is None else [test, validation]
    groups = [groups_of(stage, settings.depth, settings.prior, blank) for stage in stages]
    with Judgements(path) as kept:
        outcomes = [judge_all(reranker, mine, kept) for mine in groups]
    failures = [one for outcome in outcomes for one in outcome.failures]
    _write_failures(out / FAILURES, failures)

    judged = [_Judged.of(*both, settings) for both in zip(stages, outcomes, strict=True)]
    own, others = judged[0], judged[1] if len(judged) > 1 else None
    calibration, part = _calibrated(own, others, settings)
    directions: dict[Way, Direction] = {}
    ways: dict[str, Any] = {}
    for way in test.lists:
        rows, chosen = _rows(own, others, way, settings, calibration, options)
        scored = {name: score_lists(test, way, lists, options) for name, lists in rows.items()}
        last, path = list(rows.values())[-1], out / "runs" / f"{way}.trec"
        directions[way] = score_lists(test, way, last, options, path=path, tag=reranker.name)
        ways[way] = {
            "label": directions[way].label,
            "queries": len(directions[way].query_ids),
            "rows": {name: _metrics(one) for name, one in scored.items()},
            "differences": _differences(scored, options),
            "fusion": chosen,
        }
    pairs = sum(len(group.texts) for mine in groups for group in mine)
    section = {
        "reranker": {"spec": spec, "name": reranker.name, "fingerprint": reranker.fingerprint},
        **asdict(settings),
        "pairs": pairs,
        "failed": len(failures),
        "mass": _mass(outcomes[0]),
        **ways,
        "calibration": part,
    }
    return Reranked(directions, section, pairs, len(failures))


def _rows(
    own: _Judged,
    others: _Judged | None,
    way: Way,
    settings: Settings,
    calibration: Calibration,
    options: Options,
) -> tuple[dict[str, Lists], dict[str, Any] | None]:
    """The lists of every way of using the judgements, and how the weight of a fusion was chosen."""
    stage, depth, score = own.stage, settings.depth, settings.score
    rows = {SINGLE: stage.lists[way], RERANKED: reranked(stage, way, depth, own.raw, score=score)}
    if settings.prior != "none":
        rows[LESS_PRIOR] = reranked(stage, way, depth, own.logits, score=score)
    if others is None:
        return rows, None
    fusion, chosen = choose_weight(others.stage, way, others.logits, settings, calibration, options)
    rows[FUSED] = reranked(stage, way, depth, own.logits, score=score, calibration=calibration, fusion=fusion)
    return rows, chosen


def score_lists(
    stage: Stage, way: Way, lists: Lists, options: Options, *, path: Path | None = None, tag: str = ""
) -> Direction:
    """The numbers of a direction from its lists.

    Args:
        stage: whose judgements.
        way: the direction.
        lists: of its queries.
        options: depth, metrics, intervals.
        path: a TREC run file to write.
        tag: of that.
    """
    candidates = [item.id for item in stage.candidates(way)]
    queries = [item.id for item in (stage.sides.queries if way == "forward" else stage.sides.corpus)]
    left, right = side_names(stage.sides)
    label = f"{left} → {right}" if way == "forward" else f"{right} → {left}"
    judged = {
        query: one
        for query, one in stage.judged(way).items()
        if way == "forward" or any(g > 0 for g in one.values())
    }

    def rank(chosen: Embedded, gold: Gold) -> Ranked:
        blocks = _blocks(lists, chosen.ids, candidates)
        if path is None:
            return rank_lists(blocks, chosen.ids, candidates, gold, options)
        with run_writer(path, tag=tag) as write:
            return rank_lists(blocks, chosen.ids, candidates, gold, options, write)

    asking = [query for query in queries if query in lists.of]
    return score_ranked(
        _side(asking), _side(candidates), judged, replace(options, unreachable="keep"), label, rank
    )


def choose_weight(
    validation: Stage,
    way: Way,
    logits: Mapping[Pair, float],
    settings: Settings,
    calibration: Calibration,
    options: Options,
) -> tuple[Fusion, dict[str, Any]]:
    """The weight of the reranker with the best map on validation queries; of equally good ones, the least.

    Returns:
        the fusion, and what ``report.json`` says of the choice.
    """
    first, second = _both_scores(validation, way, logits, settings, calibration)
    spreads = tuple(float(np.std(values)) or 1.0 if len(values) else 1.0 for values in (first, second))
    plain = replace(options, metrics=[CHOSEN_BY], intervals=False, chance=False, details=False, keep=1)
    tried = {}
    for weight in WEIGHTS:
        fusion = Fusion(weight, *spreads)
        lists = reranked(
            validation,
            way,
            settings.depth,
            logits,
            score=settings.score,
            calibration=calibration,
            fusion=fusion,
        )
        direction = score_lists(validation, way, lists, plain)
        tried[weight] = float(per_query(direction.gold, [CHOSEN_BY], depth=options.depth)[CHOSEN_BY].mean())
    best = max(WEIGHTS, key=lambda weight: (round(tried[weight], 12), -weight))
    told = {
        "weight": best,
        "spreads": list(spreads),
        "chosen_by": CHOSEN_BY,
        "validation_queries": len(validation.top(way, 1)),
        "tried": {f"{weight:g}": round(value, 6) for weight, value in tried.items()},
    }
    return Fusion(best, *spreads), told


# --- pairs ------------------------------------------------------------------------------------------


def _pairs(stage: Stage, depth: int) -> list[Pair]:
    """The pairs of a stage, each once, in the order of its lists."""
    found: dict[Pair, None] = {}
    for way in stage.lists:
        for query, candidates in stage.top(way, depth).items():
            found |= dict.fromkeys(stage.pair(way, query, candidate) for candidate in candidates)
    return list(found)


@dataclass(frozen=True, slots=True)
class _Judged:
    """A stage with its logits.

    Args:
        stage: the lists.
        pairs: at their top, each once.
        raw: logits as they were read.
        logits: less the priors.
    """

    stage: Stage
    pairs: list[Pair]
    raw: dict[Pair, float]
    logits: dict[Pair, float]

    @classmethod
    def of(cls, stage: Stage, outcome: Outcome, settings: Settings) -> _Judged:
        raw = logits_of(outcome.judged, settings.score, "none")
        less = raw if settings.prior == "none" else logits_of(outcome.judged, settings.score, settings.prior)
        return cls(stage, _pairs(stage, settings.depth), raw, less)

    def labelled(self, logits: Mapping[Pair, float]) -> tuple[list[float], list[bool]]:
        """Logits of the pairs that have one, and whether each is right."""
        mine = [pair for pair in self.pairs if pair in logits]
        return [logits[pair] for pair in mine], [self.stage.positive(pair) for pair in mine]


def _calibrated(
    own: _Judged, others: _Judged | None, settings: Settings
) -> tuple[Calibration, dict[str, Any]]:
    """The calibration, fitted on validation pairs, and the reliability of the test's before and after."""
    before = reliability(*own.labelled(own.raw), Calibration())
    told: dict[str, Any] = {"before": None if before is None else before.to_dict()}
    if others is None:
        return Calibration(), {
            **told, "after": None, "temperature": None, "bias": None, "validation_pairs": 0
        }  # fmt: skip
    logits, right = others.labelled(others.logits)
    if not logits:
        raise JobFailed("none of the validation pairs could be judged: nothing can be fitted on them")
    calibration = fit(logits, right, settings.calibrate)
    after = reliability(*own.labelled(own.logits), calibration)
    return calibration, {
        **told,
        "after": None if after is None else after.to_dict(),
        "temperature": calibration.temperature,
        "bias": calibration.bias,
        "validation_pairs": len(logits),
    }


def _both_scores(
    stage: Stage, way: Way, logits: Mapping[Pair, float], settings: Settings, calibration: Calibration
) -> tuple[list[float], list[float]]:
    """Scores of the first stage and of the reranker, of the pairs that have both."""
    ids = [item.id for item in stage.candidates(way)]
    first, second = [], []
    for query, (columns, scores) in stage.lists[way].of.items():
        for column, score in zip(columns[: settings.depth].tolist(), scores[: settings.depth], strict=True):
            logit = logits.get(stage.pair(way, query, ids[column]))
            if logit is not None:
                first.append(float(score))
                second.append(value_of(calibration.applied(logit), settings.score))
    return first, second


def _mass(outcome: Outcome) -> float | None:
    """Mean probability of yes and no together; what is missing to 1 has other answers."""
    both = [
        np.exp(one.yes) + np.exp(one.no)
        for one in outcome.judged.values()
        if NOTHING not in (one.clip, one.text)
    ]
    return float(np.mean(both)) if both else None


def _write_failures(path: Path, failures: Sequence[Unjudged]) -> None:
    write_json_lines(path, map(asdict, failures))


# --- numbers ----------------------------------------------------------------------------------------


def _blocks(lists: Lists, queries: Sequence[str], candidates: Sequence[str]) -> Iterator[Scores]:
    """Scores of some queries at a time, ``(block, candidates)``, columns in tie order."""
    place = np.empty(len(candidates), dtype=np.int64)
    place[tie_order(candidates)] = np.arange(len(candidates))
    size = max(1, _BLOCK_BYTES // max(4 * len(candidates), 1))
    for start in range(0, len(queries), size):
        mine = queries[start : start + size]
        scores = np.full((len(mine), len(candidates)), ABSENT, dtype=np.float32)
        for row, query in enumerate(mine):
            columns, values = lists.of[query]
            scores[row, place[columns]] = values
        yield scores


def _side(ids: Sequence[str]) -> Embedded:
    """A side that is ranked from lists: its vectors, ``(items, 0)``, are not looked at."""
    return Embedded(ids, np.empty((len(ids), 0), dtype=np.float32))


def _metrics(direction: Direction) -> dict[str, Any]:
    return {name: asdict(score) for name, score in direction.metrics.items()}


def _differences(scored: Mapping[str, Direction], options: Options) -> list[dict[str, Any]]:
    """Each row against the single stage, metric by metric; a metric's rows are one family for Holm."""
    rows = [name for name in scored if name != SINGLE]
    tested = [name for name in scored[SINGLE].per_query if name not in MEDIANS]
    cases = [(metric, row) for metric in tested for row in rows]
    found = paired_differences(
        [(scored[SINGLE].per_query[metric], scored[row].per_query[metric]) for metric, row in cases],
        seed=options.seed,
        kind=options.interval,
    )
    told = []
    for start in range(0, len(cases), len(rows)):
        family = found[start : start + len(rows)]
        adjusted = holm([one.p for one in family])
        for (metric, row), one, by_holm in zip(
            cases[start : start + len(rows)], family, adjusted, strict=True
        ):
            told.append({"metric": metric, "row": row, **asdict(one), "holm": float(by_holm)})
    return told
