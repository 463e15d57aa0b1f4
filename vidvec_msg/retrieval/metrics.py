"""Retrieval metrics per query, computed by ranx, and the ranks themselves. The only home of ranx.

ranx asks for ids of documents and only compares them, so a document may just as well be called by its rank:
the run is then 1, 2, 3, … for every query, and the qrels are the ranks of the positives. That way ranx's
compiled kernels work on arrays straight away (no dictionaries, no hashing of ids), its order of ties cannot
matter, and its known traps (integer ids crash, relevance 0.9 becomes 0, an empty result list crashes) are
out of reach.

`recall@k` is the share of *all* positives within the first k; `hit_rate@k` says whether there is at least
one. With 8 positives, recall@1 cannot exceed 1/8. A paper's "R@k" can mean either.

Three of our own. `ndcg_binary` is ranx's ndcg with every positive worth 1, whatever its grade (`ndcg` takes
the grades as gains). `mean_rank` and `median_rank` are the rank of the best-placed positive, the mean and the
median over queries; a query without a positive among its candidates counts one rank past the last.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.errors import Problems, did_you_mean
from vidvec_msg.retrieval.evaluation.ranking import GoldRanks, Ints

PerQuery = npt.NDArray[np.float64]

DEFAULT_METRICS = (
    "recall@1", "recall@5", "recall@10", "hit_rate@1", "hit_rate@5", "hit_rate@10",
    "mrr", "ndcg@5", "ndcg@10", "map",
)  # fmt: skip

KINDS = (
    "hits", "hit_rate", "precision", "recall", "f1", "r-precision", "mrr", "map",
    "dcg", "dcg_burges", "ndcg", "ndcg_burges", "rbp", "ndcg_binary", "mean_rank", "median_rank",
)  # fmt: skip
"""ranx's metrics, without bpref: it asks for judged non-relevant documents, which few collections have. The
last three are ours."""

RANKS = ("mean_rank", "median_rank")
"""Metrics that are ranks: from 1, and the lower the better."""

MEDIANS = ("median_rank",)
"""Metrics whose mean over queries is a median."""

_NAME = re.compile(r"(?P<kind>[a-z1_-]+?)(?:@(?P<k>[1-9]\d*)|\.(?P<p>\d+))?(?:-l(?P<level>[1-9]\d*))?")
_CELLS = 1 << 22  # padded positives handed to ranx at once
_SLOW = 8.0  # seconds of silence before the user is told what is going on
_RANK = (
    "RANK",
    "LOCAL_RANK",
    "SLURM_PROCID",
)  # set by torchrun, Lightning and Slurm for each process of a job

_ready: dict[str, Any] = {}  # kernels that have run in this process
_one_at_a_time = threading.Lock()  # numba's default threading layer aborts the process when entered twice


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name, taken apart.

    Args:
        name: as given, for example ``"ndcg@10"``, ``"map"``, ``"recall@5-l2"``, ``"rbp.95"``.
        kind: one of :data:`KINDS`.
        k: ranks that count; 0 for all that were retrieved.
        level: lowest grade that counts as relevant.
        persistence: of rbp, between 0 and 1.
    """

    name: str
    kind: str
    k: int = 0
    level: int = 1
    persistence: float = 0.0


