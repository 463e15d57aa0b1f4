"""Small real files with sound, written with PyAV: tones that a test recognises, alone or under pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np


def tone(seconds: float, *, hertz: float = 440.0, level: float = 0.3, rate: int = 16_000) -> np.ndarray:
    """A sine, float32 ``(samples,)``."""
    at = np.arange(round(seconds * rate)) / rate
    return (level * np.sin(2 * np.pi * hertz * at)).astype(np.float32)


def pitch(samples: np.ndarray, rate: int) -> float:
    """The loudest frequency, in hertz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[spectrum.argmax()])


def level(samples: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.square(samples, dtype=np.float64).mean()))


def write_media(
    path: Path,
    *,
    samples: np.ndarray | None = None,
    frames: Sequence[np.ndarray] = (),
    rate: int = 16_000,
    fps: int = 10,
    codec: str = "aac",
    layout: str = "mono",
    delay: float = 0.0,
) -> Path:
    """Encodes sound and pictures into one file.

    Args:
        path: container by its suffix.
        samples: float32 ``(samples,)`` for every channel, or ``(channels, samples)``; None: no sound stream.
        frames: uint8 (height, width, 3); none: no video stream.
        rate: samples per second.
        fps: frames per second.
        codec: FFmpeg's name of the sound codec.
        layout: "mono", "stereo", "5.1".
        delay: second at which the sound begins.
    """
    with av.open(str(path), "w") as container:
        video = audio = None
        if len(frames):
            video = container.add_stream("libx264", rate=fps)
            video.height, video.width = frames[0].shape[:2]
            video.pix_fmt = "yuv420p"
        if samples is not None:
            audio = container.add_stream(codec, rate=rate)
            audio.layout = layout
        if video is not None:
            for pixels in frames:
                container.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(video.encode())
        if audio is not None:
            channels = audio.layout.nb_channels
            planes = np.broadcast_to(np.atleast_2d(samples), (channels, np.shape(samples)[-1]))
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(planes, np.float32), format="fltp", layout=layout
            )
            frame.sample_rate, frame.pts = rate, round(delay * rate)
            for part in av.AudioResampler(format=audio.format, layout=layout, rate=rate).resample(frame):
                container.mux(audio.encode(part))
            container.mux(audio.encode())
    return path
