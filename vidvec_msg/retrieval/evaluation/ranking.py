"""From two matrices of vectors to ranks, exactly and in bounded memory.

*Scores.* A score is the cosine: vectors are brought to norm 1 and multiplied in float64, then rounded to
float32. Norms of vectors made in half precision are off by up to 1e-3, which would favour the long ones.
The score does not depend on the block size, the number of threads or the position of a document in the
matrix: the same two vectors have the same score everywhere, and equal documents really tie. (A float32
product differs in its last bits from one block shape to another, which breaks ties by position.)

*Ties.* Equal scores are ordered by document id, descending, as trec_eval does; the ids compared are those
that stand in the TREC files. A collapsed embedder then scores at chance instead of in the order of the
file. Columns are laid out in that order once, and "first column wins" is the whole rule afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vidvec_msg.formats.trec import trec_id

Floats = npt.NDArray[np.floating]
Scores = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Watch = Callable[[slice, Scores, "Gold"], None]
"""Sees each block of scores: which queries, ``(queries, candidates)`` scores, positives as their columns."""

_SCORE_BYTES = 96 << 20  # float32 scores of one block of queries
_CHUNK_BYTES = 64 << 20  # float64 copy of one block of candidates
_KEPT_BYTES = 512 << 20  # candidates in float64 are kept between blocks of queries up to this size
# Positives up to which comparing each with the row beats sorting the row, as measured: 2 at 1,000 candidates,
# 8 at 10,000, 16 and more at 100,000.
_CANDIDATES_PER_COMPARISON = 1000
_FEWEST, _MOST = 2, 32
ABSENT = np.finfo(np.float32).min
"""Score of a candidate that a query's list lacks; the query itself, left out, has -inf: it is none."""
_EXACT = 1e-6  # a norm closer to 1 than this is 1 in float32, summed over some thousand dimensions


@dataclass(frozen=True, slots=True)
class Gold:
    """The positives of each query as columns of the candidates; the array form of a qrels map.

    Positives of query ``i`` lie at ``starts[i]:starts[i + 1]``, best grade first.

    Args:
        starts: ``(queries + 1,)``.
        columns: ``(positives,)``, the candidate's position; -1 for one that is not among the candidates.
        grades: ``(positives,)``, above 0.
    """

    starts: Ints
    columns: Ints
    grades: Ints

    @classmethod
    def of(
        cls, qrels: Mapping[str, Mapping[str, int]], query_ids: Sequence[str], candidate_ids: Sequence[str]
    ) -> Gold:
        """The positives of ``query_ids``, in their order; judgements of grade 0 and below are left out."""
        position = {identity: column for column, identity in enumerate(candidate_ids)}
        starts, columns, grades = [0], [], []
        for query in query_ids:
            judged = best_first(qrels.get(query, {}))
            kept = [(position.get(document, -1), grade) for document, grade in judged]
            columns += [column for column, _ in kept]
            grades += [grade for _, grade in kept]
            starts.append(len(columns))
        return cls(*(np.asarray(values, dtype=np.int64) for values in (starts, columns, grades)))

    @property
    def counts(self) -> Ints:
        """Positives per query, ``(queries,)``."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True)
class GoldRanks:
    """Where the positives of each query came out.

    Args:
        starts: ``(queries + 1,)``, as in :class:`Gold`.
        ranks: ``(positives,)``, from 1; 0 for a positive that is not among the candidates.
        grades: ``(positives,)``, best first within a query.
        candidates: ``(queries,)``, how many documents were ranked for the query.
        tied_at_top: ``(queries,)``, the best score belongs to more than one candidate.
        tied: ``(queries,)``, that, or a positive shares its exact score with another candidate: the query's
            numbers depend on the tie rule.
    """

    starts: Ints
    ranks: Ints
    grades: Ints
    candidates: Ints
    tied_at_top: Bools
    tied: Bools

    @property
    def counts(self) -> Ints:
        """Positives per query, ``(queries,)``."""
        return np.diff(self.starts)

    @property
    def best(self) -> Ints:
        """Rank of the best-placed positive, ``(queries,)``; 0 where none is among the candidates."""
        best = np.zeros(len(self), dtype=np.int64)
        rows = np.repeat(np.arange(len(self)), self.counts)
        reached = self.ranks > 0
        far = np.iinfo(np.int64).max
        lowest = np.full(len(self), far)
        np.minimum.at(lowest, rows[reached], self.ranks[reached])
        best[lowest < far] = lowest[lowest < far]
        return best

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, slots=True)
class RankedBlock:
    """The outcome for some consecutive queries.

    Args:
        first: position of the block's first query.
        gold: ranks of their positives.
        top: ``(queries, depth)`` columns of the best candidates, best first.
        top_scores: ``(queries, depth)``; -inf where a query has fewer candidates than the depth.
    """

    first: int
    gold: GoldRanks
    top: Ints
    top_scores: Scores


def best_first(judged: Mapping[str, int]) -> list[tuple[str, int]]:
    """A query's relevant documents and their grades, best grade first: the order of :class:`Gold`."""
    relevant = [(document, grade) for document, grade in judged.items() if grade > 0]
    return sorted(relevant, key=lambda pair: -pair[1])


