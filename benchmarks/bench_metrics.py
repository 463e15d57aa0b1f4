"""From score arrays to means and per-query values: ours beside pytrec_eval and ranx's own dictionaries.

    python benchmarks/bench_metrics.py                        10,000 queries × 1,000 candidates
    python benchmarks/bench_metrics.py --queries 100000       pytrec_eval then needs some 15 GB
    python benchmarks/bench_metrics.py --queries 100000 --ours-only

Every side begins with the same float32 array of scores and the same judgements, and ends with the mean of
ten metrics and their values for every query. The peers take dictionaries, so making those is part of their
time. All of them have compiled and imported what they need beforehand. Values must agree, or it fails.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.retrieval.evaluation.ranking import Gold, rank_scores, tie_order
from vidvec_msg.retrieval.metrics import means, per_query, warm_up

# our name → ranx's is the same, pytrec_eval's is the second
METRICS = {
    "recall@1": "recall_1", "recall@5": "recall_5", "recall@10": "recall_10", "hit_rate@1": "success_1",
    "hit_rate@5": "success_5", "hit_rate@10": "success_10", "mrr": "recip_rank", "ndcg@5": "ndcg_cut_5",
    "ndcg@10": "ndcg_cut_10", "map": "map",
}  # fmt: skip
ASKED = {"recall.1,5,10", "success.1,5,10", "recip_rank", "ndcg_cut.5,10", "map"}
BAR = 5.0
POSITIVES = 8  # as a VidMsg message has
REPEATS = 3
RANX_QUERIES = 2_000  # its dictionaries take minutes for more
TOLERANCE = 1e-7  # ranx from dictionaries differs by some 1e-9

Scores = npt.NDArray[np.float32]
Qrels = dict[str, dict[str, int]]
Means = dict[str, float]


def ours(scores: Scores, queries: list[str], documents: list[str], qrels: Qrels) -> Means:
    """Ranks of the positives straight from the array, then ranx's kernels."""
    order = tie_order(documents)
    gold = Gold.of(qrels, queries, [documents[column] for column in order])
    return means(per_query(rank_scores(scores[:, order], gold), list(METRICS), depth=len(documents)))


def with_pytrec_eval(scores: Scores, queries: list[str], documents: list[str], qrels: Qrels) -> Means:
    """What its users do: a dictionary of dictionaries, then one call."""
    import pytrec_eval

    run = {
        query: dict(zip(documents, row, strict=True))
        for query, row in zip(queries, scores.tolist(), strict=True)
    }
    values = pytrec_eval.RelevanceEvaluator(qrels, ASKED).evaluate(run)
    return {
        name: float(np.mean([row[theirs] for row in values.values()])) for name, theirs in METRICS.items()
    }


def with_ranx(scores: Scores, queries: list[str], documents: list[str], qrels: Qrels) -> Means:
    """What its users do: Qrels and Run from dictionaries, then one call."""
    from ranx import Qrels as RanxQrels
    from ranx import Run, evaluate

    run = {
        query: dict(zip(documents, row, strict=True))
        for query, row in zip(queries, scores.tolist(), strict=True)
    }
    found = evaluate(RanxQrels(qrels), Run(run), list(METRICS))
    return {name: float(found[name]) for name in METRICS}


def problem(queries: int, candidates: int) -> tuple[Scores, list[str], list[str], Qrels]:
    """Random scores with positives somewhat above the rest; no ties, so every tie rule agrees."""
    generator = np.random.default_rng(0)
    scores = generator.random((queries, candidates), dtype=np.float32)
    columns = generator.integers(0, candidates, (queries, POSITIVES))
    np.put_along_axis(scores, columns, np.take_along_axis(scores, columns, 1) + np.float32(0.5), 1)
    names = [f"q{i}" for i in range(queries)], [f"d{i}" for i in range(candidates)]
    qrels = {q: {names[1][c]: 1 for c in row} for q, row in zip(names[0], columns.tolist(), strict=True)}
    return scores, *names, qrels


def timed(function: Callable[..., Means], arguments: tuple[Any, ...], repeats: int) -> tuple[float, Means]:
    """The best of some runs, in seconds, and the result."""
    best, result = float("inf"), {}
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        result = function(*arguments)
        best = min(best, time.perf_counter() - start)
    return best, result


def main() -> None:
    """Measures, compares the values, prints one JSON line per peer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=1_000)
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out")
    options = parser.parse_args()

    warm_up()
    size = f"{options.queries:,} × {options.candidates:,}"
    arguments = problem(options.queries, options.candidates)
    mine, values = timed(ours, arguments, REPEATS)
    if options.ours_only:
        report(f"metrics from {size} scores", mine, None, None, "no peer was run")
        return
    beside("pytrec_eval", with_pytrec_eval, BAR, size, arguments, (mine, values))
    fewer = min(options.queries, RANX_QUERIES)
    arguments = problem(fewer, options.candidates)
    size = f"{fewer:,} × {options.candidates:,}"
    beside("ranx from dictionaries", with_ranx, None, size, arguments, timed(ours, arguments, REPEATS))


def beside(
    name: str, peer: Any, bar: float | None, size: str, arguments: tuple[Any, ...], mine: tuple[float, Means]
) -> None:
    """Measures one peer on what ours was measured on."""
    timed(peer, problem(20, 50), 1)  # imports and compiles
    theirs, other = timed(peer, arguments, 1)
    apart = max(abs(mine[1][metric] - other[metric]) for metric in METRICS)
    if apart > TOLERANCE:
        raise SystemExit(f"{name} computes other values (up to {apart:.2e} apart): nothing to compare")
    note = f"ten metrics, {POSITIVES} positives a query, values equal to {max(apart, 1e-15):.0e}"
    report(f"metrics from {size} scores, beside {name}", mine[0], theirs, bar, note)


def report(claim: str, mine: float, theirs: float | None, bar: float | None, note: str) -> None:
    """One line for run.py."""
    ratio = None if theirs is None else theirs / mine
    ok = bar is None or (ratio is not None and ratio >= bar)
    peer, times = (None, None) if theirs is None or ratio is None else (round(theirs, 4), round(ratio, 2))
    line = {"claim": claim, "ours": round(mine, 4), "peer": peer, "unit": "s", "ratio": times, "bar": bar}
    line |= {"ok": ok, "note": note}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
