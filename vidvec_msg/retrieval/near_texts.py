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
from typing import NamedTuple

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
_BITS = 8  # of a number of texts that are hashed at once: their letters, and a number each, stay in the cache
_AT_ONCE = 1 << _BITS
_IN_CACHE = 1024  # sets whose hashes are multiplied at once: a hundred hashes each are 0.8 MB
_LARGE = 1 << 20  # letters of texts, or hashes of sets, beyond which fewer are taken at once
_BLOCK = 1 << 16  # letters whose powers are at hand: each is 16 bytes

Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ALL = 1 << 64  # hashes


class NearPair(NamedTuple):
    """Two texts, by position, and their likeness."""

    one: int
    other: int
    likeness: float


_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"[ \t\n]")
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
    spaced = _spaced_ascii(text, _SPACED_BUT_FOR_APOSTROPHES if apostrophes else _SPACED)
    return None if spaced is None else spaced.decode().split()


def _spaced_ascii(text: str, table: bytes) -> bytes | None:
    """A text with spaces where the table has them; None where a letter beyond ASCII wants more care."""
    if not text.isascii():
        for mark, plain in _PLAIN.items():
            text = text.replace(mark, plain)
        if not text.isascii():
            return None
    return text.encode().translate(table)


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
        for part in _parts([len(text) for text in texts], most=_AT_ONCE)
        for hashes in _shingles(texts[part])
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


def _parts(sizes: Sequence[int], *, most: int) -> Iterator[slice]:
    """Neighbours that are worked on together: at most so many, and no further one beyond ``_LARGE``."""
    begin, total = 0, 0
    for place, size in enumerate(sizes):
        if place > begin and (place - begin == most or total + size > _LARGE):
            yield slice(begin, place)
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield slice(begin, len(sizes))


def _shingles(texts: Sequence[str]) -> Iterator[Hashes]:
    """Sorted distinct hashes of each text's word triples; a shorter one is a shingle."""
    hashed, counts = _word_hashes(texts)
    short = np.where(counts > 0, np.maximum(SHINGLE - counts, 0), 0)  # words that a shingle would need
    hashed = np.insert(hashed, np.repeat(np.cumsum(counts), short), 0)
    counts = counts + short
    rolled = np.zeros(max(0, len(hashed) - SHINGLE + 1), np.uint64)
    for shift in range(SHINGLE):
        rolled = (rolled ^ hashed[shift : shift + len(rolled)]) * _ODD  # wraps around, as hashes do
    owner = np.repeat(np.arange(len(texts), dtype=np.uint64), counts)
    within = owner[: len(rolled)] == owner[SHINGLE - 1 :]  # not across the border of two texts
    # the text's number above the upper bits of a hash: one sort for all texts
    keys = np.sort((owner[: len(rolled)][within] << (64 - _BITS)) | (_mixed(rolled[within]) >> _BITS))
    first = np.ones(len(keys), bool)  # of its kind in its text
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first]
    ends = np.searchsorted(keys >> (64 - _BITS), np.arange(len(texts)), side="right")
    return iter(np.split(keys << _BITS, ends[:-1]))


def _word_hashes(texts: Sequence[str]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """A hash of each word, text after text, and how many words each text has.

    The hash is the polynomial of a word's letters (Karp and Rabin, "Efficient randomized pattern-matching
    algorithms", 1987), modulo 2**64: sums over the letters so far give all of them at once, where a table of
    words takes three times as long. Sums are kept where words begin and end alone, and powers for one block
    of letters: those of the next are the same times a number.
    """
    spaced = [_spaced(text) for text in texts]
    letters = np.frombuffer(b" ".join([*spaced, b""]), np.uint8)
    edges = np.flatnonzero(np.diff(letters != ord(" "), prepend=False, append=False))
    block = min(len(letters), _BLOCK)
    powers = np.cumprod(np.full(block, _ODD), dtype=np.uint64)
    back = np.cumprod(np.full(block, pow(int(_ODD), -1, _ALL)), dtype=np.uint64)
    sums = np.zeros(block + 1, np.uint64)
    sum_at, back_at = np.empty(len(edges), np.uint64), np.empty(len(edges), np.uint64)
    before, power, backwards = 0, 1, 1  # of the blocks so far
    for start in range(0, len(letters), _BLOCK):
        some = letters[start : start + _BLOCK]
        np.cumsum(some * powers[: len(some)], out=sums[1 : len(some) + 1])
        first, last = np.searchsorted(edges, (start, start + len(some)))
        here = edges[first:last] - start
        sum_at[first:last] = np.uint64(before) + np.uint64(power) * sums[here]
        back_at[first:last] = np.uint64(backwards) * back[here]
        before = (before + power * int(sums[len(some)])) % _ALL
        power, backwards = power * int(powers[-1]) % _ALL, backwards * int(back[-1]) % _ALL
    text_ends = np.cumsum([len(one) + 1 for one in spaced])
    counts = np.diff(np.searchsorted(edges[::2], text_ends), prepend=0)
    return (sum_at[1::2] - sum_at[::2]) * back_at[::2], counts


def _spaced(text: str) -> bytes:
    """The words of a text in UTF-8, with spaces between."""
    spaced = _spaced_ascii(text, _SPACED)
    if spaced is not None:
        return spaced
    # cut at spaces, across which Unicode composes nothing: a list of all words takes ten times a text's room
    return b" ".join(" ".join(words_of(portion)).encode() for portion in _portions(text))


def _portions(text: str) -> Iterator[str]:
    """A text in pieces of ``_BLOCK`` letters, each up to the next space."""
    begin = 0
    while (space := _SPACE.search(text, begin + _BLOCK)) is not None:
        yield text[begin : space.start()]
        begin = space.start()
    yield text[begin:]


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
    for part in _parts(
        [len(one) for one in sets], most=_IN_CACHE
    ):  # products of all would go through memory 64 times
        some = sets[part]
        everything = np.concatenate(some)
        begins = np.cumsum([0, *(len(one) for one in some[:-1])])
        for band, joined in zip(factors, bands[:, part], strict=True):
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
