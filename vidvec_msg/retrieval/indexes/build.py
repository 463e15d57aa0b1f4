"""A vectors folder → an index folder: planned, trained on a sample, filled, measured, put in place."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.vectors import IDS, VectorsFolder
from vidvec_msg.retrieval.disk_space import in_words, told_when_full
from vidvec_msg.retrieval.indexes.estimate import Estimate, refuse_without_room
from vidvec_msg.retrieval.indexes.factories import Plan
from vidvec_msg.retrieval.indexes.faiss_engine import (
    Lists,
    add,
    centroids_on_gpu,
    empty_index,
    is_exact,
    nearest_lists,
    reserve,
    reserve_lists,
    scores_of,
    set_parameters,
    takes_lists,
    train,
    words_of,
    write_index,
)
from vidvec_msg.retrieval.indexes.folder import (
    EXACT,
    FORMAT,
    INDEX,
    MANIFEST,
    SegmentEntry,
    checked_card,
    is_complete,
    put_in_place,
)
from vidvec_msg.retrieval.indexes.items import copy_items
from vidvec_msg.retrieval.indexes.request import Request, sample_size
from vidvec_msg.retrieval.indexes.rescoring import ExactVectors
from vidvec_msg.retrieval.indexes.tuning import (
    Measurement,
    Neighbours,
    Sample,
    checked_rows,
    given_sample,
    open_queries,
    own_rows,
    own_sample,
    stored_rows,
    tell_recall,
    tune,
)
from vidvec_msg.retrieval.indexes.unit_shards import shortened, unit_shards
from vidvec_msg.retrieval.progress import progress
from vidvec_msg.runs import only_writer, require_new, software_versions, write_json

__all__ = ["VECTORS", "build_index", "fill", "refuse_bad_build", "sample_size"]

log = logging.getLogger(__name__)

VECTORS = "vectors"  # where the verb index keeps the vectors that it makes itself

Watch = Callable[[Vectors], None]


def build_index(vectors: Path, out: Path, **options: Any) -> Path:
    """Builds an index folder from a vectors folder.

    Memory holds the index, two shards, and the sample that trains an index with lists or codes. Vectors are
    checked (finite, of norm 1) and normalised in float32, so that the inner product is the cosine. An index
    that is not exact is measured, and its search parameters are chosen by that. A complete index of the same
    vectors and options is returned as it is.

    Args:
        vectors: the vectors folder.
        out: the index folder to make: new or empty, but for ``vectors`` itself, which may lie in it.
        options: of :class:`Request`: factory, memory, recall, recall_queries, truncate_dim, rescore,
            oversample.

    Returns:
        ``out``.

    Raises:
        RefusedRequest: the vectors are incomplete or damaged, an option is wrong, FAISS does not take the
            factory string, the disk has no room, another process is building there, or ``out`` holds
            something else.
        JobFailed: the disk was full on the way.
    """
    request = Request(**options)
    folder = VectorsFolder.open(vectors)
    request.refuse_bad_options(folder.dim)
    key = request.key(folder)
    if is_complete(out, key):
        log.info("index %s is complete already", out)
        return out
    inside = (out / VECTORS).resolve() == vectors.resolve()
    require_new(out, option="--out", resumable=VECTORS if inside else None)
    card = checked_card(folder)
    if request.recall_queries is not None:
        open_queries(request.recall_queries, card)  # before the slow part
    plan = request.plan(folder.count, folder.dim)
    estimate = request.estimate(plan, folder.count, folder.dim, max(shard.rows for shard in folder.files))
    refuse_without_room(out, estimate)
    tell_plan(plan, estimate)
    left = "Nothing of the index was kept; the vectors are as they were."
    with _only_build(out), put_in_place(out) as staged, told_when_full(out, f"--out {out}", left):
        made = _make(request, plan, folder, staged)
        checksums = {**made.checksums, IDS: copy_items(vectors / IDS, staged / IDS)}
        described = {
            **_described(request, plan, folder, card, made),
            "estimate": estimate.to_dict(),
            "key": key,
            "checksums": checksums,
            "sizes": {name: (staged / name).stat().st_size for name in checksums},
            "versions": software_versions(),
        }
        write_json(staged / MANIFEST, described)
    log.info("index of %d vectors (%s) in %s", folder.count, plan.factory, out)
    return out


def refuse_bad_build(out: Path, count: int, card: EmbedderCard, shard_size: int, **options: Any) -> None:
    """Refuses what :func:`build_index` would refuse, before vectors are made for it.

    Args:
        out: the index folder.
        count: items that will be embedded.
        card: of the embedder.
        shard_size: items per shard.
        options: of :class:`Request`.

    Raises:
        RefusedRequest: an option is wrong, or there is no room on the disk for the index.
    """
    request = Request(**options)
    plan = request.plan(count, card.dim)
    if request.recall_queries is not None:
        open_queries(request.recall_queries, card)
    if count:
        refuse_without_room(out, request.estimate(plan, count, card.dim, shard_size))


def tell_plan(plan: Plan, estimate: Estimate) -> None:
    """Logs what will be built, why, and what it will take."""
    log.info("index: %s (%s)", plan.factory, plan.reason)
    log.info(
        "estimate: %s on disk, %s of memory when opened, %s while building",
        in_words(estimate.disk),
        in_words(estimate.index),
        in_words(estimate.building),
    )


def fill(plan: Plan, folder: VectorsFolder, *, watches: Sequence[Watch] = ()) -> Any:
    """Trains and fills an index, shard by shard.

    Args:
        plan: what to build.
        folder: the vectors.
        watches: each is given every shard on its way, (rows, dim) float32 of norm 1, in full length.

    Returns:
        the FAISS index.

    Raises:
        RefusedRequest: a shard or a vector is bad, or FAISS cannot build this index of so many vectors.
    """
    dim = plan.truncate_dim or folder.dim
    filled = empty_index(plan.factory, dim)
    try:
        if not filled.is_trained:
            chosen = own_rows(folder, sample_size(plan.factory, folder.count), seed=0)
            sample = shortened(checked_rows(folder, chosen), dim)  # (points, dim)
            log.info("training %s on %d vectors", plan.factory, len(sample))
            train(filled, sample)
            del sample
        if takes_lists(filled):
            _fill_lists(filled, folder, dim, watches)
        else:
            reserve(filled, folder.count)
            with progress("index", folder.count, done=0, log=log) as tell:
                for rows in unit_shards(folder):  # (rows, dim)
                    _show(rows, watches)
                    add(filled, shortened(rows, dim))
                    tell(filled.ntotal, 0)
                    del rows  # before the next one comes
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS cannot fill an index of factory {plan.factory!r} with {folder.count} vectors "
            f"({words_of(error)}); give auto, or another factory."
        ) from error
    set_parameters(filled, plan.search_parameters)
    return filled


def _fill_lists(filled: Any, folder: VectorsFolder, dim: int, watches: Sequence[Watch]) -> None:
    """Fills inverted lists in two passes: which list each vector goes to; then, room made, the vectors.

    Lists that grow while they are filled hold up to twice what is in them; here memory ends at the index.
    """
    centroids = centroids_on_gpu(filled)
    lists: list[Lists] = []
    with progress("index: lists", folder.count, done=0, log=log) as tell:
        for rows in unit_shards(folder):
            _show(rows, watches)
            lists.append(nearest_lists(filled, shortened(rows, dim), centroids))
            tell(sum(map(len, lists)), 0)
            del rows  # before the next one comes
    reserve_lists(filled, np.bincount(np.concatenate(lists)))
    with progress("index: codes", folder.count, done=0, log=log) as tell:
        shards = unit_shards(folder, verify=False, ahead=2)  # verified in the first pass
        for rows, part in zip(shards, lists, strict=True):
            add(filled, shortened(rows, dim), part)
            tell(filled.ntotal, 0)
            del rows


def _show(rows: Vectors, watches: Sequence[Watch]) -> None:
    for watch in watches:
        watch(rows)


@dataclass(frozen=True, slots=True)
class _Made:
    """What came of a build, for the manifest.

    Args:
        checksums: of the files written.
        search_parameters: as they are stored in the index.
        scores: what the results' scores are: "cosine", "approximate" or "transformed".
        recall: as it was measured; None for an exact index.
    """

    checksums: dict[str, str]
    search_parameters: str
    scores: str
    recall: dict[str, Any] | None


def _make(request: Request, plan: Plan, folder: VectorsFolder, staged: Path) -> _Made:
    """Fills an index, measures it, and writes its files into ``staged``."""
    rescored = request.rescores(plan)
    oversample = request.candidates if rescored else 1
    empty = empty_index(plan.factory, plan.truncate_dim or folder.dim)
    exact = is_exact(empty) and not plan.truncate_dim
    sample = None if exact or folder.count < 2 else _sample(request, folder)
    neighbours = None if sample is None else Neighbours(sample)
    checksums = {}
    with ExitStack() as stack:
        watches: list[Watch] = [] if neighbours is None else [neighbours.add]
        if rescored:
            full = ExactVectors(staged / EXACT, folder.count, folder.dim, request.rescore)
            watches.append(stack.enter_context(full).add)
        filled = fill(plan, folder, watches=watches)
    if rescored:
        checksums[EXACT] = full.checksum
    recall = None
    if sample is not None and neighbours is not None:
        measurement = Measurement(
            filled,
            sample,
            neighbours.found(),
            oversample,
            shorten=partial(shortened, dim=plan.truncate_dim or folder.dim),
            exact=partial(stored_rows, folder),
            parameters=plan.search_parameters,
        )
        recall = tune(measurement, request.recall)
        tell_recall(recall)
    parameters = recall["search_parameters"] if recall is not None else plan.search_parameters
    scores = "cosine" if rescored else "approximate" if plan.truncate_dim else scores_of(empty)
    checksums[INDEX] = write_index(filled, staged / INDEX)
    return _Made(checksums, parameters, scores, recall)


def _described(
    request: Request, plan: Plan, folder: VectorsFolder, card: EmbedderCard, made: _Made
) -> dict[str, Any]:
    """What ``index.json`` says of an index and of the vectors in it."""
    return {
        "format": FORMAT,
        "engine": "faiss",
        "generation": 1,
        "card": card.to_dict(),
        "fingerprint": card.fingerprint,
        "embedder": folder.manifest.get("embedder"),
        "role": folder.manifest.get("role"),
        "side": folder.manifest.get("side"),
        "factory": plan.factory,
        "factory_asked": request.factory,
        "factory_reason": plan.reason,
        "search_parameters": made.search_parameters,
        "metric": "cosine" if made.scores != "transformed" else "inner product of transformed vectors",
        "scores": made.scores,
        "count": folder.count,
        "dim": folder.dim,
        "segments": [_segment(request, plan, folder.count, made).to_dict()],
        "deleted": None,
        "recall": made.recall,
    }


def _sample(request: Request, folder: VectorsFolder) -> Sample:
    if request.recall_queries is None:
        return own_sample(folder)
    return given_sample(open_queries(request.recall_queries, EmbedderCard.from_dict(folder.card)))


def _segment(request: Request, plan: Plan, count: int, made: _Made) -> SegmentEntry:
    rescored = EXACT in made.checksums
    return SegmentEntry(
        INDEX,
        IDS,
        count,
        plan.factory,
        made.search_parameters,
        truncate_dim=plan.truncate_dim or None,
        vectors=EXACT if rescored else None,
        oversample=request.candidates if rescored else None,
    )


@contextmanager
def _only_build(out: Path) -> Iterator[None]:
    """Lets one process at a time build into a folder, and sweeps what a killed one left beside it.

    Raises:
        RefusedRequest: another process is building there; it is named.
    """
    lock = out.parent / f".{out.name}.building"
    lock.mkdir(parents=True, exist_ok=True)
    with only_writer(lock, what=f"--out {out}"):
        try:
            for left in out.parent.glob(f".{escape(out.name)}.*.partial"):
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            shutil.rmtree(lock, ignore_errors=True)
