"""What any embedder's vectors must be, whoever wrote it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item

NORM_TOLERANCE = 1e-3  # bf16 has 8 bits of mantissa; a vector normalised in it misses 1 by up to 4e-3 / 4
COLLAPSED_FROM = 0.98  # mean pairwise cosine; a stray BOS token produced 0.99 where 0.3–0.8 is usual
COLLAPSE_ITEMS = 8  # fewer say nothing about a space


class CollapsedSpaceWarning(UserWarning):
    """Different items get almost the same vector."""


def check_vectors(vectors: object, items: Sequence[Item], card: EmbedderCard) -> Vectors:
    """The vectors, if they keep the contract.

    Args:
        vectors: what ``encode`` returned.
        items: what it was given.
        card: of the embedder.

    Returns:
        the same array, (items, dim) float32.

    Raises:
        TypeError: not an array of float32.
        ValueError: wrong shape.
        ItemError: rows that are not finite or not of norm 1, each named.
    """
    name = f"embedder {card.name!r}"
    if not isinstance(vectors, np.ndarray):
        raise TypeError(f"{name} returned {type(vectors).__name__}, not a numpy array")
    if vectors.dtype != np.float32:
        raise TypeError(f"{name} returned {vectors.dtype} vectors; the contract says float32")
    if vectors.shape != (len(items), card.dim):
        raise ValueError(
            f"{name} returned shape {vectors.shape} for {len(items)} items; its card says (items, {card.dim})"
        )
    finite = [bool(np.isfinite(row).all()) for row in vectors]
    norms = np.linalg.norm(np.where(np.isfinite(vectors), vectors, 0.0), axis=1)
    failures = [
        Failure(item.id, f"{name} gave a vector that is not finite")
        if not fine
        else Failure(item.id, f"{name} gave a vector of norm {norm:.4g}, not 1")
        for item, fine, norm in zip(items, finite, norms.tolist(), strict=True)
        if not fine or abs(norm - 1) > NORM_TOLERANCE
    ]
    if failures:
        raise ItemError(failures)
    return vectors


def unit_vectors(states: np.ndarray, items: Sequence[Item], *, dtype: str = "float32") -> Vectors:
    """Float32 rows of norm 1 from raw states.

    Args:
        states: (items, dim), any float dtype.
        items: for the names.
        dtype: in which they were computed; named where a state is not finite.

    Raises:
        ItemError: rows that are not finite, or zero; never a NaN or a zero vector.
    """
    advice = "" if dtype == "float32" else f" in {dtype}; try dtype=float32"
    states = np.asarray(states, dtype=np.float32)
    norms = np.linalg.norm(states.astype(np.float64), axis=1)  # (items,)
    failures = []
    for item, norm in zip(items, norms, strict=True):
        if not np.isfinite(norm):
            failures.append(Failure(item.id, f"the model gave a vector that is not finite{advice}"))
        elif norm < 1e-12:
            failures.append(Failure(item.id, "the model gave a zero vector"))
    if failures:
        raise ItemError(failures)
    unit: Vectors = (states / norms[:, None]).astype(np.float32)  # (items, dim)
    return unit


def warn_if_collapsed(vectors: Vectors, items: Sequence[Item], *, name: str) -> bool:
    """Warns when different items get almost the same vector.

    Args:
        vectors: (items, dim), rows of norm 1.
        items: what they stand for; repeated texts count once.
        name: of the embedder.

    Returns:
        whether there were enough different items to judge.
    """
    rows = list({item.full_text or item.id: row for row, item in enumerate(items)}.values())
    if len(rows) < COLLAPSE_ITEMS:
        return False
    distinct = vectors[rows].astype(np.float64)
    count = len(rows)
    mean = (np.square(distinct.sum(axis=0)).sum() - count) / (count * (count - 1))
    if mean > COLLAPSED_FROM:
        warnings.warn(
            f"embedder {name!r}: the mean pairwise cosine of {count} different items is {mean:.3f}. The "
            "vectors hardly differ: look at the layer, the pooling, the prompt, and stray special tokens.",
            CollapsedSpaceWarning,
            stacklevel=3,
        )
    return True
