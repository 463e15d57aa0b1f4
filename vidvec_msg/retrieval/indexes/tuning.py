"""How many of the true nearest neighbours an index finds, measured on itself, and the cheapest way to enough.

Recall@10 here is the share of the 10 vectors with the highest cosines that are among the 10 results. The
sample is vectors of the index, each searched for without itself, or queries that the user gives. Those are
the better measure: queries of another modality lie farther from all vectors than these from each other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.vectors import Shard, VectorsFolder
from vidvec_msg.retrieval.cosine import Positions, unit_vectors
from vidvec_msg.retrieval.indexes.faiss_engine import lists_until, scores_of, search_parameter, set_parameters

log = logging.getLogger(__name__)

K = 10
QUERIES = 100  # an exact search for so many costs what assigning all vectors to 100 lists does
_BLOCK = 4096  # vectors that are compared with the queries at once
_TIE = 1e-6  # cosines nearer than this are equal: float32 sums in another order differ by as much
_PLATEAU = 0.002  # of recall: doublings that bring less, twice, will not reach the target
_FIRST, _LAST = {"nprobe": 1, "efSearch": 16}, {"efSearch": 1024}
_HALVINGS = 2  # between the doubling that fails and the one that reaches the target


@dataclass(frozen=True, slots=True)
class Sample:
    """Queries that an index is measured with.

    Args:
        queries: (queries, dim) float32, of norm 1, in full length.
        own: (queries,) the position of each in the index; None for queries that are not in it.
        how: where they come from, in words.
    """

    queries: Vectors
    own: Positions | None
    how: str


def own_sample(folder: VectorsFolder) -> Sample:
    """Vectors of the index, the same ones each time."""
    chosen = own_rows(folder, QUERIES, seed=1)  # other ones than those that train
    return Sample(checked_rows(folder, chosen), chosen, "vectors of the index, each without itself")


def open_queries(queries: Path, card: EmbedderCard) -> VectorsFolder:
    """Opens a vectors folder of queries to measure with.

    Args:
        queries: the folder.
        card: of the embedder that made the corpus.

    Raises:
        RefusedRequest: it holds none, or vectors of another embedder.
    """
    folder = VectorsFolder.open(queries)
    if folder.dim != card.dim or folder.fingerprint != card.fingerprint:
        raise RefusedRequest(
            f"--recall_queries {queries}: vectors of another embedder ({folder.dim} dimensions, fingerprint "
            f"{folder.fingerprint or 'none'}) than the corpus ({card.dim} dimensions, fingerprint "
            f"{card.fingerprint}); embed the queries with the corpus's embedder: "
            "`vidvec-msg embed --side queries`."
        )
    if not folder.count:
        raise RefusedRequest(f"--recall_queries {queries}: it holds no vectors; leave it out, or give some.")
    return folder


def given_sample(queries: VectorsFolder) -> Sample:
    """Queries of a vectors folder, at most :data:`QUERIES`, the same ones each time."""
    return Sample(
        checked_rows(queries, own_rows(queries, QUERIES, seed=1)), None, f"queries of {queries.path}"
    )


class Neighbours:
    """The true nearest neighbours of a sample, gathered while the vectors of the index pass by once.

    numpy's matrix product: ``faiss.knn`` took eight times as long for 200 queries.
    """

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._seen = 0
        shape = (len(sample.queries), K + 2)  # the query itself, and one more to see what ties with the last
        self._scores = np.full(shape, -np.inf, np.float32)
        self._positions = np.full(shape, -1, np.int64)

    def add(self, rows: Vectors) -> None:
        """Takes the next vectors, (rows, dim) float32, of norm 1 and in full length."""
        for first in range(0, len(rows), _BLOCK):
            block = rows[first : first + _BLOCK]
            scores = (block @ self._sample.queries.T).T  # (queries, block); a tenth faster than q @ b.T
            self._keep_better(scores)
            self._seen += len(block)

    def _keep_better(self, scores: Vectors) -> None:
        """Takes in the scores that are better than the worst kept: few, once some vectors have passed."""
        better = np.flatnonzero(scores > self._scores[:, -1:])  # nonzero of two axes is ten times slower
        if not len(better):
            return
        query, place = np.divmod(better, scores.shape[1])  # ascending by query
        counts = np.bincount(query, minlength=len(scores))  # (queries,)
        column = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (len(scores), int(counts.max()))
        new, places = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
        new[query, column] = scores[query, place]
        places[query, column] = place + self._seen
        new = np.concatenate([self._scores, new], axis=1)
        places = np.concatenate([self._positions, places], axis=1)
        best = np.argsort(-new, axis=1, kind="stable")[:, : self._scores.shape[1]]
        self._scores = np.take_along_axis(new, best, axis=1)  # (queries, kept)
        self._positions = np.take_along_axis(places, best, axis=1)

    def found(self) -> tuple[Vectors, Positions]:
        """Scores and positions without the queries themselves, best first, (queries, K + 1) or fewer."""
        there = min(self._seen, self._scores.shape[1])
        kept = self._positions[:, :there]
        positions, scores = _without(kept, self._sample.own, K + 1, self._scores[:, :there])
        return scores, positions


@dataclass(slots=True)
class Measurement:
    """Measures one filled index.

    Args:
        faiss_index: the index.
        sample: what to search for.
        truth: scores and positions of the true neighbours, from :class:`Neighbours`.
        oversample: results per wanted one that are rescored exactly; 1 without rescoring.
        shorten: full vectors → what the index is asked with.
        exact: positions → their vectors in full length, to tell ties apart.
        parameters: search parameters of the plan; what is not tuned of them stays.
    """

    faiss_index: Any
    sample: Sample
    truth: tuple[Vectors, Positions]
    oversample: int
    shorten: Callable[[Vectors], Vectors]
    exact: Callable[[Positions], Vectors]
    parameters: str = ""

    def recall(self) -> tuple[float, float]:
        """Recall@K with the search parameters as they are set, and its standard error over the queries."""
        scores, positions = self.truth
        k = min(K, positions.shape[1])
        wanted = K * self.oversample
        asked = min(wanted + (self.sample.own is not None), int(self.faiss_index.ntotal))
        _, found = self.faiss_index.search(self.shorten(self.sample.queries), asked)
        (found,) = _without(found, self.sample.own, wanted)  # (queries, wanted)
        hits = (found[:, :, None] == positions[:, None, :k]).any(axis=2).sum(axis=1)  # (queries,)
        if positions.shape[1] > k:  # what ties with the last neighbour is as good as it
            for row in np.flatnonzero(scores[:, k] >= scores[:, k - 1] - _TIE):
                known = found[row][found[row] >= 0]
                cosines = self.exact(known) @ self.sample.queries[row]
                hits[row] = min(int((cosines >= scores[row, k - 1] - _TIE).sum()), k)
        shares = hits / k
        return float(shares.mean()), float(shares.std() / np.sqrt(len(shares)))

    def least_lists(self, target: float) -> int | None:
        """The fewest lists that hold enough of the true neighbours for a recall: fewer cannot reach it, and
        with exact vectors so many do. None where that is not known without searching."""
        _, positions = self.truth
        wanted = positions[:, :K]  # (queries, k)
        rows = self.shorten(self.exact(wanted.ravel())).reshape(*wanted.shape, -1)
        needed = lists_until(self.faiss_index, self.shorten(self.sample.queries), rows)
        if needed is None:
            return None
        return int(np.sort(needed, axis=None)[max(math.ceil(target * needed.size) - 1, 0)])


def tune(measurement: Measurement, target: float) -> dict[str, Any]:
    """Sets the cheapest search parameters that reach the target, or come nearest; what was measured.

    Args:
        measurement: of the index, whose parameters are changed.
        target: recall@K to reach.

    Returns:
        ``recall`` of ``index.json``.
    """
    knob = search_parameter(measurement.faiss_index)
    curve: dict[int, tuple[float, float]] = {}
    name = ""
    # what the plan sets beside the knob: candidates of a factory that refines
    fixed = [part for part in measurement.parameters.split(",") if part and part.split("=")[0] not in _FIRST]
    if knob is None:
        curve[0] = measurement.recall()
        chosen = 0
    else:
        name, most = knob

        def reached(value: int) -> bool:
            if value not in curve:
                set_parameters(measurement.faiss_index, f"{name}={value}")
                curve[value] = measurement.recall()
            return curve[value][0] >= target

        least = measurement.least_lists(target) if name == "nprobe" else None
        begin, below = (_FIRST[name], 0) if least is None else (least, least - 1)
        chosen = _cheapest(reached, curve, begin, min(_LAST.get(name, most), most), below)
        set_parameters(measurement.faiss_index, f"{name}={chosen}")
    recall, error = curve[chosen]
    advice = "" if recall >= target else _advice(measurement, name)
    return {
        "k": K,
        "queries": len(measurement.sample.queries),
        "recall": round(recall, 4),
        "standard_error": round(error, 4),
        "target": target,
        "search_parameters": ",".join([*fixed, *([f"{name}={chosen}"] if name else [])]),
        "curve": [
            {**({name: value} if name else {}), "recall": round(curve[value][0], 4)}
            for value in sorted(curve)
        ],
        "how": f"recall@{K} against exact search, {len(measurement.sample.queries)} {measurement.sample.how}",
        "advice": advice or None,
    }


def tell_recall(recall: dict[str, Any]) -> None:
    """Logs what was measured; warns where the target was not reached, with what would."""
    setting = f" at {recall['search_parameters']}" if recall["search_parameters"] else ""
    log.info(
        "recall@%d %.3f ± %.3f%s (%d %s)",
        recall["k"],
        recall["recall"],
        recall["standard_error"],
        setting,
        recall["queries"],
        recall["how"].partition(f"{recall['queries']} ")[2],
    )
    if recall["advice"]:
        log.warning("the recall wanted, %g, was not reached: %s", recall["target"], recall["advice"])


def _cheapest(
    reached: Callable[[int], bool],
    curve: dict[int, tuple[float, float]],
    first: int,
    most: int,
    below: int = 0,
) -> int:
    """The lowest value that reaches the target, to a step of a quarter octave; else the best one's lowest.

    Args:
        reached: whether a value reaches the target; measures it.
        curve: what was measured so far.
        first: the value to begin with; it is doubled until it reaches the target.
        most: the highest value.
        below: the highest value that is known not to reach the target.
    """
    value, idle = min(first, most), 0
    while not reached(value):
        before = curve[below][0] if below in curve else 0.0
        idle = idle + 1 if curve[value][0] - before < _PLATEAU and curve[value][0] > 0.2 else 0
        if value >= most or idle == 2:
            best = max(recall for recall, _ in curve.values())
            return min(value for value, (recall, _) in curve.items() if recall >= best - _PLATEAU)
        below, value = value, min(2 * value, most)
    for _ in range(_HALVINGS):
        between = round((below * value) ** 0.5)
        if not below < between < value:
            break
        below, value = (below, between) if reached(between) else (between, value)
    return value


def _advice(measurement: Measurement, name: str) -> str:
    """What would bring more recall than this index has at its best."""
    if measurement.oversample > 1:
        return "give more candidates to rescore (--oversample), longer codes, or more dimensions"
    shortened = measurement.faiss_index.d < measurement.sample.queries.shape[1]
    if shortened or scores_of(measurement.faiss_index) != "cosine":
        return "add --rescore float16, or take longer codes (such as SQ8 for PQ) or more dimensions"
    if name == "efSearch":
        return "take more links (HNSW64,Flat), or IVF, which finds everything at its highest nprobe"
    return "take another factory; auto chooses one"


def _without(positions: Positions, own: Positions | None, kept: int, *others: Vectors) -> tuple[Any, ...]:
    """The first columns without the queries' own positions, and the same columns of ``others``."""
    if own is not None:
        order = np.argsort(positions == own[:, None], axis=1, kind="stable")  # itself goes last
        others = tuple(np.take_along_axis(one, order, axis=1) for one in others)
        positions = np.take_along_axis(positions, order, axis=1)
        there = int((positions[:, -1] == own).any())
        last = positions.shape[1] - there
        positions, others = positions[:, :last], tuple(one[:, :last] for one in others)
    return (positions[:, :kept], *(one[:, :kept] for one in others))


