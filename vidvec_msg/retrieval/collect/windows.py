"""Long clips become windows of one length."""

from __future__ import annotations


def windows(duration: float, length: float, overlap: float = 0.0) -> list[tuple[float, float]]:
    """Segments that cover a clip, all of the same length.

    They begin every ``length - overlap`` seconds; the last one is moved back so that it ends with the clip
    and is as long as the others. A clip that is no longer than one window is not cut.

    Args:
        duration: of the clip, in seconds.
        length: of a window.
        overlap: seconds that neighbours share.

    Returns:
        start and end of each in seconds; empty for a clip that is not cut.

    Raises:
        ValueError: a length or an overlap that no window can have.
    """
    if not length > 0:
        raise ValueError(f"window is {length}; it must be above 0 s")
    if not 0 <= overlap < length:
        raise ValueError(f"overlap is {overlap}; it must be at least 0 s and below the window's {length} s")
    if duration <= length:
        return []
    step, last = length - overlap, round(duration - length, 3)
    found = []
    start = 0.0
    while round(start, 3) < last:  # in milliseconds, as they are written: else the last could stand twice
        found.append((round(start, 3), round(start + length, 3)))
        start = len(found) * step
    found.append((last, round(duration, 3)))
    return found
