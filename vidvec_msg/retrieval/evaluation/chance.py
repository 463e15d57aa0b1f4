"""What a random ranking would score: the number that every other number is read against.

For each query the candidates are put in an order drawn uniformly from all permutations; the expected value
of each metric then depends only on the number of candidates N, the number of positives among them A (and
their grades), all positives R, and the ranks that count K. All but one are exact (sums over ranks); a test
compares every one with simulated permutations. The exception is median_rank: a median over queries of ranks
with different distributions has no closed form, so its expectation is simulated (:data:`SIMULATED`).

- A rank holds a positive with probability A / N, so everything linear in hits (hits, precision, recall,
  f1 at a fixed k, r-precision, dcg, ndcg, rbp) follows from the expectation of one rank.
- No positive within the first r ranks: C(N - A, r) / C(N, r). That gives hit_rate and mrr.
- map: given a positive at rank r, the r - 1 ranks before it hold (r - 1)(A - 1) / (N - 1) others on average.
- mean_rank: the best of A positives among N is expected at (N + 1) / (A + 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vidvec_msg.retrieval.evaluation.ranking import GoldRanks, Ints
from vidvec_msg.retrieval.metrics import Metric, PerQuery, parse_metrics

SIMULATED = ("median_rank",)
"""Metrics whose level of chance is an average over random rankings instead of a formula."""

_SIMULATIONS = 1000  # random rankings of all queries: the median's mean is then steady to 1%, seeded


def expected(gold: GoldRanks, names: Sequence[str], *, depth: int) -> dict[str, float]:
    """Mean over queries of each metric's expected value under a random ranking; NaN without queries.

    Args:
        gold: as for :func:`vidvec_msg.retrieval.metrics.per_query`; only the numbers of positives and
            candidates are used, and which positives are among the candidates at all.
        names: metrics.
        depth: ranks that count as retrieved.
    """
    if not len(gold):
        return dict.fromkeys(names, float("nan"))
    return {
        m.name: _simulated_median(gold) if m.name in SIMULATED else float(_expected(gold, m, depth).mean())
        for m in parse_metrics(names)
    }


def best_rank_within(gold: GoldRanks, edges: Sequence[int]) -> PerQuery:
    """Queries that a random ranking is expected to serve within the first ``edge`` ranks, ``(edges,)``."""
    among = _per_query(gold, (gold.ranks > 0).astype(np.float64))
    pool = np.maximum(gold.candidates, 1).astype(np.float64)
    return np.asarray([(1 - _no_hit(pool, among, np.minimum(edge, gold.candidates))).sum() for edge in edges])


def _expected(gold: GoldRanks, metric: Metric, depth: int) -> PerQuery:
    relevant = gold.grades >= metric.level
    every = _per_query(gold, relevant.astype(np.float64))  # R
    among = _per_query(gold, (relevant & (gold.ranks > 0)).astype(np.float64))  # A
    pool = np.maximum(gold.candidates, 1).astype(np.float64)  # N
    retrieved = int(min(depth, gold.candidates.max(initial=0)))
    seen = np.minimum(min(metric.k or retrieved, retrieved), gold.candidates)  # K, (queries,)
    share = among / pool
    some = np.maximum(every, 1)  # where R is 0 the metric is 0, and so is A
    match metric.kind:
        case "hits":
            return np.asarray(seen * share)
        case "precision":
            return seen * share / max(metric.k or retrieved, 1)
        case "recall":
            return seen * share / some
        case "f1":  # 2PR/(P+R) with P = h/k and R = h/R is 2h/(k + R)
            return np.where(among > 0, 2 * seen * share / ((metric.k or retrieved) + some), 0.0)
        case "r-precision":
            return np.asarray(np.minimum(every, np.minimum(retrieved, gold.candidates)) * share / some)
        case "hit_rate":
            return 1 - _no_hit(pool, among, seen)
        case "mrr":
            return _reciprocal_rank(pool, among, seen)
        case "map":
            return _average_precision(pool, among, seen) / some
        case "mean_rank":
            return (gold.candidates + 1) / (among + 1)
        case "rbp":
            weights = metric.persistence ** np.arange(retrieved)
            gains = _per_query(gold, np.where(relevant & (gold.ranks > 0), gold.grades, 0.0))
            return (1 - metric.persistence) * gains / pool * _first(weights, seen)
    return _discounted(gold, metric, relevant, pool, seen, retrieved)


def _discounted(
    gold: GoldRanks, metric: Metric, relevant: np.ndarray, pool: PerQuery, seen: Ints, retrieved: int
) -> PerQuery:
    """dcg and ndcg, with linear gains or Burges's 2^grade - 1."""
    linear = gold.grades.astype(np.float64)
    if metric.kind == "ndcg_binary":
        linear = np.ones_like(linear)
    gains = np.where(relevant, 2**linear - 1 if metric.kind.endswith("burges") else linear, 0.0)
    discounts = 1 / np.log2(np.arange(2, retrieved + 2))
    dcg = _per_query(gold, np.where(gold.ranks > 0, gains, 0.0)) / pool * _first(discounts, seen)
    if metric.kind.startswith("dcg"):
        return dcg
    slot = np.arange(len(gains)) - np.repeat(gold.starts[:-1], gold.counts)  # best grade first
    counted = slot < metric.k if metric.k else np.ones(len(slot), dtype=bool)
    ideal = _per_query(gold, np.where(counted, gains / np.log2(slot + 2), 0.0))
    return np.divide(dcg, ideal, out=np.zeros_like(dcg), where=ideal > 0)


