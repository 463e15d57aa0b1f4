"""What the packets of a file say of its frames, and PyAV's way to the frames.

The packets say when each frame is shown, without a picture decoded. Then only what the chosen frames need is
decoded: from the key frame before each of them, without the pictures that no other refers to.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.images import shrink
from vidvec_msg.media.timetable import Choice, Indices, Seconds, Timetable, VideoError

_WORTH_SEEKING = 8  # frames; a seek costs about as much as decoding so many
# containers that find a second again; others (MPEG-PS, bare streams) do not have one for every frame
_SEEKS = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "asf", "flv", "mpegts"}
_SKIPS_EXACTLY = {"h264"}  # codecs whose packets say for certain that no other picture refers to theirs
_REFRESHING = {"h264": {5}, "hevc": {19, 20}}  # kinds of units after which nothing refers to what was before
_ATTACHED_PICTURE = 0x0400  # AV_DISPOSITION_ATTACHED_PIC


@dataclass(frozen=True, slots=True)
class Packets:
    """What the packets of a stream say about its frames.

    Args:
        table: when each frame is shown: exact even where the header counts none (WebM) or too many.
        origin: second on the container's clock that the timetable calls 0.
        keys: shape (key frames,), positions in the timetable at which decoding can begin, increasing.
        clean_keys: a file cut before any of these would be whole: nothing behind refers to what is before,
            and nothing that is shown before is stored behind, as in open groups of pictures.
        container: FFmpeg's name of the format.
    """

    table: Timetable
    origin: float
    keys: Indices
    clean_keys: bool
    container: str


def picture_streams(container: Any) -> list[Any]:
    """The streams of moving pictures; the cover of a song is a video stream of one picture, and none."""
    return [stream for stream in container.streams.video if not stream.disposition & _ATTACHED_PICTURE]


def read_packets(container: Any, stream: Any) -> Packets:
    """Goes through the packets of a PyAV container's stream without decoding them.

    Raises:
        VideoError: there are no frames.
        av.FFmpegError: the first packet cannot be read.
    """
    import av

    shown, last, keys = array("q"), array("q"), array("b")  # per packet; hours of video are a million of them
    clean = True
    try:
        for packet in container.demux(stream):
            if packet.pts is not None and not packet.is_discard:
                shown.append(packet.pts)
                last.append(packet.duration or 0)
                keys.append(packet.is_keyframe)
                if packet.is_keyframe and len(keys) > 1:
                    clean = clean and _refreshes(packet, stream.codec_context)
    except av.FFmpegError:
        if not shown:  # a truncated file is used as far as it goes
            raise
    if not shown:
        raise VideoError("holds no frames")
    order = np.argsort(np.frombuffer(shown, np.int64), kind="stable")
    stored = np.flatnonzero(np.frombuffer(keys, np.int8))
    shown_keys = np.flatnonzero(np.frombuffer(keys, np.int8)[order])
    base = float(stream.time_base)
    starts = np.frombuffer(shown, np.int64).astype(np.float64)[order] * base
    rate = float(stream.average_rate or 0)
    seconds = last[order[-1]] * base or (1 / rate if rate else 0.0)
    table, origin = _from_zero(starts, seconds)
    clean = clean and np.array_equal(stored, shown_keys)
    return Packets(table, origin, shown_keys, clean, container.format.name)


def _refreshes(packet: Any, context: Any) -> bool:
    """Whether a key frame is one at which the decoder forgets what came before (IDR); H.264 and HEVC also
    mark places as such from which the picture becomes whole only after a while.

    A packet holds units, each after its length, whose size stands in the stream's head (ISO/IEC 14496-15); a
    unit's first byte says what it is.
    """
    codec = context.codec.canonical_name
    if codec not in _REFRESHING:
        return True
    head, place = context.extradata or b"", 4 if codec == "h264" else 21
    if len(head) <= place or head[0] != 1:  # units after start codes, as in broadcasts
        return False
    size = (head[place] & 3) + 1
    content, at = bytes(packet), 0
    while at + size < len(content):
        kind = content[at + size]
        if (kind & 0x1F if codec == "h264" else kind >> 1 & 0x3F) in _REFRESHING[codec]:
            return True
        at += size + int.from_bytes(content[at : at + size], "big")
    return False


def _from_zero(starts: Seconds, last: float) -> tuple[Timetable, float]:
    """The timetable of a container's clock, and the second on that clock that it calls 0.

    A clock that starts late (MPEG-TS) is set back to 0; pictures that an edit list places before 0 stay
    there, unseen.

    Args:
        starts: shape (frames,), seconds in order.
        last: how long the last frame is shown; 0 if nothing says it: as long as most.
    """
    if last <= 0 and len(starts) > 1:
        last = float(np.median(np.diff(starts)))
    origin = max(float(starts[0]), 0.0)
    return Timetable(starts - origin, float(starts[-1]) + last - origin), origin


def packets_of(path: Path) -> Packets:
    """What the packets of a file's pictures say.

    Raises:
        VideoError: no video stream, or no frames.
        av.FFmpegError: not a video.
    """
    import av

    with av.open(str(path)) as container:
        streams = picture_streams(container)
        if not streams:
            kinds = sorted({stream.type for stream in container.streams if stream.type != "video"})
            raise VideoError(f"no video stream (it holds {', '.join(kinds) or 'nothing'})")
        return read_packets(container, streams[0])


def read_with_pyav(path: Path, packets: Packets, choice: Choice, max_pixels: int) -> tuple[Pixels, Choice]:
    """The chosen frames, uint8 ``(frames, height, width, 3)``, and which of them decode.

    Raises:
        VideoError: none of them does.
        av.FFmpegError: the file cannot be opened any more.
    """
    wanted = choice.indices.tolist()
    found = None
    if packets.container in _SEEKS:
        found = _decoded(path, packets, stretches(packets.keys, wanted), max_pixels)
    if found is None:  # or a seek went wrong: from the beginning
        found = _decoded(path, packets, [(0, wanted)], max_pixels)
    if not found:
        raise VideoError("broken beyond use (no frame could be decoded)")
    kept = np.isin(choice.indices, list(found))  # a truncated file gives what can be decoded
    choice = Choice(choice.indices[kept], choice.times[kept], choice.duration)
    # frame by frame: what was copied is let go
    pixels = np.empty((len(found), *found[int(choice.indices[0])].shape), np.uint8)
    for row, index in enumerate(choice.indices.tolist()):
        pixels[row] = found.pop(index)
    return pixels, choice


def stretches(keys: Indices, wanted: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Where to begin with decoding, and the frames to take from there.

    Args:
        keys: positions of key frames, increasing.
        wanted: positions of frames, increasing.

    Returns:
        (position of a key frame, or 0 for the beginning; wanted frames) per stretch.
    """
    found: list[tuple[int, list[int]]] = []
    for index in wanted:
        before = int(np.searchsorted(keys, index, side="right")) - 1
        key = int(keys[before]) if before >= 0 else 0
        reached = found[-1][1][-1] if found else 0
        if found and key - reached < _WORTH_SEEKING:
            found[-1][1].append(index)
        else:
            found.append((key if key - reached >= _WORTH_SEEKING else 0, [index]))
    return found


