"""The verb ``evaluate``: a collection and an embedder → an evaluation folder with both directions."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.retrieval.benchmarks.published import published_for
from vidvec_msg.retrieval.config_file import claim, refuse_other
from vidvec_msg.retrieval.evaluation.cached_digests import digests_of_cache
from vidvec_msg.retrieval.evaluation.chance import SIMULATED
from vidvec_msg.retrieval.evaluation.directions import (
    Evaluation,
    Options,
    Pool,
    Unreachable,
    evaluate_vectors,
)
from vidvec_msg.retrieval.evaluation.divergence import most_diverging
from vidvec_msg.retrieval.evaluation.dual_softmax import CHOSEN_BY, NOTE
from vidvec_msg.retrieval.evaluation.folder import tables_for_stdout, write_folder
from vidvec_msg.retrieval.evaluation.held_apart import contents_of
from vidvec_msg.retrieval.evaluation.intervals import Kind
from vidvec_msg.retrieval.evaluation.scoring import (
    direction_parts,
    dual_softmax_parts,
    score_sides,
)
from vidvec_msg.retrieval.evaluation.sides import Made, Sides, embed_sides
from vidvec_msg.retrieval.evaluation.validation import validation_sides
from vidvec_msg.retrieval.evaluation.vector_cache import NONE, USER
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS, parse_metrics
from vidvec_msg.runs import read_json, software_versions

if TYPE_CHECKING:
    from vidvec_msg.embedders.contract import Embedder

__all__ = [
    "Evaluated",
    "Evaluation",
    "evaluate",
    "evaluate_collection",
    "evaluate_vectors",
    "read_report",
]

log = logging.getLogger(__name__)

FORMAT = 1


def evaluate(
    collection: Path,
    embedder: str,
    out: Path,
    *,
    split: str = "test",
    metrics: list[str] | None = None,
    pool: Pool = "corpus",
    exclude_self: bool = False,
    unreachable: Unreachable = "refuse",
    depth: int = 1000,
    batch_size: int = 0,
    max_failures: float = 0,
    seed: int = 0,
    pictures: bool = True,
    interval: Kind = "percentile",
    confusion: str = "topic",
    dual_softmax: str | None = None,
    rerank: str | None = None,
    rerank_depth: int | Literal["zero-shot", "fitted"] = "zero-shot",
    rerank_validation: str | None = None,
    cache: str = USER,
    json: bool = False,
) -> Path:
    """Measures an embedder on a collection in both directions, with intervals and the level of chance.

    Writes a folder with report.html (to look at), report.json and report.md, runs and qrels that trec_eval
    reads, and the values of every query. An interrupted evaluation goes on where it stopped.

    Args:
        collection: folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv (any BEIR folder is one).
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        out: the evaluation folder to make.
        split: which qrels/SPLIT.tsv is used.
        metrics: names as ranx writes them (recall@10, precision@5, map@100, mrr@10, ndcg@10, r-precision,
            ...), ndcg_binary@10, mean_rank, median_rank; by default recall and hit_rate at 1, 5 and 10, mrr,
            ndcg at 5 and 10, and map.
        pool: candidates of the forward direction: the whole "corpus", or only the documents that the "split"
            names. The reverse direction always ranks the queries that the split names.
        exclude_self: leave a candidate out for the query of the same id (where both sides share items).
        unreachable: "refuse" judgements of items that the collection lacks, or "keep" them as never found.
        depth: ranks that count as retrieved, and the length of the lists in runs/.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).
        seed: of the bootstrap that gives the intervals.
        pictures: show frames of the clips in report.html (they are decoded once more).
        interval: bootstrap interval: "percentile", or "bca" (bias-corrected and accelerated).
        confusion: the group whose values make the confusion matrices, where items carry it.
        dual_softmax: add a second set of numbers, with dual softmax, which sees all queries at once. The
            temperatures are chosen on other queries, named here: a split of the collection, or FOLDER:SPLIT.
        rerank: add rows with the top of the lists judged pair by pair: mllm:MODEL, tinyworld, st-cross:FOLDER
            or endpoint:MODEL (docs/rerank.md). What else can be chosen there, the verb rerank has.
        rerank_depth: candidates of each query that are judged: a number, "zero-shot" (100) or "fitted" (10).
        rerank_validation: queries on which the reranker's temperature and its weight in a fusion are chosen:
            a split of the collection, or FOLDER:SPLIT.
        cache: vectors that were made before are taken from here, by content: "user" for the user's cache
            folder, a folder, or "none".
        json: print report.json instead of the tables.

    Returns:
        the evaluation folder.

    Raises:
        RefusedRequest: something is wrong with the request or the collection; nothing was written.
        TooManyFailures: the folder was written, with more failed items than allowed.
    """
    done = evaluate_collection(
        collection, embedder, out, split=split, metrics=metrics, pool=pool, exclude_self=exclude_self,
        unreachable=unreachable, depth=depth, batch_size=batch_size, max_failures=max_failures, seed=seed,
        pictures=pictures, interval=interval, confusion=confusion, dual_softmax=dual_softmax,
        rerank=rerank, rerank_depth=rerank_depth, rerank_validation=rerank_validation, cache=cache,
    )  # fmt: skip
    sys.stdout.write(
        dumps(done.report, ensure_ascii=False, indent=2) + "\n" if json else tables_for_stdout(done.report)
    )
    log.info("evaluation in %s: open %s", out, out / "report.html")
    done.refuse_too_many_failures()
    return out


@dataclass(frozen=True)
class Evaluated:
    """A finished evaluation.

    Args:
        folder: the evaluation folder.
        report: the content of its ``report.json``.
        evaluation: the numbers of both directions, per query too.
        queries: items of the queries' side that took part.
        corpus: items of the corpus that took part.
        qrels: judgements of the split.
        seconds: spent on "embed" and on "evaluate".
        failed: items without a vector.
        allowed: how many of them may fail.
        failed_pairs: pairs without a judgement, where a reranker was asked.
        allowed_pairs: how many of them may fail.
    """

    folder: Path
    report: dict[str, Any]
    evaluation: Evaluation
    queries: tuple[Item, ...]
    corpus: tuple[Item, ...]
    qrels: Qrels
    seconds: dict[str, float]
    failed: int
    allowed: int
    failed_pairs: int = 0
    allowed_pairs: int = 0

    def refuse_too_many_failures(self) -> None:
        """Raises TooManyFailures if more items have no vector than may, or more pairs no judgement."""
        if self.failed > self.allowed:
            total = len(self.queries) + len(self.corpus)
            raise TooManyFailures(
                f"{self.failed} of {total} items have no vector and {self.allowed} may (max_failures). The "
                f"report in {self.folder} was written: queries among them were skipped, documents count as "
                f"never found; the reasons are in {self.folder / 'vectors'}/*/failures.jsonl."
            )
        if self.failed_pairs > self.allowed_pairs:
            raise TooManyFailures(
                f"{self.failed_pairs} of {self.report['reranked']['pairs']} pairs could not be judged and "
                f"{self.allowed_pairs} may (max_failures). The report in {self.folder} was written: such "
                "candidates stand behind the judged ones in their old order; the reasons are in "
                f"{self.folder / 'reranked'}/failures.jsonl."
            )


def evaluate_collection(
    collection: Path,
    embedder: str,
    out: Path,
    *,
    split: str = "test",
    metrics: Sequence[str] | None = None,
    pool: Pool = "corpus",
    exclude_self: bool = False,
    unreachable: Unreachable = "refuse",
    depth: int = 1000,
    batch_size: int = 0,
    max_failures: float = 0,
    seed: int = 0,
    pictures: bool = True,
    interval: Kind = "percentile",
    confusion: str = "topic",
    dual_softmax: str | None = None,
    rerank: str | None = None,
    rerank_depth: int | Literal["zero-shot", "fitted"] = "zero-shot",
    rerank_validation: str | None = None,
    cache: str = NONE,
) -> Evaluated:
    """What :func:`evaluate` does, for programs: the same folder and arguments, and the numbers in hand.

    It prints nothing, caches nothing unless told, and leaves it to the caller to
    :meth:`~Evaluated.refuse_too_many_failures`.

    Raises:
        RefusedRequest: as there.
    """
    from vidvec_msg.retrieval.embed import allowed_failures, refuse_bad_request, refuse_missing_media
    from vidvec_msg.retrieval.reranking.second_stage import second_stage  # it reads what this module writes

    names = list(metrics or DEFAULT_METRICS)
    settings = {
        "collection": str(collection), "embedder": embedder, "out": str(out), "split": split,
        "metrics": names, "pool": pool, "exclude_self": exclude_self, "unreachable": unreachable,
        "depth": depth, "batch_size": batch_size, "max_failures": max_failures, "seed": seed,
        "pictures": pictures, "interval": interval, "confusion": confusion, "dual_softmax": dual_softmax,
        "rerank": rerank, "rerank_depth": rerank_depth, "rerank_validation": rerank_validation,
        "cache": cache,
    }  # fmt: skip

    # 1. everything that can be wrong, before a model is loaded
    options = Options(names, depth, exclude_self, unreachable, seed=seed, interval=interval, details=True)
    sides = Sides.of(Collection.load(collection, split=split, unreachable=unreachable), split, pool)
    validation = None if dual_softmax is None else validation_sides(dual_softmax, collection, sides, pool)
    second = second_stage(
        rerank, rerank_depth, options,
        None if rerank_validation is None
        else validation_sides(
            rerank_validation, collection, sides, pool, option="rerank_validation",
            what="temperature and weights of a reranker",
        ),
    )  # fmt: skip
    items = [*sides.corpus, *sides.queries]
    others = [
        side
        for one in (validation, None if second is None else second.validation)
        if one is not None
        for side in (one.corpus, one.queries)
    ]
    for side in (sides.corpus, sides.queries, *others):
        refuse_bad_request(
            side, batch_size=batch_size, shard_size=1, dtype="float32", max_failures=max_failures
        )
    refuse_missing_media(items, max_failures)
    # what these change is checked elsewhere or does not reach the numbers; the folder may have been moved
    free = ("out", "collection", "batch_size", "max_failures", "pictures", "cache")
    refuse_other(out, settings, what="evaluation", free=free)

    # 2. vectors
    from vidvec_msg.embedders.load import load_embedder

    with digests_of_cache(cache):
        contents = contents_of(sides)  # of the clips as they are now: somebody may replace one on the way
    began = time.perf_counter()
    model = load_embedder(embedder)
    claim(out, settings, "report.json")
    made, made_validation, made_second = _embed(
        sides, validation, None if second is None else second.validation, model, embedder, out / "vectors",
        batch_size=batch_size, cache=cache,
    )  # fmt: skip
    embedded = time.perf_counter()

    # 3. numbers, and the lists they come from
    evaluation = score_sides(sides, made, options, pool, out)
    reranked = None if second is None else second.run(sides, made_second, pool, out)

    # 4. what people read
    told_elsewhere = ("dual_softmax", "rerank", "rerank_depth", "rerank_validation")
    kept_out = ("out", "batch_size", "max_failures", "cache", *told_elsewhere)
    report = {
        "format": FORMAT,
        **{key: value for key, value in settings.items() if key not in kept_out},
        "model": made.card,
        "data": sides.identity(),
        "contents": contents,
        "failed": {"corpus": len(made.corpus.failures), "queries": len(made.queries.failures)},
        "chance_simulated": [m.name for m in parse_metrics(names) if m.name in SIMULATED],
        **direction_parts(evaluation, sides, confusion),
        "diverging": [pair.to_dict() for pair in most_diverging(evaluation, sides.qrels, sides.backwards)],
        "dual_softmax": None
        if validation is None or made_validation is None
        else {
            "note": NOTE,
            "validation": dual_softmax,
            "chosen_by": CHOSEN_BY,
            **dual_softmax_parts(sides, made, validation, made_validation, options),
        },
        "reranked": None if reranked is None else reranked.section,
        "published": [row.to_dict() for row in published_for(collection)],
        "versions": software_versions(),
    }
    write_folder(out, report, evaluation, sides, with_pictures=pictures)
    return Evaluated(
        folder=out,
        report=report,
        evaluation=evaluation,
        queries=sides.queries,
        corpus=sides.corpus,
        qrels=sides.qrels,
        seconds={"embed": embedded - began, "evaluate": time.perf_counter() - embedded},
        failed=len(made.corpus.failures) + len(made.queries.failures),
        allowed=allowed_failures(max_failures, len(items)),
        failed_pairs=0 if reranked is None else reranked.failed,
        allowed_pairs=0 if reranked is None else allowed_failures(max_failures, reranked.pairs),
    )


def read_report(folder: Path) -> dict[str, Any]:
    """The ``report.json`` of a complete evaluation folder.

    Raises:
        RefusedRequest: there is none, or it is of another format.
    """
    report = read_json(folder / "report.json", what="evaluation", made_by="vidvec-msg evaluate")
    if report.get("format") != FORMAT:
        raise RefusedRequest(
            f"evaluation {folder} has format {report.get('format')!r}, this version reads {FORMAT}; "
            "evaluate again."
        )
    if not {"forward", "reverse", "model"} <= report.keys():
        raise RefusedRequest(f"{folder} is no evaluation of both directions: `rerank` of a run file is none")
    return report


def _embed(
    sides: Sides,
    validation: Sides | None,
    second: Sides | None,
    model: Embedder,
    spec: str,
    folder: Path,
    *,
    batch_size: int,
    cache: str,
) -> tuple[Made, Made | None, Made | None]:
    """Vectors of the sides, and of those on which dual softmax and a reranker choose what they choose."""
    from vidvec_msg.retrieval.evaluation.vector_cache import cached

    # the two often share their corpus, which is then embedded once: with no other cache, one in memory
    others = {"validation": validation, "rerank_validation": second}
    within = any(one is not None for one in others.values())
    with cached(model, cache, spec=spec, within_the_run=within) as embedder:
        made = embed_sides(sides, embedder, spec, folder, batch_size)
        first, last = (
            None if one is None else embed_sides(one, embedder, spec, folder / name, batch_size)
            for name, one in others.items()
        )
        return made, first, last
