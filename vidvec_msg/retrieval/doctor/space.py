"""Kernels on arrays: how alike two sets of vectors are, and how a set fills its space."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def row_cosines(one: Matrix, other: Matrix) -> npt.NDArray[np.float64]:
    """Cosine of each row with the same row of the other matrix, (rows,); two zero rows are the same."""
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    products = np.maximum(lengths[0] * lengths[1], 1e-30)
    cosines: npt.NDArray[np.float64] = np.einsum("ij,ij->i", one, other) / products
    return np.where((lengths[0] == 0) & (lengths[1] == 0), 1.0, cosines)


def least_cosine(one: Matrix, other: Matrix) -> float:
    """The worst agreement of two sets of vectors, row by row; 1 for no rows."""
    return float(row_cosines(one, other).min()) if len(one) else 1.0


def unit(vectors: Matrix) -> Matrix:
    """Rows of norm 1; a zero row stays zero."""
    scaled: Matrix = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    return scaled


def mean_pairwise_cosine(vectors: Matrix) -> float:
    """Mean cosine of all pairs of different rows.

    Args:
        vectors: (rows, dim), at least two rows.
    """
    rows = unit(vectors)
    count = len(rows)
    return float((np.square(rows.sum(axis=0)).sum() - count) / (count * (count - 1)))


def mean_norm(vectors: Matrix) -> float:
    """Norm of the mean of unit vectors: 0 for a space without a common direction, 1 if all are the same."""
    return float(np.linalg.norm(unit(vectors).mean(axis=0)))


def top_component_share(vectors: Matrix) -> float:
    """Share of the variance around the mean that lies on the first principal component.

    ``rows - 1`` equally used directions give ``1 / (rows - 1)``; 1 says that a single direction tells the
    items apart. 0 if all rows are the same.
    """
    rows = unit(vectors)
    variances = np.square(np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False))
    total = float(variances.sum())
    return float(variances[0]) / total if total > 1e-12 else 0.0


def as_permutation(singles: Matrix, batch: Matrix, least: float) -> npt.NDArray[np.int64] | None:
    """The rows of ``batch`` in the order of ``singles``, if it holds the same vectors in another order.

    Args:
        singles: (rows, dim).
        batch: (rows, dim).
        least: cosine from which two vectors are the same.

    Returns:
        the row of each single vector in the batch; None if the vectors are not the same ones, or in order.
    """
    cosines = unit(singles) @ unit(batch).T  # (rows, rows)
    if (row_cosines(singles, batch) >= least).all():
        return None
    found = cosines.argmax(axis=1)
    matched = cosines[np.arange(len(singles)), found] >= least
    return found if matched.all() and len(set(found.tolist())) == len(found) else None
