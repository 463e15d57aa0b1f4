"""A video file, or frames in memory, becomes the frames that a policy asks for.

The packets say when each frame is shown, and the policy chooses by that. decord reads the chosen ones
(installed as decord2, the maintained continuation) where it finds them; PyAV stands behind it for what decord
cannot open and for files in which decord takes other frames for them.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.files import file_problem
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import ImageError, check_pixels, shrink
from vidvec_msg.media.pyav_reader import Packets, packets_of, read_with_pyav
from vidvec_msg.media.timetable import Choice, Indices, Seconds, Timetable, VideoError, choose_frames

__all__ = ["Frames", "VideoError", "frames_in_memory", "read_frames"]

logger = logging.getLogger(__name__)

Reader = Literal["decord", "pyav", "memory"]
Readers = Literal["auto", "decord", "pyav"]

_PART = 1 << 26  # bytes of frames that decord gives at once, before they are made smaller
_DECORD_SEEKS = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flv", "gif"}  # containers, by FFmpeg's names
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
        reader: "decord" or "pyav" alone, to compare them; "auto": decord, and PyAV for what it cannot read.

    Raises:
        VideoError: the file is missing, empty, not a video, without pictures, broken, or shorter than
            ``start``.
    """
    if problem := file_problem(path):
        raise VideoError(problem)
    place = path.absolute()  # FFmpeg takes the "a:" of "a:b.mp4" for a protocol
    try:
        return _read(place, policy, start, end, reader)
    except VideoError as error:
        raise VideoError(f"{path}: {error}") from error


def _read(path: Path, policy: FramePolicy, start: float | None, end: float | None, reader: Readers) -> Frames:
    import av

    try:
        packets = packets_of(path)
        choice = choose_frames(packets.table, policy, start=start, end=end)
        if reader != "pyav":
            try:
                pixels = _read_with_decord(path, packets, choice, policy.max_pixels)
                return _frames(pixels, choice, packets.table, "decord")
            except Exception as error:  # decord raises whatever FFmpeg and C++ throw
                if reader == "decord":
                    raise VideoError(f"decord cannot read it ({' '.join(str(error).split())})") from error
                logger.debug("%s: decord cannot read it (%s); PyAV's turn", path, error)
        pixels, choice = read_with_pyav(path, packets, choice, policy.max_pixels)
    except MemoryError:
        raise
    except av.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"not a video, or broken beyond use ({reason})") from error
    return _frames(pixels, choice, packets.table, "pyav")


def reader_of(path: Path, packets: Packets) -> Reader:
    """Who reads the first frame of a file with these packets, and so the others, if nothing is broken."""
    first = Choice(np.zeros(1, np.int64), packets.table.starts[:1], 0.0)
    try:
        _read_with_decord(path, packets, first, 0)
    except Exception as error:
        logger.debug("%s: decord cannot read it (%s)", path, error)
        return "pyav"
    return "decord"


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


def _read_with_decord(path: Path, packets: Packets, choice: Choice, max_pixels: int) -> Pixels:
    """The chosen frames, uint8 ``(frames, height, width, 3)``; large ones are made smaller one part after the
    other.

    Raises:
        RuntimeError: decord would take other frames for them; and whatever decord raises.
    """
    if doubt := decord_doubt(packets):
        raise RuntimeError(doubt)
    decord = _decord()
    reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1, fault_tol=_NO_SUBSTITUTES)
    try:
        if len(reader) != len(packets.table.starts):
            raise RuntimeError(f"it counts {len(reader)} frames, the packets {len(packets.table.starts)}")
        indices = choice.indices.tolist()
        first = reader.get_batch(indices[:1]).asnumpy()
        small = shrink(first, max_pixels)
        pixels = np.empty((len(indices), *small.shape[1:]), np.uint8)
        pixels[:1] = small
        several = max(_PART // first.nbytes, 1)
        for begin in range(1, len(indices), several):
            part = reader.get_batch(indices[begin : begin + several]).asnumpy()
            pixels[begin : begin + several] = shrink(part, max_pixels)
    finally:
        del reader  # decord has no close(); the last reference ends the decoder
    return pixels


def decord_doubt(packets: Packets) -> str:
    """Why decord is not trusted to find the frames of a file; empty if it is.

    It seeks by the order in which frames are stored, and trusts every key frame. Where groups of pictures are
    open, or the picture is refreshed bit by bit, it returns neighbours or half a picture, without an error
    (decord2 3.4.0: 32 of 118 frames of a file with x265's default; all of an MPEG-2 stream). It does not find
    key frames where the container has no index of them (MPEG-TS) or calls every frame one (ASF).
    """
    if packets.container not in _DECORD_SEEKS:
        return f"it does not find key frames in {packets.container}"
    if not packets.clean_keys:
        return "frames around its key frames refer to both sides"
    if packets.table.starts[0] < 0:
        return "its first frames are hidden"
    return ""


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
