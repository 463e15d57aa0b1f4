"""How far people agree beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number.

Both are None where they are not defined: nobody has judged the same, or all judgements are one and the same,
so that chance alone explains everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

Level = Literal["nominal", "ordinal", "interval"]


def cohens_kappa(
    left: Sequence[int], right: Sequence[int], *, linear: bool = False, categories: Sequence[int] = (0, 1)
) -> float | None:
    """Agreement of two people beyond chance (Cohen 1960); 1 is perfect, 0 is chance.

    Args:
        left: one person's judgements.
        right: the other's, of the same items in the same order.
        linear: two judgements that lie n categories apart disagree n times as much as neighbours (Cohen
            1968); without, any two that differ disagree alike.
        categories: all that there are, in their order, also those that nobody gave.

    Raises:
        ValueError: two sequences of different lengths, or a judgement that is no category.
    """
    if len(left) != len(right):
        raise ValueError(f"{len(left)} judgements of one person and {len(right)} of the other")
    strange = sorted({*left, *right} - set(categories))
    if strange:
        raise ValueError(f"judgements {strange} are none of the categories {list(categories)}")
    if len({*left, *right}) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score  # type: ignore[import-untyped]  # ships no types

    weights = "linear" if linear else None
    return float(cohen_kappa_score(left, right, labels=list(categories), weights=weights))


def krippendorffs_alpha(items: Sequence[Sequence[int]], level: Level) -> float | None:
    """Agreement of any number of people, some of whom may not have judged some items.

    1 - observed / expected disagreement, over the values of all items that at least two people judged
    (Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011).

    Args:
        items: the judgements of each item, in any order.
        level: how far two values lie apart: "nominal" 1 if they differ; "interval" the square of their
            difference; "ordinal" the square of how many values were given between them.
    """
    judged = [item for item in items if len(item) > 1]
    values = sorted({value for item in judged for value in item})
    if len(values) < 2:
        return None
    place = {value: number for number, value in enumerate(values)}
    together = np.zeros((len(values), len(values)))  # (values, values), Krippendorff's coincidences
    for item in judged:
        counts = Counter(place[value] for value in item)
        for one, count in counts.items():
            together[one, one] += count * (count - 1) / (len(item) - 1)
        for one, other in combinations(counts, 2):
            shared = counts[one] * counts[other] / (len(item) - 1)
            together[one, other] += shared
            together[other, one] += shared
    given = together.sum(axis=1)  # (values,)
    apart = _apart(np.array(values, float), given, level)
    by_chance = (np.outer(given, given) - np.diag(given)) / (given.sum() - 1)
    return float(1 - (together * apart).sum() / (by_chance * apart).sum())


def _apart(
    values: npt.NDArray[np.float64], given: npt.NDArray[np.float64], level: Level
) -> npt.NDArray[np.float64]:
    """Squared distances ``(values, values)``."""
    if level == "nominal":
        return 1 - np.eye(len(values))
    # the place of an ordinal value on the line of all that were given, each value's own half included
    line = values if level == "interval" else np.cumsum(given) - given / 2
    return (line[:, None] - line[None, :]) ** 2
