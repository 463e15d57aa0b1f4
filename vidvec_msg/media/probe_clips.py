"""Small clips, pictures and sounds drawn on the spot, to try out what reads them.

Every one is different, holds a word that can be read, and moves; the same call gives the same pixels.
"""

from __future__ import annotations

import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from vidvec_msg.formats.items import Pixels

FPS = 8  # of a drawn clip, frames per second
SOUND_RATE = 16_000  # samples per second

_COLOURS = ((220, 60, 50), (50, 110, 220), (60, 170, 80), (230, 180, 40))


def moving_square(
    frames: int, *, height: int = 160, width: int = 224, colour: int = 0, word: str = "HELLO"
) -> Pixels:
    """A square that crosses the picture from left to right below a word.

    Args:
        frames: how many.
        height: pixels, even.
        width: pixels, even.
        colour: which of four colours the square has; the background has the next one, made pale.
        word: written above.

    Returns:
        uint8 (frames, height, width, 3).
    """
    paint = _COLOURS[colour % len(_COLOURS)]
    pale = tuple(200 + value // 6 for value in _COLOURS[(colour + 1) % len(_COLOURS)])
    side = height // 4
    pictures = []
    for number in range(frames):
        picture = Image.new("RGB", (width, height), pale)
        pen = ImageDraw.Draw(picture)
        pen.text((10, 10), word, fill=(20, 20, 20), font_size=28)
        left = round((width - side) * number / max(frames - 1, 1))
        pen.rectangle((left, height // 2, left + side, height // 2 + side), fill=paint)
        pictures.append(np.asarray(picture))
    return np.stack(pictures)


def write_clip(path: Path, pixels: Pixels, *, fps: int = FPS) -> Path:
    """Encodes frames as H.264, with PyAV's own encoder.

    Args:
        path: an .mp4 file to write.
        pixels: uint8 (frames, height, width, 3), height and width even.
        fps: frames per second.
    """
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.height, stream.width = pixels.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "veryfast", "threads": "1"}
        for picture in pixels:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def write_image(path: Path, pixels: Pixels) -> Path:
    """One picture, uint8 (height, width, 3), as a file of the format that its suffix names."""
    Image.fromarray(pixels).save(path)
    return path


def write_tone(path: Path, *, hertz: float, seconds: float = 1.0) -> Path:
    """A .wav file with a tone that swells and fades, 16-bit mono."""
    at = np.arange(round(seconds * SOUND_RATE)) / SOUND_RATE  # (samples,)
    samples = np.sin(2 * np.pi * hertz * at) * np.sin(np.pi * at / seconds) * 0.5
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SOUND_RATE)
        sound.writeframes((samples * 32767).astype("<i2").tobytes())
    return path
