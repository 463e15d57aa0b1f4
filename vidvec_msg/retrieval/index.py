"""Vectors → a FAISS index that knows its ids and its embedder; the verb ``index``. The only home of faiss.

An index folder holds ``index.faiss`` (plain ``faiss.read_index`` opens it), ``ids.parquet`` (row = FAISS
position) and ``index.json``, which comes last: a folder without it was interrupted and is not opened.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.formats.collections import load_side
from vidvec_msg.formats.vectors import IDS, VectorsFolder, read_parquet
from vidvec_msg.retrieval.cosine import Positions, best_first, unit_vectors
from vidvec_msg.retrieval.embed import StoredType, embed_items, refuse_bad_request, refuse_missing_media
from vidvec_msg.retrieval.factories import POINTS_PER_LIST, Plan, plan_index, training_points
from vidvec_msg.retrieval.index_folder import (
    INDEX,
    MANIFEST,
    REMAKE,
    checked_card,
    is_complete,
    key_of,
    put_in_place,
    refuse_damaged,
    refuse_foreign_embedder,
)
from vidvec_msg.retrieval.ranking import tie_order
from vidvec_msg.runs import file_digest, read_json, require_new, software_versions, write_json

log = logging.getLogger(__name__)

VECTORS = "vectors"  # where the verb keeps the vectors that it makes itself
_SAMPLE = 100_000  # vectors that train an index without lists
_POINTS = 64  # training vectors per centroid: FAISS asks for 39 and uses at most 256
_GPU_MOST = 2048  # neighbours that a GPU index can return


def index(
    out: Path,
    *,
    vectors: Path | None = None,
    collection: Path | None = None,
    embedder: str | None = None,
    factory: str = "auto",
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
        factory: a FAISS factory string such as Flat, HNSW32,Flat or IVF1024,PQ48; "auto" chooses by size.
        batch_size: items per call of the embedder; 0: 1024 texts, or 32 items of a side with media.
        shard_size: items per .npy file; also what memory holds at once.
        dtype: how the vectors in OUT/vectors are stored: "float32" or "float16".
        max_failures: items that may fail: a count, or a share of all items if below 1 (0.01 is 1%).

    Returns:
        the index folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: more items failed than allowed; OUT/vectors was written, the index was not.
    """
    if vectors is not None and collection is None and embedder is None:
        embedding = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype,
                     "max_failures": max_failures}  # fmt: skip
        _refuse_options_without_effect(embedding)
        return build_index(vectors, out, factory=factory)
    if vectors is not None or collection is None or embedder is None:
        options = {"vectors": vectors, "collection": collection, "embedder": embedder}
        given = [f"--{name}" for name, value in options.items() if value is not None]
        raise RefusedRequest(
            f"given: {' and '.join(given) or 'neither'}; an index is built from --vectors V, "
            "or from --collection C with --embedder SPEC: give one of the two."
        )
    require_new(out, option="--out", resumable=VECTORS)
    items = load_side(collection, "corpus")
    refuse_bad_request(
        items, batch_size=batch_size, shard_size=shard_size, dtype=dtype, max_failures=max_failures
    )
    refuse_missing_media(items, max_failures)
    loaded = load_embedder(embedder)
    refuse_bad_factory(factory, loaded.card.dim)  # before the hours of embedding
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
    return build_index(out / VECTORS, out, factory=factory)


