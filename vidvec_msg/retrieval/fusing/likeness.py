"""Whether scores may be added up, and whether weights chosen on some lists fit others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from vidvec_msg.errors import Problems
from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS, EvaluatedRun
from vidvec_msg.retrieval.fusing.recipe import Recipe
from vidvec_msg.retrieval.reranking.second_stage import FOLDER

log = logging.getLogger(__name__)

_OTHER_POOL = 2  # times as many candidates: below that, the ends of two lists lie near enough


def refuse_two_scales(runs: Sequence[EvaluatedRun], recipe: Recipe) -> None:
    """Refuses to join scores of a run that was reranked in a part of its lists.

    Its judged candidates have the reranker's scores, those behind them even steps that keep their order.

    Args:
        runs: to be joined.
        recipe: how.

    Raises:
        RefusedRequest: naming all such runs.
    """
    if recipe.method == "rrf" or recipe.normalize == "rank":
        return  # only places count
    problems = Problems(
        f"method {recipe.method!r} joins {recipe.normalize} scores, and those of a reranked run mean nothing "
        "below its judged candidates; use --method rrf or --normalize rank, or rerank whole lists"
    )
    for run in runs:
        part = run.report.get("reranked")
        # beside `evaluate --rerank` the reranked lists have a folder of their own; its runs/ are as embedded
        if part is None or (run.folder / FOLDER).is_dir():
            continue
        for way in WAYS:
            listed = _listed(run, way)
            if part["depth"] < listed:
                problems.add(
                    f"{run.folder}: {part['depth']} of {listed} candidates are judged in its {way} lists"
                )
        if part["failed"]:
            problems.add(f"{run.folder}: {part['failed']} pairs could not be judged")
    problems.refuse_if_any()


def refuse_other_lists(runs: Sequence[EvaluatedRun], validation: Sequence[EvaluatedRun]) -> None:
    """Refuses validation whose lists are another part of the ranking than the test's; warns of another pool.

    Scores are normalised over a list: a weight that was chosen on whole lists is another one on their tops.

    Args:
        runs: of the test, of one data and settings.
        validation: likewise.

    Raises:
        RefusedRequest: pool, exclude_self or depth differ, all of them in one message.
    """
    test, other = runs[0], validation[0]
    problems = Problems(
        "weights chosen on these validation runs would not fit; evaluate them as the runs were"
    )
    for key in ("pool", "exclude_self"):
        if test.report[key] != other.report[key]:
            problems.add(
                f"{key} is {test.report[key]!r} in the runs and {other.report[key]!r} in the validation"
            )
    for way in WAYS:
        mine, theirs = (_candidates(one, way) for one in (test, other))
        depths = test.report["depth"], other.report["depth"]
        if depths[0] != depths[1] and not (mine <= depths[0] and theirs <= depths[1]):
            problems.add(
                f"depth is {depths[0]} in the runs and {depths[1]} in the validation: {way} lists of "
                f"{_listed(test, way):,} of {mine:,} candidates, and of {_listed(other, way):,} of {theirs:,}"
            )
    problems.refuse_if_any()
    for way in WAYS:
        mine, theirs = (_candidates(one, way) for one in (test, other))
        if max(mine, theirs) >= _OTHER_POOL * min(mine, theirs):
            log.warning(
                "%s weights are chosen among %s candidates and used among %s: scores are normalised over "
                "another part of the ranking, and the best weights there need not be the best here",
                way, f"{theirs:,}", f"{mine:,}",
            )  # fmt: skip


def _candidates(run: EvaluatedRun, way: str) -> int:
    return int(run.report[way]["candidates"])


def _listed(run: EvaluatedRun, way: str) -> int:
    return min(_candidates(run, way), int(run.report["depth"]))
