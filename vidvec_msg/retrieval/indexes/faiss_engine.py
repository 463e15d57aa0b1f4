"""Every call that makes, trains, fills, writes or moves a FAISS index; cosine always."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.hashed_file import HashedFile

log = logging.getLogger(__name__)

Scores = Literal["cosine", "approximate", "transformed"]
Lists = npt.NDArray[np.int32]

_ONE_BY_ONE = (
    20  # queries; from here on FAISS, too, computes a matrix product, and finds the best of it slower
)
_AT_ONCE = 64  # queries whose products are in memory
_GPU_PROBES = 2048  # lists that a GPU index can probe


_LISTS_COMPARED = 16_384  # lists whose order is worked out for a query: a hundred orders are 13 MB


def faiss_module() -> ModuleType:
    """The library, of either build.

    Raises:
        RefusedRequest: neither is installed; with the two extras to choose from.
    """
    return require("faiss", purpose="build and search indexes")


def empty_index(factory: str, dim: int) -> Any:
    """A new index of inner products; RuntimeError with FAISS's words if it does not take the string."""
    faiss = faiss_module()
    return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)  # FAISS's default is L2


def set_parameters(faiss_index: Any, parameters: str) -> None:
    """Sets search parameters, which are stored with the index.

    Args:
        faiss_index: the index.
        parameters: FAISS's names and values, such as "nprobe=64"; empty sets none.

    Raises:
        RefusedRequest: FAISS does not know them for this kind of index.
    """
    if not parameters:
        return
    try:
        faiss_module().ParameterSpace().set_index_parameters(faiss_index, parameters)
    except RuntimeError as error:
        raise RefusedRequest(
            f"FAISS does not take search_parameters {parameters!r} for this index "
            f"({type(faiss_index).__name__}); inverted lists take nprobe=N, graphs efSearch=N, "
            "exact search takes none."
        ) from error


def search_parameter(faiss_index: Any) -> tuple[str, int] | None:
    """What trades speed for recall in this kind of index: FAISS's name of it, and its highest value.

    Returns:
        ("nprobe", lists), ("efSearch", vectors), or None where there is no such parameter.
    """
    faiss = faiss_module()
    lists = faiss.try_extract_index_ivf(faiss_index)
    if lists is not None:
        return "nprobe", int(lists.nlist)
    inner = innermost(faiss_index)
    return ("efSearch", int(inner.ntotal)) if isinstance(inner, faiss.IndexHNSW) else None


def scores_of(faiss_index: Any) -> Scores:
    """What the scores of an index are, by what it does to the vectors that it stores.

    Returns:
        "cosine": vectors are stored as they are, or turned (a rotation keeps every angle).
        "approximate": near the cosine, off by what the codes round away or by dimensions that are left out.
        "transformed": inner products of other vectors. PCA takes the mean away before it shortens, so these
        are not cosines, not even roughly.
    """
    faiss = faiss_module()
    found: Scores = "cosine"
    if isinstance(faiss_index, faiss.IndexPreTransform):
        for number in range(faiss_index.chain.size()):
            step = faiss.downcast_VectorTransform(faiss_index.chain.at(number))
            if isinstance(step, faiss.NormalizationTransform):
                continue
            if not isinstance(step, faiss.RandomRotationMatrix | faiss.OPQMatrix):
                return "transformed"
            if step.d_out < step.d_in:
                found = "approximate"
        faiss_index = faiss.downcast_index(faiss_index.index)
    if isinstance(faiss_index, faiss.IndexRefine):
        faiss_index = faiss.downcast_index(faiss_index.refine_index)
    as_they_are = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat, faiss.IndexNSGFlat)
    return found if isinstance(faiss_index, as_they_are) else "approximate"


def is_exact(faiss_index: Any) -> bool:
    """Whether every vector is compared as it is, so that nothing can be missed."""
    return isinstance(faiss_index, faiss_module().IndexFlat)


def innermost(faiss_index: Any) -> Any:
    """The index that holds the codes, below transforms and refinement."""
    faiss = faiss_module()
    found = faiss.downcast_index(faiss_index)
    while True:
        if isinstance(found, faiss.IndexPreTransform):
            found = faiss.downcast_index(found.index)
        elif isinstance(found, faiss.IndexRefine):
            found = faiss.downcast_index(found.base_index)
        else:
            return found


def nearest_among(queries: Vectors, rows: Vectors, k: int) -> tuple[Vectors, Positions]:
    """The k rows with the highest inner products, best first: scores and row numbers, (queries, k) both.

    Among 40,000 rows of 384 dimensions ``faiss.knn`` took 10 ms for one query and 2.4 s for 200; numpy's
    matrix product 22 ms and 0.4 s.

    Args:
        queries: (queries, dim) float32.
        rows: (rows, dim) float32, as many as k or more.
        k: how many.
    """
    if len(queries) < _ONE_BY_ONE:
        faiss = faiss_module()
        near: tuple[Vectors, Positions] = faiss.knn(queries, rows, k, metric=faiss.METRIC_INNER_PRODUCT)
        return near
    parts = [
        _best_of_product(queries[at : at + _AT_ONCE], rows, k) for at in range(0, len(queries), _AT_ONCE)
    ]
    return np.concatenate([scores for scores, _ in parts]), np.concatenate([places for _, places in parts])


