"""How varied pairs are: distinct words, self-similarity, how evenly messages fill a space as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.data_synth.filters.words import content_stems, words_of
from vidvec_msg.formats.pairs import Pair

Vectors = npt.NDArray[np.float32]

_MOST = 5_000  # rows that are looked at, the first ones: the measures compare all with all
_CLUSTERS = 64
_ROUNDS = 12  # of k-means
_WIDTH = 2_048  # hashed dimensions of TF-IDF


def diversity(pairs: Sequence[Pair], vectors: Vectors | None = None, *, seed: int = 0) -> dict[str, Any]:
    """Measures of variety.

    Args:
        pairs: any number; the first 5,000 are looked at.
        vectors: ``(pairs, dim)`` unit vectors of the messages; TF-IDF of their stems without.
        seed: of the clusters' first centres.

    Returns:
        ``distinct_1`` … ``distinct_3`` of messages and storylines (different n-grams over all n-grams),
        ``self_similarity`` (mean cosine of a message with its nearest other one, and with all), and
        ``entropy`` by number of pairs: of the messages over clusters, as a share of the largest possible.
    """
    pairs = pairs[:_MOST]
    if len(pairs) < 2:
        return {}
    messages = [words_of(pair.positive) for pair in pairs]
    storylines = [words_of(pair.anchor) for pair in pairs]
    space = tfidf(messages) if vectors is None else vectors[:_MOST]
    nearest, mean = _similarities(space)
    return {
        "looked_at": len(pairs),
        "messages": {f"distinct_{n}": distinct(messages, n) for n in (1, 2, 3)},
        "storylines": {f"distinct_{n}": distinct(storylines, n) for n in (1, 2, 3)},
        "self_similarity": {
            "by": "TF-IDF of stems" if vectors is None else "embedder",
            "nearest": nearest,
            "mean": mean,
        },
        "entropy": entropy_growth(space, seed),
    }


def distinct(texts: Sequence[Sequence[str]], n: int) -> float:
    """Different n-grams over all n-grams (Li et al. 2016, distinct-n); falls as a set of texts grows."""
    grams = [tuple(words[start : start + n]) for words in texts for start in range(len(words) - n + 1)]
    return round(len(set(grams)) / len(grams), 4) if grams else 0.0


def tfidf(texts: Sequence[Sequence[str]]) -> Vectors:
    """Unit vectors of the texts' content stems, hashed: (texts, width); no content word gives zeros."""
    from zlib import crc32

    counts = np.zeros((len(texts), _WIDTH), np.float32)
    for row, words in enumerate(texts):
        for one in content_stems(words):
            counts[row, crc32(one.encode()) % _WIDTH] += 1
    weights = np.log((1 + len(texts)) / (1 + (counts > 0).sum(0)))  # (width,)
    space: Vectors = counts * weights.astype(np.float32)
    space /= np.maximum(np.linalg.norm(space, axis=1, keepdims=True), 1e-12)
    return space


def entropy_growth(space: Vectors, seed: int) -> list[dict[str, float]]:
    """Entropy of the first n rows over the clusters of all rows, n doubling.

    1 means that the rows fill all clusters evenly; a curve that falls says that new rows repeat old ones.
    """
    clusters = min(_CLUSTERS, max(2, len(space) // 8))
    labels = _kmeans(space, clusters, np.random.default_rng(seed))
    sizes = [size for size in (2**power * clusters for power in range(20)) if size < len(space)]
    result = []
    for size in [*sizes, len(space)]:
        shares = np.bincount(labels[:size], minlength=clusters) / size
        entropy = -float(sum(share * np.log(share) for share in shares if share > 0))
        result.append({"pairs": size, "entropy": round(entropy / float(np.log(clusters)), 4)})
    return result


def _kmeans(space: Vectors, clusters: int, dice: np.random.Generator) -> npt.NDArray[np.intp]:
    """Labels by spherical k-means."""
    centres = space[dice.choice(len(space), clusters, replace=False)]  # (clusters, dim)
    labels: npt.NDArray[np.intp] = np.argmax(space @ centres.T, axis=1)
    for _ in range(_ROUNDS):
        members = (labels == np.arange(clusters)[:, None]).astype(np.float32)  # (clusters, rows)
        sums = members @ space  # (clusters, dim)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-12), centres)
        labels = np.argmax(space @ centres.T, axis=1)
    return labels


def _similarities(space: Vectors) -> tuple[float, float]:
    """Mean cosine of a row with its nearest other row, and with all other rows."""
    best = np.empty(len(space), np.float32)
    for start in range(0, len(space), 1_024):
        block = space[start : start + 1_024] @ space.T  # (block, rows)
        block[np.arange(len(block)), np.arange(start, start + len(block))] = -1
        best[start : start + 1_024] = block.max(1)
    total = np.linalg.norm(space.sum(0)) ** 2 - float((space**2).sum())
    return round(float(best.mean()), 4), round(float(total) / (len(space) * (len(space) - 1)), 4)
