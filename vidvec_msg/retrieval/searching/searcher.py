"""An index and the embedder of its queries, opened once and asked many times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Vectors
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import Failure, ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embedding.encoding import encode_batch
from vidvec_msg.retrieval.indexes.conditions import Where, as_where
from vidvec_msg.retrieval.indexes.folder import refuse_foreign_embedder
from vidvec_msg.retrieval.indexes.searchable import Searchable, open_index
from vidvec_msg.retrieval.searching.hits import Dedupe, Found, Hit, Wanted

_WIDER = 4  # candidates per result that are fetched first, and by how much more each further time
_CELLS = 1 << 22  # scores that one call of the index returns at most: 50 MB with their positions
_NO_DIRECTION = 1e-4  # norm of a mean of unit vectors below which they cancel out


class Searcher:
    """An index and the embedder of its queries.

    Several threads may share one: searches of the index run side by side, the embedder is called by one
    thread at a time, because not every embedder bears more.

    Args:
        index: the index.
        embedder: makes the queries' vectors; a spec is loaded at the first query that needs it, and without
            one the spec that the index was built with.
    """

    def __init__(self, index: Searchable, embedder: Embedder | str | None = None) -> None:
        self.index = index
        self._embedder = embedder
        self._loading, self._encoding = Lock(), Lock()
        if embedder is not None and not isinstance(embedder, str):
            refuse_foreign_embedder(index.folder, index.card, embedder.card)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        embedder: Embedder | str | None = None,
        search_parameters: str = "",
        mmap: bool = False,
    ) -> Searcher:
        """Opens an index folder of any engine; see ``indexes.searchable.open_index``.

        Raises:
            RefusedRequest: the index is not complete, damaged, or of another embedder.
        """
        return cls(open_index(folder, search_parameters=search_parameters, mmap=mmap), embedder)

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.index.close()

    def search(
        self,
        items: Sequence[Item],
        k: int = 10,
        *,
        where: Where | Mapping[str, Any] | Sequence[str] | None = None,
        min_score: float | None = None,
        dedupe: Dedupe | None = None,
    ) -> list[list[Hit]]:
        """The k nearest items of the index to each of these.

        Args:
            items: queries of any modality that the embedder takes; embedded in role "query".
            k: results per query.
            where: which items may be found: ``{"topic": "news"}``, ``{"topic": ["news", "sport"]}``, or as
                the command line writes it, ``["topic=news,sport", "start<60"]``.
            min_score: results below it are left out.
            dedupe: one result per file of this medium, its best one.

        Raises:
            RefusedRequest: a query cannot be embedded, the embedder is not the index's own, or the filter
                lets nothing through.
        """
        return self.ask(items, Wanted(k, as_where(where), min_score, dedupe))

    def ask(self, items: Sequence[Item], wanted: Wanted) -> list[list[Hit]]:
        """:meth:`search` with its options as one."""
        self._refuse_other_media(items)
        if wanted.where:
            self.index.refuse_no_match(wanted.where)  # before an embedder is loaded
        embedder = self.embedder
        try:
            with self._encoding:
                vectors = check_vectors(embedder.encode(items, role="query"), items, embedder.card)
        except ItemError as error:
            raise RefusedRequest(f"the query cannot be embedded: {error}") from error
        return self.hits(self.nearest(vectors, wanted))

    def search_vectors(
        self,
        vectors: Vectors,
        k: int = 10,
        *,
        where: Where | Mapping[str, Any] | Sequence[str] | None = None,
        min_score: float | None = None,
        dedupe: Dedupe | None = None,
    ) -> list[list[Hit]]:
        """The k nearest items to vectors that were made elsewhere, by the index's own embedder.

        Args:
            vectors: (queries, dim), of norm 1.
            k, where, min_score, dedupe: as in :meth:`search`.
        """
        return self.hits(self.nearest(vectors, Wanted(k, as_where(where), min_score, dedupe)))

    def more_like(
        self,
        items: str | Sequence[str],
        k: int = 10,
        *,
        where: Where | Mapping[str, Any] | Sequence[str] | None = None,
        min_score: float | None = None,
        dedupe: Dedupe | None = None,
    ) -> list[Hit]:
        """The k items most like some of the index, these left out; needs no embedder.

        Args:
            items: id of one, or ids of several: then the question is the mean of their vectors.
            k, where, min_score: as in :meth:`search`.
            dedupe: as in :meth:`search`; the files of ``items`` themselves are left out, too.

        Raises:
            RefusedRequest: there is no such item, the index cannot give vectors back, or they cancel out.
        """
        return self.ask_like(items, Wanted(k, as_where(where), min_score, dedupe))

    def ask_like(self, items: str | Sequence[str], wanted: Wanted) -> list[Hit]:
        """:meth:`more_like` with its options as one."""
        names = [items] if isinstance(items, str) else list(dict.fromkeys(items))
        if not names:
            raise RefusedRequest("more like what? Give the id of at least one item.")
        vectors = np.stack([self.index.vector(name) for name in names])  # (names, dim)
        mean = vectors.mean(axis=0)  # (dim,)
        norm = float(np.linalg.norm(mean))
        if norm < _NO_DIRECTION:
            raise RefusedRequest(
                f"the vectors of {', '.join(names)} cancel out: they have no mean direction."
            )
        question = vectors if len(names) == 1 else (mean / norm)[None]  # (1, dim)
        return self.hits(self.nearest(question, wanted, without=names))[0]

    def nearest(self, vectors: Vectors, wanted: Wanted, *, without: Collection[str] = ()) -> list[Found]:
        """Ids and scores alone, for runs; each query's best first.

        Args:
            vectors: (queries, dim), of norm 1.
            wanted: which results.
            without: items to leave out.
        """
        if wanted.where:
            self.index.refuse_no_match(wanted.where)
        if wanted.dedupe is not None:
            return self._nearest_files(vectors, wanted, wanted.dedupe, frozenset(without))
        found: list[Found] = []
        most = wanted.k + len(without)
        for rows in _blocks(len(vectors), min(most, len(self.index))):
            found += self._ask(vectors[rows], most, wanted)
        others = ([pair for pair in pairs if pair[0] not in without] for pairs in found)
        return [_at_least(wanted.min_score, pairs[: wanted.k]) for pairs in others]

    def hits(self, found: Sequence[Found]) -> list[list[Hit]]:
        """Results with their metadata."""
        names = [name for pairs in found for name, _ in pairs]
        known = iter(self.index.metadata_of(names))
        return [
            [Hit(rank, score, name, next(known)) for rank, (name, score) in enumerate(pairs, 1)]
            for pairs in found
        ]

    def encode(
        self, items: Sequence[Item], *, known: Mapping[str, Failure] | None = None
    ) -> tuple[Vectors, list[str], list[Failure]]:
        """Vectors of what can be embedded; see ``embedding.encoding.encode_batch``."""
        embedder = self.embedder
        with self._encoding:
            return encode_batch(items, embedder, role="query", known=known)

    @property
    def embedder(self) -> Embedder:
        """What embeds the queries; loaded when it is first asked for.

        Raises:
            RefusedRequest: it is not known, cannot be loaded, or is not the index's own.
        """
        with self._loading:
            known: Embedder | str | None = self._embedder or self.index.manifest.get("embedder")
            if known is None:
                raise RefusedRequest(
                    f"index {self.index.folder} does not say how to load its embedder "
                    f"({self.index.card.name}): give --embedder SPEC."
                )
            if isinstance(known, str):
                known = self._load(known)
                refuse_foreign_embedder(self.index.folder, self.index.card, known.card)
                self._embedder = known
            return known

    def _nearest_files(
        self, vectors: Vectors, wanted: Wanted, medium: Dedupe, without: frozenset[str]
    ) -> list[Found]:
        """The best item of each file: more candidates are fetched until k files differ or all were seen."""
        own = {row[medium] for row in self.index.metadata_of(sorted(without), [medium])} - {None}
        found: list[Found] = [[] for _ in vectors]
        left, asked = np.arange(len(vectors)), _WIDER * (wanted.k + len(without))
        while len(left):
            again: list[int] = []
            whole = min(asked, len(self.index))
            for block in _blocks(len(left), whole):
                rows = left[block]
                candidates = self._ask(vectors[rows], asked, wanted)
                files = self._files_of(candidates, medium)
                for row, pairs in zip(rows.tolist(), candidates, strict=True):
                    kept, seen = [], set(own)
                    for name, score in pairs:
                        file = files[name]
                        if name in without or (file is not None and file in seen):
                            continue
                        seen.add(file)
                        kept.append((name, score))
                    found[row] = _at_least(wanted.min_score, kept[: wanted.k])
                    ended = len(pairs) < whole or whole == len(self.index)
                    if len(kept) < wanted.k and not ended and len(found[row]) == len(kept):
                        again.append(row)
            left, asked = np.array(again, dtype=np.int64), asked * _WIDER
        return found

    def _ask(self, vectors: Vectors, k: int, wanted: Wanted) -> list[Found]:
        scores, ids = self.index.search(vectors, k, where=wanted.where or None)
        # an approximate index may find fewer than there are scores
        return [list(zip(names, row.tolist(), strict=False)) for names, row in zip(ids, scores, strict=True)]

    def _files_of(self, candidates: Sequence[Found], medium: Dedupe) -> dict[str, str | None]:
        names = list({name for pairs in candidates for name, _ in pairs})
        rows = self.index.metadata_of(names, [medium])
        return {name: row[medium] for name, row in zip(names, rows, strict=True)}

    def _load(self, spec: str) -> Embedder:
        try:
            return load_embedder(spec)
        except RefusedRequest as error:
            if self._embedder is not None:
                raise
            raise RefusedRequest(
                f"index {self.index.folder} was made with {spec!r}, which cannot be loaded here: {error}\n"
                "Say where it is: --embedder SPEC."
            ) from error

    def _refuse_other_media(self, items: Sequence[Item]) -> None:
        known = self.index.card.modalities  # the same as the embedder's, and here before it is loaded
        for item in items:
            if item.modality not in known:
                raise RefusedRequest(
                    f"the query is of modality {item.modality!r}; {self.index.card.name}, which made index "
                    f"{self.index.folder}, takes {', '.join(known)}."
                )


def _at_least(score: float | None, pairs: Found) -> Found:
    return pairs if score is None else [pair for pair in pairs if pair[1] >= score]


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows, each with so few that a matrix of them stays small."""
    size = max(1, _CELLS // max(columns, 1))
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))
