"""What is asked of an index that is to be built: the options of the verb, checked before anything slow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.disk_space import in_words
from vidvec_msg.retrieval.indexes.estimate import Estimate, estimate_build, memory_for_index
from vidvec_msg.retrieval.indexes.factories import POINTS_PER_LIST, Plan, plan_index, training_points
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index, words_of
from vidvec_msg.retrieval.indexes.folder import key_of
from vidvec_msg.retrieval.indexes.rescoring import OVERSAMPLE, Rescore
from vidvec_msg.runs import digest_of

_SAMPLE = 100_000  # vectors that train an index without lists
_POINTS = 64  # training vectors per centroid: FAISS asks for 39 and uses at most 256


@dataclass(frozen=True, slots=True)
class Request:
    """How an index is to be built; the options of the verb, which has their meaning.

    Args:
        factory: a FAISS factory string, or "auto".
        memory: of the opened index, such as "8GB"; empty: half of the machine's.
        recall: recall@10 that the search parameters are chosen for.
        recall_queries: a vectors folder of queries to measure with; None: vectors of the index.
        truncate_dim: dimensions that are indexed; 0: all.
        rescore: how full vectors are kept for exact rescoring.
        oversample: candidates per wanted result that are rescored; 0: the default.
    """

    factory: str = "auto"
    memory: str = ""
    recall: float = 0.95
    recall_queries: Path | None = None
    truncate_dim: int = 0
    rescore: Rescore = "none"
    oversample: int = 0

    def plan(self, count: int, dim: int) -> Plan:
        """What will be built of so many vectors.

        Raises:
            RefusedRequest: an option is out of range or without effect, FAISS does not take the factory
                string, or the index would be larger than the memory named.
        """
        self.refuse_bad_options(dim)
        held = self.truncate_dim or dim
        refuse_bad_factory(self.factory, held)
        memory, allowed = memory_for_index(self.memory)
        plan = plan_index(
            self.factory,
            count,
            held,
            memory=memory,
            recall=self.recall,
            rescored=self.rescore != "none",
            allowed=allowed,
        )
        return replace(plan, truncate_dim=self.truncate_dim)

    def estimate(self, plan: Plan, count: int, dim: int, shard_rows: int) -> Estimate:
        """What that will take.

        Raises:
            RefusedRequest: it is more than ``memory``, given for a factory string.
        """
        estimate = estimate_build(
            plan.factory,
            count,
            plan.truncate_dim or dim,
            full_dim=dim,
            rescore=self.rescore if self.rescores(plan) else "none",
            sample=sample_size(plan.factory, count),
            shard_rows=min(shard_rows, count),
        )
        if self.memory and self.factory != "auto" and estimate.index > memory_for_index(self.memory)[0]:
            raise RefusedRequest(
                f"--memory {self.memory}: an opened index of factory {plan.factory!r} takes about "
                f"{in_words(estimate.index)} for {count:,} vectors; give more, a smaller factory, or auto."
            )
        return estimate

    def rescores(self, plan: Plan) -> bool:
        """Whether full vectors are kept: not where the index has them and compares all."""
        return self.rescore != "none" and (plan.factory != "Flat" or plan.truncate_dim > 0)

    def key(self, folder: VectorsFolder) -> str:
        """Changes with everything that decides the index."""
        key, usual = key_of(folder, self.factory), Request()
        queries = None if self.recall_queries is None else key_of(VectorsFolder.open(self.recall_queries), "")
        more = [self.memory, self.recall, queries, self.truncate_dim, self.rescore, self.oversample]
        same = [usual.memory, usual.recall, None, usual.truncate_dim, usual.rescore, usual.oversample]
        return key if more == same else digest_of([key, more])

    @property
    def candidates(self) -> int:
        """Results of the index per wanted one that are rescored."""
        return self.oversample or OVERSAMPLE

    def refuse_bad_options(self, dim: int) -> None:
        """Refuses options that are out of range or without effect, all in one message.

        Raises:
            RefusedRequest: with each of them.
        """
        problems = Problems("index")
        if not 0 < self.recall <= 1:
            problems.add(f"--recall {self.recall:g}: give a share above 0 and at most 1, such as 0.95")
        try:
            memory_for_index(self.memory)
        except RefusedRequest as refused:
            problems.add(str(refused))
        if self.truncate_dim and not 0 < self.truncate_dim < dim:
            problems.add(
                f"--truncate_dim {self.truncate_dim}: the vectors have {dim} dimensions; give a number from "
                f"1 to {dim - 1}, or leave it out to keep all"
            )
        if self.rescore not in get_args(Rescore):
            problems.add(f"--rescore {self.rescore}: give one of {', '.join(get_args(Rescore))}")
        if self.oversample < 0:
            problems.add(f"--oversample {self.oversample}: give the candidates per wanted result, 1 or more")
        if self.oversample and self.rescore == "none":
            problems.add(f"--oversample {self.oversample}: without effect unless --rescore keeps vectors")
        if self.factory == "Flat" and not self.truncate_dim:
            if self.rescore != "none":
                problems.add(f"--rescore {self.rescore}: without effect on Flat, whose scores are exact")
            if self.recall_queries is not None:
                problems.add("--recall_queries: without effect on Flat, which finds everything")
        problems.refuse_if_any()


def refuse_bad_factory(factory: str, dim: int) -> None:
    """Refuses a factory string that FAISS does not take for this dimension and the inner product.

    Raises:
        RefusedRequest: with FAISS's own words.
    """
    if factory == "auto":
        return
    try:
        empty_index(factory, dim)
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS does not take factory {factory!r} for {dim} dimensions and cosine ({words_of(error)}); "
            "give auto, or a string such as Flat, HNSW32,Flat, IVF1024,Flat or IVF1024,PQ48 "
            "(the number after PQ divides the dimensions)."
        ) from error


def sample_size(factory: str, count: int) -> int:
    """How many of ``count`` vectors train an index."""
    return min(count, max(_SAMPLE, training_points(factory) // POINTS_PER_LIST * _POINTS))