def _simulated_median(gold: GoldRanks, *, seed: int = 0) -> float:
    """The mean, over seeded random rankings, of the median over queries of the best positive's rank."""
    among = _per_query(gold, (gold.ranks > 0).astype(np.float64)).astype(np.int64)
    kinds, kind = np.unique(np.stack([gold.candidates, among]), axis=1, return_inverse=True)
    kind = kind.ravel()
    reached = []  # per kind of query: the probability that the best rank is at most 1, 2, 3, …
    for candidates, positives in kinds.T:
        ranks = np.arange(1, candidates + 1)
        misses = np.maximum(candidates - positives - ranks + 1, 0) / (candidates - ranks + 1)
        reached.append(1 - np.cumprod(misses))
    generator = np.random.default_rng(seed)
    medians = np.empty(_SIMULATIONS)
    drawn = np.empty(len(gold))
    members = [np.flatnonzero(kind == place) for place in range(len(reached))]
    for i in range(_SIMULATIONS):
        for rows, share in zip(members, reached, strict=True):
            # where no positive is a candidate, the share stays 0 and the rank is one past the last
            drawn[rows] = np.searchsorted(share, generator.random(len(rows)), side="left") + 1
        medians[i] = np.median(drawn)
    return float(medians.mean())


def _per_query(gold: GoldRanks, weights: np.ndarray) -> PerQuery:
    """Sum of weights of the positives, per query."""
    rows = np.repeat(np.arange(len(gold)), gold.counts)
    return np.bincount(rows, weights=weights, minlength=len(gold)).astype(np.float64)


def _first(weights: np.ndarray, seen: Ints) -> PerQuery:
    """Sum of the first ``seen`` weights."""
    return np.concatenate([np.zeros(1), np.cumsum(weights)])[seen]


def _no_hit(pool: PerQuery, among: PerQuery, seen: Ints) -> PerQuery:
    """C(N - A, K) / C(N, K) = product over the positives of (N - K - i) / (N - i)."""
    probability = np.ones(len(pool))
    for i in range(int(among.max(initial=0))):
        factor = np.maximum(pool - seen - i, 0) / np.maximum(pool - i, 1)
        probability *= np.where(i < among, factor, 1.0)
    return probability


def _reciprocal_rank(pool: PerQuery, among: PerQuery, seen: Ints) -> PerQuery:
    total = np.zeros(len(pool))
    none_before = np.ones(len(pool))  # probability that the first r - 1 ranks hold no positive
    for r in range(1, int(seen.max(initial=0)) + 1):
        left = np.maximum(pool - r + 1, 1)
        here = np.minimum(among / left, 1.0)
        total += np.where(r <= seen, none_before * here / r, 0.0)
        none_before *= 1 - here
    return total


def _average_precision(pool: PerQuery, among: PerQuery, seen: Ints) -> PerQuery:
    """Expected sum of the precisions at the ranks of the positives (to be divided by R)."""
    ranks = np.arange(1, int(seen.max(initial=0)) + 1)
    first = _first(1 / ranks, seen)  # sum of 1/r
    others = _first((ranks - 1) / ranks, seen)  # sum of (r - 1)/r
    beside = np.divide(among - 1, pool - 1, out=np.zeros_like(pool), where=pool > 1)
    return among / pool * (first + np.where(among > 0, beside, 0.0) * others)
