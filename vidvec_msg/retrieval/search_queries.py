"""Many queries, from a file or as vectors → a TREC run, or JSON lines; in bounded memory.

A file is read twice: once to check all of it before anything slow begins, once to answer it, a batch at a
time.
"""

from __future__ import annotations

import codecs
import itertools
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Prepares, Vectors
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import missing_media
from vidvec_msg.formats.item_file import ItemFile
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.trec import run_writer
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.cosine import unit_vectors
from vidvec_msg.retrieval.embed import allowed_failures
from vidvec_msg.retrieval.encoding import items_per_call
from vidvec_msg.retrieval.index_folder import refuse_foreign_embedder
from vidvec_msg.retrieval.progress import progress
from vidvec_msg.retrieval.searchable import Searchable
from vidvec_msg.retrieval.searcher import Found, Searcher, Wanted
from vidvec_msg.runs import replacing

log = logging.getLogger(__name__)

STDIN = Path("-")
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


@dataclass(frozen=True, slots=True)
class Queries:
    """The checked queries of a file. Make them with :func:`checked_queries`.

    Args:
        items: the queries, left in their file.
        failures: those that cannot be asked, by id: their media is missing, or not the embedder's.
    """

    items: ItemFile
    failures: Mapping[str, Failure]


@contextmanager
def checked_queries(path: Path, card: EmbedderCard, *, max_failures: float) -> Iterator[Queries]:
    """Reads a whole file once and says what is in it.

    Args:
        path: .jsonl with rows as in queries.jsonl, .txt with one text a line (each is called after its line,
            from 1), or ``-`` for either on stdin.
        card: of the embedder that the queries are for.
        max_failures: queries that may fail: a count, or a share of all if below 1.

    Yields:
        the queries; those of stdin or of texts lie in a copy, which goes when the block ends.

    Raises:
        RefusedRequest: faulty rows, ids that are not unique, no query at all, or more queries than may fail
            whose media is missing or which the embedder does not take.
    """
    problems = Problems(f"queries {path}")
    with tempfile.TemporaryDirectory(prefix="queries.") as folder:
        copy = Path(folder) / "queries.jsonl"
        if path == STDIN:
            found, root = _rows_of_stdin(copy, problems), Path.cwd()
        elif path.suffix == ".txt":
            with path.open("rb") as stream:
                found, root = _rows_of_lines(stream, copy, problems), Path.cwd()
        else:
            found, root = path, path.resolve().parent
        problems.refuse_if_any()
        items = ItemFile.open(found, root, problems)
        if not items and not problems.found:
            problems.add("it holds no query")
        problems.refuse_if_any()
        yield Queries(items, _failures_known_before(items, card, max_failures))


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
    if path.is_dir():
        folder = VectorsFolder.open(path)
        names, shards = itertools.chain.from_iterable(folder.ids_by_shard()), folder.shards()
    else:
        matrix = _matrix(path, index.card.dim)
        names, shards = iter(map(str, range(len(matrix)))), iter([matrix])
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
                raise TooManyFailures(f"{which} {done} queries failed: {_summary(told, failures)}")
    where = "" if run is None else f", the run is {run}"
    nothing = f" ({empty} found nothing)" if empty else ""
    log.info("%d queries answered%s, %d failed%s", done - failures, nothing, failures, where)
    if failures > allowed:
        reasons = "" if run is None else f"; the reasons are in {failures_file(run)}"
        raise TooManyFailures(
            f"{failures} of {done} queries failed and {allowed} may (max_failures): "
            f"{_summary(told, failures)}{reasons}. The others are answered."
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
    if not (0 <= max_failures < 1 or (max_failures >= 1 and float(max_failures).is_integer())):
        problems.add(
            f"max_failures is {max_failures}; it must be a count (0, 1, 2, …) or a share below 1 (0.01)"
        )
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


def _rows_of_stdin(copy: Path, problems: Problems) -> Path:
    """A copy of stdin as rows; lines that do not begin with a brace are texts."""
    original = copy.with_name("stdin")
    with original.open("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    with original.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
        if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
            return original
        stream.seek(0)
        return _rows_of_lines(stream, copy, problems)


def _rows_of_lines(stream: BinaryIO, copy: Path, problems: Problems) -> Path:
    """One row a text, called after its line."""
    with copy.open("w", encoding="utf-8") as rows:
        for number, line in enumerate(stream, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                problems.add(f"line {number} is not UTF-8 ({error.reason})")
                continue
            if text:
                rows.write(json.dumps({"_id": str(number), "text": text}, ensure_ascii=False) + "\n")
    return copy


def _failures_known_before(items: ItemFile, card: EmbedderCard, max_failures: float) -> dict[str, Failure]:
    """Queries that need no model to be seen to fail, if they are few enough."""
    if items.modalities <= {"text"} and "text" in card.modalities:
        return {}
    failures: dict[str, Failure] = {}
    for item in items:
        if item.modality not in card.modalities:
            reason = f"it is of modality {item.modality!r}; {card.name} takes {', '.join(card.modalities)}"
            failures[item.id] = Failure(item.id, reason)
        else:
            failures |= {failure.item: failure for failure in missing_media([item])}
    allowed = allowed_failures(max_failures, len(items))
    if len(failures) > allowed:
        problems = Problems(
            f"{len(failures)} of {len(items)} queries cannot be asked and {allowed} may fail (max_failures)"
        )
        for failure in failures.values():
            problems.add(f"{failure.item}: {failure.reason}")
        problems.refuse_if_any()
    return failures


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


def _summary(told: list[Failure], count: int) -> str:
    shown = "; ".join(f"{failure.item}: {failure.reason}" for failure in told)
    return f"{shown}; … and {count - len(told)} more" if count > len(told) else shown