def build_index(vectors: Path, out: Path, *, factory: str = "auto") -> Path:
    """Builds an index folder from a vectors folder.

    Memory holds the index, one shard, and the sample that trains an index with lists or codes. Vectors are
    checked (finite, of norm 1) and normalised in float32, so that the inner product is the cosine. A
    complete index of the same vectors and factory is returned as it is.

    Args:
        vectors: the vectors folder.
        out: the index folder to make: new or empty, but for ``vectors`` itself, which may lie in it.
        factory: a FAISS factory string, or "auto".

    Returns:
        ``out``.

    Raises:
        RefusedRequest: the vectors are incomplete or damaged, FAISS does not take the factory string, or
            ``out`` holds something else.
    """
    folder = VectorsFolder.open(vectors)
    key = key_of(folder, factory)
    if is_complete(out, key):
        log.info("index %s is complete already", out)
        return out
    inside = (out / VECTORS).resolve() == vectors.resolve()
    require_new(out, option="--out", resumable=VECTORS if inside else None)
    card = checked_card(folder)
    refuse_bad_factory(factory, folder.dim)
    plan = plan_index(factory, len(folder.ids))
    log.info("index: %s (%s)", plan.factory, plan.reason)
    filled = _fill(plan, folder)
    with put_in_place(out) as staged:
        _faiss().write_index(filled, str(staged / INDEX))
        shutil.copyfile(vectors / IDS, staged / IDS)
        manifest = {
            "format": 1,
            "card": card.to_dict(),
            "fingerprint": card.fingerprint,
            "embedder": folder.manifest.get("embedder"),
            "role": folder.manifest.get("role"),
            "side": folder.manifest.get("side"),
            "factory": plan.factory,
            "factory_asked": factory,
            "factory_reason": plan.reason,
            "search_parameters": plan.search_parameters,
            "metric": "cosine",  # the inner product of unit vectors
            "count": len(folder.ids),
            "dim": folder.dim,
            "key": key,
            "checksums": {name: file_digest(staged / name) for name in (INDEX, IDS)},
            "versions": software_versions(),
        }
        write_json(staged / MANIFEST, manifest)
    log.info("index of %d vectors (%s) in %s", len(folder.ids), plan.factory, out)
    return out


