"""An index folder, opened: unit vectors in, ids and cosines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.cosine import Positions, best_first, unit_vectors
from vidvec_msg.retrieval.evaluation.ranking import tie_order
from vidvec_msg.retrieval.indexes.changes import places_of
from vidvec_msg.retrieval.indexes.conditions import Where
from vidvec_msg.retrieval.indexes.filtering import FilterColumns
from vidvec_msg.retrieval.indexes.folder import (
    MANIFEST,
    REMAKE,
    read_manifest,
    refuse_damaged,
    refuse_foreign_embedder,
    segments_of,
)
from vidvec_msg.retrieval.indexes.items import ItemTable, Mask, live_positions
from vidvec_msg.retrieval.indexes.segment import Segment

_ATTEMPTS = 100  # openings that a writer may spoil by changing the folder meanwhile
_REMEMBERED = 1 << 18  # results whose positions are kept for their metadata; to find ids all are sorted once
_FEW = 4096  # ids that are sorted for one query; for more, the order of all is worked out once and kept


class VectorIndex:
    """An index folder in FAISS files, opened with :meth:`open`; what a
    :class:`~vidvec_msg.retrieval.indexes.searchable.Searchable` promises is written there.

    What is open stays as it was opened, whatever a writer does to the folder. Safe to share between threads.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        items: ItemTable,
        live: Mask | None,
        manifest: Mapping[str, Any],
        folder: Path,
    ) -> None:
        self.manifest = manifest
        self.card = EmbedderCard.from_dict(manifest["card"])
        self.folder = folder
        self.segments = tuple(segments)
        self.items = items
        self.live = live  # (positions,), None: nothing is deleted
        self._firsts = [0, *accumulate(len(segment) for segment in segments)]
        self._count = items.num_rows if live is None else int(live.sum())
        self._found: Mapping[str, int] = {}  # id → position, of what the last search found

    def __len__(self) -> int:
        return self._count

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        embedder_card: EmbedderCard | None = None,
        search_parameters: str = "",
        verify: bool = True,
        mmap: bool = False,
    ) -> VectorIndex:
        """Opens an index folder.

        Args:
            folder: the index folder.
            embedder_card: of the embedder that will make the queries; another one than the index was made
                with is refused.
            search_parameters: FAISS's names and values, such as "nprobe=64" or "efSearch=256".
            verify: compares the files' checksums: of FAISS's files while they are read, of exact vectors by
                reading them whole; else their sizes alone.
            mmap: leaves vectors on disk, read as searches touch them; checksums of FAISS's files and of exact
                vectors are then not compared, since that would read them whole.

        Raises:
            RefusedRequest: it is not complete, damaged, or of another embedder.
        """
        for _ in range(_ATTEMPTS):
            manifest = read_manifest(folder)
            paths = places_of(folder, manifest)
            try:
                opened = cls._opened(folder, manifest, paths, search_parameters, verify=verify, mmap=mmap)
            except (RefusedRequest, FileNotFoundError):
                now = read_manifest(folder)
                if now == manifest and places_of(folder, now) == paths:
                    raise
                continue  # a writer took a file away, or gave it its plain name
            # files of another generation may have come between, under the same names
            if read_manifest(folder)["generation"] == manifest["generation"]:
                break
        else:
            raise RefusedRequest(
                f"index {folder} was changed {_ATTEMPTS} times while it was being opened; try again when "
                "fewer changes are made."
            )
        if embedder_card is not None:
            refuse_foreign_embedder(folder, opened.card, embedder_card)
        return opened

    @classmethod
    def _opened(
        cls,
        folder: Path,
        manifest: Mapping[str, Any],
        paths: Mapping[str, Path],
        parameters: str,
        *,
        verify: bool,
        mmap: bool,
    ) -> VectorIndex:
        """What the manifest names, checked."""
        entries = segments_of(manifest)
        checksums = manifest["checksums"]
        later = {entry.index for entry in entries}  # compared while it is read
        left = later | {entry.vectors for entry in entries} if mmap else later
        for name, path in paths.items():
            size = manifest.get("sizes", {}).get(name)
            refuse_damaged(path, checksums[name], size=size, verify=verify and name not in left)
        items = ItemTable([paths[entry.ids] for entry in entries])
        dim = EmbedderCard.from_dict(manifest["card"]).dim
        refusals: list[RefusedRequest] = []
        segments = []
        for entry, ids in zip(entries, items.counts, strict=True):
            expected = checksums[entry.index] if verify else ""
            segment = Segment.open(paths, entry, dim=dim, mmap=mmap, expected=expected)
            if not segment.faiss_index.ntotal == ids == entry.count:
                raise RefusedRequest(
                    f"index {folder}: {paths[entry.index].name} holds {segment.faiss_index.ntotal} vectors, "
                    f"{paths[entry.ids].name} {ids} ids and {MANIFEST} says {entry.count}; the files are not "
                    f"of one index. Make it again: `{REMAKE}`."
                )
            try:
                segment.set_parameters(parameters)
            except RefusedRequest as error:
                refusals.append(error)
            segments.append(segment)
        if len(refusals) == len(segments):  # indexes that were merged may be of several kinds
            raise refusals[0]
        live = live_positions(paths, manifest, items.num_rows)
        alive = items.num_rows if live is None else int(live.sum())
        if alive != manifest["count"]:
            raise RefusedRequest(
                f"index {folder}: its files hold {alive} items that are not deleted and {MANIFEST} says "
                f"{manifest['count']}; the files are not of one index. Make it again: `{REMAKE}`."
            )
        return cls(segments, items, live, manifest, folder)

    def close(self) -> None:
        """Does nothing: what is open goes with the object. Here for engines that hold a connection."""

    def search(
        self, vectors: Vectors, k: int, *, where: Where | None = None
    ) -> tuple[Vectors, list[list[str]]]:
        """See ``Searchable``; n is k, or the items that may be found if they are fewer. An approximate index
        may find less."""
        if k < 1:
            raise RefusedRequest(f"k is {k}; it must be at least 1 (results per query)")
        queries = unit_vectors(vectors, self.card.dim, name=lambda row: f"query {row}")
        allowed = self._allowed(where)
        count = len(self) if not where or allowed is None else int(np.count_nonzero(allowed))
        k = min(k, count)
        if not len(queries) or not k:
            return np.zeros((len(queries), k), np.float32), [[] for _ in queries]
        scores, positions = self._nearest(queries, k, count, allowed)  # (queries, k), both
        # -1 stands for "found no more" and goes before it can be taken for a position
        places = [row[row >= 0] for row in positions]
        names = [self.items.names(row) for row in places]
        if positions.size <= _REMEMBERED:
            self._found = dict(zip(chain.from_iterable(names), np.concatenate(places).tolist(), strict=True))
        return scores, names

    def metadata(self, item: str) -> dict[str, Any]:
        """See ``Searchable``."""
        return self.items.rows([self.position(item)])[0]

    def metadata_of(self, items: Sequence[str], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """See ``Searchable``."""
        return self.items.rows([self.position(item) for item in items], columns)

    def refuse_no_match(self, where: Where) -> None:
        """See ``Searchable``."""
        allowed = self._allowed(where)
        if not len(self) or (allowed is not None and not allowed.any()):
            raise RefusedRequest(f"index {self.folder}: {self._filtered.nothing_matches(where)}.")

    def vector(self, item: str) -> Vectors:
        """See ``Searchable``."""
        position = self.position(item)
        try:
            found: Vectors = self.vectors_at(np.array([position]))[0]
        except RefusedRequest as error:
            raise RefusedRequest(f"index {self.folder}: {error}") from error
        return found

    def vectors_at(self, positions: Positions) -> Vectors:
        """Stored vectors, (positions, dim), of norm 1; see :meth:`Segment.vectors`.

        Raises:
            RefusedRequest: the index cannot give its vectors back.
        """
        rows = np.empty((len(positions), self.card.dim), dtype=np.float32)
        for segment, first in zip(self.segments, self._firsts, strict=False):
            here = (positions >= first) & (positions < first + len(segment))
            if here.any():
                rows[here] = segment.vectors(positions[here] - first)
        return rows

    def position(self, item: str) -> int:
        """Where an item stands, counted through the segments.

        Raises:
            RefusedRequest: there is no such item, or it was deleted.
        """
        if (found := self._found.get(item)) is not None:
            return found
        for position in self.items.candidates(item):
            if self.live is None or self.live[position]:
                return position
        raise RefusedRequest(
            f"index {self.folder} has no item {item!r}; its {len(self)} ids are in ids.parquet."
        )

    def _nearest(
        self, queries: Vectors, k: int, count: int, allowed: Mask | None
    ) -> tuple[Vectors, Positions]:
        """The k nearest of each query among ``count`` allowed ones, (queries, k) both.

        Which of the neighbours that tie with the k-th come back is chance in FAISS, so one more is asked
        for, and more as long as the tie goes on.
        """
        scores, positions = self._ask(queries, min(k + 1, count), allowed)  # (queries, asked), both
        equal = (scores[:, 1:] == scores[:, :-1]) & (positions[:, 1:] >= 0)
        for row in np.flatnonzero(equal.any(axis=1)):
            ties, places = scores[row : row + 1], positions[row : row + 1]
            while ties.shape[1] < count and places[0, -1] >= 0 and ties[0, k - 1] == ties[0, -1]:
                ties, places = self._ask(queries[row : row + 1], min(4 * ties.shape[1], count), allowed)
            order = self._order(ties, places)[:k]
            scores[row, :k], positions[row, :k] = ties[0, order], places[0, order]
        return scores[:, :k], positions[:, :k]

    def _ask(self, queries: Vectors, k: int, allowed: Mask | None) -> tuple[Vectors, Positions]:
        """The k best of all segments together, (queries, k) both."""
        if len(self.segments) == 1:
            return self.segments[0].search(queries, k, allowed)
        found_scores, found_positions = [], []
        for segment, first in zip(self.segments, self._firsts, strict=False):
            part = None if allowed is None else allowed[first : first + len(segment)]
            if not len(segment) or (part is not None and not part.any()):
                continue
            scores, positions = segment.search(queries, k, None if part is None or part.all() else part)
            found_scores.append(scores)
            found_positions.append(np.where(positions >= 0, positions + first, -1))
        scores = np.concatenate(found_scores, axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # (queries, k)
        return (
            np.take_along_axis(scores, order, 1),
            np.take_along_axis(np.concatenate(found_positions, axis=1), order, 1),
        )

    def _order(self, scores: Vectors, positions: Positions) -> Positions:
        """Columns of one query's neighbours (1, found) in trec_eval's order."""
        if positions.shape[1] > _FEW:
            every: Positions = best_first(scores, positions, self._id_ranks)[0]
            return every
        known = np.flatnonzero(positions[0] >= 0)
        ranks = np.empty(len(known), dtype=np.int64)
        ranks[tie_order(self.items.names(positions[0, known]))[::-1]] = np.arange(len(known))
        local = np.full(positions.shape, -1, dtype=np.int64)
        local[0, known] = np.arange(len(known))
        order: Positions = best_first(scores, local, ranks)[0]
        return order

    def _allowed(self, where: Where | None) -> Mask | None:
        """Which positions may be found; None: all."""
        if not where:
            return self.live
        matching = self._filtered.matching(where)
        return matching if self.live is None else matching & self.live

    @cached_property
    def _id_ranks(self) -> npt.NDArray[np.int64]:
        ranks = np.empty(self.items.num_rows, dtype=np.int64)
        ranks[tie_order(self.items.ids.to_pylist())[::-1]] = np.arange(len(ranks))
        return ranks

    @cached_property
    def _filtered(self) -> FilterColumns:
        return FilterColumns(self.items)
