"""Which frames of a clip are shown to a model: the written rule, independent of any decoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UNIFORM_FPS = 1000.0  # above any camera's rate: a clip then always asks for max_frames


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """How a clip becomes frames.

    Args:
        fps: frames taken per second of clip.
        max_frames: at most this many; a longer clip gets this many, uniformly spaced.
        max_pixels: pixels per frame (height x width) after resizing, aspect ratio kept; 0: as it is.
    """

    fps: float = 1.0
    max_frames: int = 64
    max_pixels: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fps", float(self.fps))  # 2 and 2.0 are one policy, also in a fingerprint
        if not self.fps > 0:
            raise ValueError(f"frames per second must be above 0, got {self.fps}")
        if self.max_frames < 1:
            raise ValueError(f"max_frames must be at least 1, got {self.max_frames}")
        if self.max_pixels < 0:
            raise ValueError(f"max_pixels must be 0 (leave the size alone) or more, got {self.max_pixels}")

    @classmethod
    def uniform(cls, frames: int, *, max_pixels: int = 0) -> FramePolicy:
        """So many frames of every clip, evenly spaced, whatever its duration; a clip that holds fewer gives
        each of its frames once."""
        return cls(fps=UNIFORM_FPS, max_frames=frames, max_pixels=max_pixels)


def frame_times(start: float, end: float, policy: FramePolicy) -> npt.NDArray[np.float64]:
    """Seconds at which frames are taken from the segment ``[start, end)``.

    ``round(duration x fps)`` frames, at least one and at most ``max_frames``, each in the middle of its
    share of the segment: the first and last frames, which are often black, are not special, and a cap
    changes the spacing, never the coverage.

    Returns:
        shape (frames,), increasing.
    """
    duration = max(end - start, 0.0)
    count = min(max(round(duration * policy.fps), 1), policy.max_frames)
    return start + (np.arange(count) + 0.5) * duration / count  # (frames,)
