"""A video file, or frames in memory, becomes the frames that a policy asks for.

decord reads first (installed as decord2, the maintained continuation); PyAV stands behind it for what decord
cannot open. Both choose by timestamp, through the same timetable.
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
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import ImageError, check_pixels, shrink
from vidvec_msg.media.timetable import Choice, Indices, Seconds, Timetable, VideoError, choose_frames

__all__ = ["Frames", "VideoError", "frames_in_memory", "read_frames"]

logger = logging.getLogger(__name__)

Reader = Literal["decord", "pyav", "memory"]
Readers = Literal["auto", "decord", "pyav"]

_WORTH_SEEKING = 5.0  # seconds; before that, decoding from the beginning costs less than a bad seek


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
    return _frames(checked[choice.indices], choice, table, policy, "memory")


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
    if not path.is_file():
        raise VideoError(f"no such file: {path}")
    if path.stat().st_size == 0:
        raise VideoError(f"empty file: {path}")
    if reader != "pyav":
        try:
            return _read_with_decord(path, policy, start, end)
        except VideoError as error:
            raise VideoError(f"{path}: {error}") from error
        except Exception as error:  # decord raises whatever FFmpeg and C++ throw
            if reader == "decord":
                raise VideoError(f"{path}: decord cannot read it ({error})") from error
            logger.debug("%s: decord cannot read it (%s); PyAV's turn", path, error)
    try:
        return _read_with_pyav(path, policy, start, end)
    except VideoError as error:
        raise VideoError(f"{path}: {error}") from error


def _frames(pixels: Pixels, choice: Choice, table: Timetable, policy: FramePolicy, reader: Reader) -> Frames:
    return Frames(
        pixels=shrink(pixels, policy.max_pixels),
        times=choice.times,
        indices=choice.indices,
        fps=table.fps,
        total_frames=len(table.starts),
        duration=choice.duration,
        reader=reader,
    )


def _from_zero(starts: Seconds, end: float) -> tuple[Timetable, float]:
    """The timetable, and the second on the container's clock that it calls 0.

    A clock that starts late (MPEG-TS) is set back to 0; pictures that an edit list places before 0 stay
    there, unseen.
    """
    origin = max(float(starts[0]), 0.0)
    return Timetable(np.maximum.accumulate(starts) - origin, end - origin), origin


# --- decord ---------------------------------------------------------------------------------------------


def _read_with_decord(path: Path, policy: FramePolicy, start: float | None, end: float | None) -> Frames:
    decord = _decord()
    reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
    try:
        spans = np.asarray(reader.get_frame_timestamp(range(len(reader))), dtype=np.float64)  # (frames, 2)
        if len(spans) == 0 or not np.isfinite(spans).all():
            raise RuntimeError("no usable timestamps")  # PyAV's turn
        table, _ = _from_zero(spans[:, 0], float(spans[-1, 1]))
        choice = choose_frames(table, policy, start=start, end=end)
        pixels = reader.get_batch(choice.indices.tolist()).asnumpy()
    finally:
        del reader  # decord has no close(); the last reference ends the decoder
    return _frames(pixels, choice, table, policy, "decord")


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
        with av.open(str(path)) as container:
            if not container.streams.video:
                kinds = sorted({stream.type for stream in container.streams}) or ["nothing"]
                raise VideoError(f"no video stream (it holds {', '.join(kinds)})")
            table, origin = packet_timetable(container, container.streams.video[0])
        choice = choose_frames(table, policy, start=start, end=end)
        found = _pyav_pixels(path, table, choice, origin)
    except av.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"not a video, or broken beyond use ({reason})") from error
    if not found:
        raise VideoError("broken beyond use (no frame could be decoded)")
    kept = np.isin(choice.indices, list(found))  # a truncated file gives what can be decoded
    choice = Choice(choice.indices[kept], choice.times[kept], choice.duration)
    pixels = np.stack([found[index] for index in choice.indices.tolist()])
    return _frames(pixels, choice, table, policy, "pyav")


def packet_timetable(container: Any, stream: Any) -> tuple[Timetable, float]:
    """When each frame of a PyAV container's stream is shown, and the second on its clock that counts as 0.

    Reads the packets without decoding them: exact times even where the header counts no frames (WebM).

    Raises:
        VideoError: there are no frames.
    """
    import av

    shown: list[tuple[float, float]] = []
    try:
        for packet in container.demux(stream):
            if packet.pts is not None and not packet.is_discard:
                base = float(packet.time_base)
                shown.append((packet.pts * base, (packet.duration or 0) * base))
    except av.FFmpegError:
        if not shown:  # a truncated file is used as far as it goes
            raise
    if not shown:
        raise VideoError("holds no frames")
    shown.sort()
    starts = np.array([at for at, _ in shown])
    rate = float(stream.average_rate or 0)
    last = shown[-1][1] or (
        1 / rate if rate else float(np.median(np.diff(starts))) if len(starts) > 1 else 0.0
    )
    return _from_zero(starts, float(starts[-1]) + last)


def _pyav_pixels(path: Path, table: Timetable, choice: Choice, origin: float) -> dict[int, Pixels]:
    """The chosen frames that can be decoded, by index: from the key frame before the first one, or, where a
    container seeks badly (MPEG-TS), from the beginning."""
    first = int(choice.indices[0])
    seconds = float(table.starts[first]) + origin
    if seconds - origin > _WORTH_SEEKING:
        found = _decoded(path, table, choice, origin, seek=seconds)
        if first in found:
            return found
    return _decoded(path, table, choice, origin, seek=None)


def _decoded(
    path: Path, table: Timetable, choice: Choice, origin: float, *, seek: float | None
) -> dict[int, Pixels]:
    import av

    wanted = set(choice.indices.tolist())
    found: dict[int, Pixels] = {}
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        base = float(stream.time_base)
        if seek is not None:
            container.seek(int(seek / base), stream=stream, backward=True)
        try:
            for frame in container.decode(stream):
                if frame.pts is None:
                    continue
                index = int(np.searchsorted(table.starts, frame.pts * base - origin + 1e-6, side="right")) - 1
                if index in wanted and index not in found:
                    upright = np.rot90(frame.to_ndarray(format="rgb24"), k=round(frame.rotation / 90))
                    found[index] = np.ascontiguousarray(upright)
                if len(found) == len(wanted):
                    break
        except av.FFmpegError:
            if not found:
                raise
    return found
