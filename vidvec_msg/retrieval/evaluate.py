"""The verb ``evaluate``: a collection and an embedder → an evaluation folder with both directions."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from vidvec_msg.errors import Problems, RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, reverse
from vidvec_msg.formats.trec import run_writer, write_trec_qrels
from vidvec_msg.retrieval.directions import (
    Embedded,
    Evaluation,
    Options,
    Pool,
    Unreachable,
    check_sides,
    evaluate_vectors,
    score_forward,
    score_reverse,
)
from vidvec_msg.retrieval.groups import add_groups, groups_of_queries
from vidvec_msg.retrieval.metrics import DEFAULT_METRICS
from vidvec_msg.runs import read_json, replacing, require_new, software_versions, write_json

if TYPE_CHECKING:
    from vidvec_msg.embedders.contract import Embedder, Role
    from vidvec_msg.formats.vectors import VectorsFolder

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
        metrics: names as ranx writes them (recall@10, hit_rate@10, ndcg@10, mrr, map, ...); by default
            recall and hit_rate at 1, 5 and 10, mrr, ndcg at 5 and 10, and map.
        pool: candidates of the forward direction: the whole "corpus", or only the documents that the "split"
            names. The reverse direction always ranks the queries that the split names.
        exclude_self: leave a candidate out for the query of the same id (where both sides share items).
        unreachable: "refuse" judgements of items that the collection lacks, or "keep" them as never found.
        depth: ranks that count as retrieved, and the length of the lists in runs/.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).
        seed: of the bootstrap that gives the intervals.
        pictures: show frames of the clips in report.html (they are decoded once more).
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
        pictures=pictures,
    )  # fmt: skip
    sys.stdout.write(
        dumps(done.report, ensure_ascii=False, indent=2) + "\n" if json else _tables(done.report)
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

    def refuse_too_many_failures(self) -> None:
        """Raises TooManyFailures if more items have no vector than may."""
        if self.failed > self.allowed:
            total = len(self.queries) + len(self.corpus)
            raise TooManyFailures(
                f"{self.failed} of {total} items have no vector and {self.allowed} may (max_failures). The "
                f"report in {self.folder} was written: queries among them were skipped, documents count as "
                f"never found; the reasons are in {self.folder / 'vectors'}/*/failures.jsonl."
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
) -> Evaluated:
    """What :func:`evaluate` does, for programs: the same folder and arguments, and the numbers in hand.

    It prints nothing, and leaves it to the caller to :meth:`~Evaluated.refuse_too_many_failures`.

    Raises:
        RefusedRequest: as there.
    """
    from vidvec_msg.retrieval.embed import allowed_failures, refuse_bad_request, refuse_missing_media

    names = list(metrics or DEFAULT_METRICS)
    settings = {
        "collection": str(collection), "embedder": embedder, "out": str(out), "split": split,
        "metrics": names, "pool": pool, "exclude_self": exclude_self, "unreachable": unreachable,
        "depth": depth, "batch_size": batch_size, "max_failures": max_failures, "seed": seed,
        "pictures": pictures,
    }  # fmt: skip

    # 1. everything that can be wrong, before a model is loaded
    options = Options(names, depth, exclude_self, unreachable, seed=seed)
    loaded = Collection.load(collection, split=split, unreachable=unreachable)
    sides = _Sides.of(loaded, split, pool)
    items = [*sides.corpus, *sides.queries]
    for side in (sides.corpus, sides.queries):
        refuse_bad_request(
            side, batch_size=batch_size, shard_size=1, dtype="float32", max_failures=max_failures
        )
    refuse_missing_media(items, max_failures)
    _refuse_other(out, settings)

    # 2. vectors
    from vidvec_msg.embedders.load import load_embedder

    began = time.perf_counter()
    model = load_embedder(embedder)
    _claim(out, settings)
    made = _embed(sides, model, embedder, out / "vectors", batch_size)
    embedded = time.perf_counter()

    # 3. numbers, and the lists they come from
    evaluation = _score(sides, made, options, pool, out)

    # 4. what people read
    report = {
        "format": FORMAT,
        **{key: value for key, value in settings.items() if key not in ("out", "batch_size", "max_failures")},
        "model": made.card,
        "failed": {"corpus": len(made.corpus.failures), "queries": len(made.queries.failures)},
        **evaluation.to_dict(),
        "versions": software_versions(),
    }
    _write(out, report, evaluation, sides, with_pictures=pictures)
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
    return report


# --- 1. the request ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sides:
    """The items that take part, and who is right for whom."""

    corpus: tuple[Item, ...]
    queries: tuple[Item, ...]
    qrels: Qrels

    @classmethod
    def of(cls, collection: Collection, split: str, pool: Pool) -> _Sides:
        qrels = collection.qrels[split]
        named = {document for judged in qrels.values() for document in judged}
        corpus = (
            tuple(d for d in collection.corpus if d.id in named) if pool == "split" else collection.corpus
        )
        queries = tuple(query for query in collection.queries if query.id in qrels)
        if not any(grade > 0 for judged in qrels.values() for grade in judged.values()):
            raise RefusedRequest(
                f"split {split!r} of collection {collection.root}: no query has a positive (a score above "
                "0), so there is nothing to measure"
            )
        return cls(corpus, queries, qrels)

    @property
    def backwards(self) -> Qrels:
        return reverse(self.qrels)


def _refuse_other(out: Path, settings: Mapping[str, Any]) -> None:
    """Refuses a folder that is neither new nor begun by the same evaluation."""
    require_new(out, option="out", resumable="config.yaml")
    path = out / "config.yaml"
    # what these change is checked elsewhere or does not reach the numbers; the folder may have been moved
    free = ("out", "collection", "batch_size", "max_failures", "pictures")
    if path.exists():
        before = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        problems = Problems(f"out {out} holds another evaluation; give a new folder, or the same options")
        for key, value in settings.items():
            if key not in free and before.get(key) != value:
                problems.add(f"{key} was {before.get(key)!r} and is {value!r} now")
        problems.refuse_if_any()


def _claim(out: Path, settings: Mapping[str, Any]) -> None:
    """Marks the folder as this evaluation's, incomplete until the end."""
    (out / "report.json").unlink(missing_ok=True)
    with replacing(out / "config.yaml") as temporary:
        temporary.write_text(
            yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True), encoding="utf-8"
        )


