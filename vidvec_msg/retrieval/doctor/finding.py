"""What a check found: a verdict, a number, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Verdict = Literal["ok", "warn", "fail", "n/a", "skipped"]
"""``ok``; ``warn``: look at it; ``fail``: numbers made with this are wrong, or jobs will end early; ``n/a``:
the check does not apply here; ``skipped``: there was no time left for it."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_SHOWN = 3  # examples that a finding names


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Args:
        name: of the check, the same in every version; what programs go by.
        verdict: see :data:`Verdict`.
        value: the number or word that the verdict rests on; None where there is none.
        found: what was measured and what came out, in one line.
        advice: what to do; empty where nothing is to be done.
        examples: the first things that are meant, for example ids.
    """

    name: str
    verdict: Verdict
    value: float | int | str | None = None
    found: str = ""
    advice: str = ""
    examples: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "value": self.value,
            "found": self.found,
            "advice": self.advice,
            "examples": list(self.examples),
        }


def not_applicable(name: str, reason: str) -> Finding:
    """The finding of a check that has nothing to look at."""
    return Finding(name, "n/a", found=reason)


def judged(name: str, fine: bool, otherwise: Verdict = "fail", **content: Any) -> Finding:
    """A finding whose advice is kept only where something is wrong."""
    if fine:
        content.pop("advice", None)
    return Finding(name, "ok" if fine else otherwise, **content)


def counted(
    name: str, cases: Sequence[str], *, otherwise: Verdict, what: str, none: str, advice: str = ""
) -> Finding:
    """A finding that counts cases and gives the first ones as examples; none is fine.

    Args:
        name: of the check.
        cases: one line each.
        otherwise: the verdict if there is one.
        what: of which there are so many: "rows without their file".
        none: what is said if there is none.
        advice: what to do about them.
    """
    if not cases:
        return Finding(name, "ok", value=0, found=none)
    return Finding(name, otherwise, len(cases), f"{what}: {len(cases)}", advice, tuple(cases[:_SHOWN]))


def worst(findings: Sequence[Finding]) -> Literal["ok", "warn", "fail"]:
    """The verdict of all together; what does not apply or was skipped does not count."""
    verdicts = {finding.verdict for finding in findings}
    return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"
