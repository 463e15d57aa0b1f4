"""Many queries, from a file or as vectors → a TREC run, or JSON lines; a batch at a time."""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Prepares, Vectors
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.trec import run_writer
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.cosine import unit_vectors
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.retrieval.embedding.encoding import items_per_call
from vidvec_msg.retrieval.indexes.folder import refuse_foreign_embedder
from vidvec_msg.retrieval.indexes.searchable import Searchable
from vidvec_msg.retrieval.progress import progress
from vidvec_msg.retrieval.searching.hits import Found, Wanted
from vidvec_msg.retrieval.searching.queries_file import Queries
from vidvec_msg.retrieval.searching.searcher import Searcher
from vidvec_msg.runs import replacing

log = logging.getLogger(__name__)

_VECTORS_PER_CALL = 1024
_RESULTS = 1 << 18  # that are held at once, about 100 bytes each, and 1 kB with their metadata
_SHOWN = 3  # failures that a message spells out
_HOPELESS = 256  # queries; if the first ones all failed, hours more would not help


class Batch(NamedTuple):
    """Consecutive queries, ready to be searched with.

    Args:
        ids: of the queries that have a vector.
        vectors: (len(ids), dim), of norm 1.
        failures: the queries that have none.
    """

    ids: list[str]
    vectors: Vectors
    failures: list[Failure]


def query_batches(queries: Queries, searcher: Searcher, batch_size: int = 0) -> Iterator[Batch]:
    """The queries, embedded in role "query", a batch at a time.

    Args:
        queries: the queries.
        searcher: its embedder is loaded here.
        batch_size: queries per call of the embedder; 0: 1024 texts, or 32 of a file with media.
    """
    embedder, size = searcher.embedder, batch_size or items_per_call(queries.items)
    batches = _pieces(iter(queries.items), size)
    batch = next(batches, [])
    while batch:
        coming = next(batches, [])
        if isinstance(embedder, Prepares):
            embedder.prepare([item for item in (*batch, *coming) if item.id not in queries.failures])
        vectors, ids, failures = searcher.encode(batch, known=queries.failures)
        yield Batch(ids, vectors, failures)
        batch = coming


def count_vectors(path: Path, index: Searchable) -> int:
    """How many query vectors there are, checked as far as that is quick.

    Args:
        path: a vectors folder, or a ``.npy`` file of (queries, dim).
        index: what they are for.

    Raises:
        RefusedRequest: not such a file or folder, another dimension, or another embedder's.
    """
    if path.is_dir():
        folder = VectorsFolder.open(path)
        refuse_foreign_embedder(index.folder, index.card, EmbedderCard.from_dict(folder.card))
        return len(folder.ids)
    return len(_matrix(path, index.card.dim))


def vector_batches(path: Path, index: Searchable, batch_size: int = 0) -> Iterator[Batch]:
    """Query vectors, a batch at a time; those of a ``.npy`` file are called after their row, from 0."""
    size = batch_size or _VECTORS_PER_CALL
    names: Iterator[str]
    if path.is_dir():
        folder = VectorsFolder.open(path)
        names, shards = itertools.chain.from_iterable(folder.ids_by_shard()), folder.shards()
    else:
        matrix = _matrix(path, index.card.dim)
        names, shards = map(str, range(len(matrix))), iter([matrix])
    for shard in shards:
        for first in range(0, len(shard), size):
            rows = shard[first : first + size]
            ids = list(itertools.islice(names, len(rows)))
            yield Batch(ids, unit_vectors(rows, index.card.dim, name=_named(ids)), [])


