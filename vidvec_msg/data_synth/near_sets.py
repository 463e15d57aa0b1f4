"""Short texts that share most of their words, found exactly: a join by prefixes, not by chance.

MinHash misses pairs, one in three at a likeness of 0.5; a split that keeps paraphrases on one side cannot.
Two sets of likeness t share a word among the rarest few of each (Bayardo et al., "Scaling up all pairs
similarity search", 2007), so that sets are compared with those of the same rare words alone. Long texts are
:mod:`vidvec_msg.retrieval.near_texts`' matter: their sets are large.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from vidvec_msg.retrieval.near_texts import NearPair

_CROWD = 300  # sets that have a word among their rarest; later ones are compared with the first so many


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
    counts = Counter(word for words in first for word in words)
    holders: dict[str, list[int]] = defaultdict(list)  # of a word among the rarest of a set
    for words, row in first.items():
        rarest = _rarest(words, counts, least)
        compared: set[int] = set()
        for word in rarest:
            compared.update(holders[word])
            if len(holders[word]) < _CROWD:
                holders[word].append(row)
        found += _near(words, row, compared, sets, least)
    return sorted(found)


def _rarest(words: frozenset[str], counts: Counter[str], least: float) -> list[str]:
    """The words of which a set as near as that has at least one among its own."""
    # likeness t means t * len(words) shared words at least; the slack keeps 0.8 * 5 from being 4.000000001
    prefix = len(words) - math.ceil(least * len(words) - 1e-9) + 1
    return sorted(words, key=lambda word: (counts[word], word))[:prefix]


def _near(
    words: frozenset[str], row: int, compared: set[int], sets: Sequence[frozenset[str]], least: float
) -> Iterator[NearPair]:
    for other in compared:
        shared = len(words & sets[other])
        likeness = shared / (len(words) + len(sets[other]) - shared)
        if likeness >= least - 1e-9:
            yield NearPair(other, row, likeness)