class VectorIndex:
    """An index folder, opened: unit vectors in, ids and cosines out. Use :meth:`open`."""

    def __init__(
        self, faiss_index: Any, ids: Sequence[str], manifest: Mapping[str, Any], folder: Path
    ) -> None:
        self.manifest = manifest
        self.card = EmbedderCard.from_dict(manifest["card"])
        self.folder = folder
        self._index = faiss_index
        self._gpu_index = _on_gpu(faiss_index)
        self._ids = np.array(ids, dtype=object)  # (count,), row = FAISS position

    def __len__(self) -> int:
        return len(self._ids)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        embedder_card: EmbedderCard | None = None,
        search_parameters: str = "",
        verify: bool = True,
    ) -> VectorIndex:
        """Opens an index folder.

        Args:
            folder: the index folder.
            embedder_card: of the embedder that will make the queries; another one than the index was made
                with is refused.
            search_parameters: FAISS's names and values, such as "nprobe=64" or "efSearch=256".
            verify: compares the files' checksums, which reads them once more.

        Raises:
            RefusedRequest: it is not complete, damaged, or of another embedder.
        """
        manifest = read_json(folder / MANIFEST, what="index", made_by=REMAKE)
        for name, expected in manifest["checksums"].items():
            refuse_damaged(folder / name, expected, verify=verify)
        if embedder_card is not None:
            refuse_foreign_embedder(folder, EmbedderCard.from_dict(manifest["card"]), embedder_card)
        found = _faiss().read_index(str(folder / INDEX))
        if search_parameters:
            _set_parameters(found, search_parameters)
        ids = [str(name) for name in read_parquet(folder / IDS, columns=["id"])["id"].to_pylist()]
        if not found.ntotal == len(ids) == manifest["count"]:
            raise RefusedRequest(
                f"index {folder}: index.faiss holds {found.ntotal} vectors, ids.parquet {len(ids)} ids and "
                f"index.json says {manifest['count']}; the files are not of one index. "
                f"Make it again: `{REMAKE}`."
            )
        return cls(found, ids, manifest, folder)

    def search(self, vectors: Vectors, k: int) -> tuple[Vectors, list[list[str]]]:
        """The nearest neighbours of each query, best first; equal scores by id, descending, as trec_eval.

        Args:
            vectors: (queries, dim), of norm 1.
            k: neighbours per query; more than there are is fine.

        Returns:
            scores, float32 (queries, min(k, len(self))), and the ids of each query. An approximate index may
            find fewer: that query's list is shorter, and the rest of its scores is -inf.

        Raises:
            RefusedRequest: k below 1, another dimension, or a vector that is not finite or not of norm 1.
        """
        if k < 1:
            raise RefusedRequest(f"k is {k}; it must be at least 1 (results per query)")
        queries = unit_vectors(vectors, self.card.dim, name=lambda row: f"query {row}")
        k = min(k, len(self))
        if not len(queries) or not k:
            return np.zeros((len(queries), k), np.float32), [[] for _ in queries]
        scores, positions = self._nearest(queries, k)  # (queries, k), both
        # -1 stands for "found no more" and goes before it can be taken for a position
        return scores, [self._ids[row[row >= 0]].tolist() for row in positions]

    def metadata(self, item: str) -> dict[str, Any]:
        """What ``ids.parquet`` says of an item: id, text, video, image, audio, start, end, groups.

        Raises:
            RefusedRequest: there is no such item.
        """
        row: dict[str, Any] = self._table.slice(self._position(item), 1).to_pylist()[0]
        return {**row, "groups": json.loads(row.get("groups") or "{}")}

    def vector(self, item: str) -> Vectors:
        """The stored vector of an item, (dim,), of norm 1; approximate where the index compresses.

        Raises:
            RefusedRequest: there is no such item, or the index cannot give its vectors back.
        """
        position = self._position(item)
        try:
            found: Vectors = self._reconstructing.reconstruct(position)
        except RuntimeError as error:
            raise RefusedRequest(
                f"index {self.folder} ({self.manifest['factory']}) cannot give vectors back; "
                "search by text, or build it with another factory, such as Flat or HNSW32,Flat."
            ) from error
        return found / max(float(np.linalg.norm(found)), 1e-12)

    def _nearest(self, queries: Vectors, k: int) -> tuple[Vectors, Positions]:
        """The k nearest of each query, (queries, k) both.

        Which of the neighbours that tie with the k-th come back is chance in FAISS, so one more is asked
        for, and more as long as the tie goes on.
        """
        asked = min(k + 1, len(self))
        scores, positions = self._ask(queries, asked)  # (queries, asked), both
        equal = (scores[:, 1:] == scores[:, :-1]) & (positions[:, 1:] >= 0)
        for row in np.flatnonzero(equal.any(axis=1)):
            ties, places = scores[row : row + 1], positions[row : row + 1]
            while ties.shape[1] < len(self) and places[0, -1] >= 0 and ties[0, k - 1] == ties[0, -1]:
                ties, places = self._ask(queries[row : row + 1], min(4 * ties.shape[1], len(self)))
            order = best_first(ties, places, self._id_ranks)[0, :k]
            scores[row, :k], positions[row, :k] = ties[0, order], places[0, order]
        return scores[:, :k], positions[:, :k]

    def _ask(self, queries: Vectors, k: int) -> tuple[Vectors, Positions]:
        searched = self._index if self._gpu_index is None or k > _GPU_MOST else self._gpu_index
        scores, positions = searched.search(queries, k)
        return np.where(positions >= 0, scores, np.float32(-np.inf)), positions  # FAISS fills with -FLT_MAX

    def _position(self, item: str) -> int:
        if item not in self._positions:
            raise RefusedRequest(
                f"index {self.folder} has no item {item!r}; its {len(self)} ids are in ids.parquet."
            )
        return self._positions[item]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self._ids)}

    @cached_property
    def _id_ranks(self) -> npt.NDArray[np.int64]:
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[tie_order(self._ids.tolist())[::-1]] = np.arange(len(self))
        return ranks

    @cached_property
    def _table(self) -> Any:
        return read_parquet(self.folder / IDS)

    @cached_property
    def _reconstructing(self) -> Any:
        lists = _faiss().try_extract_index_ivf(self._index)
        if lists is not None:
            lists.make_direct_map()  # position → list: inverted lists do not keep it
        return self._index


