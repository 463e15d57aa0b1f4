"""Items join an index that Milvus keeps, replace others in it, or leave it: index-add and index-delete there.

Milvus changes item by item: a call that is killed may have done a part, and the same call with ``replace`` or
``skip`` completes it. The index can be searched at any moment and opens with the true count, which
``index.json`` has from the next change on. Groups are named there before their items are put in: filters
know them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.indexes.add import Existing, refuse_existing, refuse_other_vectors
from vidvec_msg.retrieval.indexes.delete import Missing
from vidvec_msg.retrieval.indexes.folder import MANIFEST, checked_card
from vidvec_msg.retrieval.milvus.build import batches, groups_of
from vidvec_msg.retrieval.milvus.engine import Collection
from vidvec_msg.retrieval.milvus.index import collection_of, read_milvus_manifest
from vidvec_msg.runs import only_writer, write_json

log = logging.getLogger(__name__)


def add_to_milvus(index: Path, vectors: Path, *, existing: Existing = "refuse", wait: float = 0) -> Path:
    """Adds a vectors folder to an index that Milvus keeps; see ``indexes.add.add_vectors``.

    Raises:
        RefusedRequest: vectors of another embedder or dimension, or ids that are there already; nothing was
            added.
        JobFailed: the server gave up on the way.
    """
    folder = VectorsFolder.open(vectors)
    card = checked_card(folder)
    with _changing(index, wait) as (manifest, collection):
        refuse_other_vectors(index, manifest, folder, card)
        there = set() if existing == "replace" else set(collection.rows_of(folder.ids))
        if existing == "refuse":
            refuse_existing(index, [name for name in folder.ids if name in there])
        groups, added = set(manifest["groups"]), 0
        for batch in batches(folder):
            kept = [row for row, item in enumerate(batch.rows) if item["id"] not in there]
            rows = [batch.rows[row] for row in kept]
            if batch.vectors is None or not rows:
                continue
            if not groups_of(rows) <= groups:
                groups |= groups_of(rows)
                manifest = {**manifest, "groups": sorted(groups)}
                write_json(index / MANIFEST, manifest)
            collection.upsert(batch.vectors[kept], rows)
            added += len(rows)
        _commit(index, manifest, collection)
        log.info("added %d items%s", added, f", {len(there)} skipped" if there else "")
    return index


def delete_from_milvus(
    index: Path, ids: Sequence[str], *, missing: Missing = "refuse", wait: float = 0
) -> Path:
    """Deletes items of an index that Milvus keeps; see ``indexes.delete.delete_items``.

    Raises:
        RefusedRequest: items that the index does not have, all named; nothing was deleted.
        JobFailed: the server gave up on the way.
    """
    with _changing(index, wait) as (manifest, collection):
        asked = list(dict.fromkeys(ids))
        known = collection.rows_of(asked)
        problems = Problems(f"index {index}: to delete")
        for name in asked:
            if name not in known:
                problems.add(f"it has no item {name!r}")
        if missing == "refuse":
            problems.refuse_if_any()
        if known:
            collection.delete(list(known))
            _commit(index, manifest, collection)
        if problems.found:
            log.info("%d of %d ids are not in the index", len(problems.found), len(asked))
        log.info("deleted %d items", len(known))
    return index


@contextmanager
def _changing(index: Path, wait: float) -> Iterator[tuple[dict[str, Any], Collection]]:
    """The manifest and the collection of an index that this process alone may change until the block ends.

    What the manifest says of an interrupted change is put right first.
    """
    read_milvus_manifest(index)
    with only_writer(index, what=f"index {index}", wait=wait, otherwise="or try again later"):
        manifest = read_milvus_manifest(index)
        collection = collection_of(index, manifest)
        try:
            collection.load()
            if (held := collection.count()) != manifest["count"]:
                log.info(
                    "index %s holds %d items and not %d: an earlier change was interrupted, or somebody else "
                    "changed the collection", index, held, manifest["count"],
                )  # fmt: skip
                manifest = _commit(index, manifest, collection)
            yield manifest, collection
        finally:
            collection.close()


def _commit(index: Path, manifest: Mapping[str, Any], collection: Collection) -> dict[str, Any]:
    """Writes the manifest of what the collection holds now, and returns it."""
    collection.flush()
    changed = {**manifest, "count": collection.count(), "generation": manifest["generation"] + 1}
    write_json(index / MANIFEST, changed)
    return changed
