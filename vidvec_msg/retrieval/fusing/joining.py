"""One list out of several: normalised scores or reciprocal ranks, added up.

The formulas are ranx's, and a test compares the two. ranx's own functions are not called: numba compiles them
anew for every width of ids, which took minutes before the first list was there, and they hold lists as
dictionaries of strings, where these are arrays already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vidvec_msg.retrieval.evaluation.ranking import Floats, Ints
from vidvec_msg.retrieval.fusing.recipe import Recipe

_LEAST = 1e-9  # divisor of a list whose scores are all equal, as in ranx

OneList = tuple[Ints, Floats]
"""Columns of the candidates, best first, and their scores; ``(listed,)`` both."""


def joined(lists: Sequence[OneList], recipe: Recipe) -> OneList:
    """Columns that are in any of the lists, and their fused scores; in no particular order.

    Args:
        lists: of one query, one a run, best first.
        recipe: how they are joined.
    """
    weights = recipe.weights or [1.0] * len(lists)
    parts = [normalised(scores, recipe) * weight for (_, scores), weight in zip(lists, weights, strict=True)]
    columns, place = np.unique(np.concatenate([columns for columns, _ in lists]), return_inverse=True)
    values = np.concatenate(parts)
    if recipe.method == "max":
        fused = np.full(len(columns), -np.inf)
        np.maximum.at(fused, place, values)
        return columns, fused
    total: Floats = np.bincount(place, weights=values, minlength=len(columns)).astype(np.float64)
    if recipe.method == "mnz":
        total = total * np.bincount(place, minlength=len(columns))
    return columns, total


def normalised(scores: Floats, recipe: Recipe) -> Floats:
    """What a list gives to its documents, ``(listed,)``, before weights.

    Args:
        scores: falling.
        recipe: its method, k and normalisation are used.
    """
    count = len(scores)
    places = np.arange(count, dtype=np.float64)
    if recipe.method == "rrf":
        return 1 / (recipe.k + places + 1)
    if not count:
        return places
    match recipe.normalize:
        case "rank":
            return 1 - places / count
        case "min-max":
            return np.asarray((scores - scores.min()) / max(float(np.ptp(scores)), _LEAST))
        case "sum":
            spread = float(scores.sum() - scores.min() * count)
            return np.asarray((scores - scores.min()) / max(spread, _LEAST))
        case _:
            return np.asarray((scores - scores.mean()) / max(float(scores.std()), _LEAST))