def own_rows(folder: VectorsFolder, wanted: int, *, seed: int) -> Positions:
    """Positions of so many vectors, or of all, ascending; the same ones each time."""
    drawn = np.random.default_rng(seed).choice(folder.count, min(wanted, folder.count), replace=False)
    positions: Positions = np.sort(drawn)
    return positions


def checked_rows(folder: VectorsFolder, positions: Positions) -> Vectors:
    """Some vectors of a folder, checked and of norm 1; no others are read."""
    return unit_vectors(
        stored_rows(folder, positions),
        folder.dim,
        name=lambda row: repr(folder.ids[positions[row]]),
        in_place=True,
    )


def stored_rows(folder: VectorsFolder, positions: Positions) -> Vectors:
    """Some vectors of a folder as they are stored, (len(positions), dim) float32; no others are read."""
    rows = np.empty((len(positions), folder.dim), np.float32)
    first = 0
    for shard in folder.files:
        here = np.flatnonzero((positions >= first) & (positions < first + shard.rows))
        if len(here):
            rows[here] = _mapped(folder, shard)[positions[here] - first]
        first += shard.rows
    return rows


def _mapped(folder: VectorsFolder, shard: Shard) -> Any:
    """A shard, memory-mapped: (rows, dim)."""
    try:
        stored = np.load(folder.path / shard.file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RefusedRequest(
            f"vectors folder {folder.path}: {shard.file} was changed or damaged ({error}); make it again"
        ) from error
    if stored.shape != (shard.rows, folder.dim):
        raise RefusedRequest(
            f"vectors folder {folder.path}: {shard.file} has shape {stored.shape}, the manifest says "
            f"({shard.rows}, {folder.dim})"
        )
    return stored
