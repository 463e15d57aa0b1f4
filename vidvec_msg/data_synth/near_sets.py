"""Short texts that share most of their words, found exactly and not by chance.

MinHash misses pairs, one in three at a likeness of 0.5; a split that keeps paraphrases on one side cannot.
What two sets share is counted for all pairs at once, by sparse products of sets and words. Where sets hold
words that nearly all of them have, only those pairs are counted that share one of their rarest words, as two
sets of the likeness must (Bayardo et al., "Scaling up all pairs similarity search", 2007). Long texts are
:mod:`vidvec_msg.retrieval.near_texts`' matter: their sets are large.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from vidvec_msg.retrieval.near_texts import NearPair

_CELLS = 1 << 20  # shared words counted at once
_DIRECT = 20  # a pair that is looked up costs so many that are counted


def near_sets(sets: Sequence[frozenset[str]], *, least: float) -> list[NearPair]:
    """Pairs of sets whose likeness (shared over all, Jaccard's) is at least so much, in order.

    Equal sets are compared as one: each is paired with the first of its kind, and the kind with others
    through that one. Empty sets are near nothing.

    Args:
        sets: of words, by position.
        least: likeness, above 0 and at most 1.
    """
    first: dict[frozenset[str], int] = {}
    found = [
        NearPair(first[words], row, 1.0)
        for row, words in enumerate(sets)
        if words and first.setdefault(words, row) != row
    ]
    rows = list(first.values())
    found += [NearPair(rows[one], rows[other], like) for one, other, like in _near(list(first), least)]
    return sorted(found)


def _rarest(words: frozenset[str], rank: Mapping[str, int], least: float) -> list[str]:
    """The words of which a set as near as that has at least one among its own; rank 0 is rarest."""
    # likeness t means t * len(words) shared words at least; the slack keeps 0.8 * 5 from being 4.000000001
    prefix = len(words) - math.ceil(least * len(words) - 1e-9) + 1
    return sorted(words, key=rank.__getitem__)[:prefix]


def _near(sets: Sequence[frozenset[str]], least: float) -> Iterator[tuple[int, int, float]]:
    """Positions of two different sets, the earlier one first, and their likeness."""
    if len(sets) < 2:
        return
    counts = Counter(chain.from_iterable(sets))
    rank = {word: place for place, word in enumerate(sorted(counts, key=lambda word: (counts[word], word)))}
    whole = _incidence(sets, rank)
    rare = _incidence([_rarest(words, rank, least) for words in sets], rank)
    looked_up = _work(whole) > _DIRECT * _work(rare)
    table = rare if looked_up else whole
    sizes = np.array([len(words) for words in sets])
    block = max(1, int(_CELLS * len(sets) / _work(table)))
    for start in range(0, len(sets), block):
        end = min(start + block, len(sets))
        shared = (table[start:end] @ table[:end].T).tocoo()
        later = shared.row + start > shared.col
        others, ones, count = shared.row[later] + start, shared.col[later], shared.data[later]
        if looked_up:
            count = np.asarray(whole[ones].multiply(whole[others]).sum(axis=1)).ravel()
        likeness = count / (sizes[ones] + sizes[others] - count)
        near = likeness >= least - 1e-9
        yield from zip(ones[near].tolist(), others[near].tolist(), likeness[near].tolist(), strict=True)


def _incidence(sets: Sequence[Collection[str]], column: Mapping[str, int]) -> Any:
    """Which set holds which word: int32 (sets, words), sparse by rows."""
    from scipy.sparse import csr_array  # type: ignore[import-untyped]  # scipy ships no types

    ends = np.cumsum([0, *map(len, sets)])
    flat = np.fromiter(map(column.__getitem__, chain.from_iterable(sets)), np.int64, int(ends[-1]))
    return csr_array((np.ones(len(flat), np.int32), flat, ends), shape=(len(sets), len(column)))


def _work(table: Any) -> int:
    """Additions that the product of a table with itself takes."""
    holders = np.bincount(table.indices, minlength=1).astype(np.int64)
    return max(1, int((holders**2).sum()))