def _decoded(
    path: Path, packets: Packets, parts: Sequence[tuple[int, list[int]]], max_pixels: int
) -> dict[int, Pixels] | None:
    """Upright frames by position; None if a seek did not lead to a key frame before the frame it was for."""
    import av

    found: dict[int, Pixels] = {}
    keys = set(packets.keys.tolist())
    size: tuple[int, int] | None = None
    with av.open(str(path)) as container:
        stream = picture_streams(container)[0]
        stream.codec_context.thread_count = 1  # the pool's processes decode side by side
        for key, wanted in parts:
            if key:
                seconds = float(packets.table.starts[key]) + packets.origin
                try:
                    container.seek(round(seconds / stream.time_base), stream=stream, backward=True)
                except av.FFmpegError:
                    return None
            left = set(wanted)
            landed = key == 0
            for index, frame in decodable(container, stream, packets, left):
                if not landed and (index > wanted[0] or index not in keys):
                    return None
                landed = True
                size = size or (frame.width, frame.height)
                if index in left:
                    left.remove(index)
                    found[index] = shrink(_upright(frame, size), max_pixels)
                if not left:
                    break
    return found


def decodable(
    container: Any, stream: Any, packets: Packets, left: set[int] | None = None
) -> Iterator[tuple[int, Any]]:
    """Frames that decode, with their positions, from where the container stands.

    A packet that cannot be decoded costs the frames up to the next key frame, which refer to it.

    Args:
        container: of PyAV.
        stream: of its pictures.
        packets: of the stream.
        left: positions of the frames that are wanted, and may be taken out of the set meanwhile; others come
            as far as the wanted ones need them. None wants all.
    """
    import av

    context, base = stream.codec_context, float(stream.time_base)
    skips, skipping = left is not None and context.codec.canonical_name in _SKIPS_EXACTLY, False
    lost_from, lost_until = 0, 0  # positions
    for packet in _packets(container, stream):
        index = None if packet.pts is None else _position(packets, packet.pts * base)
        if skips and index is not None and (index not in (left or ())) != skipping:
            skipping = not skipping
            context.skip_frame = "NONREF" if skipping else "DEFAULT"
        try:
            frames = packet.decode()
        except MemoryError:
            raise
        except av.FFmpegError:
            if index is not None:
                lost_from = index if index >= lost_until else min(lost_from, index)
                after = packets.keys[np.searchsorted(packets.keys, index, side="right") :]
                lost_until = int(after[0]) if len(after) else len(packets.table.starts)
            continue
        for frame in frames:
            if frame.pts is not None:
                position = _position(packets, frame.pts * base)
                if not lost_from <= position < lost_until:
                    yield position, frame


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """The stream's packets, and at last an empty one, for which the decoder gives what it still holds."""
    import av

    try:
        yield from container.demux(stream)
    except MemoryError:
        raise
    except av.FFmpegError:  # cut short
        last = av.Packet()
        last.stream = stream
        yield last


def _position(packets: Packets, seconds: float) -> int:
    """The frame that is shown at a second of the container's clock."""
    return int(np.searchsorted(packets.table.starts, seconds - packets.origin + 1e-6, side="right")) - 1


def _upright(frame: Any, size: tuple[int, int]) -> Pixels:
    """uint8 (height, width, 3), turned as the display matrix says; broadcasts change their size on the way.

    Args:
        frame: of PyAV.
        size: width and height of the first one.
    """
    width, height = size
    pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(pixels, k=round(frame.rotation / 90)))
