"""Kernels of cosine search, on arrays: unit vectors in, neighbours in a defined order out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest

Positions = npt.NDArray[np.int64]

EXACT = 1e-6  # how near float32 sums come to 1: dividing by such a norm changes the last bit at most
UNIT = 1e-2  # how far a norm may be from 1: float16 storage is off by 1e-3, vectors without a norm by more


def unit_vectors(
    vectors: npt.NDArray[Any], dim: int, *, name: Callable[[int], str], in_place: bool = False
) -> Vectors:
    """Checked and exactly normalised vectors.

    Args:
        vectors: (rows, dim), floating.
        dim: what the index has.
        name: row → what to call it in an error.
        in_place: float32 vectors may be overwritten, which saves their memory once more; they are left as
            they are where all norms are 1 already.

    Returns:
        (rows, dim) float32, contiguous, each row of norm 1.

    Raises:
        RefusedRequest: another shape, or rows that are not finite or not of norm 1; the first is named.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise RefusedRequest(f"vectors have the shape {vectors.shape}; the index takes (rows, {dim})")
    rows = np.ascontiguousarray(vectors, dtype=np.float32)  # (rows, dim)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))  # (rows,); NaN and inf come through
    bad = np.flatnonzero(~(np.abs(norms - 1) <= UNIT))
    if len(bad):
        row = int(bad[0])
        state = f"norm {norms[row]:.4g}" if np.isfinite(rows[row]).all() else "values that are not finite"
        more = f" (and {len(bad) - 1} more are bad)" if len(bad) > 1 else ""
        raise RefusedRequest(
            f"the vector of {name(row)} has {state}{more}; cosine search takes finite vectors of norm 1"
        )
    if in_place and np.abs(norms - 1).max(initial=0) <= EXACT:
        return rows
    own = rows if in_place or rows.dtype != vectors.dtype else None
    unit: Vectors = np.divide(rows, norms[:, None], out=own)
    return unit


def best_first(scores: Vectors, positions: Positions, id_ranks: npt.NDArray[np.int64]) -> Positions:
    """Neighbours in trec_eval's order: score descending, then id descending.

    Args:
        scores: (queries, found), -inf where nothing was found.
        positions: (queries, found), -1 where nothing was found.
        id_ranks: (count,) position → rank of its id, ascending.

    Returns:
        (queries, found): for each query, the columns in that order; nothing found comes last.
    """
    ranks = np.where(positions >= 0, id_ranks[positions], -1)  # (queries, found)
    return np.lexsort((-ranks, -scores), axis=-1)
