"""Further vectors join an index, as a segment of their own; the verb ``index-add``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Role
from vidvec_msg.errors import JobFailed, Problems, RefusedRequest
from vidvec_msg.formats.kept_digests import DIGESTS, digests_kept_in
from vidvec_msg.formats.vectors import IDS, VectorsFolder
from vidvec_msg.retrieval.indexes.changes import (
    changing,
    commit,
    joined,
    of_generation,
    open_items,
    places_of,
    tell_state,
    write_deleted,
)
from vidvec_msg.retrieval.indexes.codes import empty_like
from vidvec_msg.retrieval.indexes.estimate import Estimate, estimate_build, refuse_segment_without_room
from vidvec_msg.retrieval.indexes.faiss_engine import add, set_parameters, words_of, write_index
from vidvec_msg.retrieval.indexes.folder import (
    EXACT,
    INDEX,
    SegmentEntry,
    checked_card,
    engine_of,
    read_manifest,
    segments_of,
)
from vidvec_msg.retrieval.indexes.items import ItemTable, Mask, write_items
from vidvec_msg.retrieval.indexes.rescoring import ExactVectors, Rescore
from vidvec_msg.retrieval.indexes.unit_shards import shortened, unit_shards
from vidvec_msg.runs import digest_of

log = logging.getLogger(__name__)

Existing = Literal["refuse", "replace", "skip"]
StoredType = Literal["float32", "float16"]


def index_add(
    index: Path,
    *,
    vectors: Path | None = None,
    collection: Path | None = None,
    embedder: str | None = None,
    existing: Existing = "refuse",
    batch_size: int = 0,
    shard_size: int = 50_000,
    dtype: StoredType = "float32",
    max_failures: float = 0,
    wait: float = 0,
) -> Path:
    """Adds items to an index, or replaces them: the cost is that of the new vectors, not of the whole index.

    Give either vectors or a collection; then its corpus is embedded first, into INDEX/vectors-…, and an
    interrupted run goes on where it stopped. A killed or refused run leaves the index as it was.

    Args:
        index: an index folder.
        vectors: a vectors folder of the index's own embedder, made by the verb embed.
        collection: folder with corpus.jsonl (any BEIR folder is one).
        embedder: what makes the vectors of a collection; by default what the index was made with. Another
            one is refused.
        existing: an id that the index has already: "refuse" adds nothing and names it, "replace" puts the new
            item in the place of the old one, "skip" keeps the old one.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        shard_size: items per .npy file; also what memory holds at once.
        dtype: how the vectors of a collection are stored: "float32" or "float16".
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).
        wait: seconds to wait for another process that changes the index; 0 refuses at once.

    Returns:
        the index folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was added.
        TooManyFailures: more items failed than allowed; the vectors were written, none was added.
    """
    embedding = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype,
                 "max_failures": max_failures}  # fmt: skip
    if vectors is not None and collection is None and embedder is None:
        _refuse_options_without_effect(embedding)
        return add_vectors(index, vectors, existing=existing, wait=wait)
    if vectors is not None or collection is None:
        options = {"vectors": vectors, "collection": collection, "embedder": embedder}
        given = [f"--{name}" for name, value in options.items() if value is not None]
        raise RefusedRequest(
            f"given: {' and '.join(given) or 'neither'}; items are added from --vectors V, or from "
            "--collection C, with --embedder SPEC or the index's own: give one of the two."
        )
    if engine_of(index) == "milvus":
        raise RefusedRequest(
            f"index {index} is kept by Milvus: embed the collection first (`vidvec-msg embed`), then add it "
            "with --vectors."
        )
    embedded = _embedded(index, collection, embedder, existing, embedding)
    return index if embedded is None else add_vectors(index, embedded, existing=existing, wait=wait)


def add_vectors(index: Path, vectors: Path, *, existing: Existing = "refuse", wait: float = 0) -> Path:
    """Adds a vectors folder to an index.

    The new segment is of the first one's kind and has its training, however few the vectors are; shortening
    and exact rescoring are the first one's too.

    Args:
        index: the index folder.
        vectors: the vectors folder.
        existing: see :func:`index_add`.
        wait: seconds to wait for another writer.

    Returns:
        ``index``.

    Raises:
        RefusedRequest: vectors of another embedder or dimension, bad or doubled ones, ids that are there
            already, or no room; nothing was added.
    """
    if engine_of(index) == "milvus":
        from vidvec_msg.retrieval.milvus.changes import add_to_milvus

        return add_to_milvus(index, vectors, existing=existing, wait=wait)
    folder = VectorsFolder.open(vectors)
    card = checked_card(folder)
    with changing(index, wait=wait) as manifest:
        refuse_other_vectors(index, manifest, folder, card)
        items, live = open_items(index, manifest)
        live = np.ones(items.num_rows, dtype=np.bool_) if live is None else live
        there = items.among(folder.ids) & live
        names = set(items.names(np.flatnonzero(there)))
        if existing == "refuse":
            refuse_existing(index, [name for name in folder.ids if name in names])
        kept = np.array([existing != "skip" or name not in names for name in folder.ids], dtype=np.bool_)
        if not kept.any():
            log.info("index %s has all %d items already: nothing to add", index, folder.count)
            return index
        live = live & ~there if existing == "replace" else live
        entry, files = _write_segment(index, manifest, folder, kept)
        count = int(live.sum()) + entry.count
        changed = write_deleted(index, manifest, np.concatenate([live, np.ones(entry.count, np.bool_)]))
        changed |= {
            "segments": [*manifest["segments"], entry.to_dict()],
            "count": count,
            "recall": None,  # what was measured is not of this index any more
            **joined(changed, files),
        }
        commit(index, changed)
        replaced = f", {len(names)} in place of old ones" if names and existing == "replace" else ""
        skipped = f", {len(names)} skipped" if names and existing == "skip" else ""
        log.info("added %d items%s%s", entry.count, replaced, skipped)
        tell_state(index, changed)
    return index


def refuse_other_vectors(
    index: Path, manifest: Mapping[str, Any], folder: VectorsFolder, card: EmbedderCard
) -> None:
    """Refuses vectors that are not comparable with those of an index, all reasons in one message.

    Raises:
        RefusedRequest: another embedder, dimension or role.
    """
    own = EmbedderCard.from_dict(manifest["card"])
    problems = Problems(f"vectors {folder.path} cannot join index {index}")
    if card.dim != own.dim:
        problems.add(f"they have {card.dim} dimensions, the index has {own.dim}")
    if card.fingerprint != own.fingerprint:
        problems.add(
            f"they were made by {card.name} (fingerprint {card.fingerprint}), the index by {own.name} "
            f"(fingerprint {own.fingerprint}); embed with the index's own embedder"
        )
    roles = manifest.get("role"), folder.manifest.get("role")
    if None not in roles and roles[0] != roles[1]:
        problems.add(f"they were embedded in role {roles[1]!r}, those of the index in role {roles[0]!r}")
    problems.refuse_if_any()


def refuse_existing(index: Path, names: Sequence[str]) -> None:
    """Refuses ids that an index has already.

    Raises:
        RefusedRequest: naming them, and the two ways on.
    """
    problems = Problems(f"index {index} has some of these items already (--existing replace or skip goes on)")
    for name in names:
        problems.add(f"it has an item {name!r}")
    problems.refuse_if_any()


def _write_segment(
    index: Path, manifest: Mapping[str, Any], folder: VectorsFolder, kept: Mask
) -> tuple[SegmentEntry, dict[str, dict[str, Any]]]:
    """Writes the files of a further segment; its entry, and checksums and sizes of the files."""
    paths, model = places_of(index, manifest), segments_of(manifest)[0]
    count, generation = int(kept.sum()), manifest["generation"] + 1
    dim = model.truncate_dim or folder.dim
    stored: Rescore = "float32"
    if model.vectors is not None and np.load(paths[model.vectors], mmap_mode="r").dtype == np.float16:
        stored = "float16"
    estimate = _estimate(folder, model, dim, count, "none" if model.vectors is None else stored)
    refuse_segment_without_room(index, estimate, f"{count:,} more vectors")
    entry = SegmentEntry(
        of_generation(INDEX, generation),
        of_generation(IDS, generation),
        count,
        model.factory,
        model.search_parameters,
        truncate_dim=model.truncate_dim,
        vectors=None if model.vectors is None else of_generation(EXACT, generation),
        oversample=model.oversample,
    )
    filled = empty_like(paths[model.index], model.factory, dim)
    set_parameters(filled, model.search_parameters)
    checksums = {}
    try:
        with ExitStack() as stack:
            exact = None
            if entry.vectors is not None:
                exact = stack.enter_context(ExactVectors(index / entry.vectors, count, folder.dim, stored))
            first = 0
            for rows in unit_shards(folder):  # (rows, dim)
                chosen = rows[kept[first : first + len(rows)]]
                first += len(rows)
                if exact is not None:
                    exact.add(chosen)
                add(filled, shortened(chosen, dim))
    except RuntimeError as error:
        raise JobFailed(
            f"index {index}: FAISS cannot add {count} vectors to an index of factory {model.factory!r} "
            f"({words_of(error)}); the index is as it was."
        ) from error
    if exact is not None and entry.vectors is not None:
        checksums[entry.vectors] = exact.checksum
    checksums[entry.index] = write_index(filled, index / entry.index)
    checksums[entry.ids] = write_items(index / entry.ids, ItemTable([folder.path / IDS]), kept)
    return entry, {
        "checksums": checksums,
        "sizes": {name: (index / name).stat().st_size for name in checksums},
    }


def _estimate(folder: VectorsFolder, model: SegmentEntry, dim: int, count: int, stored: str) -> Estimate:
    """What a segment of ``model``'s kind will take with so many of the vectors of a folder."""
    estimate = estimate_build(
        model.factory,
        count,
        dim,
        full_dim=folder.dim,
        rescore=stored,
        sample=0,
        shard_rows=max(shard.rows for shard in folder.files),
    )
    return replace(estimate, ids=(folder.path / IDS).stat().st_size * count // folder.count)


def _embedded(
    index: Path, collection: Path, spec: str | None, existing: Existing, options: Mapping[str, Any]
) -> Path | None:
    """The vectors folder of a collection's corpus, inside the index; None if it brings nothing new."""
    from vidvec_msg.embedders.load import load_embedder
    from vidvec_msg.formats.collections import load_side
    from vidvec_msg.retrieval.embed import (
        digest_of_items,
        embed_items,
        refuse_bad_request,
        refuse_missing_media,
    )
    from vidvec_msg.retrieval.indexes.folder import refuse_foreign_embedder

    manifest = read_manifest(index)
    spec = spec or manifest.get("embedder")
    if spec is None:
        raise RefusedRequest(f"index {index} does not say what it was made with: give --embedder SPEC.")
    loaded_items = list(load_side(collection, "corpus"))
    refuse_bad_request(loaded_items, **options)
    items, live = open_items(index, manifest)
    there = items.among([item.id for item in loaded_items])
    names = set(items.names(np.flatnonzero(there if live is None else there & live)))
    known = [item.id for item in loaded_items if item.id in names]
    if existing == "refuse":
        refuse_existing(index, known)
    if existing == "skip":
        loaded_items = [item for item in loaded_items if item.id not in names]
    if not loaded_items:
        log.info("index %s has all %d items already: nothing to embed", index, len(known))
        return None
    missing = refuse_missing_media(loaded_items, options["max_failures"])
    loaded = load_embedder(spec)
    refuse_foreign_embedder(index, EmbedderCard.from_dict(manifest["card"]), loaded.card)
    role: Role = "query" if manifest.get("role") == "query" else "document"
    with digests_kept_in(index / DIGESTS):
        items_digest = digest_of_items(loaded_items, missing)
        key = digest_of([loaded.card.fingerprint, items_digest, role, dict(options)])
        out = index / f"vectors-{key[:12]}"
        embed_items(loaded_items, loaded, role=role, out=out, side="corpus", spec=spec, **options)
    return out


def _refuse_options_without_effect(given: Mapping[str, Any]) -> None:
    """Refuses options of the embedding where nothing is embedded."""
    defaults = inspect.signature(index_add).parameters
    changed = [f"--{name}" for name, value in given.items() if value != defaults[name].default]
    if changed:
        raise RefusedRequest(
            f"{', '.join(changed)}: without effect on --vectors, which are made already; leave out, or give "
            "--collection instead of --vectors."
        )
