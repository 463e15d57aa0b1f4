"""One segment of an index: a FAISS index, perhaps of shortened or compressed vectors, and exact rescoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.cosine import Positions
from vidvec_msg.retrieval.indexes.checked_index import read_checked
from vidvec_msg.retrieval.indexes.faiss_engine import (
    faiss_module,
    nearest_among,
    on_gpu,
    scores_of,
    set_parameters,
    words_of,
)
from vidvec_msg.retrieval.indexes.folder import REMAKE, SegmentEntry
from vidvec_msg.retrieval.indexes.items import Mask
from vidvec_msg.retrieval.indexes.selection import (
    gives_back,
    is_exhaustive,
    is_graph,
    search_among,
    search_among_nearly_all,
    untransformed,
)

EXACT_SHARE = 0.02
"""Share of allowed items below which inverted lists are left aside and all allowed items are compared.

Otherwise as many more lists are probed, or nodes of a graph visited, as fewer items are allowed, which keeps
the recall: with a tenth allowed, 8 of 128 lists found 0.89 and find 0.998; efSearch=64 found 0.89 and finds
1.000 (20,000 and 10,000 clustered vectors of 64 dimensions)."""
COMPARED = 300
"""The same for graphs, of the number of allowed items times their share. A graph takes 0.13 ms / share and
comparing 0.44 ms per 1,000 allowed items: below this, comparing is faster (measured on the same vectors)."""
NEARLY_ALL = 0.9
"""Share of allowed items from which a plain search for a few more takes the place of a selector."""
_GPU_MOST = 2048  # neighbours that a GPU index can return
_BLOCK_BYTES = 64 << 20  # vectors that an exact comparison holds at once


class Segment:
    """One FAISS file of an index folder, opened; positions are its own, 0 to ``len(self) - 1``.

    Safe to share between threads, as FAISS's searches are.

    Args:
        faiss_index: of inner products.
        entry: what the manifest says of it.
        stored: (count, dim) unit rows of full length, float16 or float32, usually memory-mapped; None if the
            folder has none.
        dim: of the queries.
        gpu: searches on a GPU if there is one, which copies the index there.
    """

    def __init__(
        self,
        faiss_index: Any,
        entry: SegmentEntry,
        stored: npt.NDArray[Any] | None,
        *,
        dim: int,
        gpu: bool = True,
    ) -> None:
        self.faiss_index = faiss_index
        self.entry = entry
        self.stored = stored
        self.dim = dim
        self._on_gpu = on_gpu(faiss_index) if gpu else None
        self._lock = Lock()
        self._mapped = False  # position → list is known

    @classmethod
    def open(
        cls,
        paths: Mapping[str, Path],
        entry: SegmentEntry,
        *,
        dim: int,
        mmap: bool = False,
        expected: str = "",
    ) -> Segment:
        """Opens the files of a segment.

        Args:
            paths: name in the manifest → where the file is.
            entry: what the manifest says of the segment.
            dim: of the queries.
            mmap: leaves the codes on disk; the system reads what a search touches.
            expected: SHA-256 of the FAISS file, compared while it is read; empty compares nothing.

        Raises:
            RefusedRequest: a file that cannot be read or has another checksum, or vectors of another shape.
        """
        found = read_checked(paths[entry.index], expected=expected, mmap=mmap)
        stored = None if entry.vectors is None else _stored(paths[entry.vectors], (entry.count, dim))
        return cls(found, entry, stored, dim=dim, gpu=not mmap)

    def __len__(self) -> int:
        return self.entry.count

    def set_parameters(self, parameters: str) -> None:
        """Sets FAISS's search parameters, such as "nprobe=64"; empty leaves those that are stored.

        Raises:
            RefusedRequest: FAISS does not know them for this kind of index.
        """
        set_parameters(self.faiss_index, parameters)
        if parameters and self._on_gpu is not None:
            set_parameters(self._on_gpu, parameters)

    def search(self, queries: Vectors, k: int, allowed: Mask | None = None) -> tuple[Vectors, Positions]:
        """The k best of each query, best first; ties in any order.

        Scores are exact cosines where the folder has the vectors for it and says how many candidates are
        compared (``oversample``), else what FAISS makes of its codes.

        Args:
            queries: (queries, dim) float32, of norm 1.
            k: results per query.
            allowed: (len(self),) which positions may be found; all by default.

        Returns:
            scores, -inf where no more was found, and positions, -1 there: (queries, min(k, len(self))) both.
        """
        k = min(k, len(self))
        if allowed is not None and self._is_better_compared(int(np.count_nonzero(allowed))):
            return self._compared(queries, k, allowed)
        if self.stored is None or self.entry.oversample is None:
            return self._found(self._cut(queries), k, allowed)
        _, candidates = self._found(self._cut(queries), min(k * self.entry.oversample, len(self)), allowed)
        return self._rescored(queries, candidates, k)

    def vectors(self, positions: Positions) -> Vectors:
        """The vectors at positions, (positions, dim) float32, of norm 1.

        The stored ones where there are any; else what FAISS gives back, which is approximate where it
        compresses, and ends in zeros where it holds leading dimensions only.

        Raises:
            RefusedRequest: this kind of index cannot give vectors back.
        """
        if self.stored is not None:
            return _units(np.asarray(self.stored[positions], dtype=np.float32))
        held = _units(self.held(positions))  # (positions, d)
        return np.pad(held, ((0, 0), (0, self.dim - held.shape[1])))

    def held(self, positions: Positions) -> Vectors:
        """What FAISS gives back of positions: (positions, d) float32, d the leading dimensions it was given.

        Raises:
            RefusedRequest: this kind of index cannot give vectors back.
        """
        return self._given_back(self.faiss_index, positions)

    @property
    def is_exact(self) -> bool:
        """Whether FAISS holds the vectors that it was given, and not what a code makes of them."""
        return scores_of(self.faiss_index) == "cosine"

    def _is_better_compared(self, count: int) -> bool:
        """Whether a search among so many allowed items finds too few, or costs more than comparing all."""
        if is_exhaustive(self.faiss_index) or (self.stored is None and not gives_back(self.faiss_index)):
            return False
        share = count / max(len(self), 1)
        return count * share < COMPARED if is_graph(self.faiss_index) else share < EXACT_SHARE

    def _found(self, queries: Vectors, k: int, allowed: Mask | None) -> tuple[Vectors, Positions]:
        """What FAISS finds for queries of its own dimension."""
        searched = self.faiss_index if self._on_gpu is None or k > _GPU_MOST else self._on_gpu
        if allowed is None:
            scores, positions = searched.search(queries, k)
        else:
            scores, positions = self._among(searched, queries, k, allowed)
        return np.where(positions >= 0, scores, np.float32(-np.inf)), positions  # FAISS fills with -FLT_MAX

    def _among(self, searched: Any, queries: Vectors, k: int, allowed: Mask) -> tuple[Vectors, Positions]:
        share = max(int(np.count_nonzero(allowed)), 1) / max(len(self), 1)
        if share >= NEARLY_ALL:
            most = len(self) if searched is self.faiss_index else _GPU_MOST
            found = search_among_nearly_all(searched, queries, k, allowed, most=most)
            if found is not None:
                return found
        # a selector is the CPU's alone
        return search_among(self.faiss_index, queries, k, allowed, harder=1 / share)

    def _compared(self, queries: Vectors, k: int, allowed: Mask) -> tuple[Vectors, Positions]:
        """Every allowed vector compared with every query, block by block; scores as a search gives them."""
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        exact = self.stored is not None and (
            self.entry.oversample is not None or not gives_back(self.faiss_index)
        )
        core, asked = (None, queries) if exact else untransformed(self.faiss_index, self._cut(queries))
        for block in _blocks(np.flatnonzero(allowed), self.dim):
            rows = self.vectors(block) if exact else self._given_back(core, block)  # (block, d)
            found, places = nearest_among(asked, rows, min(k, len(rows)))
            scores = np.concatenate([scores, found], axis=1)  # (queries, k + block)
            positions = np.concatenate([positions, block[places]], axis=1)
            scores, positions = _best(scores, positions, k)
        return scores, positions

    def _rescored(self, queries: Vectors, candidates: Positions, k: int) -> tuple[Vectors, Positions]:
        """The k best of some candidates by their exact cosines."""
        scores = np.full(candidates.shape, -np.inf, dtype=np.float32)
        for row, (query, places) in enumerate(zip(queries, candidates, strict=True)):
            known = places >= 0
            rows = self.vectors(places[known])  # (known, dim)
            scores[row, known] = np.einsum(
                "ij,j->i", rows, query
            )  # the same sum for each row: equal rows tie
        return _best(scores, candidates, k)

    def _cut(self, queries: Vectors) -> Vectors:
        """Queries as FAISS takes them: their leading dimensions, normalised anew."""
        kept = self.entry.truncate_dim
        return queries if kept is None or kept == self.dim else _units(queries[:, :kept])

    def _given_back(self, faiss_index: Any, positions: Positions) -> Vectors:
        """What this index, or one inside it, makes of its codes: (positions, d) float32."""
        try:
            if not gives_back(self.faiss_index):
                raise RuntimeError("its lists hold codes in blocks")
            self._map_lists()
            found: Vectors = faiss_index.reconstruct_batch(np.ascontiguousarray(positions, np.int64))
        except RuntimeError as error:
            raise RefusedRequest(
                f"an index of factory {self.entry.factory} cannot give vectors back ({words_of(error)}); "
                "search by text, or build it with another factory, such as Flat or HNSW32,Flat."
            ) from error
        return found

    def _map_lists(self) -> None:
        """Makes FAISS remember which list holds a position; inverted lists do not keep it."""
        with self._lock:
            if self._mapped:
                return
            lists = faiss_module().try_extract_index_ivf(self.faiss_index)
            if lists is not None:
                lists.make_direct_map()
            self._mapped = True


def _stored(path: Path, shape: tuple[int, int]) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RefusedRequest(
            f"index {path.parent}: {path.name} cannot be read ({error}). "
            f"Copy it again, or make the index again: `{REMAKE}`."
        ) from error
    if found.shape != shape or found.dtype not in (np.float16, np.float32):
        raise RefusedRequest(
            f"index {path.parent}: {path.name} holds {found.dtype} {found.shape}, expected float16 or "
            f"float32 {shape}; the files are not of one index. Make it again: `{REMAKE}`."
        )
    return found


def _units(rows: Vectors) -> Vectors:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]  # (rows, 1)
    unit: Vectors = rows / np.maximum(norms, np.float32(1e-12))
    return unit


def _best(scores: Vectors, positions: Positions, k: int) -> tuple[Vectors, Positions]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)


def _blocks(positions: Positions, dim: int) -> Iterator[Positions]:
    size = max(_BLOCK_BYTES // (4 * dim), 1)
    for first in range(0, len(positions), size):
        yield positions[first : first + size]
