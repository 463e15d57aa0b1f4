"""The second stage of ``evaluate --rerank``: checked before a model is loaded, run on the lists it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.comparison.evaluated_runs import WAYS
from vidvec_msg.retrieval.evaluation.directions import Pool
from vidvec_msg.retrieval.evaluation.ranked import Options
from vidvec_msg.retrieval.evaluation.scoring import score_sides
from vidvec_msg.retrieval.evaluation.sides import Made, Sides
from vidvec_msg.retrieval.fusing.lists import read_lists
from vidvec_msg.retrieval.reranking.job import Reranked, Settings, rerank_stage
from vidvec_msg.retrieval.reranking.load import check_reranker, load_reranker
from vidvec_msg.retrieval.reranking.stage import DEPTHS, Stage, depth_of, refuse_other_kinds

FOLDER = "reranked"


@dataclass(frozen=True, slots=True)
class SecondStage:
    """What ``evaluate`` was asked to rerank.

    Args:
        spec: of the reranker.
        depth: candidates of each query, or a name of :data:`~vidvec_msg.retrieval.reranking.stage.DEPTHS`.
        options: how lists are scored.
        validation: other queries; None for none.
    """

    spec: str
    depth: int | str
    options: Options
    validation: Sides | None

    def run(self, sides: Sides, validation: Made | None, pool: Pool, out: Path) -> Reranked:
        """Judges the top of the lists in ``out/runs``; judgements and new lists go into ``out/reranked``.

        Args:
            sides: of the test.
            validation: vectors of the other queries.
            pool: candidates of the forward direction.
            out: the evaluation folder.
        """
        folder = out / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        stages = [_stage(sides, out)]
        if self.validation is not None and validation is not None:
            score_sides(self.validation, validation, self.options, pool, folder / "validation")
            stages.append(_stage(self.validation, folder / "validation"))
        depth = max(depth_of(self.depth, one, exclude_self=self.options.exclude_self) for one in stages)
        reranker = load_reranker(self.spec)
        for one in stages:
            refuse_other_kinds(one, reranker.modalities, reranker.name)
        other = stages[1] if len(stages) > 1 else None
        return rerank_stage(stages[0], other, reranker, Settings(depth), self.options, folder, spec=self.spec)


def second_stage(
    spec: str | None, depth: int | str, options: Options, validation: Sides | None
) -> SecondStage | None:
    """The second stage of a request; None if none was asked for.

    Raises:
        RefusedRequest: no such reranker, a depth above that of the lists, or a validation without a reranker.
    """
    if spec is None:
        if validation is not None:
            raise RefusedRequest("rerank_validation chooses for a reranker, and none is given: --rerank SPEC")
        return None
    check_reranker(spec)
    wanted = DEPTHS.get(depth, 0) if isinstance(depth, str) else depth
    if wanted < 1:
        raise RefusedRequest(
            f"rerank_depth is {depth!r}; it is a number of candidates, or {' or '.join(DEPTHS)}"
        )
    if wanted > options.depth:
        raise RefusedRequest(
            f"rerank_depth is {wanted} and the lists have {options.depth} candidates (depth); give a smaller "
            "--rerank_depth or a greater --depth"
        )
    return SecondStage(spec, depth, options, validation)


def _stage(sides: Sides, folder: Path) -> Stage:
    candidates = {
        "forward": [item.id for item in sides.corpus],
        "reverse": [item.id for item in sides.queries],
    }
    return Stage(
        sides,
        {way: read_lists(folder / "runs" / f"{way}.trec", way, candidates[way]) for way in WAYS},
    )
