"""Embedders of first letters: a reader computes cosines in the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from vidvec_msg.data_synth.filters.words import words_of
from vidvec_msg.embedders.contract import EmbedderCard, Role
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item


class Letters:
    """A text's vector counts the first letters of its words."""

    card = EmbedderCard(name="letters", dim=26, weights="v1")

    def encode(self, items: Sequence[Item], *, role: Role) -> np.ndarray:
        bad = [
            Failure(item.id, "no letter") for item in items if not any(c.isalpha() for c in item.text or "")
        ]
        if bad:
            raise ItemError(bad)
        rows = np.zeros((len(items), 26), np.float32)
        for row, item in enumerate(items):
            for word in words_of(item.text or ""):
                rows[row, (ord(word[0]) - 97) % 26] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Counting(Letters):
    """Notes every text that it is asked for, whichever instance is."""

    asked: ClassVar[list[str]] = []

    def encode(self, items: Sequence[Item], *, role: Role) -> np.ndarray:
        self.asked.extend(item.text or "" for item in items)
        return super().encode(items, role=role)
