"""All segments of an index become one, without what was deleted; the verb ``index-compact``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import Problems
from vidvec_msg.formats.vectors import IDS, Shard, VectorsFolder
from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.build import Watch, fill
from vidvec_msg.retrieval.indexes.changes import (
    changing,
    commit,
    joined,
    of_generation,
    places_of,
    tell_state,
)
from vidvec_msg.retrieval.indexes.codes import empty_like, move_codes, same_training
from vidvec_msg.retrieval.indexes.estimate import estimate_build, refuse_segment_without_room
from vidvec_msg.retrieval.indexes.factories import Plan, plan_index
from vidvec_msg.retrieval.indexes.faiss_engine import add, scores_of, set_parameters, write_index
from vidvec_msg.retrieval.indexes.folder import EXACT, INDEX, REMAKE, SegmentEntry, segments_of
from vidvec_msg.retrieval.indexes.items import Mask, write_items
from vidvec_msg.retrieval.indexes.request import refuse_bad_factory
from vidvec_msg.retrieval.indexes.rescoring import ExactVectors, Rescore
from vidvec_msg.retrieval.indexes.segment import Segment
from vidvec_msg.retrieval.indexes.unit_shards import shortened, unit_shards
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

log = logging.getLogger(__name__)

_BLOCK = 50_000  # vectors that are in memory beside the index


def index_compact(index: Path, *, factory: str = "", wait: float = 0) -> Path:
    """Makes one segment of an index again: faster to search, and deleted items leave the disk.

    Graphs are built anew, inverted lists and codes keep what they were trained on. While it runs, the folder
    holds both. A killed run leaves the index as it was.

    Args:
        index: an index folder.
        factory: another FAISS factory string, or "auto", trained anew; by default the index keeps its own.
        wait: seconds to wait for another process that changes the index; 0 refuses at once.

    Returns:
        the index folder.

    Raises:
        RefusedRequest: the vectors are not in the index any more, only codes that cannot be turned into
            those of the factory, or the disk has no room for it; nothing was changed.
        JobFailed: the disk was full on the way; the index is as it was.
    """
    with changing(index, wait=wait) as manifest:
        entries = segments_of(manifest)
        if len(entries) == 1 and not manifest["deleted"] and factory in ("", entries[0].factory):
            log.info("index %s is one segment without deleted items already", index)
            return index
        opened = VectorIndex.open(index)
        live = np.ones(opened.items.num_rows, np.bool_) if opened.live is None else opened.live
        held = [_gives(segment, entries[0].truncate_dim or 0) for segment in opened.segments]
        if factory == entries[0].factory and not all(held):
            factory = ""  # lossy codes stay what they are; exact vectors may be trained anew
        plan = _plan(opened, factory)
        _refuse_lost_vectors(opened, plan, manifest)
        _refuse_without_room(opened, plan, manifest)
        generation = manifest["generation"] + 1
        entry = SegmentEntry(
            of_generation(INDEX, generation),
            of_generation(IDS, generation),
            len(opened),
            plan.factory,
            plan.search_parameters,
            truncate_dim=plan.truncate_dim or None,
            vectors=of_generation(EXACT, generation) if entries[0].vectors else None,
            oversample=entries[0].oversample,
        )
        files, scores = _write(opened, live, plan, entry, anew=bool(factory))
        changed = {
            **manifest,
            "factory": entry.factory,
            "search_parameters": entry.search_parameters,
            "segments": [entry.to_dict()],
            "deleted": None,
            "recall": None,  # what was measured is not of this index any more
            **joined(manifest, files),
        }
        if factory:
            metric = "cosine" if scores != "transformed" else "inner product of transformed vectors"
            changed |= {
                "factory_asked": factory,
                "factory_reason": plan.reason,
                "scores": scores,
                "metric": metric,
            }
            changed.pop("estimate", None)  # of another index
        commit(index, changed)
        rows = sum(old.count for old in entries)
        log.info("compacted; %d deleted items gone", rows - entry.count)
        tell_state(index, changed)
    return index


def _plan(opened: VectorIndex, factory: str) -> Plan:
    """What will be made: the first segment's kind, or another one for as many vectors."""
    first = opened.segments[0].entry
    held = first.truncate_dim or opened.card.dim
    if not factory:
        return Plan(first.factory, "as it was", first.search_parameters, first.truncate_dim or 0)
    refuse_bad_factory(factory, held)
    return replace(plan_index(factory, len(opened), held), truncate_dim=first.truncate_dim or 0)


def _refuse_lost_vectors(opened: VectorIndex, plan: Plan, manifest: Mapping[str, Any]) -> None:
    """Refuses what would have to be made of vectors that only lossy codes are left of.

    Raises:
        RefusedRequest: naming every segment that stands in the way.
    """
    lossy = [segment for segment in opened.segments if not _gives(segment, plan.truncate_dim)]
    rows = [segment for segment in opened.segments if not _gives(segment, 0)]
    problems = Problems(f"index {opened.folder} cannot be compacted")
    if manifest["segments"][0].get("vectors"):
        for segment in rows:
            problems.add(f"{segment.entry.index} has no exact vectors beside it, as the first segment has")
    elif lossy and not _keeps_codes(opened, plan):
        for segment in lossy:
            problems.add(
                f"{segment.entry.index} ({segment.entry.factory}) holds {len(segment)} vectors as lossy "
                f"codes, which cannot become {plan.factory} with other training"
            )
    if problems.found:
        problems.add(f"make the index again from its vectors folders: `{REMAKE}`")
    problems.refuse_if_any()


