"""Ratings and a rule → which candidates stay, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from vidvec_msg.data_synth.annotation.candidates import Candidate
from vidvec_msg.data_synth.annotation.ratings import Ratings
from vidvec_msg.data_synth.annotation.rule import CONDITIONS, TOO_FEW, Rule
from vidvec_msg.data_synth.funnel import Stage

NOT_RATED = "nobody rated it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows for a candidate.

    Args:
        candidate: it.
        ratings: rater → rating.
        failed: conditions of the rule that it does not meet; none if it stays.
    """

    candidate: Candidate
    ratings: Mapping[str, int]
    failed: tuple[str, ...]

    @property
    def stays(self) -> bool:
        """Whether it meets the rule."""
        return not self.failed

    @property
    def mean(self) -> float | None:
        """Mean rating; None without any."""
        return fmean(self.ratings.values()) if self.ratings else None

    def row(self) -> dict[str, Any]:
        """As a line of ``ratings.jsonl``."""
        one = self.candidate
        return {
            "task_id": one.task,
            "message_id": one.message_id,
            "clip_id": one.clip_id,
            "ratings": dict(self.ratings),
            "mean": None if self.mean is None else round(self.mean, 4),
            "kept": self.stays,
            "failed": list(self.failed),
        }


def verdicts(candidates: Sequence[Candidate], ratings: Ratings, rule: Rule) -> list[Verdict]:
    """One per candidate, in their order."""
    made = []
    for one in candidates:
        given = ratings.of_task.get(one.task, {})
        failed = rule.failed(list(given.values())) if given else [NOT_RATED]
        made.append(Verdict(one, given, tuple(failed)))
    return made


def funnel_of(found: Sequence[Verdict]) -> list[Stage]:
    """The way from candidates to those that stay; a candidate goes with the first condition that it fails."""
    first = Counter(one.failed[0] for one in found if one.failed)
    way = [Stage("candidates", len(found), _of(first, [NOT_RATED]))]
    way.append(Stage("rated", way[-1].left, _of(first, [TOO_FEW])))
    for condition in CONDITIONS[1:]:
        way.append(Stage(_STEPS[condition], way[-1].left, _of(first, [condition])))
    return way


def overlapping(found: Sequence[Verdict]) -> dict[str, int]:
    """How many candidates fail each condition, whatever else they fail."""
    return {name: sum(name in one.failed for one in found) for name in (NOT_RATED, *CONDITIONS)}


_STEPS = dict(zip(CONDITIONS[1:], ("not too obvious", "no very low rating", "majority of high"), strict=True))


def _of(counts: Mapping[str, int], names: Sequence[str]) -> dict[str, int]:
    return {name: counts[name] for name in names if counts[name]}
