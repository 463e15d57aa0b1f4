"""Near texts: hashes in blocks are those of the whole, word by word, and a long text takes little room."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from vidvec_msg.retrieval import near_texts
from vidvec_msg.retrieval.near_texts import NearPair, near_pairs, words_of

ODD, ALL = int(near_texts._ODD), 1 << 64
LETTERS = "aé  ñ–’ß\u0130\ufb00e\u0301\uff211_中。\u3000\t\n\U0001d400"


def texts_of(seed: int) -> list[str]:
    """Some of one word, some empty, some with letters beyond ASCII, some that differ by a word."""
    letters = random.Random(seed)
    plain = [" ".join(letters.choices(["one", "two", "three", "x" * 40], k=n)) for n in (0, 1, 2, 3, 60, 61)]
    odd = ["".join(letters.choices(LETTERS, k=n)) for n in (1, 2, 9, 80, 200)]
    return [*plain, *odd, f"{plain[-1]} more", "", " ", "y" * 100, f"{odd[-1]} more"]


def plain_hashes(texts: Sequence[str]) -> list[int]:
    """The polynomial, letter by letter (Karp and Rabin)."""
    words = [word.encode() for text in texts for word in words_of(text)]
    return [sum(letter * pow(ODD, place, ALL) for place, letter in enumerate(word)) % ALL for word in words]


@pytest.mark.parametrize("block", [1, 2, 7, 64, 1 << 16])
def test_words_are_hashed_alike_in_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = texts_of(block)
    monkeypatch.setattr(near_texts, "_BLOCK", block)
    hashes, counts = near_texts._word_hashes(texts)
    assert hashes.tolist() == plain_hashes(texts)
    assert counts.tolist() == [len(words_of(text)) for text in texts]


@pytest.mark.parametrize("large", [1, 50, 300])
def test_pairs_do_not_depend_on_what_is_worked_on_at_once(
    large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for seed in range(30) for text in texts_of(seed)]
    found = near_pairs(texts)
    assert len(found) > 30
    assert any(pair.likeness < 1 for pair in found)
    monkeypatch.setattr(near_texts, "_LARGE", large)
    monkeypatch.setattr(near_texts, "_BLOCK", 16)
    assert near_pairs(texts) == found


def test_signatures_do_not_depend_on_how_many_sets_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [one for one in near_texts._shingles(texts_of(0)) if len(one)]
    whole = np.stack(list(near_texts._bands(sets)))
    monkeypatch.setattr(near_texts, "_LARGE", 3)
    assert np.array_equal(np.stack(list(near_texts._bands(sets))), whole)


def test_parts_cover_everything_once_and_keep_to_both_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_texts, "_LARGE", 10)
    parts = near_texts._parts([4, 6, 1, 30, 0, 0, 0, 0], most=3)
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 8)]
    assert list(near_texts._parts([], most=3)) == []


@pytest.mark.parametrize("ending", ["", "é"])
def test_a_long_text_takes_a_few_bytes_a_letter(ending: str) -> None:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(3, 9))) + ending for _ in range(500)]
    text = " ".join(draw.choices(words, k=300_000))
    tracemalloc.start()
    try:
        found = near_pairs([text, text, "another"])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [NearPair(0, 1, 1.0)]
    assert most < 20 * len(text)  # with sums and powers of every letter it took 70 and more
