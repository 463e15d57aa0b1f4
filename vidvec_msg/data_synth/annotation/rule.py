"""Which candidates stay: a rule over the ratings of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from vidvec_msg.data_synth.annotation.scale import TOO_OBVIOUS
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean
from vidvec_msg.yaml_files import read_table

TOO_FEW = "too few ratings"
OBVIOUS = "too obvious"
VERY_LOW = "a very low rating"
NO_MAJORITY = "no majority of high ratings"
CONDITIONS = (TOO_FEW, OBVIOUS, VERY_LOW, NO_MAJORITY)
"""In the order in which a candidate that fails several of them is counted."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a candidate stays; by default VidMsg's rule (§3): a majority of 4 or 5, no 1, no "too obvious".

    Args:
        high: rating from which a rating is high; "too obvious" is above 5.
        share: of a candidate's ratings that must be exceeded by high ones.
        low: highest rating that nobody may give; 0 allows all.
        obvious: people who may find the message too obvious.
        least_raters: ratings that a candidate needs. VidMsg had three each. Where one of three is missing,
            both others must be high to exceed half, which would be a majority of three as well: hence 2.
    """

    high: int = 4
    share: float = 0.5
    low: int = 1
    obvious: int = 0
    least_raters: int = 2

    def __post_init__(self) -> None:
        problems = Problems("rule")
        for name, least, most in (
            ("high", 1, 5),
            ("low", 0, 5),
            ("obvious", 0, None),
            ("least_raters", 1, None),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                problems.add(f"{name} is {value!r}; it must be a whole number")
            elif value < least or (most is not None and value > most):
                bound = f"between {least} and {most}" if most is not None else f"at least {least}"
                problems.add(f"{name} is {value}; it must be {bound}")
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share < 1:
            problems.add(f"share is {self.share!r}; it is at least 0 and below 1 (0.5: a majority)")
        problems.refuse_if_any()

    def failed(self, ratings: Sequence[int]) -> list[str]:
        """The conditions that a candidate does not meet, as ordered in :data:`CONDITIONS`; none if it stays.

        Args:
            ratings: of one candidate, 1 to 6.
        """
        if len(ratings) < self.least_raters:
            return [TOO_FEW]  # the others cannot be told from so few
        failed = []
        if sum(rating == TOO_OBVIOUS for rating in ratings) > self.obvious:
            failed.append(OBVIOUS)
        if min(ratings) <= self.low:
            failed.append(VERY_LOW)
        if not sum(rating >= self.high for rating in ratings) > self.share * len(ratings):
            failed.append(NO_MAJORITY)
        return failed


def load_rule(path: Path) -> Rule:
    """A rule from a YAML file, whose keys are the arguments of :class:`Rule`.

    Raises:
        RefusedRequest: no such file, an unknown key, or a value out of its range.
    """
    known = [one.name for one in fields(Rule)]
    content = read_table(path, what="rule", holds=f"some of {', '.join(known)}")
    problems = Problems(f"rule {path}")
    for name in content:
        if name not in known:
            problems.add(f"unknown key {name!r}{did_you_mean(str(name), known)}; known: {', '.join(known)}")
    problems.refuse_if_any()
    try:
        return Rule(**content)
    except RefusedRequest as refusal:
        raise RefusedRequest(str(refusal).replace("rule:", f"rule {path}:", 1)) from None
