"""Fewer sentences of a storyline: another view of the same pair in every epoch.

A few hundred pairs are memorised within some epochs. A storyline that loses some of its sentences, others
each time, is not the text that was memorised, still belongs to its message, and costs fewer tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses.pairs import key_of

# a space behind . ! ? … and the quotes or brackets that close there; behind 。！？ there is no space
_BETWEEN = re.compile(r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+|(?<=[。！？])(?=\S)")


def with_fewer_sentences(pair: Pair, share: float, seed: Sequence[int]) -> Pair:
    """The pair with some sentences of its anchor, in their order; one at least, so one sentence stays whole.

    Pairs with the same anchor lose the same sentences, so that they still share it, and no loss sets them
    against each other.

    Args:
        pair: its positive and its negatives stay as they are.
        share: chance of each sentence to stay, above 0; 1 keeps all.
        seed: with the anchor's text it decides which; the same wherever and whenever it is asked.
    """
    if share >= 1:
        return pair
    sentences = split_sentences(pair.anchor)
    drawn = np.random.default_rng((*seed, key_of(pair.anchor), 4))
    kept = drawn.random(len(sentences)) < share  # (sentences,)
    if not kept.any():
        kept[drawn.integers(len(sentences))] = True
    chosen = [sentence for sentence, stays in zip(sentences, kept, strict=True) if stays]
    return replace(pair, anchor=" ".join(chosen)) if len(chosen) < len(sentences) else pair


def split_sentences(text: str) -> list[str]:
    """A text's sentences, by their final marks; a text without any is one sentence."""
    return [sentence for sentence in _BETWEEN.split(text.strip()) if sentence] or [text]
