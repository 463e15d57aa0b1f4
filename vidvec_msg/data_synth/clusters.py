"""Messages near each other: groups that are never each other's negatives, and splits of whole groups.

Two messages are neighbours if they share so many of their stems, or if their vectors lie so near; a group is
what neighbours of neighbours hang together. It errs on the side of too large: two messages wrongly in one
group cost a few negatives, two wrongly apart put a paraphrase of a training message into the validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b

from vidvec_msg.data_synth.filters.duplicates import stem_set
from vidvec_msg.data_synth.near_sets import near_sets
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.near_texts import NearPair

LIKENESS = 0.5  # shared stems over all stems: "Old friends forgive late replies" and "Old friends forgive"
COSINE = 0.8  # of neighbours; the nearest two of the 600 messages of data/ have 0.71 by MiniLM

TRAIN, VALIDATION = "train", "validation"


def grouped(pairs: Sequence[Pair], further: Iterable[NearPair] = ()) -> list[Pair]:
    """Pairs with their group: that of its first row (its id, if it has none), for rows that share one.

    Rows that came with the same group stay together, whatever joins them.

    Args:
        pairs: with ids.
        further: neighbours by other means, such as vectors.
    """
    found = [*near_sets([stem_set(pair.positive) for pair in pairs], least=LIKENESS), *further]
    first: dict[str, int] = {}
    given = [
        NearPair(first.setdefault(pair.group, row), row, 1.0) for row, pair in enumerate(pairs) if pair.group
    ]
    leader = _leaders(len(pairs), [*found, *given])
    shared = {row for row, first in enumerate(leader) if first != row}
    shared |= {leader[row] for row in shared}
    return [
        replace(pair, group=pairs[leader[row]].group or pairs[leader[row]].id) if row in shared else pair
        for row, pair in enumerate(pairs)
    ]


def split_of(pair: Pair, share: float, seed: int) -> str:
    """On which side a pair is: a group as a whole, by hash, so that more pairs move none of the old ones.

    Args:
        pair: with its group.
        share: of the validation.
        seed: of the hash.
    """
    mark = pair.group or pair.id or pair.positive
    digest = blake2b(f"{seed}\0{mark}".encode(), digest_size=8).digest()
    return VALIDATION if int.from_bytes(digest, "big") < share * 2**64 else TRAIN


def _leaders(rows: int, found: Iterable[NearPair]) -> list[int]:
    """The first row of each row's group."""
    leader = list(range(rows))

    def first(row: int) -> int:
        while leader[row] != row:
            leader[row] = leader[leader[row]]
            row = leader[row]
        return row

    for pair in found:
        one, other = sorted((first(pair.one), first(pair.other)))
        leader[other] = one
    return [first(row) for row in range(rows)]