def tie_order(ids: Sequence[str]) -> Ints:
    """Positions that sort ids in descending order of their bytes in a TREC file, as equal scores are."""
    written = [trec_id(identity).encode() for identity in ids]
    return np.asarray(sorted(range(len(written)), key=written.__getitem__, reverse=True), dtype=np.int64)


def rank_blocks(
    queries: Floats,
    candidates: Floats,
    candidate_ids: Sequence[str],
    gold: Gold,
    *,
    depth: int = 0,
    own: Ints | None = None,
    block: int | None = None,
    offset: npt.NDArray[np.float64] | None = None,
    watch: Watch | None = None,
) -> Iterator[RankedBlock]:
    """Ranks every candidate for every query, a block of queries at a time.

    Args:
        queries: ``(queries, dim)``.
        candidates: ``(candidates, dim)``; may be a memory map.
        candidate_ids: ``(candidates,)``, for the tie rule.
        gold: positives of the queries, as columns of ``candidates``.
        depth: how many of the best candidates to return per query; 0 for ranks of positives only.
        own: ``(queries,)``, the column that is the query itself and is left out for it; -1 for none.
        block: queries per block; by default as many as keep the scores within 96 MiB.
        offset: ``(candidates,)``, added to every score of a candidate before it is rounded.
        watch: sees the scores of each block before they are dropped; the cells of ``own`` are -inf.
    """
    order = tie_order(candidate_ids)
    count = len(order)
    block = block or max(1, _SCORE_BYTES // max(4 * count, 1))
    chunks = _Chunks(candidates, order, offset)
    scores = (chunks.scores(queries[first : first + block]) for first in range(0, len(queries), block))
    return rank_score_blocks(scores, order, gold, depth=depth, own=own, watch=watch)


def rank_score_blocks(
    blocks: Iterable[Scores],
    order: Ints,
    gold: Gold,
    *,
    depth: int = 0,
    own: Ints | None = None,
    watch: Watch | None = None,
) -> Iterator[RankedBlock]:
    """Ranks from scores, whatever they come from, a block of queries at a time.

    Args:
        blocks: ``(block, candidates)`` each, of consecutive queries, columns in tie order; they are changed.
            :data:`ABSENT` stands where a candidate is not in the query's list: such ones come last.
        order: of the columns, from :func:`tie_order`.
        gold: positives of the queries, as columns of the candidates (not of the blocks).
        depth: how many of the best candidates to return per query.
        own: ``(queries,)``, the candidate that is the query itself; -1 for none.
        watch: as of :func:`rank_blocks`; absent cells are -inf there and in the results.
    """
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    first = 0
    for scores in blocks:
        rows = slice(first, first + len(scores))
        part = _slice_gold(gold, rows, place)
        hidden = None if own is None else np.where(own[rows] >= 0, place[own[rows]], -1)
        ranks = rank_scores(scores, part, own=hidden)
        scores[scores == ABSENT] = -np.inf
        if watch is not None:
            watch(rows, scores, part)
        top, top_scores = top_columns(scores, depth)
        yield RankedBlock(first, ranks, order[top], top_scores)
        first = rows.stop


def rank_scores(scores: Scores, gold: Gold, *, own: Ints | None = None) -> GoldRanks:
    """Ranks of the positives from a matrix of scores; no sorting, so a block costs about a pass over it.

    Args:
        scores: ``(queries, candidates)`` with columns in tie order (:func:`tie_order`); the cells of ``own``
            are set to -inf.
        gold: positives as columns of ``scores``.
        own: ``(queries,)``, a column to leave out for each query; -1 for none.
    """
    candidates = np.full(len(gold), scores.shape[1], dtype=np.int64)
    if own is not None:
        hidden = np.flatnonzero(own >= 0)
        scores[hidden, own[hidden]] = -np.inf
        candidates[hidden] -= 1
    ranks = np.zeros(len(gold.columns), dtype=np.int64)
    tied = np.zeros(len(gold), dtype=np.bool_)
    tied_at_top = np.zeros(len(gold), dtype=np.bool_)
    if not scores.shape[1]:
        return GoldRanks(gold.starts, ranks, gold.grades, candidates, tied_at_top, tied)
    best = scores.max(axis=1)  # (queries,)
    starts, columns = gold.starts.tolist(), gold.columns
    for i, row in enumerate(scores):
        tied_at_top[i] = np.count_nonzero(row == best[i]) > 1
        mine = slice(starts[i], starts[i + 1])
        ranks[mine], tied[i] = _row_ranks(row, columns[mine])
    rows = np.repeat(np.arange(len(gold)), gold.counts)
    missed = (gold.columns >= 0) & (scores[rows, gold.columns] == ABSENT)
    ranks[missed] = candidates[rows[missed]] + 1  # a candidate that was not retrieved: one past the last
    if own is not None:  # a positive that is the query itself is not among its candidates
        ranks[(own[rows] >= 0) & (own[rows] == gold.columns)] = 0
    return GoldRanks(gold.starts, ranks, gold.grades, candidates, tied_at_top, tied | tied_at_top)


def top_columns(scores: Scores, depth: int) -> tuple[Ints, Scores]:
    """The best columns of each row, ties by column: ``(rows, depth)`` columns and their scores.

    Score and column go into one integer key, so that all keys differ and any selection is exact.
    """
    depth = min(depth, scores.shape[1])
    if depth == 0:
        return np.empty((len(scores), 0), dtype=np.int64), np.empty((len(scores), 0), dtype=np.float32)
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0
    # IEEE floats compare like integers once negative ones are flipped; inverted, the best come first
    falling = np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
    keys = falling.astype(np.uint64) << np.uint64(32)  # (rows, candidates)
    keys |= np.arange(scores.shape[1], dtype=np.uint64)
    if depth < scores.shape[1]:
        keys = np.partition(keys, depth - 1, axis=1)[:, :depth]
    keys.sort(axis=1)
    columns = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)  # (rows, depth)
    return columns, np.take_along_axis(scores, columns, axis=1)


