"""What an index has learned, without its vectors; and codes that move into another index as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.checked_index import bounded_by
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index, faiss_module
from vidvec_msg.retrieval.indexes.items import Mask


def empty_like(path: Path, factory: str, dim: int) -> Any:
    """An index with the training of one on disk, and nothing in it.

    What needs no training is made anew. Inverted lists are not read for it; codes without lists are.

    Args:
        path: a FAISS file.
        factory: its factory string.
        dim: dimensions that it takes.
    """
    faiss = faiss_module()
    fresh = empty_index(factory, dim)
    if fresh.is_trained:
        return fresh
    with bounded_by(path):
        found = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    lists = faiss.try_extract_index_ivf(found)
    if lists is not None and isinstance(
        faiss.downcast_InvertedLists(lists.invlists), faiss.OnDiskInvertedLists
    ):
        empty = faiss.ArrayInvertedLists(lists.nlist, lists.code_size)
        lists.replace_invlists(empty, True)
        empty.this.disown()
    found.reset()
    return found


def same_training(paths: Sequence[Path], factory: str, dim: int) -> bool:
    """Whether indexes of one factory have learned the same, so that codes mean the same in all of them."""
    faiss = faiss_module()
    learned = {faiss.serialize_index(empty_like(path, factory, dim)).tobytes() for path in paths}
    return len(learned) == 1


def move_codes(target: Any, sources: Sequence[tuple[Any, Mask]]) -> bool:
    """Moves codes into an empty index of the same training, without decoding them.

    Args:
        target: the index to fill.
        sources: indexes, and which of their positions to take, (ntotal,) each.

    Returns:
        whether this kind of index allows it; if not, ``target`` is no longer of use.
    """
    faiss = faiss_module()
    into = faiss.downcast_index(target)  # does not own it: ``target`` stays its owner
    parts = [(faiss.downcast_index(source), kept) for source, kept in sources]
    moved = False
    if isinstance(into, faiss.IndexPreTransform):
        moved = move_codes(into.index, [(source.index, kept) for source, kept in parts])
    elif isinstance(into, faiss.IndexRefine):
        moved = move_codes(into.base_index, [(source.base_index, kept) for source, kept in parts])
        moved &= move_codes(into.refine_index, [(source.refine_index, kept) for source, kept in parts])
    elif isinstance(into, faiss.IndexIVF):
        moved = _move_lists(into, parts)
    elif type(into) in (
        faiss.IndexFlatIP,
        faiss.IndexFlat,
        faiss.IndexScalarQuantizer,
        faiss.IndexPQ,
        faiss.IndexRaBitQ,
    ):
        codes = [_codes(source)[kept] for source, kept in parts]  # (kept, bytes of a code)
        faiss.copy_array_to_vector(np.concatenate(codes).ravel(), into.codes)
        moved = True
    if moved:
        into.ntotal = sum(int(kept.sum()) for _, kept in parts)
    return moved


def _move_lists(target: Any, parts: Sequence[tuple[Any, Mask]]) -> bool:
    faiss = faiss_module()
    if not isinstance(faiss.downcast_InvertedLists(target.invlists), faiss.ArrayInvertedLists):
        return False  # fast-scan lists hold codes in blocks
    first = 0
    for source, kept in parts:
        places = np.where(kept, first + np.cumsum(kept) - 1, -1).astype(np.int64)  # old position → new one
        first += int(kept.sum())
        for number in range(source.nlist):
            ids, codes = _list(source, number)
            chosen = places[ids] >= 0
            new: Positions = places[ids[chosen]]
            bytes_of = np.ascontiguousarray(codes[chosen])  # named: a pointer does not keep an array alive
            if len(new):
                target.invlists.add_entries(number, len(new), faiss.swig_ptr(new), faiss.swig_ptr(bytes_of))
    return True


def _list(source: Any, number: int) -> tuple[Positions, Any]:
    """Positions and codes of one inverted list, (entries,) and (entries, bytes of a code)."""
    faiss = faiss_module()
    lists = source.invlists
    size = lists.list_size(number)
    if not size:
        return np.zeros(0, np.int64), np.zeros((0, source.code_size), np.uint8)
    ids = faiss.rev_swig_ptr(lists.get_ids(number), size).copy()
    codes = faiss.rev_swig_ptr(lists.get_codes(number), size * source.code_size).copy()
    return ids, codes.reshape(size, source.code_size)


def _codes(source: Any) -> Any:
    faiss = faiss_module()
    return faiss.vector_to_array(source.codes).reshape(source.ntotal, source.code_size)