def _best_of_product(queries: Vectors, rows: Vectors, k: int) -> tuple[Vectors, Positions]:
    scores = queries @ rows.T  # (queries, rows)
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k] if k < len(rows) else np.argsort(-scores, axis=1)
    found = np.take_along_axis(scores, best, axis=1)  # (queries, k), in no order
    order = np.argsort(-found, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(best, order, axis=1)


def write_index(faiss_index: Any, path: Path) -> str:
    """Writes an index so that plain ``faiss.read_index`` opens it; the checksum of the file.

    Raises:
        OSError: the system's, such as a full disk; FAISS itself would hide it behind a RuntimeError.
    """
    faiss = faiss_module()
    failed: list[OSError] = []
    with HashedFile(path) as file:

        def write(block: bytes) -> int:
            if not failed:
                try:
                    file.write(block)
                except OSError as error:  # cannot pass through FAISS
                    failed.append(error)
            return len(block)

        faiss.write_index(faiss_index, faiss.PyCallbackIOWriter(write))
        if failed:
            raise failed[0]
    return file.checksum


def takes_room(faiss_index: Any) -> bool:
    """Whether the codes lie in one piece, as those of Flat, SQ8 and HNSW do."""
    return isinstance(_codes(faiss_index), faiss_module().IndexFlatCodes)


def reserve(faiss_index: Any, count: int) -> None:
    """Makes room for all codes at once, where an index :func:`takes_room`.

    FAISS doubles it whenever it is full, and holds the old piece beside the new one while it copies.
    """
    stored = _codes(faiss_index)
    if takes_room(faiss_index) and not stored.ntotal:
        stored.codes.resize(count * stored.code_size)
        stored.codes.resize(0)  # a std::vector keeps its room


def _codes(faiss_index: Any) -> Any:
    """The index that stores the codes, below a graph too."""
    faiss = faiss_module()
    found = innermost(faiss_index)
    return faiss.downcast_index(found.storage) if isinstance(found, faiss.IndexHNSW) else found


def train(faiss_index: Any, sample: Vectors) -> None:
    """Trains an index; the k-means of its lists runs on every GPU that FAISS sees, in float32.

    After FAISS's own examples: ``clustering_index`` is a flat index over the centroids that takes the place
    of the CPU's while they are found. It compares as the CPU would, so the centroids differ by rounding only.

    Product quantisers are trained without the second step that FAISS's factory asks for, which takes a second
    per sub-quantiser and serves one search parameter only (``ht``, polysemous filtering).
    """
    faiss = faiss_module()
    codes = innermost(faiss_index)
    if isinstance(codes, faiss.IndexPQ | faiss.IndexIVFPQ):
        codes.do_polysemous_training = (
            False  # orders centroids for Hamming filters (ht), which nobody asks for
        )
    lists = faiss.try_extract_index_ivf(faiss_index)
    if lists is None or not _gpus():
        faiss_index.train(sample)
        return
    trains_by_l2 = lists.quantizer_trains_alone == 2  # a graph over the centroids
    metric = faiss.METRIC_L2 if trains_by_l2 else lists.metric_type
    clustering = faiss.index_cpu_to_all_gpus(
        faiss.IndexFlat(lists.d, metric)
    )  # a copy each: points are divided
    lists.clustering_index = clustering
    try:
        faiss_index.train(sample)
    finally:
        lists.clustering_index = None  # FAISS does not own it


def takes_lists(faiss_index: Any) -> bool:
    """Whether vectors can be added whose inverted lists are known; fast-scan codes cannot, for example."""
    faiss = faiss_module()
    lists = faiss.try_extract_index_ivf(faiss_index)
    known = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
    refined = isinstance(faiss_index, faiss.IndexRefine)
    return lists is not None and not refined and type(faiss.downcast_index(lists)) in known


def centroids_on_gpu(faiss_index: Any) -> Any:
    """The centroids of a trained index on every GPU, for :func:`nearest_lists`; None without a GPU."""
    faiss = faiss_module()
    if not _gpus():
        return None
    lists = faiss.extract_index_ivf(faiss_index)
    flat = faiss.IndexFlat(lists.d, lists.metric_type)
    flat.add(lists.quantizer.reconstruct_n(0, lists.nlist))  # also of a graph over centroids
    return faiss.index_cpu_to_all_gpus(flat)


def nearest_lists(faiss_index: Any, rows: Vectors, centroids: Any = None) -> Lists:
    """The inverted list of each vector, (rows,) int32; the most expensive part of adding it.

    Args:
        faiss_index: an index that :func:`takes_lists`, trained.
        rows: (rows, dim) float32, of norm 1.
        centroids: what :func:`centroids_on_gpu` gave.
    """
    searched = faiss_module().extract_index_ivf(faiss_index).quantizer if centroids is None else centroids
    _, nearest = searched.search(_transformed(faiss_index, rows), 1)  # (rows, 1)
    return np.ascontiguousarray(nearest[:, 0], dtype=np.int32)


def lists_until(faiss_index: Any, queries: Vectors, rows: Vectors) -> npt.NDArray[np.int64] | None:
    """How many lists a search has to probe until it comes to certain vectors of the index.

    Args:
        faiss_index: the index.
        queries: (queries, dim) float32, as the index is asked.
        rows: (queries, vectors, dim) float32, as they were added: those that each query should come to.

    Returns:
        (queries, vectors), 1 for a vector in the list that is probed first; None where lists are not compared
        one by one: too many of them, or found by a graph.
    """
    faiss = faiss_module()
    lists = faiss.try_extract_index_ivf(faiss_index)
    if lists is None or isinstance(faiss_index, faiss.IndexRefine) or lists.nlist > _LISTS_COMPARED:
        return None
    quantizer = faiss.downcast_index(lists.quantizer)
    if not isinstance(quantizer, faiss.IndexFlat):
        return None
    count, each, dim = rows.shape
    _, own = quantizer.search(_transformed(faiss_index, rows.reshape(-1, dim)), 1)  # (queries · vectors, 1)
    _, order = quantizer.search(_transformed(faiss_index, queries), lists.nlist)  # (queries, lists)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(1, lists.nlist + 1)[None], axis=1)
    found: npt.NDArray[np.int64] = np.take_along_axis(ranks, own.reshape(count, each), axis=1)
    return found


def reserve_lists(faiss_index: Any, sizes: npt.NDArray[Any]) -> None:
    """Makes room for so many codes in each inverted list, which would grow by doubling, copy by copy."""
    invlists = faiss_module().extract_index_ivf(faiss_index).invlists
    for number in np.flatnonzero(sizes).tolist():
        invlists.resize(number, int(sizes[number]))
        invlists.resize(number, 0)  # a std::vector keeps its room


def add(faiss_index: Any, rows: Vectors, lists: Lists | None = None) -> None:
    """Adds vectors.

    Args:
        faiss_index: the index, trained.
        rows: (rows, dim) float32, of norm 1.
        lists: (rows,) what :func:`nearest_lists` found; None: FAISS looks for them itself.
    """
    if lists is None:
        faiss_index.add(rows)
        return
    faiss = faiss_module()
    from faiss.contrib.ivf_tools import add_preassigned

    inverted = faiss.downcast_index(faiss.extract_index_ivf(faiss_index))
    add_preassigned(inverted, _transformed(faiss_index, rows), lists.astype(np.int64))
    faiss_index.ntotal = inverted.ntotal


def _transformed(faiss_index: Any, rows: Vectors) -> Vectors:
    """What the transforms in front of an index make of vectors."""
    faiss = faiss_module()
    if isinstance(faiss_index, faiss.IndexPreTransform):
        for number in range(faiss_index.chain.size()):
            rows = faiss.downcast_VectorTransform(faiss_index.chain.at(number)).apply(rows)
    return rows


def read_index(path: Path, *, mmap: bool = False) -> Any:
    """An index from its file; RuntimeError with FAISS's words if it cannot be read.

    Args:
        path: the file.
        mmap: maps the file instead of reading it: codes, lists and graphs stay on disk until a search touches
            them. Fast-scan lists (IVF…,PQ…fs) are read all the same.
    """
    faiss = faiss_module()
    # of the two ways to map, IO_FLAG_MMAP maps inverted lists only
    mapped = getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP)
    return faiss.read_index(str(path), mapped if mmap else 0)