def join(blocks: Sequence[GoldRanks]) -> GoldRanks:
    """One outcome from those of consecutive blocks."""
    ends = np.concatenate([np.zeros(1, dtype=np.int64), *(part.counts for part in blocks)]).cumsum()
    if not blocks:
        nothing = np.zeros(0, dtype=np.int64)
        return GoldRanks(ends, nothing, nothing, nothing, nothing.astype(bool), nothing.astype(bool))
    names = ("ranks", "grades", "candidates", "tied_at_top", "tied")
    return GoldRanks(ends, *(np.concatenate([getattr(part, name) for part in blocks]) for name in names))


class _Chunks:
    """Candidates in tie order, in float64, a chunk at a time; kept between calls while they are small."""

    def __init__(
        self, candidates: Floats, order: Ints, offset: npt.NDArray[np.float64] | None = None
    ) -> None:
        self.candidates, self.order = candidates, order
        self.offset = None if offset is None else offset[order]
        dim = max(candidates.shape[1], 1)
        self.size = max(1, _CHUNK_BYTES // (8 * dim))
        self.keep = 8 * candidates.size <= _KEPT_BYTES
        self.kept: dict[int, npt.NDArray[np.float64]] = {}

    def scores(self, queries: Floats) -> Scores:
        left = _unit(queries)
        scores = np.empty((len(queries), len(self.order)), dtype=np.float32)
        for start in range(0, len(self.order), self.size):
            right = self._chunk(start)
            product = left @ right.T  # float64, rounded below
            if self.offset is not None:
                product += self.offset[start : start + len(right)]
            scores[:, start : start + len(right)] = product
        return scores

    def _chunk(self, start: int) -> npt.NDArray[np.float64]:
        if start in self.kept:
            return self.kept[start]
        chunk = _unit(self.candidates[self.order[start : start + self.size]])
        if self.keep:
            self.kept[start] = chunk
        return chunk


def _unit(vectors: Floats) -> npt.NDArray[np.float64]:
    """Rows of norm 1 in float64; a zero row stays zero.

    Rows that have norm 1 to float32's precision stay as they are: products of float32 numbers are exact in
    float64, so that cosines of exactly 0 tie, which those of rescaled rows would miss by 1e-17.
    """
    rows = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))  # (rows,)
    off = np.flatnonzero((np.abs(norms - 1) > _EXACT) & (norms > 0))
    rows[off] /= norms[off, None]
    return rows


def _slice_gold(gold: Gold, rows: slice, place: Ints) -> Gold:
    starts = gold.starts[rows.start : rows.stop + 1]
    mine = slice(int(starts[0]), int(starts[-1]))
    columns = gold.columns[mine]
    moved = np.where(columns >= 0, place[columns] if len(place) else -1, -1)
    return Gold(starts - starts[0], moved, gold.grades[mine])


def _row_ranks(row: Scores, columns: Ints) -> tuple[Ints, bool]:
    """Ranks of some columns of one row (0 for column -1), and whether any of them shares its score."""
    values = row[columns]  # whatever stands there for column -1
    if len(columns) > min(max(len(row) // _CANDIDATES_PER_COMPARISON, _FEWEST), _MOST):
        ascending = np.sort(row)
        high = np.searchsorted(ascending, values, side="right")
        ahead, same = len(row) - high, high - np.searchsorted(ascending, values, side="left")
    else:
        ahead = np.array([np.count_nonzero(row > value) for value in values], dtype=np.int64)
        same = np.array([np.count_nonzero(row == value) for value in values], dtype=np.int64)
    reached = columns >= 0
    shared = np.flatnonzero(reached & (same > 1))
    for j in shared.tolist():  # of equal scores, those in earlier columns come first
        ahead[j] += np.count_nonzero(row[: columns[j]] == values[j])
    return np.where(reached, ahead + 1, 0), bool((values[shared] != ABSENT).any())
