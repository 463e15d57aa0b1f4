"""Items of one side that may mean the same: near in an embedder's space, or of almost the same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.near_texts import near_pairs, words_of

Kind = Literal["exact", "near", "similar"]
KINDS: tuple[Kind, ...] = ("exact", "near", "similar")

_CELLS = 1 << 24  # cosines held at once: 64 MB


@dataclass(frozen=True, slots=True)
class Pair:
    """Two items of one side; ``first`` is the id that comes first in the file.

    Args:
        first: id.
        second: id.
        score: cosine of their vectors; None where one of them has none.
        kind: "exact": the same words. "near": word triples that agree to 80% or more. "similar": neither.
    """

    first: str
    second: str
    score: float | None
    kind: Kind = "similar"


def neighbours(ids: Sequence[str], vectors: Vectors, *, k: int, threshold: float) -> list[Pair]:
    """Pairs of which one is among the other's k nearest, with a cosine above the threshold.

    An item is not its own neighbour, wherever it stands; of equal cosines the later id is nearer (trec_eval's
    rule), so that the order of the rows decides nothing.

    Args:
        ids: of the rows.
        vectors: ``(rows, dim)``, unit vectors.
        k: neighbours of each item; DrivelHub+ takes 10.
        threshold: cosine that a pair must exceed; DrivelHub+ takes 0.7.
    """
    count = len(ids)
    k = min(k, count - 1)
    if k < 1:
        return []
    rank_of_id = np.argsort(np.argsort(np.array(ids)))
    found: dict[tuple[int, int], float] = {}
    block = max(1, _CELLS // count)
    for start in range(0, count, block):
        scores = vectors[start : start + block] @ vectors.T  # (block, count)
        rows = np.arange(start, start + len(scores))
        scores[np.arange(len(rows)), rows] = -np.inf  # not oneself
        for row, line in zip(map(int, rows), scores, strict=True):
            above = np.flatnonzero(line > threshold)
            order = np.lexsort((-rank_of_id[above], -line[above]))[:k]
            for other in map(int, above[order]):
                # from the lower row alone: the two products of a pair may differ in their last bit
                pair = (min(row, other), max(row, other))
                found.setdefault(pair, float(np.dot(vectors[pair[0]], vectors[pair[1]])))
    return [Pair(ids[one], ids[other], score) for (one, other), score in found.items()]


def with_duplicates(pairs: Sequence[Pair], items: Sequence[Item]) -> list[Pair]:
    """The pairs with their kind, and those that only their words show to be duplicates; highest score first.

    Args:
        pairs: from :func:`neighbours`.
        items: the side, in the order of its file. Items without a text have no duplicates here.
    """
    texts = [item.full_text or (item.transcript or "") for item in items]
    kinds: dict[tuple[str, str], Kind] = {}
    for near in near_pairs(texts):
        one, other = sorted((near.one, near.other))
        same = words_of(texts[one]) == words_of(texts[other])
        kinds[items[one].id, items[other].id] = "exact" if same else "near"
    known = {(pair.first, pair.second): pair for pair in pairs}
    for names in kinds:
        known.setdefault(names, Pair(*names, None))
    made = [
        Pair(pair.first, pair.second, pair.score, kinds.get(names, "similar"))
        for names, pair in known.items()
    ]
    return sorted(
        made, key=lambda pair: (-(2.0 if pair.score is None else pair.score), pair.first, pair.second)
    )
