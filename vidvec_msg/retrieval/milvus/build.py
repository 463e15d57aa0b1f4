"""A vectors folder → a collection of a Milvus server or file, and the index folder that knows it.

The vectors are put in a batch at a time. ``.milvus.json`` in the index folder says how far that is, so that
an interrupted build goes on; ``index.json``, which says where the collection is, comes last.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.formats.vectors import IDS, VectorsFolder
from vidvec_msg.retrieval.cosine import unit_vectors
from vidvec_msg.retrieval.indexes.folder import FORMAT, MANIFEST, REMAKE, checked_card, is_complete, key_of
from vidvec_msg.retrieval.milvus.engine import (
    FILE_TYPES,
    LOCAL,
    Collection,
    index_parameters,
    is_server,
    refuse_bad_uri,
)
from vidvec_msg.retrieval.progress import progress
from vidvec_msg.runs import digest_of, only_writer, read_json, require_new, software_versions, write_json

log = logging.getLogger(__name__)

BEGUN = ".milvus.json"  # how far the build is
_BATCH_BYTES = 8 << 20  # of vectors that one call carries; a server takes 64 MB, metadata included
_BATCH_ROWS = 1000
_SAVE_EVERY = 20  # batches between two notes of how far the build is


class Batch(NamedTuple):
    """Consecutive items.

    Args:
        first: row of the first one.
        vectors: (rows, dim), of norm 1; None where they are not wanted.
        rows: metadata, ``groups`` as a map.
    """

    first: int
    vectors: Vectors | None
    rows: list[dict[str, Any]]


def build_milvus_index(vectors: Path, out: Path, *, uri: str = "", factory: str = "auto") -> Path:
    """Builds an index folder whose vectors lie in Milvus.

    Memory holds a shard and a batch. Interrupted at any moment, the same call goes on; a complete index of
    the same request is returned as it is.

    Args:
        vectors: the vectors folder.
        out: the index folder to make: new or empty, but for ``vectors`` itself, which may lie in it.
        uri: of the server (http://HOST:19530), or path of a Milvus file; by default milvus.db inside ``out``.
            A server's token is read from the environment variable MILVUS_TOKEN.
        factory: Milvus's index type, with parameters: "HNSW,M=16,efConstruction=200"; "auto" compares all
            vectors in a file (FLAT) and leaves the choice to a server (AUTOINDEX).

    Returns:
        ``out``.

    Raises:
        RefusedRequest: the vectors are incomplete or damaged, the address or the index type is none, the
            server does not answer, or ``out`` holds something else.
        JobFailed: the server gave up on the way, or does not hold what it was given.
    """
    refuse_bad_uri(uri)
    folder = VectorsFolder.open(vectors)
    kept = uri if is_server(uri) else str(Path(uri).resolve()) if uri else LOCAL
    key = digest_of([key_of(folder, factory), "milvus", kept])
    if is_complete(out, key):
        log.info("index %s is complete already", out)
        return out
    inside = (out / "vectors").resolve() == vectors.resolve()
    begun = (out / BEGUN).exists()
    require_new(out, option="--out", resumable=BEGUN if begun else "vectors" if inside else None)
    card = checked_card(folder)
    refuse_bad_milvus(uri, factory)
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out, what=f"--out {out}"):
        state = _state(out, key, folder.path)
        collection = Collection(kept if is_server(kept) else str((out / kept).resolve()), state["collection"])
        kind = factory if factory != "auto" else "AUTOINDEX" if is_server(kept) else "FLAT"
        try:
            groups = _put_in(collection, folder, card, kind, state, out)
        finally:
            collection.close()
        where = {"uri": kept, "collection": state["collection"], "factory": kind, "factory_asked": factory}
        manifest = {**_described(folder, card), **where, "groups": groups, "key": key}
        write_json(out / MANIFEST, manifest)
        (out / BEGUN).unlink()
    log.info("index of %d vectors (Milvus, %s) in %s", folder.count, kind, out)
    return out


def refuse_bad_milvus(uri: str, factory: str) -> None:
    """Refuses what can be seen to be wrong before anything slow.

    Raises:
        RefusedRequest: an address or an index type that is none, pymilvus is not installed, or the server
            does not answer.
    """
    refuse_bad_uri(uri)
    kind, _ = index_parameters(factory)
    if not is_server(uri) and kind not in ("auto", *FILE_TYPES):  # milvus-lite itself takes any word
        raise RefusedRequest(
            f"--factory {factory}: a Milvus file has no index type {kind!r}; give auto, or one of "
            f"{', '.join(FILE_TYPES)}."
        )
    require("pymilvus", purpose="use the engine milvus")
    if is_server(uri):
        Collection(uri, "any").close()


def _described(folder: VectorsFolder, card: EmbedderCard) -> dict[str, Any]:
    """What the manifest says of the vectors."""
    return {
        "format": FORMAT,
        "engine": "milvus",
        "generation": 1,
        "card": card.to_dict(),
        "fingerprint": card.fingerprint,
        "embedder": folder.manifest.get("embedder"),
        "role": folder.manifest.get("role"),
        "side": folder.manifest.get("side"),
        "metric": "cosine",
        "count": folder.count,
        "dim": folder.dim,
        "checksums": {},  # no files of ours
        "versions": software_versions(),
    }


def _create(collection: Collection, folder: VectorsFolder, card: EmbedderCard, kind: str) -> None:
    """Makes the empty collection; what Milvus does not take leaves none behind."""
    try:
        collection.create(folder.dim, kind, description=f"vidvec-msg {card.name} {card.fingerprint}")
        collection.load()
    except JobFailed as error:
        if collection.exists():
            collection.drop()
        raise RefusedRequest(
            f"{error}. Give --factory auto, or an index type that this Milvus takes for {folder.dim} "
            "dimensions and cosine, such as FLAT, HNSW,M=16,efConstruction=200 or IVF_FLAT,nlist=1024."
        ) from error


def _put_in(
    collection: Collection,
    folder: VectorsFolder,
    card: EmbedderCard,
    kind: str,
    state: dict[str, Any],
    out: Path,
) -> list[str]:
    """Fills the collection from where an earlier run stopped; returns the names of all groups."""
    if not collection.exists():
        state["done"] = 0
        _create(collection, folder, card, kind)
        state["created"] = True
        write_json(out / BEGUN, state)
    collection.load()
    if state["done"]:
        log.info("going on after %d of %d items", state["done"], folder.count)
    groups: set[str] = set()
    with progress(f"index {out.name}", folder.count, done=state["done"], log=log) as tell:
        for number, batch in enumerate(batches(folder, after=state["done"])):
            groups |= groups_of(batch.rows)
            if batch.vectors is None:  # done before
                continue
            collection.upsert(batch.vectors, batch.rows)
            state["done"] = batch.first + len(batch.rows)
            if number % _SAVE_EVERY == 0:
                write_json(out / BEGUN, state)
            tell(state["done"], 0)
    collection.flush()
    write_json(out / BEGUN, state)
    if (held := collection.count()) != folder.count:
        raise JobFailed(
            f"Milvus collection {collection.name!r} at {collection.uri} holds {held} items after "
            f"{folder.count} were put in. Somebody else writes into it, or items were lost: remove {out} and "
            "the collection, and build again."
        )
    return sorted(groups)


def batches(folder: VectorsFolder, *, after: int = 0) -> Iterator[Batch]:
    """All items in row order; those before ``after`` come without vectors, and their shards are not read."""
    size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (4 * folder.dim)))
    metadata = _metadata(folder.path / IDS)
    first = 0
    for shard in folder.files:
        end = first + shard.rows
        matrix = folder.read(shard) if end > after else None  # (rows, dim)
        for start in range(first, end, size):
            rows = list(islice(metadata, min(size, end - start)))
            if matrix is None or start + len(rows) <= after:
                yield Batch(start, None, rows)
                continue
            part = matrix[start - first : start - first + len(rows)]
            yield Batch(start, unit_vectors(part, folder.dim, name=_named(rows)), rows)
        first = end


def groups_of(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of the groups of some items."""
    return {name for row in rows for name in row["groups"]}


def _metadata(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of an ``ids.parquet``, one at a time; ``groups`` as a map."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for part in file.iter_batches():
            for row in part.to_pylist():
                groups = json.loads(row.get("groups") or "{}")
                yield {**row, "id": str(row["id"]), "groups": groups if isinstance(groups, dict) else {}}


def _named(rows: list[dict[str, Any]]) -> Callable[[int], str]:
    return lambda row: repr(rows[row]["id"])


def _state(out: Path, key: str, vectors: Path) -> dict[str, Any]:
    """How far an interrupted build of the same request is; of a new one, its collection's new name.

    Raises:
        RefusedRequest: what was begun is another request.
    """
    known = read_json(out / BEGUN, what="index", made_by=REMAKE) if (out / BEGUN).exists() else None
    if known is not None and known["key"] == key:
        return known
    if known is not None and known["created"]:
        raise RefusedRequest(
            f"--out {out} holds the beginning of an index of other vectors, of another address or another "
            f"index type (now: {vectors}); repeat the first request, give another folder, or remove it."
        )
    name = f"vidvec_{key[:8]}_{secrets.token_hex(4)}"
    state = {"key": key, "collection": name, "created": False, "done": 0}
    write_json(out / BEGUN, state)
    return state
