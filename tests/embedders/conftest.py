"""Tiny real models, one per family and session, and items of every kind."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from media.clips import grey_frames, write_clip
from tiny_models import build_tiny_mllm

from vidvec_msg.formats.items import Item


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Folder of a family's tiny model: ``tiny("qwen3_vl")``."""

    @lru_cache
    def build(family: str, **options) -> str:
        return str(build_tiny_mllm(tmp_path_factory.mktemp(family), family, **options))

    return lambda family="videollama3", **options: build(family, **options)


@pytest.fixture(scope="session")
def llm(tiny):
    """A tiny embedder: ``llm("qwen3_vl", layer=2)``. One object per set of options."""
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

    @lru_cache
    def make(family: str, **options) -> MultimodalLLM:
        return MultimodalLLM(tiny(family), **{"fps": 2.0, "max_frames": 8, "decode_timeout": 0, **options})

    return lambda family="videollama3", **options: make(family, **options)


@pytest.fixture(scope="session")
def clip_file(tmp_path_factory) -> Path:
    """Two seconds at 10 fps."""
    return write_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", grey_frames(20))


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (*shape, 3), dtype=np.uint8)


TEXTS = (
    "a dog",
    "The slow turtle passes the fast hare that stopped to rest beside the road.",
    "Keep trying. " * 20,
    "bread",
    "Lights come on in a dark house, and rain falls on the roof.",
)


@pytest.fixture(scope="session")
def texts() -> list[Item]:
    return [Item(f"text{number}", text=text) for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="session")
def mixed(texts, clip_file) -> list[Item]:
    """Texts, images, frames in memory of several lengths and shapes, and a video file."""
    media = [
        Item("one frame", video=noise(1, 48, 40)),
        Item("three frames", video=noise(3, 48, 40, seed=1)),
        Item("eight frames", video=noise(8, 40, 48, seed=2)),
        Item("portrait", video=noise(4, 64, 32, seed=3)),
        Item("file", video=clip_file, transcript="somebody said this"),
        Item("image", image=noise(48, 40, seed=4)),
        Item("wide image", image=noise(32, 64, seed=5)),
    ]
    order = [5, 0, 9, 2, 6, 11, 1, 3, 7, 4, 8, 10]
    both = [*texts, *media]
    return [both[position] for position in order]


def least_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """The worst agreement between two sets of unit vectors."""
    assert one.shape == other.shape
    return float((one.astype(np.float64) * other).sum(axis=1).min())
