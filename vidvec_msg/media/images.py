"""Pixels: read from an image file, checked in memory, made smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.files import file_problem


class ImageError(ValueError):
    """An image cannot be used; the message is one line that a reject list can hold."""


def read_image(path: Path, *, max_pixels: int = 0) -> Pixels:
    """An image file as uint8 ``(height, width, 3)``, turned the way the camera was held (EXIF).

    Args:
        path: any format that Pillow reads; transparency is laid on black.
        max_pixels: height x width at most, aspect ratio kept; 0 leaves the size alone.

    Raises:
        ImageError: the file is missing, empty, or not an image.
    """
    if problem := file_problem(path):
        raise ImageError(problem)
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            pixels = np.array(upright.convert("RGB"))  # a copy: torch warns of read-only arrays
            return shrink(pixels, max_pixels)
    except UnidentifiedImageError as error:
        raise ImageError(f"not an image: {path}") from error
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow's errors for broken files
        raise ImageError(f"cannot decode image {path}: {error}") from error


def check_pixels(pixels: object, *, dimensions: int, max_pixels: int = 0) -> Pixels:
    """Frames or an image that the caller holds in memory, checked and contiguous.

    Args:
        pixels: what the caller gave.
        dimensions: 4 for frames ``(frames, height, width, 3)``, 3 for an image ``(height, width, 3)``.
        max_pixels: as in :func:`shrink`.

    Raises:
        ImageError: not uint8, another number of dimensions, not three channels last, or empty.
    """
    wanted = "(frames, height, width, 3)" if dimensions == 4 else "(height, width, 3)"
    if not isinstance(pixels, np.ndarray):
        raise ImageError(f"pixels must be a numpy array of uint8 {wanted}, got {type(pixels).__name__}")
    if pixels.dtype != np.uint8:
        raise ImageError(f"pixels must be uint8 from 0 to 255, got {pixels.dtype}; convert them first")
    if pixels.ndim != dimensions or pixels.shape[-1] != 3:
        channels_first = pixels.ndim == dimensions and pixels.shape[dimensions - 3] == 3
        hint = "; channels come last: use np.moveaxis(pixels, -3, -1)" if channels_first else ""
        raise ImageError(f"pixels must have shape {wanted}, got {pixels.shape}{hint}")
    if pixels.size == 0:
        raise ImageError(f"pixels are empty: shape {pixels.shape}")
    return shrink(np.ascontiguousarray(pixels), max_pixels)


def shrink(pixels: Pixels, max_pixels: int) -> Pixels:
    """Makes frames or an image fit a pixel budget; never larger, aspect ratio kept.

    Args:
        pixels: uint8 ``(..., height, width, 3)``.
        max_pixels: height x width at most; 0 leaves the size alone.
    """
    height, width = pixels.shape[-3:-1]
    if not max_pixels or height * width <= max_pixels:
        return pixels
    scale = (max_pixels / (height * width)) ** 0.5
    size = (max(int(width * scale), 1), max(int(height * scale), 1))
    frames = pixels.reshape(-1, height, width, 3)
    small = [np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC)) for frame in frames]
    return np.stack(small).reshape(*pixels.shape[:-3], size[1], size[0], 3)