def parse_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of these names.

    Raises:
        RefusedRequest: names that are not metrics, all of them, each with what may have been meant.
    """
    problems = Problems(
        f"metrics (accepted: {', '.join(KINDS)}; with @k, -lN for the lowest relevant grade, rbp.95)"
    )
    parsed: dict[str, Metric] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        kind = match["kind"] if match else ""
        if match is None or kind not in KINDS or (kind == "rbp") != bool(match["p"]):
            given = re.split("[@.]", name.lower())[0]
            others = [kind for kind in KINDS if kind != name]
            problems.add(f"{name!r} is not a metric{did_you_mean(given, others)}")
            continue
        persistence = float(f"0.{match['p']}") if match["p"] else 0.0
        if kind in RANKS and name != kind:
            problems.add(f"{name!r}: {kind} is of the best positive wherever it stands, without @k and -lN")
            continue
        parsed[name] = Metric(name, kind, int(match["k"] or 0), int(match["level"] or 1), persistence)
    if not names:
        problems.add("none was given")
    problems.refuse_if_any()
    return tuple(parsed.values())


def per_query(gold: GoldRanks, names: Sequence[str], *, depth: int) -> dict[str, PerQuery]:
    """The value of every metric for every query.

    Queries without positives must have been left out before: ranx counts them as 0, pytrec_eval skips them.

    Args:
        gold: ranks of the positives.
        names: metrics, as :func:`parse_metrics` accepts them.
        depth: ranks that count as retrieved; a positive below is as good as not found (TREC's 1000).

    Returns:
        Metric name → ``(queries,)`` float64, in the order of ``gold``.
    """
    metrics = parse_metrics(names)
    values = {metric.name: np.zeros(len(gold), dtype=np.float64) for metric in metrics}
    for metric in metrics:
        if metric.kind in RANKS:
            values[metric.name] = best_rank(gold)
    metrics = tuple(metric for metric in metrics if metric.kind not in RANKS)
    retrieved = int(min(depth, gold.candidates.max(initial=0)))
    if not len(gold) or not retrieved or not metrics:
        return values
    kernels = _kernels(metric.kind for metric in metrics)
    ranked = np.zeros((retrieved, 2), dtype=np.float64)  # (ranks, id and score); ranx reads the id alone
    ranked[:, 0] = np.arange(1, retrieved + 1)
    for rows, qrels in _padded(gold, retrieved):  # (rows, positives, id and grade)
        run = _same_for_all(ranked, len(rows))
        for metric in metrics:
            k = metric.persistence if metric.kind == "rbp" else metric.k
            judged = _binary(qrels, metric.level) if metric.kind == "ndcg_binary" else qrels
            with _one_at_a_time:
                values[metric.name][rows] = kernels[metric.kind](judged, run, k, metric.level)
    return values


def best_rank(gold: GoldRanks) -> PerQuery:
    """Rank of the best-placed positive, ``(queries,)``; one past the last where none is a candidate."""
    best = gold.best
    return np.where(best > 0, best, gold.candidates + 1).astype(np.float64)


def means(values: Mapping[str, PerQuery]) -> dict[str, float]:
    """The mean over queries of each metric, of :data:`MEDIANS` the median; NaN without queries."""
    return {
        name: float((np.median if name in MEDIANS else np.mean)(array)) if len(array) else float("nan")
        for name, array in values.items()
    }


def lower_is_better(name: str) -> bool:
    """Whether the smaller of two values of a metric is the better one."""
    return name in RANKS


def warm_up() -> None:
    """Compiles ranx's kernels, once per installation: numba keeps them on disk, about 40 s the first time."""
    _kernels(KINDS)


def _kernels(kinds: Iterable[str]) -> dict[str, Any]:
    """ranx's functions of (qrels, run, k, level) arrays, ready to run."""
    missing = [kind for kind in kinds if kind not in _ready and kind not in RANKS]
    if missing:
        with _explained_if_slow("preparing ranx's metrics (compiled once per installation, about 40 s)"):
            from ranx.metrics import metric_switch  # heavy (numba, pandas): loaded on use

            qrels = np.ones((1, 1, 2), dtype=np.float64)
            run = _same_for_all(np.ones((1, 2), dtype=np.float64), 1)
            for kind in missing:
                kernel = metric_switch(kind.removesuffix("_binary"))
                with _one_at_a_time:
                    kernel(qrels, run, 0.5 if kind == "rbp" else 1, 1)
                _ready[kind] = kernel
    return _ready


def _binary(qrels: npt.NDArray[np.float64], level: int) -> npt.NDArray[np.float64]:
    """The same judgements, ``(queries, positives, id and grade)``, with gain 1 from ``level`` on.

    The gain is written as ``level``, below which ranx's ndcg drops a judgement; the factor cancels.
    """
    judged = qrels.copy()
    judged[:, :, 1] = np.where(qrels[:, :, 1] >= level, level, 0)
    return judged


def _same_for_all(ranked: npt.NDArray[np.float64], queries: int) -> npt.NDArray[np.float64]:
    """One run seen from every query, ``(queries, ranks, 2)``, without copies.

    Never fewer than two rows: a single one would count as contiguous, and numba would compile every kernel
    a second time for that layout (10 s each).
    """
    return np.broadcast_to(ranked, (max(queries, 2), *ranked.shape))


def _padded(gold: GoldRanks, retrieved: int) -> Iterator[tuple[Ints, npt.NDArray[np.float64]]]:
    """Queries in groups of similar numbers of positives, each group as one array for ranx.

    Padding has grade 0, which is below every relevance level. A positive that was not retrieved gets an id
    of its own beyond all ranks: the ideal ranking must still count it.
    """
    counts = gold.counts
    by_count = np.argsort(counts, kind="stable")
    done = 0
    while done < len(by_count):
        # the widest row of a group is its last: as many rows as fit into the budget at the final width
        widths = counts[by_count[done:]]
        fits = np.flatnonzero(np.arange(1, len(widths) + 1) * np.maximum(widths, 1) <= _CELLS)
        rows = by_count[done : done + max(1, int(fits[-1]) + 1 if len(fits) else 1)]
        done += len(rows)
        mine = counts[rows]
        width = max(1, int(mine.max()))
        slot = np.arange(int(mine.sum())) - np.repeat(mine.cumsum() - mine, mine)  # (positives,)
        source = np.repeat(gold.starts[rows], mine) + slot
        row = np.repeat(np.arange(len(rows)), mine)
        ranks = gold.ranks[source]
        found = (ranks > 0) & (ranks <= retrieved)
        qrels = np.zeros((len(rows), width, 2), dtype=np.float64)
        qrels[row, slot, 0] = np.where(found, ranks, retrieved + 1 + slot)
        qrels[row, slot, 1] = gold.grades[source]
        yield rows, qrels


@contextmanager
def _explained_if_slow(what: str) -> Iterator[None]:
    """Says on stderr what is going on, if it takes more than a moment; one of a job's processes does."""
    if any(os.environ.get(name, "0") != "0" for name in _RANK):
        yield
        return
    timer = threading.Timer(_SLOW, lambda: print(f"{what} …", file=sys.stderr, flush=True))  # noqa: T201 — a notice
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


if __name__ == "__main__":
    warm_up()
