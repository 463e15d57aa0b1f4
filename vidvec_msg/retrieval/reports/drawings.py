"""Curves for reports as inline drawings: distributions of scores, and differences query by query.

They take their colours from the page's style sheet and follow its light and dark form.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT = 640, 260  # units of the drawing; the page scales it
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 34


def curves(
    thresholds: Sequence[float],
    lines: Sequence[tuple[str, Sequence[float]]],
    *,
    across: str,
    label: str,
) -> Markup:
    """Cumulative shares over a threshold.

    Args:
        thresholds: rising.
        lines: class of the line in the style sheet, and its share (0 to 1) at each threshold.
        across: what the thresholds are.
        label: the drawing in words, for those who do not see it.
    """
    low, high = thresholds[0], thresholds[-1]
    span = (high - low) or 1.0

    def x(value: float) -> float:
        return _LEFT + (value - low) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(share: float) -> float:
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for share in (0.0, 0.5, 1.0):
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(share):.1f}" '
            f'y2="{y(share):.1f}"/>'
        )
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{y(share) + 4:.1f}">{share:.0%}</text>')
    for place in range(5):
        value = low + place / 4 * span
        parts.append(f'<text class="middle" x="{x(value):.1f}" y="{_HEIGHT - 18}">{value:.2f}</text>')
    parts.append(
        f'<text class="middle" x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 3}">{Markup.escape(across)}</text>'
    )
    for name, shares in lines:
        points = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in zip(thresholds, shares, strict=True))
        parts.append(f'<polyline class="{name}" points="{points}"/>')
    return _drawing("".join(parts), label)


def differences(curve: Sequence[float], *, scale: float, unit: str, queries: int, label: str) -> Markup:
    """Differences of single queries in rising order: bars below and above 0.

    Args:
        curve: rising.
        scale: what a difference is multiplied by to be printed (100 for percent).
        unit: printed behind it.
        queries: how many the curve stands for.
        label: the drawing in words.
    """
    most = max([abs(value) for value in curve] or [0.0]) or 1.0
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    half = middle - _TOP
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(curve), 1)
    parts = []
    for value, height in ((most, -half), (0.0, 0.0), (-most, half)):
        at = middle + height
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        text = f"{value * scale:+.0f}{unit}" if value else "0"
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{text}</text>')
    for place, value in enumerate(curve):
        if value:
            length = abs(value) / most * half
            top = middle - length if value > 0 else middle
            parts.append(
                f'<rect class="{"up" if value > 0 else "down"}" x="{_LEFT + place * step:.2f}" y="{top:.1f}" '
                f'width="{max(step * 0.9, 0.6):.2f}" height="{max(length, 0.6):.1f}"/>'
            )
    parts.append(
        f'<text class="middle" x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 8}">'
        f"{queries:,} queries, by their difference</text>"
    )
    return _drawing("".join(parts), label)


def _drawing(inside: str, label: str) -> Markup:
    return Markup(
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{Markup.escape(label)}">'
        f"{inside}</svg>"
    )
