"""Small real video files, written with PyAV; a frame's brightness says which one it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

STEP = 10  # grey levels between two frames
SIZE = (48, 64)  # height, width


def grey_frames(count: int, *, size: tuple[int, int] = SIZE) -> list[np.ndarray]:
    """Frame n is uniformly grey at 20 + STEP * n."""
    return [np.full((*size, 3), 20 + STEP * n, np.uint8) for n in range(count)]


def corner_frames(count: int, *, size: tuple[int, int] = SIZE) -> list[np.ndarray]:
    """Black with a white upper left quarter: shows which way is up."""
    frame = np.zeros((*size, 3), np.uint8)
    frame[: size[0] // 2, : size[1] // 2] = 250
    return [frame] * count


def frame_numbers(pixels: np.ndarray) -> list[int]:
    """Which frames of :func:`grey_frames` these are."""
    return [round((float(frame.mean()) - 20) / STEP) for frame in pixels]


def write_clip(
    path: Path,
    frames: Sequence[np.ndarray],
    *,
    fps: int = 10,
    at_ms: Sequence[int] | None = None,
    codec: str = "libx264",
    pixels_as: str = "yuv420p",
    options: dict[str, str] | None = None,
    movflags: str = "",
) -> Path:
    """Encodes frames.

    Args:
        path: container by its suffix.
        frames: uint8 (height, width, 3).
        fps: constant rate.
        at_ms: when each frame appears, for a variable rate.
        codec: FFmpeg's name.
        pixels_as: FFmpeg's name of the pixel format.
        options: of the codec.
        movflags: of the MP4 muxer.
    """
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pixels_as
        stream.options = options or {}
        if at_ms is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if at_ms is not None:
                frame.pts, frame.time_base = at_ms[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_sound(path: Path) -> Path:
    """A second of silence, no pictures."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turn_clockwise(path: Path, out: Path, *, degrees: int) -> Path:
    """A copy of an MP4 file whose display matrix says: show it turned, as phones do."""
    one, minus = 0x10000, (-0x10000) & 0xFFFFFFFF
    rotation = {90: (0, one, 0, minus), 180: (minus, 0, 0, minus), 270: (0, minus, 0, one)}[degrees]
    a, b, u, c = (
        (rotation[0], rotation[1], 0, rotation[2]) if degrees == 180 else (0, rotation[1], 0, rotation[3])
    )
    d = minus if degrees == 180 else 0
    content = bytearray(path.read_bytes())
    matrix = content.find(b"tkhd") + 44  # 4 name, 4 version and flags, 20 times and ids, 8 reserved, 8 layer…
    content[matrix : matrix + 36] = struct.pack(">9I", a, b, u, c, d, 0, 0, 0, 0x40000000)
    out.write_bytes(content)
    return out
