"""The negatives of every row: one search per distinct anchor, one choice per row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.indexes.exact import cosines, nearest
from vidvec_msg.retrieval.mining.choice import Rules, choose
from vidvec_msg.retrieval.mining.texts import Candidates
from vidvec_msg.retrieval.mining.vectors import TextVectors


@dataclass(frozen=True, slots=True)
class Mined:
    """What was found for one row.

    Args:
        negatives: texts, best first.
        scores: their cosines with the anchor.
        positive: cosine of the row's own positive; None if anchor or positive cannot be embedded.
        removed: candidates that each rule removed.
    """

    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    positive: float | None = None
    removed: Counter[str] | None = None


def mined(
    pairs: Sequence[Pair], candidates: Candidates, anchors: TextVectors, messages: TextVectors, rules: Rules
) -> list[Mined]:
    """The negatives of each pair, in the order of the pairs; each distinct anchor is searched for once."""
    numbers = np.array(
        [n for n, text in enumerate(candidates.texts) if text in messages.rows], dtype=np.int64
    )  # (candidates,) those that have a vector
    pool = messages.vectors[[messages.rows[candidates.texts[n]] for n in numbers]]  # (candidates, dim)
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, pair in enumerate(pairs):
        if pair.anchor in anchors.rows and pair.positive in messages.rows:
            rows_of[pair.anchor].append(row)
    forbidden = {
        row: candidates.forbidden(pairs[row], pairs[row].negatives)
        for rows in rows_of.values()
        for row in rows
    }
    # ranks count candidates that a pair may take; those that it must not stand among them
    wanted = [rules.range_max + max(len(forbidden[row]) for row in rows) for rows in rows_of.values()]
    queries = anchors.vectors[[anchors.rows[anchor] for anchor in rows_of]]  # (anchors, dim)
    found = [Mined() for _ in pairs]
    for rows, (positions, scores) in zip(rows_of.values(), nearest(pool, queries, wanted), strict=True):
        near = numbers[positions]  # (found,)
        for row in rows:
            free = ~np.isin(near, forbidden[row])
            pair = pairs[row]
            own = messages.vectors[[messages.rows[pair.positive]]]  # (1, dim)
            positive = float(cosines(own, anchors.vectors[anchors.rows[pair.anchor]])[0])
            chosen, cosine, removed = choose(near[free], scores[free], positive, rules, row)
            found[row] = Mined(
                tuple(candidates.texts[n] for n in chosen), tuple(cosine.tolist()), positive, removed
            )
    return found