def answer(
    searcher: Searcher,
    batches: Iterator[Batch],
    wanted: Wanted,
    *,
    count: int,
    run: Path | None = None,
    max_failures: float = 0,
) -> None:
    """Searches with every batch and writes the results as they come.

    Args:
        searcher: what answers.
        batches: the queries.
        wanted: which results.
        count: how many queries there are.
        run: a TREC run file to write, and beside it ``RUN.failures.jsonl`` if a query fails; without it JSON
            lines go to stdout, one a result, or one with "failed" a failed query.
        max_failures: queries that may fail: a count, or a share of all if below 1.

    Raises:
        TooManyFailures: more failed than allowed; the others are answered.
    """
    if wanted.where:
        searcher.index.refuse_no_match(wanted.where)  # before an embedder is loaded for the first batch
    allowed = allowed_failures(max_failures, count)
    done, empty, failures = 0, 0, 0
    told: list[Failure] = []
    with (
        _output(searcher, run) as write,
        progress("search", count, done=0, log=log) as tell,
    ):
        for batch in batches:
            for part in _with_few_results(batch, wanted.k):
                found = searcher.nearest(part.vectors, wanted)
                write(part, found)
                empty += sum(not pairs for pairs in found)
            done += len(batch.ids) + len(batch.failures)
            failures += len(batch.failures)
            told += batch.failures[: _SHOWN - len(told)]
            tell(done, failures)
            if failures == done and (done == count or done >= _HOPELESS > allowed):
                which = "all" if done == count else "the first"
                raise TooManyFailures(f"{which} {done} queries failed: {first_failures(told, failures)}")
    where = "" if run is None else f", the run is {run}"
    nothing = f" ({empty} found nothing)" if empty else ""
    log.info("%d queries answered%s, %d failed%s", done - failures, nothing, failures, where)
    if failures > allowed:
        reasons = "" if run is None else f"; the reasons are in {failures_file(run)}"
        raise TooManyFailures(
            f"{failures} of {done} queries failed and {allowed} may (max_failures): "
            f"{first_failures(told, failures)}{reasons}. The others are answered."
        )


def failures_file(run: Path) -> Path:
    """Where the failed queries of a run are listed."""
    return run.with_name(f"{run.name}.failures.jsonl")


def refuse_bad_batches(*, batch_size: int, max_failures: float) -> None:
    """Refuses options out of their range, all in one message.

    Raises:
        RefusedRequest: with what was given and what is accepted.
    """
    problems = Problems("the queries")
    if batch_size < 0:
        problems.add(
            f"batch_size is {batch_size}; it must be at least 1 (queries per call), or 0 to choose it"
        )
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()


Write = Callable[[Batch, list[Found]], None]


@contextmanager
def _output(searcher: Searcher, run: Path | None) -> Iterator[Write]:
    """What takes each batch's results."""
    if run is None:

        def print_lines(batch: Batch, found: list[Found]) -> None:
            for query, hits in zip(batch.ids, searcher.hits(found), strict=True):
                lines = (json.dumps({"query": query, **hit.to_dict()}, ensure_ascii=False) for hit in hits)
                sys.stdout.writelines(f"{line}\n" for line in lines)
            for one in batch.failures:
                line = json.dumps({"query": one.item, "failed": one.reason}, ensure_ascii=False)
                sys.stdout.write(f"{line}\n")

        yield print_lines
        return
    with ExitStack() as stack:
        write_query = stack.enter_context(run_writer(run, tag=searcher.index.card.name))
        failed: list[IO[str]] = []  # opened at the first failure

        def write(batch: Batch, found: list[Found]) -> None:
            for query, pairs in zip(batch.ids, found, strict=True):
                write_query(query, [name for name, _ in pairs], [score for _, score in pairs])
            if batch.failures and not failed:
                path = stack.enter_context(replacing(failures_file(run)))
                failed.append(stack.enter_context(path.open("w", encoding="utf-8")))
            for one in batch.failures:
                failed[0].write(json.dumps(asdict(one), ensure_ascii=False) + "\n")

        yield write


def _matrix(path: Path, dim: int) -> Vectors:
    """A ``.npy`` file of vectors, mapped; one vector is a matrix of one row."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RefusedRequest(f"--query_vectors {path} is no .npy file: {error}") from error
    matrix: Vectors = found[None] if getattr(found, "ndim", 0) == 1 else found
    if not isinstance(found, np.ndarray) or matrix.ndim != 2 or matrix.shape[1] != dim:
        shape = getattr(found, "shape", None)
        raise RefusedRequest(
            f"--query_vectors {path} has the shape {shape}; the index takes (queries, {dim})."
        )
    if not np.issubdtype(matrix.dtype, np.floating):
        raise RefusedRequest(f"--query_vectors {path} holds {matrix.dtype}; give float32 or float16.")
    return matrix


def _with_few_results(batch: Batch, k: int) -> Iterator[Batch]:
    """A batch in parts whose results fit into memory whatever k is; the failures come with the first."""
    size = max(1, _RESULTS // k)
    failures = batch.failures
    for first in range(0, max(len(batch.ids), 1), size):
        yield Batch(batch.ids[first : first + size], batch.vectors[first : first + size], failures)
        failures = []


def _named(ids: list[str]) -> Callable[[int], str]:
    return lambda row: f"query {ids[row]}"


def _pieces(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while piece := list(itertools.islice(items, size)):
        yield piece
