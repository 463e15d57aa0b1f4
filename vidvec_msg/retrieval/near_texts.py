"""Texts that are almost the same, found among many: shingles, MinHash, and then the exact likeness.

Likeness is Jaccard's: shared word triples over all word triples (Broder, "On the resemblance and containment
of documents", 1997). Pairs of all texts would be 50 million for 10,000; MinHash signatures in bands bring
together those that are worth comparing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

NEAR = 0.8
"""Likeness from which two texts are near; the usual threshold for near-duplicates in corpora (for example Lee
et al., "Deduplicating Training Data Makes Language Models Better", ACL 2022)."""

SHINGLE = 3  # words
# 16 bands of 4 find a pair of likeness 0.8 with probability 1 - (1 - 0.8^4)^16 = 0.9998, one of 0.4 with 0.34
BANDS, ROWS = 16, 4
_CROWD = 60  # texts in one bucket, from which each is compared with the first ones only
_SEED = 20_261_129
_REMEMBERED = 500_000  # words; some 60 MB
_BITS = 12  # of a number of texts whose words are in memory at once
_AT_ONCE = 1 << _BITS
_IN_CACHE = 1024  # sets whose hashes are multiplied at once: a hundred hashes each are 0.8 MB

Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)


class NearPair(NamedTuple):
    """Two texts, by position, and their likeness."""

    one: int
    other: int
    likeness: float


_WORD = re.compile(r"\w+")
_PLAIN: Mapping[str, str] = {"’": "'", "‘": " ", "“": " ", "”": " ", "–": " ", "—": " ", "…": " "}


def _table(kept: str) -> bytes:
    """What becomes of an ASCII character: letters small, digits and ``kept`` stay, the rest is a space."""
    small = (chr(code).lower() for code in range(128))
    return "".join(char if char.isalnum() or char in kept else " " for char in small).encode().ljust(256)


_SPACED, _SPACED_BUT_FOR_APOSTROPHES = _table("_"), _table("_'")


def ascii_words(text: str, *, apostrophes: bool = False) -> list[str] | None:
    """The words of a text in plain letters, four times as fast as an expression finds them.

    Args:
        text: any; typographic quotes and dashes do not matter.
        apostrophes: whether they are left where they are, in words and around them.

    Returns:
        what lies between other characters than letters, digits and underscores, without case; None where a
        letter beyond ASCII wants more care.
    """
    if not text.isascii():
        for mark, plain in _PLAIN.items():
            text = text.replace(mark, plain)
        if not text.isascii():
            return None
    spaced = text.encode().translate(_SPACED_BUT_FOR_APOSTROPHES if apostrophes else _SPACED)
    return spaced.decode().split()


def words_of(text: str) -> list[str]:
    """Words, without case, punctuation and the spelling variants of Unicode."""
    plain = ascii_words(text)
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) if plain is None else plain


def near_pairs(texts: Sequence[str], *, least: float = NEAR) -> list[NearPair]:
    """Pairs of texts that are almost or exactly the same, in order of position.

    Texts of the same words are compared as one: each of them is paired with the first of its kind, and its
    kind with others through that one. Texts without a word are left out.

    Args:
        texts: any number; 10,000 of 100 words take a few seconds.
        least: likeness from which a pair counts.
    """
    shingles = [
        hashes
        for start in range(0, len(texts), _AT_ONCE)
        for hashes in _shingles(texts[start : start + _AT_ONCE])
    ]
    kinds: dict[bytes, list[int]] = defaultdict(list)
    for position, hashes in enumerate(shingles):
        if len(hashes):
            kinds[hashes.tobytes()].append(position)
    pairs = [NearPair(same[0], other, 1.0) for same in kinds.values() for other in same[1:]]
    firsts = [same[0] for same in kinds.values()]
    for one, other in _candidates([shingles[position] for position in firsts]):
        likeness = _jaccard(shingles[firsts[one]], shingles[firsts[other]])
        if likeness >= least:
            pairs.append(NearPair(firsts[one], firsts[other], likeness))
    return sorted(pairs)


def _shingles(texts: Sequence[str]) -> Iterator[Hashes]:
    """Sorted distinct hashes of each text's word triples; a shorter one is a shingle."""
    words = [words_of(text) for text in texts]
    for some in words:
        if some:
            some += [""] * (SHINGLE - len(some))
    counts = np.array([len(some) for some in words])
    hashed = np.fromiter(map(_HASHES.__getitem__, chain.from_iterable(words)), np.uint64, counts.sum())
    rolled = np.zeros(max(0, len(hashed) - SHINGLE + 1), np.uint64)
    for shift in range(SHINGLE):
        rolled = (rolled ^ hashed[shift : shift + len(rolled)]) * _ODD  # wraps around, as hashes do
    owner = np.repeat(np.arange(len(words), dtype=np.uint64), counts)
    within = owner[: len(rolled)] == owner[SHINGLE - 1 :]  # not across the border of two texts
    # the text's number above the upper bits of a hash: one sort for all texts
    keys = np.sort((owner[: len(rolled)][within] << (64 - _BITS)) | (_mixed(rolled[within]) >> _BITS))
    first = np.ones(len(keys), bool)  # of its kind in its text
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first]
    ends = np.searchsorted(keys >> (64 - _BITS), np.arange(len(words)), side="right")
    return iter(np.split(keys << _BITS, ends[:-1]))


class _Hashes(dict[str, int]):
    """Hashes by word, found once each."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[word] = found = crc32(word.encode())
        return found


_HASHES = _Hashes()


def _candidates(sets: Sequence[Hashes]) -> Iterator[tuple[int, int]]:
    """Pairs of sets that share a band of their signatures, each once."""
    if len(sets) < 2:
        return
    seen: set[tuple[int, int]] = set()
    for band in _bands(sets):
        for bucket in _buckets(band):
            # a crowd is one template filled in many times: all pairs of it would be too many
            leaders = bucket if len(bucket) <= _CROWD else bucket[:8]
            for place, one in enumerate(leaders):
                for other in bucket[place + 1 :]:
                    if (one, other) not in seen:
                        seen.add((one, other))
                        yield one, other


def _bands(sets: Sequence[Hashes]) -> Iterator[Hashes]:
    """MinHash: for each band, one number a set, uint64 (sets,), that is equal where its ROWS minima are.

    Hashes are mixed already, so that a random odd factor is a random order of them (multiply-shift hashing).
    """
    factors = np.random.default_rng(_SEED).integers(0, 2**63, (BANDS, ROWS), dtype=np.uint64) * 2 + 1
    bands = np.zeros((BANDS, len(sets)), np.uint64)
    for start in range(0, len(sets), _IN_CACHE):  # products of all sets would go through memory 64 times
        some = sets[start : start + _IN_CACHE]
        everything = np.concatenate(some)
        begins = np.cumsum([0, *(len(one) for one in some[:-1])])
        for band, joined in zip(factors, bands[:, start : start + len(some)], strict=True):
            for factor in band:
                joined[:] = _mixed(joined * _ODD ^ np.minimum.reduceat(everything * factor, begins))
    return iter(bands)


def _buckets(numbers: Hashes) -> Iterator[list[int]]:
    """Positions of equal numbers, where there are several, each bucket in order."""
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    sizes = np.diff([0, *ends, len(order)])
    begins = np.concatenate(([0], ends))
    for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        yield order[begin : begin + size].tolist()


def _mixed(hashes: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the input."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _jaccard(one: Hashes, other: Hashes) -> float:
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)
