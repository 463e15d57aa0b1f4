"""A video file, or frames in memory, becomes the frames that a policy asks for.

decord reads first (installed as decord2, the maintained continuation); PyAV stands behind it for what decord
cannot open. Both choose by timestamp, through the same timetable.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.files import file_problem
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import ImageError, check_pixels, shrink
from vidvec_msg.media.pyav_reader import read_with_pyav, timetable_from_zero
from vidvec_msg.media.timetable import Choice, Indices, Seconds, Timetable, VideoError, choose_frames

__all__ = ["Frames", "VideoError", "frames_in_memory", "read_frames"]

logger = logging.getLogger(__name__)

Reader = Literal["decord", "pyav", "memory"]
Readers = Literal["auto", "decord", "pyav"]

_PART = 1 << 26  # bytes of frames that decord gives at once, before they are made smaller
_NO_SUBSTITUTES = 1e-9  # decord's share of frames that may be copies of a neighbour, silently; 0 means any


@dataclass(frozen=True, slots=True)
class Frames:
    """Chosen frames of a clip.

    Args:
        pixels: uint8 ``(frames, height, width, 3)``, upright.
        times: float64 ``(frames,)``, second at which each frame appears, from the segment's beginning.
        indices: int64 ``(frames,)``, positions in the source, strictly increasing.
        fps: mean frames per second of the source.
        total_frames: frames in the source.
        duration: of the segment that was asked for, in seconds.
        reader: who decoded.
    """

    pixels: Pixels
    times: Seconds
    indices: Indices
    fps: float
    total_frames: int
    duration: float
    reader: Reader

    @property
    def sampled_fps(self) -> float:
        """Frames that were taken per second of clip; the source's rate if the clip has no duration."""
        return len(self.pixels) / self.duration if self.duration > 0 else self.fps


def frames_in_memory(
    pixels: object,
    policy: FramePolicy,
    *,
    fps: float | None = None,
    start: float | None = None,
    end: float | None = None,
) -> Frames:
    """Frames that the caller holds, chosen as those of a file of that rate would be.

    Args:
        pixels: uint8 ``(frames, height, width, 3)``.
        policy: which frames are kept, and their size.
        fps: rate of the frames; None says that they were already taken at the policy's rate.
        start: first second of the segment.
        end: last second of the segment.

    Raises:
        VideoError: wrong type, dtype or shape, or a segment outside the clip.
    """
    try:
        checked = check_pixels(pixels, dimensions=4)
    except ImageError as error:
        raise VideoError(str(error)) from error
    if fps is not None and not fps > 0:
        raise VideoError(f"frames per second must be above 0, got {fps}")
    table = Timetable.at_constant_rate(len(checked), fps or policy.fps)
    choice = choose_frames(table, policy, start=start, end=end)
    return _frames(shrink(checked[choice.indices], policy.max_pixels), choice, table, "memory")


def read_frames(
    path: Path,
    policy: FramePolicy,
    *,
    start: float | None = None,
    end: float | None = None,
    reader: Readers = "auto",
) -> Frames:
    """Decodes the frames of a file's segment that the policy asks for, in this process and without a time
    limit.

    Jobs use :class:`vidvec_msg.media.limits.DecodePool`, which can be interrupted.

    Args:
        path: any container and codec that FFmpeg reads.
        policy: which frames, and their size.
        start: first second of the segment, from the beginning of the file.
        end: last second of the segment.
        reader: "decord" or "pyav" alone, to compare them; "auto": decord, and PyAV for what it cannot open.

    Raises:
        VideoError: the file is missing, empty, not a video, without pictures, broken, or shorter than
            ``start``.
    """
    if problem := file_problem(path):
        raise VideoError(problem)
    place = path.absolute()  # FFmpeg takes the "a:" of "a:b.mp4" for a protocol
    if reader != "pyav":
        try:
            return _read_with_decord(place, policy, start, end)
        except VideoError as error:
            raise VideoError(f"{path}: {error}") from error
        except Exception as error:  # decord raises whatever FFmpeg and C++ throw
            if reader == "decord":
                raise VideoError(f"{path}: decord cannot read it ({error})") from error
            logger.debug("%s: decord cannot read it (%s); PyAV's turn", path, error)
    try:
        return _read_with_pyav(place, policy, start, end)
    except VideoError as error:
        raise VideoError(f"{path}: {error}") from error


