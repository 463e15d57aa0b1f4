"""A clip as parts of a user turn for a chat endpoint: its frames as images, without a hint at its file."""

from __future__ import annotations

import base64
import io
from typing import Any

from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.formats.items import Item, Pixels

_QUALITY = 85  # JPEG


def clip_parts(clip: Item, clips: ClipReader) -> list[dict[str, Any]]:
    """The clip as parts of a user turn.

    Args:
        clip: with frames, an image or a text.
        clips: decodes.

    Raises:
        ValueError: it cannot be read, or is sound.
    """
    if clip.modality == "text":
        return [{"type": "text", "text": clip.full_text}]
    if clip.modality == "image":
        return [_picture(clips.image_of(clip))]
    if clip.modality != "video":
        raise ValueError(f"an endpoint is shown frames and texts; the clip is {clip.modality}")
    frames = clips.clip_of(clip)
    told = f"{len(frames.pixels)} frames of a clip of {frames.duration:.1f} seconds, in their order:"
    return [{"type": "text", "text": told}, *(_picture(frame) for frame in frames.pixels)]


def _picture(pixels: Pixels) -> dict[str, Any]:
    """Pixels ``(height, width, 3)`` as a part of a user turn."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=_QUALITY)
    uri = "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": uri}}
