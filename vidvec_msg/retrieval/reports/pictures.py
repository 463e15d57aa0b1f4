"""Small pictures for reports: strips of frames as data URIs, intervals and histograms as inline drawings.

Nothing refers to a file or an address, so a report is one file that can be sent by mail. Drawings take
their colours from the page's style sheet and follow its light and dark form.
"""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from vidvec_msg.formats.items import Item, Pixels
from vidvec_msg.retrieval.evaluation.chance import best_rank_within
from vidvec_msg.retrieval.evaluation.ranking import GoldRanks

log = logging.getLogger(__name__)

_HEIGHT = 84  # pixels of a strip; readable on a phone, about 3 kB a frame
_GAP = 3  # pixels between frames
_QUALITY = 82  # JPEG
_SECONDS = 30.0  # that one clip may take to decode
_EDGES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


def item_picture(item: Item, *, frames: int = 3) -> str | None:
    """A clip as a strip of frames, or an image, as a JPEG data URI.

    Args:
        item: any item.
        frames: of a clip, evenly spaced; motion shows only between frames.

    Returns:
        None for texts and sound, and for what cannot be decoded (the report then shows words).
    """
    try:
        pixels = _pixels(item, frames)
    except Exception as error:
        log.debug("no picture of %s: %s", item.id, error)
        return None
    return None if pixels is None else strip(pixels)


def strip(pixels: Pixels, *, height: int = _HEIGHT) -> str:
    """Frames side by side as a JPEG data URI.

    Args:
        pixels: ``(frames, height, width, 3)`` uint8.
        height: of the strip, in pixels.
    """
    from PIL import Image

    small = pixels.shape[1] < height  # enlarge by copying pixels: a 48-pixel world stays crisp
    width = max(1, round(pixels.shape[2] * height / pixels.shape[1]))
    sheet = Image.new("RGB", (len(pixels) * (width + _GAP) - _GAP, height), (128, 128, 128))
    method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    for place, frame in enumerate(pixels):
        sheet.paste(Image.fromarray(frame).resize((width, height), method), (place * (width + _GAP), 0))
    stream = io.BytesIO()
    sheet.save(stream, format="JPEG", quality=_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def interval_bar(
    value: float | None, low: float | None, high: float | None, chance: float | None, *, top: float = 1.0
) -> Markup:
    """A line from 0 to ``top`` with a dot at the value, its interval, and a tick at chance."""
    if value is None:
        return Markup("")
    width, middle = 120, 8

    def x(number: float) -> str:
        return f"{4 + (width - 8) * min(max(number / top, 0), 1):.1f}"

    parts = [f'<line class="axis" x1="4" x2="{width - 4}" y1="{middle}" y2="{middle}"/>']
    if low is not None and high is not None:
        parts.append(f'<line class="interval" x1="{x(low)}" x2="{x(high)}" y1="{middle}" y2="{middle}"/>')
    if chance is not None:
        parts.append(f'<line class="chance" x1="{x(chance)}" x2="{x(chance)}" y1="2" y2="14"/>')
    parts.append(f'<circle class="value" cx="{x(value)}" cy="{middle}" r="3.6"/>')
    return Markup(f'<svg class="bar" viewBox="0 0 {width} 16" aria-hidden="true">{"".join(parts)}</svg>')


@dataclass(frozen=True, slots=True)
class Bin:
    """Ranks from ``first`` to ``last``, or the positives that are no candidates (``last`` 0)."""

    label: str
    count: int
    share: float
    by_chance: float | None


def rank_bins(gold: GoldRanks) -> list[Bin]:
    """How many queries have their best positive at rank 1, 2–3, 4–10, …, and how many would by chance."""
    best, queries = gold.best, max(len(gold), 1)
    most = int(gold.candidates.max(initial=0))
    edges = [edge for edge in _EDGES if edge < most] + [max(most, 1)]
    within = best_rank_within(gold, edges)
    bins = []
    for place, (first, last) in enumerate(zip([1, *(edge + 1 for edge in edges[:-1])], edges, strict=True)):
        count = int(np.count_nonzero((best >= first) & (best <= last)))
        by_chance = (within[place] - (within[place - 1] if place else 0.0)) / queries
        label = f"{first:,}" if first == last else f"{first:,}–{last:,}"
        bins.append(Bin(label, count, count / queries, float(by_chance)))
    lost = int(np.count_nonzero(best == 0))
    if lost:
        bins.append(Bin("no candidate", lost, lost / queries, None))
    return bins


def _pixels(item: Item, frames: int) -> Pixels | None:
    """``(frames, height, width, 3)`` of an item, or None if it has nothing to look at."""
    if item.video is not None:
        if isinstance(item.video, np.ndarray):
            chosen = _evenly(len(item.video), frames)
            return np.asarray(item.video)[chosen]
        return _decode(item.video, frames, item.start, item.end)
    if item.image is not None:
        if isinstance(item.image, np.ndarray):
            return np.asarray(item.image)[None]
        from vidvec_msg.media.images import read_image

        return read_image(item.image)[None]
    return None


def _decode(path: Path, frames: int, start: float | None, end: float | None) -> Pixels:
    from vidvec_msg.media.frames import FramePolicy
    from vidvec_msg.media.limits import shared_pool

    policy = FramePolicy(fps=100.0, max_frames=frames)  # a high rate: the cap decides, and spaces evenly
    return shared_pool(1, _SECONDS).read(path, policy, start=start, end=end).pixels


def _evenly(count: int, wanted: int) -> Sequence[int]:
    wanted = min(count, wanted)
    return [int((place + 0.5) * count / wanted) for place in range(wanted)]
