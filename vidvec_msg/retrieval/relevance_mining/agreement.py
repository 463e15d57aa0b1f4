"""How far reviewers agree, and what they decide together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from vidvec_msg.retrieval.human_judgement.agreement import cohens_kappa
from vidvec_msg.retrieval.relevance_mining.review_files import Decision

Rule = Literal["all", "majority", "any"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two reviewers on the pairs that both decided.

    Args:
        one: name.
        other: name.
        pairs: that both decided.
        share: of them that both decided alike.
        kappa: Cohen's kappa, agreement beyond chance; None without pairs, or where both gave one and the same
            decision to all, so that chance alone explains everything.
    """

    one: str
    other: str
    pairs: int
    share: float | None
    kappa: float | None


def agreements(decisions: Sequence[Decision]) -> list[Agreement]:
    """Every two reviewers, in alphabetical order."""
    by_reviewer: dict[str, dict[tuple[str, str], bool]] = {}
    for decision in decisions:
        by_reviewer.setdefault(decision.reviewer, {})[decision.pair] = decision.accept
    found = []
    for one, other in combinations(sorted(by_reviewer), 2):
        common = sorted(by_reviewer[one].keys() & by_reviewer[other].keys())
        both = [(by_reviewer[one][pair], by_reviewer[other][pair]) for pair in common]
        alike = sum(left == right for left, right in both) / len(both) if both else None
        left, right = ([int(pair[side]) for pair in both] for side in (0, 1))
        found.append(Agreement(one, other, len(both), alike, cohens_kappa(left, right)))
    return found


def decided(decisions: Sequence[Decision], rule: Rule) -> tuple[list[list[Decision]], list[list[Decision]]]:
    """The pairs that are accepted, each with its decisions, and those on which reviewers differ.

    Args:
        decisions: of one reviewer or several.
        rule: "all" who decided the pair accept it; the "majority" of them does (half is none); or "any".
    """
    pairs: dict[tuple[str, str], list[Decision]] = {}
    for one in decisions:
        pairs.setdefault(one.pair, []).append(one)
    accepted, disputed = [], []
    for _, ones in sorted(pairs.items()):
        yes = sum(one.accept for one in ones)
        if 0 < yes < len(ones):
            disputed.append(ones)
        if yes and (rule == "any" or yes == len(ones) or (rule == "majority" and 2 * yes > len(ones))):
            accepted.append(ones)
    return accepted, disputed
