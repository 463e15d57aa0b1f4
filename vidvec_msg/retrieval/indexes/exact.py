"""Exact nearest neighbours among vectors in memory, by a flat FAISS index that nobody keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.extras import require
from vidvec_msg.retrieval.cosine import Positions

SCORE_DIGITS = 6
"""Decimals of a cosine that count: float32 vectors of thousands of dimensions are good for about so many.
What differs by less is a tie."""

_SLACK = 1e-5  # how far FAISS's float32 sums may be from the float64 ones, generously
_BLOCK = 1024  # queries that are searched at once; fixed, so that results do not depend on an option


def cosines(vectors: Vectors, query: Vectors) -> Vectors:
    """Cosines of unit vectors ``(rows, dim)`` with one ``(dim,)``, float64 rounded to SCORE_DIGITS.

    The same sum in the same order for each row: equal vectors have equal cosines wherever they stand, which a
    matrix product does not promise.
    """
    sums = np.einsum("ij,j->i", vectors, query, dtype=np.float64)  # (rows,)
    rounded: Vectors = np.round(sums, SCORE_DIGITS)
    return rounded


def nearest(vectors: Vectors, queries: Vectors, wanted: Sequence[int]) -> Iterator[tuple[Positions, Vectors]]:
    """The nearest neighbours of each query in turn, whatever ties with the last of them included.

    Args:
        vectors: ``(count, dim)`` float32, of norm 1; also the order of ties.
        queries: ``(queries, dim)`` float32, of norm 1.
        wanted: neighbours of each query, at least; more than there are is fine.

    Yields:
        per query, positions among the vectors and their cosines (see :func:`cosines`), ``(found,)`` both:
        best first, equal cosines in the order of the vectors.
    """
    faiss = require("faiss", purpose="search for neighbours")
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(np.ascontiguousarray(vectors, dtype=np.float32))
    for first in range(0, len(queries), _BLOCK):
        block = np.ascontiguousarray(queries[first : first + _BLOCK], dtype=np.float32)
        least = wanted[first : first + _BLOCK]
        asked = min(max(least) + 1, len(vectors))
        scores, positions = flat.search(block, asked)  # (block, asked), both
        for row, count in enumerate(least):
            found, close = scores[row], positions[row]
            while len(found) < len(vectors) and found[min(count, len(found)) - 1] - found[-1] <= 2 * _SLACK:
                more = min(4 * len(found), len(vectors))
                found, close = (part[0] for part in flat.search(block[row : row + 1], more))
            exact = cosines(vectors[close], queries[first + row])  # (found,)
            order = np.lexsort((close, -exact))
            # what FAISS gave beyond that is not all there is of its score
            order = order[exact[order] >= exact[order[min(count, len(order)) - 1]]]
            yield close[order], exact[order]
