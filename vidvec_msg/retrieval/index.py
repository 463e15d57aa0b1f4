"""Vectors, or a collection → a FAISS index that knows its ids and its embedder; the verb ``index``.

An index folder holds ``index.faiss`` (plain ``faiss.read_index`` opens it), ``ids.parquet`` (row = FAISS
position) and ``index.json``, which comes last: a folder without it was interrupted and is not opened.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import open_side
from vidvec_msg.retrieval.embed import StoredType, embed_items, refuse_bad_request, refuse_missing_media
from vidvec_msg.retrieval.indexes.build import VECTORS, build_index, refuse_bad_build
from vidvec_msg.retrieval.indexes.rescoring import Rescore
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex
from vidvec_msg.retrieval.milvus.build import build_milvus_index, refuse_bad_milvus
from vidvec_msg.runs import require_new

__all__ = ["VectorIndex", "build_index", "index"]


def index(
    out: Path,
    *,
    vectors: Path | None = None,
    collection: Path | None = None,
    embedder: str | None = None,
    engine: Literal["faiss", "milvus"] = "faiss",
    milvus_uri: str = "",
    factory: str = "auto",
    memory: str = "",
    recall: float = 0.95,
    recall_queries: Path | None = None,
    truncate_dim: int = 0,
    rescore: Rescore = "none",
    oversample: int = 0,
    batch_size: int = 0,
    shard_size: int = 50_000,
    dtype: StoredType = "float32",
    max_failures: float = 0,
) -> Path:
    """Builds a FAISS index, from a vectors folder or straight from a collection.

    Give either vectors, or collection and embedder; then the corpus is embedded first, into OUT/vectors,
    and an interrupted run goes on where it stopped.

    Args:
        out: the index folder to make.
        vectors: a vectors folder, made by the verb embed.
        collection: folder with corpus.jsonl (any BEIR folder is one).
        embedder: what makes the vectors: a folder, a YAML file, module:Class, or a short form (st:NAME).
        engine: what keeps the vectors: "faiss", in files of the index folder, or "milvus".
        milvus_uri: with engine milvus: address of a server, such as http://HOST:19530, or path of a Milvus
            file; by default milvus.db inside OUT. A server's token is read from the environment variable
            MILVUS_TOKEN.
        factory: a FAISS factory string such as Flat, HNSW32,Flat or IVF1024,PQ48; "auto" chooses by the
            number of vectors, their dimensions, the memory and the recall. With engine milvus an index type
            of Milvus, such as HNSW,M=16,efConstruction=200.
        memory: that the opened index may take, such as 8GB; by default half of this machine's.
        recall: share of the 10 true nearest neighbours that should be found; what search compares is set by
            it, after a measurement on 100 vectors of the index.
        recall_queries: vectors folder of queries to measure with instead; they should be like those that will
            come, since a query of another modality is harder than a vector of the index.
        truncate_dim: leading dimensions that are indexed, for Matryoshka embedders; 0: all.
        rescore: keeps the full vectors on disk as "float16" or "float32" and computes exact scores of the
            best candidates from them; "none": scores are those of the index.
        oversample: candidates per wanted result that are rescored; 0: 4.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        shard_size: items per .npy file; also what memory holds at once.
        dtype: how the vectors in OUT/vectors are stored: "float32" or "float16".
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).

    Returns:
        the index folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        JobFailed: the disk was full on the way; OUT/vectors stays, and the same command goes on.
        TooManyFailures: more items failed than allowed; OUT/vectors was written, the index was not.
    """
    build: dict[str, Any] = {
        "factory": factory,
        "memory": memory,
        "recall": recall,
        "recall_queries": recall_queries,
        "truncate_dim": truncate_dim,
        "rescore": rescore,
        "oversample": oversample,
    }
    if engine == "milvus":
        _refuse_options_without_effect(
            {name: value for name, value in build.items() if name != "factory"}, "engine milvus"
        )
        refuse_bad_milvus(milvus_uri, factory)
    elif milvus_uri:
        raise RefusedRequest("--milvus_uri: without effect on FAISS files; give --engine milvus with it.")

    def built(made: Path) -> Path:
        if engine == "milvus":
            return build_milvus_index(made, out, uri=milvus_uri, factory=factory)
        return build_index(made, out, **build)

    if vectors is not None and collection is None and embedder is None:
        embedding = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype,
                     "max_failures": max_failures}  # fmt: skip
        _refuse_options_without_effect(
            embedding, "--vectors, which are made already", ", or give --collection and --embedder instead"
        )
        return built(vectors)
    if vectors is not None or collection is None or embedder is None:
        options = {"vectors": vectors, "collection": collection, "embedder": embedder}
        given = [f"--{name}" for name, value in options.items() if value is not None]
        raise RefusedRequest(
            f"given: {' and '.join(given) or 'neither'}; an index is built from --vectors V, "
            "or from --collection C with --embedder SPEC: give one of the two."
        )
    require_new(out, option="--out", resumable=VECTORS)
    items = open_side(collection, "corpus")
    refuse_bad_request(
        items, batch_size=batch_size, shard_size=shard_size, dtype=dtype, max_failures=max_failures
    )
    refuse_missing_media(items, max_failures)
    loaded = load_embedder(embedder)
    if engine == "faiss":
        refuse_bad_build(out, len(items), loaded.card, shard_size, **build)  # before hours of embedding
    embed_items(
        items,
        loaded,
        role="document",
        out=out / VECTORS,
        batch_size=batch_size,
        shard_size=shard_size,
        dtype=dtype,
        max_failures=max_failures,
        side="corpus",
        spec=embedder,
    )
    return built(out / VECTORS)


def _refuse_options_without_effect(given: Mapping[str, Any], on: str, instead: str = "") -> None:
    """Refuses options that change nothing about this request."""
    defaults = inspect.signature(index).parameters
    changed = [f"--{name}" for name, value in given.items() if value != defaults[name].default]
    if changed:
        raise RefusedRequest(f"{', '.join(changed)}: without effect on {on}; leave out{instead}.")
