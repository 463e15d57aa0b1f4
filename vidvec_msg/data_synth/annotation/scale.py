"""The scale on which people rate: 1 to 5, and one step further "too obvious" (VidMsg §3, §4)."""

from __future__ import annotations

TOO_OBVIOUS = 6
SCALE = (1, 2, 3, 4, 5, TOO_OBVIOUS)

COLLAPSED = (0, 1, 2)
"""Negative (1, 2), neutral (3), positive (4 to 6): the collapsed scale of VidMsg §4."""

MEANINGS = {
    1: "nothing to do with the message",
    2: "touches it, but does not convey it",
    3: "conveys it in part, or only to some viewers",
    4: "conveys it, without saying it",
    5: "conveys it strongly, without saying it",
    TOO_OBVIOUS: "too obvious: the message is said, sung, or written on the screen",
}
"""What a rater is told about each step, in words of ours: VidMsg's instructions (Fig. A2) are a picture."""

_WORDS = {"too obvious": TOO_OBVIOUS, "too_obvious": TOO_OBVIOUS, "obvious": TOO_OBVIOUS}
NOT_RATED = ("", "-", "na", "n/a", "nan", "none", "null", "skip", "cannot judge")
"""Cells of a clip that somebody was asked about and did not rate, without case."""


def collapsed(rating: int) -> int:
    """A rating on the collapsed scale."""
    return 0 if rating < 3 else 1 if rating == 3 else 2


def rating_of(cell: str) -> int | None:
    """What a cell of a ratings file says; None if it was not rated.

    Raises:
        ValueError: it is none of 1 to 6, "too obvious" and :data:`NOT_RATED`.
    """
    text = cell.strip().casefold()
    if text in NOT_RATED:
        return None
    if text in _WORDS:
        return _WORDS[text]
    value = float(text)  # "4.0" is what tables make of 4 beside an empty cell
    if value not in SCALE:
        raise ValueError(f"{cell} is not on the scale")
    return int(value)
