"""Clips with words on them, and sounds that Whisper writes something about: rendered, not recorded.

No recorded speech comes with the packages that the tests may use, so nothing here is speech. Whisper tiny.en
writes "Beep beep beep…" about the tone, without end, and " You" about near silence: the two faults that the
flags are there for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from PIL import Image, ImageDraw, ImageFont

RATE = 16_000


def slide(lines: Sequence[str], *, size: tuple[int, int] = (180, 320), points: int = 24) -> np.ndarray:
    """White lines of text on a dark ground, uint8 (height, width, 3)."""
    image = Image.new("RGB", (size[1], size[0]), (20, 45, 60))
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text(
            (10, 14 + number * round(points * 1.9)), line, fill="white", font=ImageFont.load_default(points)
        )
    return np.asarray(image)


def tone(seconds: float = 4.0, *, hertz: float = 440.0) -> np.ndarray:
    """A steady tone, float32 (samples,)."""
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(RATE * seconds)) / RATE)).astype(np.float32)


def murmur(seconds: float = 4.0, *, loudness: float = 1e-3) -> np.ndarray:
    """Noise far below speech, but not silence, float32 (samples,)."""
    noise = np.random.default_rng(0).normal(size=round(RATE * seconds))
    return (loudness * noise).astype(np.float32)


def write_talkie(
    path: Path, frames: Sequence[np.ndarray], samples: np.ndarray | None = None, *, fps: int = 5
) -> Path:
    """An MP4 file with pictures, and sound if samples are given.

    Args:
        path: ending in .mp4.
        frames: uint8 (height, width, 3).
        samples: float32 (samples,) at 16 kHz.
        fps: frames per second.
    """
    with av.open(str(path), "w") as container:
        pictures = container.add_stream("libx264", rate=fps, options={"crf": "18"})
        pictures.height, pictures.width = frames[0].shape[:2]
        pictures.pix_fmt = "yuv420p"
        sound = None
        if samples is not None:
            sound = container.add_stream("aac", rate=RATE)
            sound.layout = "mono"
        for pixels in frames:
            container.mux(pictures.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(pictures.encode())
        if sound is not None and samples is not None:
            for at in range(0, len(samples), 1024):
                part = samples[None, at : at + 1024].astype(np.float32)
                frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part), format="fltp", layout="mono")
                frame.sample_rate, frame.pts = RATE, at
                container.mux(sound.encode(frame))
            container.mux(sound.encode())
    return path
