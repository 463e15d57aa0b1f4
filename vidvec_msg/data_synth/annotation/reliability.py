"""How far raters agree: average pairwise linear-weighted kappa, and Krippendorff's alpha (VidMsg §4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from vidvec_msg.data_synth.annotation.scale import COLLAPSED, SCALE, collapsed
from vidvec_msg.retrieval.human_judgement.agreement import cohens_kappa, krippendorffs_alpha

Given = Mapping[str, Mapping[str, int]]
"""Task → rater → rating."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Agreement on one scale over some tasks. None: not defined, as too few rated the same, or all alike.

    Args:
        tasks: with two ratings or more.
        pairs: of raters with a task in common whose kappa is defined.
        undefined_pairs: with a task in common, who gave one and the same rating to all of them.
        kappa: mean over the pairs of raters, each counting once.
        kappa_by_place: mean over the pairs of places: the first rating of each task beside the second, and so
            on, as tables of a crowd have them, where two people share few tasks.
        alpha_ordinal: Krippendorff's; ranks apart.
        alpha_interval: Krippendorff's; steps apart, squared.
    """

    tasks: int
    pairs: int
    undefined_pairs: int
    kappa: float | None
    kappa_by_place: float | None
    alpha_ordinal: float | None
    alpha_interval: float | None


def reliability(given: Given, *, tasks: Collection[str] | None = None, collapse: bool = False) -> Reliability:
    """Agreement over all tasks, or some of them.

    Args:
        given: task → rater → rating, raters in the order in which they stand in the files.
        tasks: that count; all if not given.
        collapse: compare negative (1, 2), neutral (3) and positive (4 to 6) instead of the six steps.
    """
    chosen = {
        task: {rater: collapsed(rating) if collapse else rating for rater, rating in ratings.items()}
        for task, ratings in given.items()
        if len(ratings) > 1 and (tasks is None or task in tasks)
    }
    categories = COLLAPSED if collapse else SCALE
    kappas, undefined = _kappas(chosen, categories)
    places = {
        task: {str(place): rating for place, rating in enumerate(ratings.values())}
        for task, ratings in chosen.items()
    }
    items = [list(ratings.values()) for ratings in chosen.values()]
    return Reliability(
        len(chosen),
        len(kappas),
        undefined,
        _mean(kappas),
        _mean(_kappas(places, categories)[0]),
        krippendorffs_alpha(items, "ordinal"),
        krippendorffs_alpha(items, "interval"),
    )


def _kappas(given: Given, categories: Sequence[int]) -> tuple[list[float], int]:
    """Kappa of every two who rated a task in common, where it is defined; and where not, how many."""
    common: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for ratings in given.values():
        for one, other in combinations(sorted(ratings), 2):
            left, right = common.setdefault((one, other), ([], []))
            left.append(ratings[one])
            right.append(ratings[other])
    kappas = [
        cohens_kappa(left, right, linear=True, categories=categories) for left, right in common.values()
    ]
    defined = [kappa for kappa in kappas if kappa is not None]
    return defined, len(kappas) - len(defined)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
