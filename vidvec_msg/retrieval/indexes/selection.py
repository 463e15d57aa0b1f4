"""Search in a part of a FAISS index: which kinds take a selector, and how much harder they have to look."""

from __future__ import annotations

from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.faiss_engine import faiss_module, innermost
from vidvec_msg.retrieval.indexes.items import Mask


def is_graph(faiss_index: Any) -> bool:
    """Whether a search walks from vector to vector."""
    faiss = faiss_module()
    return isinstance(innermost(faiss_index), faiss.IndexHNSW | faiss.IndexNSG | faiss.IndexNNDescent)


def is_exhaustive(faiss_index: Any) -> bool:
    """Whether a search compares every code, so that no filter can hide one."""
    return not is_graph(faiss_index) and not isinstance(innermost(faiss_index), faiss_module().IndexIVF)


def gives_back(faiss_index: Any) -> bool:
    """Whether vectors can be asked back; the process would crash over inverted lists of fast-scan codes."""
    return not isinstance(innermost(faiss_index), faiss_module().IndexIVFFastScan)


def untransformed(faiss_index: Any, queries: Vectors) -> tuple[Any, Vectors]:
    """The index below the transforms, and queries as it takes them; without any, both as they are."""
    faiss = faiss_module()
    found = faiss.downcast_index(faiss_index)
    if not isinstance(found, faiss.IndexPreTransform):
        return found, queries
    for number in range(found.chain.size()):
        queries = faiss.downcast_VectorTransform(found.chain.at(number)).apply(queries)
    return faiss.downcast_index(found.index), queries


def search_among(
    faiss_index: Any, queries: Vectors, k: int, allowed: Mask, *, harder: float = 1
) -> tuple[Vectors, Positions]:
    """The k nearest of each query among allowed positions.

    Kinds that take no selector (PQ, NSG, and fast-scan codes without lists) are asked for more, and for more
    again, until enough of what they give is allowed.

    Args:
        faiss_index: the index.
        queries: (queries, dim) as the index takes them.
        k: neighbours per query.
        allowed: (ntotal,).
        harder: how many times more lists, or nodes of a graph, are visited than the index says.

    Returns:
        scores and positions, (queries, k) both; -1 where no more was found.
    """
    try:
        parameters = _parameters(faiss_index, np.packbits(allowed, bitorder="little"), harder)
        found: tuple[Vectors, Positions] = faiss_index.search(queries, k, params=parameters)
    except RuntimeError as error:
        if not any(words in str(error) for words in ("not supported", "invalid search params")):
            raise
        return _asked_for_more(faiss_index, queries, k, allowed)
    return found


def _parameters(faiss_index: Any, bits: Any, harder: float) -> Any:
    """FAISS's search parameters for an index and what it contains, with a bitmap of what is allowed."""
    faiss = faiss_module()
    found = faiss.downcast_index(faiss_index)
    if isinstance(found, faiss.IndexPreTransform):
        inner = _parameters(found.index, bits, harder)
        return faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(found, faiss.IndexRefine):
        inner = _parameters(found.base_index, bits, harder)
        return faiss.IndexRefineSearchParameters(base_index_params=inner, k_factor=found.k_factor)
    selector = faiss.IDSelectorBitmap(bits)
    if isinstance(found, faiss.IndexIVF):
        nprobe = min(int(np.ceil(found.nprobe * harder)), found.nlist)
        if isinstance(found, faiss.IndexIVFPQ):
            table = found.polysemous_ht
            return faiss.IVFPQSearchParameters(sel=selector, nprobe=nprobe, polysemous_ht=table)
        return faiss.SearchParametersIVF(sel=selector, nprobe=nprobe)
    if isinstance(found, faiss.IndexHNSW):
        visited = min(int(np.ceil(found.hnsw.efSearch * harder)), found.ntotal)
        return faiss.SearchParametersHNSW(sel=selector, efSearch=visited)
    return faiss.SearchParameters(sel=selector)


def search_among_nearly_all(
    faiss_index: Any, queries: Vectors, k: int, allowed: Mask, *, most: int
) -> tuple[Vectors, Positions] | None:
    """The k nearest of each query where all but a few positions are allowed: a plain search for a few more.

    It needs no selector, so that the index may lie on a GPU, and spares the bitmap and a look into it for
    every vector.

    Args:
        faiss_index: the index, also one on GPUs.
        queries: (queries, dim) as the index takes them.
        k: neighbours per query.
        allowed: (ntotal,).
        most: neighbours that may be asked for.

    Returns:
        as :func:`search_among`; None where the nearest of some query are the very ones that are left out, or
        more would have to be asked for than may be.
    """
    left_out = len(allowed) - int(np.count_nonzero(allowed))
    asked = min(k + min(left_out, k // 4 + 8), len(allowed))
    if asked > most:
        return None
    scores, positions = faiss_index.search(queries, asked)  # (queries, asked), both
    kept = (positions >= 0) & allowed[positions]  # -1 is no position: the first condition says so
    enough = min(k, len(allowed) - left_out)
    return None if _is_short(kept, positions, enough).any() else _of_kept(scores, positions, kept, k)


def _asked_for_more(faiss_index: Any, queries: Vectors, k: int, allowed: Mask) -> tuple[Vectors, Positions]:
    count, enough = faiss_index.ntotal, min(k, int(allowed.sum()))
    asked = min(2 * k * count // max(enough and int(allowed.sum()), 1) + 16, count)
    while True:
        scores, positions = faiss_index.search(queries, asked)  # (queries, asked), both
        kept = (positions >= 0) & allowed[positions]  # -1 is no position: the first condition says so
        if asked == count or not _is_short(kept, positions, enough).any():
            return _of_kept(scores, positions, kept, k)
        asked = min(4 * asked, count)


def _is_short(kept: Mask, positions: Positions, enough: int) -> Mask:
    """(queries,): fewer than enough are kept, although there was more to be found."""
    short: Mask = (kept.sum(axis=1) < enough) & (positions[:, -1] >= 0)
    return short


def _of_kept(scores: Vectors, positions: Positions, kept: Mask, k: int) -> tuple[Vectors, Positions]:
    """The k best of those that are kept, in their order; -inf and -1 where there are fewer."""
    order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
    scores = np.where(kept, scores, np.float32(-np.inf))
    positions = np.where(kept, positions, -1)
    found = np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)
    missing = k - found[0].shape[1]
    return (
        np.pad(found[0], ((0, 0), (0, missing)), constant_values=-np.inf),
        np.pad(found[1], ((0, 0), (0, missing)), constant_values=-1),
    )