def _frames(pixels: Pixels, choice: Choice, table: Timetable, reader: Reader) -> Frames:
    return Frames(
        pixels=pixels,
        times=choice.times,
        indices=choice.indices,
        fps=table.fps,
        total_frames=len(table.starts),
        duration=choice.duration,
        reader=reader,
    )


# --- decord ---------------------------------------------------------------------------------------------


def _read_with_decord(path: Path, policy: FramePolicy, start: float | None, end: float | None) -> Frames:
    decord = _decord()
    reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1, fault_tol=_NO_SUBSTITUTES)
    try:
        table = _decord_timetable(reader)
        choice = choose_frames(table, policy, start=start, end=end)
        pixels = _decord_pixels(reader, choice.indices.tolist(), policy.max_pixels)
    finally:
        del reader  # decord has no close(); the last reference ends the decoder
    return _frames(pixels, choice, table, "decord")


def _decord_timetable(reader: Any) -> Timetable:
    """When each frame is shown.

    Raises:
        RuntimeError: decord's seconds are not those of its frames; it is PyAV's turn.
    """
    spans = np.asarray(reader.get_frame_timestamp(range(len(reader))))  # float32 (frames, 2)
    if len(spans) == 0 or not np.isfinite(spans).all():
        raise RuntimeError("no usable timestamps")
    if spans[0, 0] < 0:  # it then gives other frames than it is asked for
        raise RuntimeError("an edit list hides its first frames")
    rounding = float(np.spacing(spans[-1, 1]))
    spans = spans.astype(np.float64)
    table, _ = timetable_from_zero(spans[:, 0], float(spans[-1, 1] - spans[-1, 0]))
    return replace(table, rounding=max(table.rounding, rounding))


def _decord_pixels(reader: Any, indices: Sequence[int], max_pixels: int) -> Pixels:
    """uint8 (frames, height, width, 3); large frames are made smaller before the next ones are read."""
    first = reader.get_batch(indices[:1]).asnumpy()
    small = shrink(first, max_pixels)
    pixels = np.empty((len(indices), *small.shape[1:]), np.uint8)
    pixels[:1] = small
    several = max(_PART // first.nbytes, 1)
    for begin in range(1, len(indices), several):
        part = reader.get_batch(indices[begin : begin + several]).asnumpy()
        pixels[begin : begin + several] = shrink(part, max_pixels)
    return pixels


@cache
def _decord() -> Any:
    """decord for the CPU, without the CUDA libraries that it would load first.

    On import decord2 looks for NVIDIA's packages, which come with torch, and loads all of their libraries
    into the global namespace: a process then takes 700 MB instead of 37 MB, and if torch comes later, its
    matrix products end in libnvblas and crash. A module that is None cannot be found.
    """
    found = sys.modules.get("nvidia")
    sys.modules["nvidia"] = None  # type: ignore[assignment]
    try:
        import decord
    finally:
        del sys.modules["nvidia"]
        if found is not None:
            sys.modules["nvidia"] = found
    decord.logging.set_level(decord.logging.QUIET)
    return decord


# --- PyAV -----------------------------------------------------------------------------------------------


def _read_with_pyav(path: Path, policy: FramePolicy, start: float | None, end: float | None) -> Frames:
    import av

    try:
        pixels, choice, table = read_with_pyav(path, policy, start, end)
    except MemoryError:
        raise
    except av.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"not a video, or broken beyond use ({reason})") from error
    return _frames(pixels, choice, table, "pyav")
