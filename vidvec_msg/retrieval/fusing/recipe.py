"""How lists are joined: the method, what scores are brought to before, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vidvec_msg.errors import Problems

Method = Literal["rrf", "sum", "mnz", "max"]
Normalize = Literal["min-max", "sum", "zmuv", "rank"]

RRF_K = 60
"""Of Cormack, Clarke and Büttcher (SIGIR 2009), who found results to depend little on it."""

_WEIGHTED = "sum"  # the method that takes weights


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to join lists.

    Args:
        method: "rrf", the sum of 1 / (k + rank); of normalised scores "sum" (CombSUM; with weights, their
            weighted sum), "mnz" (CombMNZ: the sum, times the number of lists that have the document) or "max"
            (CombMAX).
        normalize: of each query's scores within a run. "min-max" to 0 … 1, "sum" to a least of 0 and a sum of
            1, "zmuv" to mean 0 and variance 1, "rank" to 1 for the first place and evenly down from there.
            Not used by rrf.
        weights: a run; None for equal ones.
        k: of rrf.
    """

    method: Method = "rrf"
    normalize: Normalize = "min-max"
    weights: tuple[float, ...] | None = None
    k: int = RRF_K

    @property
    def words(self) -> str:
        """For tables: "rrf", "sum of min-max scores, weights 0.7 and 0.3"."""
        if self.method == "rrf":
            return "rrf" if self.k == RRF_K else f"rrf, k {self.k}"
        weights = "" if self.weights is None else f", weights {' and '.join(f'{w:g}' for w in self.weights)}"
        return f"{self.method} of {self.normalize} scores{weights}"

    def to_dict(self) -> dict[str, Any]:
        """Its part of ``report.json``."""
        rrf = self.method == "rrf"
        return {
            "method": self.method,
            "normalize": None if rrf else self.normalize,
            "weights": None if self.weights is None else list(self.weights),
            "k": self.k if rrf else None,
        }


def checked_recipe(
    method: str, normalize: str, weights: Sequence[float] | None, k: int, *, runs: int, validated: bool
) -> Recipe:
    """A recipe from a request.

    Args:
        method: see :class:`Recipe`, like the next three.
        normalize: see there.
        weights: see there.
        k: see there.
        runs: how many there are.
        validated: weights are to be chosen on validation queries.

    Raises:
        RefusedRequest: what is wrong, all of it in one message.
    """
    problems = Problems("this fusion is not possible")
    if method not in get_args(Method):
        problems.add(f"method is {method!r}; it is one of {', '.join(get_args(Method))}")
    if normalize not in get_args(Normalize):
        problems.add(f"normalize is {normalize!r}; it is one of {', '.join(get_args(Normalize))}")
    if k < 1:
        problems.add(f"k is {k}; it is at least 1 (60 is usual)")
    if method != _WEIGHTED and (weights is not None or validated):
        given = "weights were given" if weights is not None else "validation runs choose weights"
        problems.add(f"{given}, and method {method!r} takes none; method 'sum' does")
    if weights is not None:
        if validated:
            problems.add("weights are given and to be chosen on validation runs; leave one of the two out")
        if len(weights) != runs:
            problems.add(f"there are {runs} runs and {len(weights)} weights; give one a run")
        if any(not 0 <= weight < float("inf") for weight in weights) or not any(weights):
            given = ", ".join(f"{weight:g}" for weight in weights)
            problems.add(f"weights are {given}; they are 0 or more, and not all 0")
    problems.refuse_if_any()
    return Recipe(method, normalize, None if weights is None else tuple(map(float, weights)), k)  # type: ignore[arg-type]  # checked above