def _refuse_without_room(opened: VectorIndex, plan: Plan, manifest: Mapping[str, Any]) -> None:
    """Refuses what the disk has no room for beside the index as it is; warns of too little memory.

    Raises:
        RefusedRequest: with what is needed and what is free.
    """
    entry, stored = opened.segments[0].entry, opened.segments[0].stored
    estimate = estimate_build(
        plan.factory,
        len(opened),
        plan.truncate_dim or opened.card.dim,
        full_dim=opened.card.dim,
        rescore="none" if entry.vectors is None or stored is None else stored.dtype.name,
        sample=0,
        shard_rows=min(_BLOCK, len(opened)),
    )
    paths = places_of(opened.folder, manifest)
    ids = sum(paths[one.ids].stat().st_size for one in segments_of(manifest))
    estimate = replace(estimate, ids=ids * len(opened) // max(opened.items.num_rows, 1))
    what = f"{len(opened):,} vectors, written anew beside the old ones,"
    refuse_segment_without_room(opened.folder, estimate, what)


def _gives(segment: Segment, truncate_dim: int) -> bool:
    """Whether a segment gives back vectors as they were indexed, so many dimensions of them (0: all)."""
    kept = segment.entry.truncate_dim or 0
    return segment.stored is not None or (segment.is_exact and kept in (0, truncate_dim))


def _keeps_codes(opened: VectorIndex, plan: Plan) -> bool:
    """Whether codes of all segments mean the same, in an index of the same kind."""
    entries = [segment.entry for segment in opened.segments]
    kinds = {(entry.factory, entry.truncate_dim or 0) for entry in entries}
    if kinds != {(plan.factory, plan.truncate_dim)}:
        return False
    paths = places_of(opened.folder, opened.manifest)
    dim = plan.truncate_dim or opened.card.dim
    if not same_training([paths[entry.index] for entry in entries], plan.factory, dim):
        return False
    nothing = [(segment.faiss_index, np.zeros(len(segment), np.bool_)) for segment in opened.segments]
    return move_codes(empty_like(paths[entries[0].index], plan.factory, dim), nothing)


def _write(
    opened: VectorIndex, live: Mask, plan: Plan, entry: SegmentEntry, *, anew: bool
) -> tuple[dict[str, dict[str, Any]], str]:
    """Writes the files of the one segment; their checksums and sizes, and what the scores of a search are."""
    index, checksums = opened.folder, {}
    with ExitStack() as stack:
        watches: list[Watch] = []
        if entry.vectors is not None:
            stored = opened.segments[0].stored
            dtype: Rescore = "float16" if stored is not None and stored.dtype == np.float16 else "float32"
            exact = stack.enter_context(
                ExactVectors(index / entry.vectors, len(opened), opened.card.dim, dtype)
            )
            watches.append(exact.add)
        filled = _filled(opened, live, plan, watches, anew=anew)
    if entry.vectors is not None:
        checksums[entry.vectors] = exact.checksum
    checksums[entry.index] = write_index(filled, index / entry.index)
    checksums[entry.ids] = write_items(index / entry.ids, opened.items, live)
    sizes = {name: (index / name).stat().st_size for name in checksums}
    scores = "approximate" if entry.truncate_dim else str(scores_of(filled))
    return {"checksums": checksums, "sizes": sizes}, "cosine" if entry.oversample else scores


def _filled(opened: VectorIndex, live: Mask, plan: Plan, watches: list[Watch], *, anew: bool) -> Any:
    """The one FAISS index: of vectors where they are there, else of codes that move as they are."""
    vectors, first = LiveVectors.of(opened, np.flatnonzero(live)), opened.segments[0].entry
    exact = all(_gives(segment, plan.truncate_dim) for segment in opened.segments)
    if anew:
        return fill(plan, vectors, watches=watches)
    dim = plan.truncate_dim or opened.card.dim
    filled = empty_like(places_of(opened.folder, opened.manifest)[first.index], plan.factory, dim)
    set_parameters(filled, plan.search_parameters)
    if not exact:
        bounds = np.cumsum([0, *(len(segment) for segment in opened.segments)])
        parts = [live[bounds[i] : bounds[i + 1]] for i in range(len(opened.segments))]
        indexes = [segment.faiss_index for segment in opened.segments]
        move_codes(filled, list(zip(indexes, parts, strict=True)))
        return filled
    for rows in unit_shards(vectors):  # (rows, dim)
        for watch in watches:
            watch(rows)
        add(filled, shortened(rows, dim))
    return filled


@dataclass(frozen=True)
class LiveVectors(VectorsFolder):
    """The vectors of an opened index that are not deleted, as a vectors folder gives them. Use :meth:`of`.

    Args:
        path: the index folder.
        manifest: what a vectors folder says of itself.
        opened: the index.
        positions: of the vectors, ascending.
    """

    opened: VectorIndex
    positions: Positions

    @classmethod
    def of(cls, opened: VectorIndex, positions: Positions) -> LiveVectors:
        """Of these positions, in blocks."""
        count = len(positions)
        shards = [
            {"file": str(first), "rows": min(_BLOCK, count - first)} for first in range(0, count, _BLOCK)
        ]
        manifest = {
            "card": opened.card.to_dict(),
            "dim": opened.card.dim,
            "count": count,
            "shards": shards,
        }
        return cls(opened.folder, manifest, opened, positions)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Of the items, in row order."""
        return tuple(self.opened.items.names(self.positions))

    def read(self, shard: Shard, *, verify: bool = True) -> Vectors:
        """One block: (rows, dim) float32."""
        first = int(shard.file)
        return self.opened.vectors_at(self.positions[first : first + shard.rows])
