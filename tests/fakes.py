"""Embedders that a reader can compute in the head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item

KEYWORDS = ("apple", "bridge", "candle", "dog", "engine", "forest", "guitar", "harbour")


class KeywordEmbedder:
    """One dimension per keyword, counted in the text (or in the transcript of a clip), then normalised.

    Args:
        bias: added to every dimension; 1000 makes a collapsed space.
    """

    def __init__(self, bias: float = 0.0) -> None:
        self.bias = bias
        self.card = EmbedderCard(
            name="keywords", dim=len(KEYWORDS), modalities=("text", "video"), weights=f"bias {bias}"
        )
        self.encoded: list[str] = []  # ids in the order in which they were asked for

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        failures = [Failure(item.id, "no keyword in it") for item in items if not self._counts(item).any()]
        if failures:
            raise ItemError(failures)
        self.encoded += [item.id for item in items]
        counts = np.array([self._counts(item) + self.bias for item in items], dtype=np.float32)
        counts = counts.reshape(len(items), len(KEYWORDS))  # (items, dim)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-12)

    def _counts(self, item: Item) -> np.ndarray:
        words = f"{item.full_text} {item.transcript or ''}".lower().split()
        return np.array([words.count(keyword) for keyword in KEYWORDS], dtype=np.float32)
