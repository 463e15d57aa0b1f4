"""What a media file is, before anybody embeds it: duration, rate, size, sound, and whether it decodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vidvec_msg.media.files import file_problem
from vidvec_msg.media.images import ImageError, read_image
from vidvec_msg.media.pyav_reader import Packets, decodable, picture_streams, read_packets
from vidvec_msg.media.video import Readers, VideoError, reader_of

Medium = Literal["video", "image", "audio"]
Depth = Literal["first", "all"]

_SUFFIXES: dict[Medium, str] = {
    "video": "mp4 m4v mov mkv webm avi mpg mpeg mpe ts m2ts mts flv wmv asf 3gp 3g2 ogv vob mxf y4m gif",
    "image": "jpg jpeg png webp bmp tif tiff avif heic",
    "audio": "wav mp3 flac m4a aac ogg oga opus wma aif aiff",
}
"""What a file is taken for by its name; only probing tells what it is."""


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """A file as its packets and its first frame tell.

    Args:
        medium: what it is, whatever its name says.
        container: FFmpeg's name of the format; of an image the suffix.
        codec: FFmpeg's name of the pictures' codec, of the sound's if there are none.
        duration: in seconds, of the pictures if there are any; 0 for an image.
        fps: mean frames per second; 0 without moving pictures.
        frames: packets of pictures, counted and not taken from the header, which may be wrong or silent.
        decoded_frames: frames that really decode; None if not all of them were tried.
        height: of an upright frame.
        width: of an upright frame.
        rotation: degrees that the display matrix turns the stored picture.
        variable_rate: frames do not come at a constant rate.
        has_sound: there is a sound stream.
        reader: who reads its frames: "decord", or "pyav" where decord cannot read the first one; empty if
            there are none.
    """

    medium: Medium
    container: str = ""
    codec: str = ""
    duration: float = 0.0
    fps: float = 0.0
    frames: int = 0
    decoded_frames: int | None = None
    height: int = 0
    width: int = 0
    rotation: int = 0
    variable_rate: bool = False
    has_sound: bool = False
    reader: str = ""


def medium_of_name(path: Path) -> Medium | None:
    """What a file's suffix promises; None for a suffix that no medium has."""
    suffix = path.suffix.lower().removeprefix(".")
    return next((medium for medium, known in _SUFFIXES.items() if suffix in known.split()), None)


def read_facts(path: Path, *, depth: Depth = "first", reader: Readers = "auto") -> MediaFacts:
    """Looks into a file, in this process and without a time limit.

    Jobs use :meth:`vidvec_msg.media.limits.DecodePool.facts`, which can be interrupted.

    Args:
        path: any container and codec that FFmpeg reads, or an image.
        depth: frames that are tried: the "first", or "all" of them, which takes as long as decoding does.
        reader: "auto" finds out who reads its frames; "pyav" does not let decord try.

    Raises:
        VideoError: missing, empty, not media, or nothing in it decodes.
    """
    if problem := file_problem(path):
        raise VideoError(problem)
    if medium_of_name(path) == "image":
        try:
            height, width = read_image(path).shape[:2]
        except ImageError as error:
            raise VideoError(f"{error}{_what_else(path)}") from error
        return MediaFacts("image", container=path.suffix.lower().lstrip("."), height=height, width=width)
    return _facts_of_streams(path, depth, reader)


def _what_else(path: Path) -> str:
    """What a file is that is called an image and is none: a clip that lost its name, or nothing known."""
    try:
        found = _facts_of_streams(path, "first", "pyav")
    except VideoError:
        return ""
    return "" if found.container.endswith("_pipe") else f"; it is {found.medium}, rename it"


def _facts_of_streams(path: Path, depth: Depth, reader: Readers) -> MediaFacts:
    import av

    try:
        with av.open(str(path.absolute())) as container:
            pictures = picture_streams(container)
            sound = list(container.streams.audio)
            name = container.format.name
            if not pictures and not sound:
                kinds = sorted({stream.type for stream in container.streams}) or ["nothing"]
                raise VideoError(f"neither pictures nor sound (it holds {', '.join(kinds)})")
            if not pictures:
                return MediaFacts(
                    "audio",
                    container=name,
                    codec=sound[0].codec_context.name,
                    duration=_seconds_of_sound(container, sound[0]),
                    has_sound=True,
                )
            index, codec, loud = pictures[0].index, pictures[0].codec_context.name, bool(sound)
            packets = read_packets(container, pictures[0])
        height, width, rotation, decoded = _decode(path, index, packets, depth)
    except MemoryError:
        raise
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, VideoError):
            raise VideoError(f"{path}: {error}") from error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(f"{path}: no media file, or broken beyond use ({reason})") from error
    table = packets.table
    gaps = np.diff(table.starts)
    return MediaFacts(
        "video",
        container=name,
        codec=codec,
        duration=round(table.end, 6),
        fps=round(table.fps, 6),
        frames=len(table.starts),
        decoded_frames=decoded,
        height=height,
        width=width,
        rotation=rotation,
        # clocks of 1 ms round the gaps of 30 fps to 33 and 34
        variable_rate=bool(len(gaps) > 1 and gaps.max() - gaps.min() > max(0.002, 0.1 * float(gaps.mean()))),
        has_sound=loud,
        reader="pyav" if reader == "pyav" else reader_of(path.absolute(), packets),
    )


def _decode(
    path: Path, stream_index: int, packets: Packets, depth: Depth
) -> tuple[int, int, int, int | None]:
    """Height and width upright, rotation, and the number of frames that decode if all were tried."""
    import av

    count, first = 0, None
    with av.open(str(path.absolute())) as container:
        stream = container.streams[stream_index]
        stream.codec_context.thread_count = 1  # the pool's processes look into files side by side
        for _, frame in decodable(container, stream, packets):
            count += 1
            first = first or (frame.height, frame.width, round(frame.rotation))
            if depth == "first":
                break
    if first is None:
        raise VideoError("broken beyond use (no frame could be decoded)")
    height, width, rotation = first
    if rotation % 180:
        height, width = width, height
    return height, width, rotation, count if depth == "all" else None


def _seconds_of_sound(container: Any, stream: Any) -> float:
    if stream.duration is not None:
        return round(float(stream.duration * stream.time_base), 6)
    return round((container.duration or 0) / 1e6, 6)
