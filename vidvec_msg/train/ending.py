"""The last lines of a fit: what retrieval was before training and what it is in the embedder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vidvec_msg.train.measurement import DIRECTIONS

Table = Mapping[int, Mapping[str, float]]
"""Step → metric → value, as in metrics.csv."""


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of one direction before and after.

    Args:
        prefix: of the measurement.
        direction: "forward" or "reverse".
        metric: its name.
        before: before the first step; None if it was not measured.
        after: at the embedder's step, or where it was last measured before that.
        step: at which ``after`` was measured.
    """

    prefix: str
    direction: str
    metric: str
    before: float | None
    after: float
    step: int

    @property
    def name(self) -> str:
        """In full, as in metrics.csv."""
        return f"{self.prefix}/{self.direction}/{self.metric}"


def changes(table: Table, step: int) -> list[Change]:
    """Every retrieval metric of a run, measurement after measurement.

    Args:
        table: rows of metrics.csv.
        step: optimizer steps of the weights that the embedder holds.
    """
    found: dict[str, Change] = {}
    for row in sorted(table):
        for name, value in table[row].items():
            prefix, direction, metric = split_name(name)
            if direction and row <= step:
                before = found[name].before if name in found else value if row == 0 else None
                found[name] = Change(prefix, direction, metric, before, value, row)
    order = {direction: place for place, direction in enumerate(DIRECTIONS)}
    return sorted(
        (change for change in found.values() if change.step), key=lambda c: (c.prefix, order[c.direction])
    )


def split_name(name: str) -> tuple[str, str, str]:
    """Prefix, direction and metric of a retrieval metric's full name; no direction for other metrics."""
    prefix, _, metric = name.rpartition("/")
    prefix, _, direction = prefix.rpartition("/")
    return (prefix, direction, metric) if prefix and direction in DIRECTIONS else (name, "", "")


def told(found: Iterable[Change]) -> list[str]:
    """One line per measurement and direction: ``val/forward (step 80): map 0.2102 → 0.9114``."""
    lines: dict[str, list[str]] = {}
    for change in found:
        before = "" if change.before is None else f"{change.before:.4f} → "
        lines.setdefault(f"{change.prefix}/{change.direction} (step {change.step})", []).append(
            f"{change.metric} {before}{change.after:.4f}"
        )
    return [f"{place}: {', '.join(parts)}" for place, parts in lines.items()]


def no_better(found: Iterable[Change]) -> list[str]:
    """Directions whose metrics all are no higher than before training, although they were measured then."""
    of_place: dict[str, list[bool]] = {}
    for change in found:
        if change.before is not None:
            place = f"{change.prefix}/{change.direction}"
            of_place.setdefault(place, []).append(change.after <= change.before)
    return [place for place, worse in of_place.items() if all(worse)]
