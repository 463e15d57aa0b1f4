"""Texts that are almost the same, found among many: shingles, MinHash, and then the exact likeness.

Likeness is Jaccard's: shared word triples over all word triples (Broder, "On the resemblance and containment
of documents", 1997). Pairs of all texts would be 50 million for 10,000; MinHash signatures in bands bring
together those that are worth comparing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
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

Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)


class NearPair(NamedTuple):
    """Two texts, by position, and their likeness."""

    one: int
    other: int
    likeness: float


def words_of(text: str) -> list[str]:
    """Words, without case, punctuation and the spelling variants of Unicode."""
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())


def near_pairs(texts: Sequence[str], *, least: float = NEAR) -> list[NearPair]:
    """Pairs of texts that are almost or exactly the same, in order of position.

    Texts of the same words are compared as one: each of them is paired with the first of its kind, and its
    kind with others through that one. Texts without a word are left out.

    Args:
        texts: any number; 10,000 of 100 words take a few seconds.
        least: likeness from which a pair counts.
    """
    shingles = [_shingles(words_of(text)) for text in texts]
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


def _shingles(words: Sequence[str]) -> Hashes:
    """Sorted distinct hashes of the word triples; a shorter text is one shingle."""
    if not words:
        return np.zeros(0, np.uint64)
    hashed = np.array([crc32(word.encode()) for word in words], np.uint64)  # (words,)
    if len(hashed) < SHINGLE:
        hashed = np.concatenate([hashed, np.zeros(SHINGLE - len(hashed), np.uint64)])
    rolled = np.zeros(len(hashed) - SHINGLE + 1, np.uint64)
    for shift in range(SHINGLE):
        rolled = (rolled ^ hashed[shift : shift + len(rolled)]) * _ODD  # wraps around, as hashes do
    return np.unique(_mixed(rolled))


def _candidates(sets: Sequence[Hashes]) -> Iterator[tuple[int, int]]:
    """Pairs of sets that share a band of their signatures, each once."""
    if len(sets) < 2:
        return
    signatures = _signatures(sets)  # (sets, BANDS * ROWS)
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        buckets: dict[bytes, list[int]] = defaultdict(list)
        part = np.ascontiguousarray(signatures[:, band * ROWS : (band + 1) * ROWS])
        for number, row in enumerate(part):
            buckets[row.tobytes()].append(number)
        for bucket in buckets.values():
            # a crowd is one template filled in many times: all pairs of it would be too many
            leaders = bucket if len(bucket) <= _CROWD else bucket[:8]
            for place, one in enumerate(leaders):
                for other in bucket[place + 1 :]:
                    if (one, other) not in seen:
                        seen.add((one, other))
                        yield one, other


def _signatures(sets: Sequence[Hashes]) -> Hashes:
    """MinHash of each set under BANDS * ROWS random functions, uint64 (sets, functions)."""
    keys = np.random.default_rng(_SEED).integers(0, 2**63, BANDS * ROWS, dtype=np.uint64)
    everything = np.concatenate(sets)
    begins = np.cumsum([0, *(len(one) for one in sets[:-1])])
    columns = [np.minimum.reduceat(_mixed(everything ^ key), begins) for key in keys]
    return np.stack(columns, axis=1)


def _mixed(hashes: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the result depends on every bit of the input."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _jaccard(one: Hashes, other: Hashes) -> float:
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)