# --- 2. vectors -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    """Vectors of both sides, in the role that each direction asks for."""

    queries: Embedded
    corpus: Embedded
    queries_as_documents: Embedded
    corpus_as_queries: Embedded
    card: dict[str, Any]


def _embed(sides: _Sides, embedder: Embedder, spec: str, folder: Path, batch_size: int) -> _Made:
    """Embeds both sides; a second time in the other role if the embedder words roles differently."""

    def vectors(items: Sequence[Item], role: Role, name: str) -> Embedded:
        from vidvec_msg.retrieval.embed import embed_items

        # failures are counted over everything at the end, when the report has been written
        made: VectorsFolder = embed_items(
            items,
            embedder,
            role=role,
            out=folder / name,
            batch_size=batch_size,
            max_failures=len(items),
            spec=spec,
        )
        return Embedded(list(made.ids), np.asarray(made.matrix()), list(made.failures))

    corpus = vectors(sides.corpus, "document", "corpus")
    queries = vectors(sides.queries, "query", "queries")
    as_queries, as_documents = corpus, queries
    if embedder.card.role_prompts:
        asked = {d for d, judged in sides.backwards.items() if any(grade > 0 for grade in judged.values())}
        as_queries = vectors(
            [item for item in sides.corpus if item.id in asked], "query", "corpus_as_queries"
        )
        as_documents = vectors(sides.queries, "document", "queries_as_documents")
    check_sides({"query": queries, "corpus": corpus})
    check_sides({"corpus as query": as_queries, "query as document": as_documents})
    card = {"name": embedder.card.name, "dim": embedder.card.dim, "base_model": embedder.card.base_model}
    return _Made(
        queries, corpus, as_documents, as_queries, {**card, "fingerprint": embedder.card.fingerprint}
    )


