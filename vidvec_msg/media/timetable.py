"""Which of a clip's frames are on the screen at given seconds; the same rule for every reader."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vidvec_msg.media.frames import FramePolicy, frame_times

Seconds = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class VideoError(ValueError):
    """A clip cannot be used; the message is one line that a reject list can hold."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """When each frame of a clip appears, in seconds from the beginning of the file.

    Args:
        starts: shape (frames,), not decreasing; the first visible moment of each frame.
        end: second at which the last frame disappears.
    """

    starts: Seconds
    end: float

    @classmethod
    def at_constant_rate(cls, frames: int, fps: float) -> Timetable:
        """The timetable of frames in memory, which know their rate only."""
        return cls(np.arange(frames) / fps, frames / fps)

    @property
    def fps(self) -> float:
        """Mean frames per second; 1 for a single frame that has no duration."""
        duration = self.end - max(float(self.starts[0]), 0.0)
        return len(self.starts) / duration if duration > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Choice:
    """Frames chosen from a clip.

    Args:
        indices: shape (frames,), strictly increasing positions in the clip.
        times: shape (frames,), second at which each chosen frame appears, from the segment's beginning.
        duration: of the segment, in seconds.
    """

    indices: Indices
    times: Seconds
    duration: float


def choose_frames(table: Timetable, policy: FramePolicy, *, start: float | None, end: float | None) -> Choice:
    """The frames that are on the screen at the policy's seconds.

    By time and not by number: in a clip of variable rate every n-th frame is not one per second. A clip
    with fewer frames than the policy asks for gives each of its frames once: what exists is used, nothing
    is invented. An ``end`` behind the clip's end is the clip's end.

    Raises:
        VideoError: no frames, or a segment that lies outside the clip.
    """
    if len(table.starts) == 0:
        raise VideoError("holds no frames")
    first = 0.0 if start is None else float(start)
    last = table.end if end is None else min(float(end), table.end)
    if first < 0 or (end is not None and end <= first):
        raise VideoError(f"segment {_span(start, end)} is empty or begins before 0")
    if start is not None and first >= table.end:
        raise VideoError(f"segment {_span(start, end)} begins after the clip's end at {table.end:.2f} s")
    times = frame_times(first, max(last, first), policy)  # (asked,)
    # the frame shown at t is the last one that appeared at or before t; 1e-6 s absorbs the rounding of clocks
    shown = np.searchsorted(table.starts, times + 1e-6, side="right") - 1
    indices = np.unique(np.clip(shown, 0, len(table.starts) - 1))  # (frames,)
    appeared = np.maximum(table.starts[indices] - first, 0.0)
    return Choice(indices.astype(np.int64), appeared, max(last - first, 0.0))


def _span(start: float | None, end: float | None) -> str:
    return f"{0 if start is None else start:g}–{'end' if end is None else f'{end:g}'} s"