def _refuse_options_without_effect(given: Mapping[str, Any]) -> None:
    """Refuses options of the embedding where nothing is embedded."""
    defaults = inspect.signature(index).parameters
    changed = [f"--{name}" for name, value in given.items() if value != defaults[name].default]
    if changed:
        raise RefusedRequest(
            f"{', '.join(changed)}: without effect on --vectors, which are made already; leave out, or give "
            "--collection and --embedder instead of --vectors."
        )


def refuse_bad_factory(factory: str, dim: int) -> None:
    """Refuses a factory string that FAISS does not take for this dimension and the inner product.

    Raises:
        RefusedRequest: with FAISS's own words.
    """
    if factory == "auto":
        return
    try:
        _empty_index(factory, dim)
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS does not take factory {factory!r} for {dim} dimensions and cosine ({_words_of(error)}); "
            "give auto, or a string such as Flat, HNSW32,Flat, IVF1024,Flat or IVF1024,PQ48 "
            "(the number after PQ divides the dimensions)."
        ) from error


def _fill(plan: Plan, folder: VectorsFolder) -> Any:
    """Trains and fills an index, shard by shard."""
    filled = _empty_index(plan.factory, folder.dim)
    try:
        if not filled.is_trained:
            sample = _training_sample(plan.factory, folder)  # (points, dim)
            log.info("training %s on %d vectors", plan.factory, len(sample))
            filled.train(sample)
        for rows in _checked_shards(folder):  # (rows, dim)
            filled.add(rows)
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS cannot fill an index of factory {plan.factory!r} with {len(folder.ids)} vectors "
            f"({_words_of(error)}); give auto, or another factory."
        ) from error
    _set_parameters(filled, plan.search_parameters)
    return filled


def _words_of(error: RuntimeError) -> str:
    """What FAISS says, without the place in its sources."""
    words = str(error).rpartition("Error: ")[2] or str(error)
    return re.sub(r"^.* at \S+\.cpp:\d+: ", "", words.strip())


def _checked_shards(folder: VectorsFolder) -> Iterator[Vectors]:
    first = 0

    def name(row: int) -> str:
        return repr(folder.ids[first + row])

    for shard in folder.shards():
        yield unit_vectors(shard, folder.dim, name=name)
        first += len(shard)


def sample_size(factory: str, count: int) -> int:
    """How many of ``count`` vectors train an index."""
    return min(count, max(_SAMPLE, training_points(factory) // POINTS_PER_LIST * _POINTS))


def _training_sample(factory: str, folder: VectorsFolder) -> Vectors:
    """Vectors drawn at random from all shards, the same ones each time, in their order."""
    count = len(folder.ids)
    wanted = sample_size(factory, count)
    chosen = np.sort(np.random.default_rng(0).choice(count, wanted, replace=False))
    parts, first = [], 0
    for rows in _checked_shards(folder):
        here = chosen[(chosen >= first) & (chosen < first + len(rows))] - first
        parts.append(rows[here])
        first += len(rows)
    return np.concatenate(parts)  # (wanted, dim)


def _empty_index(factory: str, dim: int) -> Any:
    faiss = _faiss()
    return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)  # FAISS's default is L2


def _set_parameters(faiss_index: Any, parameters: str) -> None:
    if not parameters:
        return
    try:
        _faiss().ParameterSpace().set_index_parameters(faiss_index, parameters)
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS does not take search_parameters {parameters!r} for this index "
            f"({type(faiss_index).__name__}); inverted lists take nprobe=N, graphs efSearch=N, "
            "exact search takes none."
        ) from error


def _on_gpu(faiss_index: Any) -> Any:
    """A copy on the first GPU, in float32; None without a GPU or for a kind of index that has no GPU form."""
    faiss = _faiss()
    # asked by number: a GPU build on a machine without a GPU has all the functions too
    if faiss.get_num_gpus() == 0 or not isinstance(faiss_index, faiss.IndexFlat | faiss.IndexIVFFlat):
        return None
    options = faiss.GpuClonerOptions()
    options.useFloat16 = False  # half precision ranks differently from the CPU
    options.useFloat16CoarseQuantizer = False
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, faiss_index, options)


def _faiss() -> ModuleType:
    return require("faiss", purpose="build and search indexes")