def on_gpu(faiss_index: Any) -> Any:
    """A copy for searching, in float32: on the GPU, or divided among several.

    None without a GPU, for a kind of index that has no GPU form, and where it does not fit; then the CPU
    searches.
    """
    faiss = faiss_module()
    if not _gpus():
        return None
    inner = innermost(faiss_index)
    kinds = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
    if not isinstance(inner, kinds) or isinstance(faiss_index, faiss.IndexRefine):
        return None
    if getattr(inner, "nprobe", 1) > _GPU_PROBES:
        return None
    several = _gpus() > 1
    options = faiss.GpuMultipleClonerOptions() if several else faiss.GpuClonerOptions()
    options.useFloat16 = False  # half precision ranks differently from the CPU
    options.useFloat16CoarseQuantizer = False
    try:
        if several:
            options.shard = True  # each holds a part: together they hold what one could not
            return faiss.index_cpu_to_all_gpus(faiss_index, options)
        return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, faiss_index, options)
    except RuntimeError as error:
        log.warning("the index stays on the CPU: %s", words_of(error))
        return None


def _gpus() -> int:
    # asked by number: a GPU build on a machine without a GPU has all the functions too
    return int(faiss_module().get_num_gpus())


def words_of(error: RuntimeError) -> str:
    """What FAISS says, without the place in its sources."""
    words = str(error).rpartition("Error: ")[2] or str(error)
    return re.sub(r"^.* at \S+\.cpp:\d+: ", "", words.strip())