# --- 3. numbers -------------------------------------------------------------------------------------


def _score(sides: _Sides, made: _Made, options: Options, pool: Pool, out: Path) -> Evaluation:
    tag = made.card["name"]
    left, right = kind_of(sides.queries), kind_of(sides.corpus)
    if left == right:  # "text → text" would not tell the directions apart
        left, right = f"{left} queries", f"{right} corpus"
    with run_writer(out / "runs" / "forward.trec", tag=tag) as write:
        forward = score_forward(
            made.queries, made.corpus, sides.qrels, options, pool=pool, label=f"{left} → {right}", write=write
        )
    with run_writer(out / "runs" / "reverse.trec", tag=tag) as write:
        backward = score_reverse(
            made.corpus_as_queries,
            made.queries_as_documents,
            sides.qrels,
            options,
            label=f"{right} → {left}",
            write=write,
        )
    own = {item.id: item.groups for item in sides.queries}
    others = {item.id: item.groups for item in sides.corpus}
    forward = add_groups(forward, groups_of_queries(forward, own, others, sides.qrels))
    backward = add_groups(backward, groups_of_queries(backward, others, own, sides.backwards))
    return Evaluation(forward, backward)


def kind_of(items: Sequence[Item]) -> str:
    """What a side is made of, for labels: "video", or "video/text" for a mixed one, the commonest first."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.modality] = counts.get(item.modality, 0) + 1
    return "/".join(sorted(counts, key=lambda kind: -counts[kind]))


# --- 4. the folder ----------------------------------------------------------------------------------


def _write(
    out: Path, report: Mapping[str, Any], evaluation: Evaluation, sides: _Sides, *, with_pictures: bool
) -> None:
    from vidvec_msg.retrieval.report import html_report
    from vidvec_msg.retrieval.tables import markdown_report

    judged = {"forward": sides.qrels, "reverse": sides.backwards}
    for name, direction in (("forward", evaluation.forward), ("reverse", evaluation.reverse)):
        qrels = {query: judged[name][query] for query in direction.query_ids}
        write_trec_qrels(out / "qrels" / f"{name}.trec", qrels)
    write_per_query(out / "per_query.parquet", evaluation)
    for file, text in (
        ("report.md", markdown_report(report)),
        (
            "report.html",
            html_report(report, evaluation, sides.queries, sides.corpus, sides.qrels, with_pictures),
        ),
    ):
        with replacing(out / file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    write_json(out / "report.json", report)  # last: its presence means that the folder is complete


def write_per_query(path: Path, evaluation: Evaluation) -> None:
    """One row per direction and query: ``direction``, ``query``, ``positives``, ``best_rank`` (null if no
    positive is among the candidates), ``tied``, and a column per metric.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for name, direction in (("forward", evaluation.forward), ("reverse", evaluation.reverse)):
        best, counts = direction.gold.best, direction.gold.counts
        columns = {
            "direction": pa.array([name] * len(best), pa.string()),
            "query": pa.array(direction.query_ids, pa.string()),
            "positives": pa.array(counts, pa.int64()),
            "best_rank": pa.array(best, pa.int64(), mask=best == 0),
            "tied": pa.array(direction.gold.tied, pa.bool_()),
        }
        columns |= {metric: pa.array(values, pa.float64()) for metric, values in direction.per_query.items()}
        tables.append(pa.table(columns))
    with replacing(path) as temporary:
        pq.write_table(pa.concat_tables(tables), temporary)


def _tables(report: Mapping[str, Any]) -> str:
    """The tables for stdout: drawn for a terminal, Markdown for a file or a pipe."""
    from vidvec_msg.retrieval.tables import markdown_tables, terminal_tables

    return terminal_tables(report) if sys.stdout.isatty() else markdown_tables(report)
