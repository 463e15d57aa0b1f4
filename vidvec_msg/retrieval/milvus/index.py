"""An index that Milvus keeps, opened: the same contract as ``indexes.vector_index.VectorIndex``.

What Milvus finds is put into our order (score, then id, descending) and, where its language cannot say a
filter exactly, read through the filter once more; more is asked for until the k-th place is certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.cosine import unit_vectors
from vidvec_msg.retrieval.evaluation.ranking import tie_order
from vidvec_msg.retrieval.indexes.conditions import Where, refuse_unknown_keys, written
from vidvec_msg.retrieval.indexes.folder import MANIFEST, REMAKE, refuse_foreign_embedder
from vidvec_msg.retrieval.milvus.engine import Collection, FoundRow, is_server, numbers_of
from vidvec_msg.retrieval.milvus.filtering import Expression, expression, passes
from vidvec_msg.runs import read_json

_LOOKED_AT = 1000  # items among which one must pass a filter that Milvus cannot say exactly


class MilvusIndex:
    """An index folder whose vectors lie in Milvus. Use :meth:`open`. Searches may run in several threads."""

    def __init__(
        self, collection: Collection, manifest: Mapping[str, Any], folder: Path, parameters: Mapping[str, int]
    ) -> None:
        self._count = collection.count()
        # a killed change left the count of before it
        self.manifest: Mapping[str, Any] = {**manifest, "count": self._count}
        self.card = EmbedderCard.from_dict(manifest["card"])
        self.folder = folder
        self.collection = collection
        self._parameters = parameters
        self._matched: Where | None = None  # a filter that is known to let something through

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def open(
        cls, folder: Path, *, embedder_card: EmbedderCard | None = None, search_parameters: str = ""
    ) -> MilvusIndex:
        """Opens an index folder.

        Args:
            folder: the index folder.
            embedder_card: of the embedder that will make the queries; another one than the index was made
                with is refused.
            search_parameters: Milvus's names and values, such as "ef=64" or "nprobe=16".

        Raises:
            RefusedRequest: it is not complete, or of another embedder; the server does not answer; the
                file or the collection is gone, or has other dimensions.
        """
        manifest = read_milvus_manifest(folder)
        if embedder_card is not None:
            refuse_foreign_embedder(folder, EmbedderCard.from_dict(manifest["card"]), embedder_card)
        parameters = numbers_of(search_parameters, "search_parameters")
        collection = collection_of(folder, manifest)
        try:
            if not collection.exists():
                raise RefusedRequest(
                    f"index {folder}: Milvus at {collection.uri} has no collection {collection.name!r}. "
                    f"It was removed, or the address leads elsewhere. Make it again: `{REMAKE}`."
                )
            if (dim := collection.dim()) != manifest["dim"]:
                raise RefusedRequest(
                    f"index {folder}: collection {collection.name!r} holds vectors of {dim} dimensions and "
                    f"{MANIFEST} says {manifest['dim']}. Make it again: `{REMAKE}`."
                )
            collection.load()
            return cls(collection, manifest, folder, parameters)
        except BaseException:
            collection.close()
            raise

    def close(self) -> None:
        """Ends the connection; a Milvus file is then free for another process."""
        self.collection.close()

    def search(
        self, vectors: Vectors, k: int, *, where: Where | None = None
    ) -> tuple[Vectors, list[list[str]]]:
        """The nearest neighbours of each query, best first; see ``indexes.searchable.Searchable``.

        Raises:
            RefusedRequest: as there, or more results per query than a Milvus server gives.
        """
        if k < 1:
            raise RefusedRequest(f"k is {k}; it must be at least 1 (results per query)")
        queries = unit_vectors(vectors, self.card.dim, name=lambda row: f"query {row}")
        asked, where = self._expression(where), where or {}
        k = min(k, len(self))
        if k > self.collection.most:
            raise RefusedRequest(
                f"k is {k}; a Milvus server gives at most {self.collection.most} results per query"
            )
        found: list[list[tuple[str, float]]] = [[] for _ in queries]
        left, size = np.arange(len(queries)), min(k + 1, len(self), self.collection.most)
        while len(left) and k:
            hits = self._ask(queries[left], size, asked)
            last = size >= min(len(self), self.collection.most)
            again = []
            for row, candidates in zip(left.tolist(), hits, strict=True):
                kept = _kept(candidates, where, asked)
                certain = len(kept) > k and kept[k - 1][1] != kept[-1][1]
                found[row] = _best_first(kept)[:k]
                if not (certain or last or len(candidates) < size):
                    again.append(row)
            left, size = np.array(again, dtype=np.int64), min(4 * size, len(self), self.collection.most)
        scores = np.full((len(queries), max(map(len, found), default=0)), -np.inf, dtype=np.float32)
        for row, pairs in enumerate(found):
            scores[row, : len(pairs)] = [score for _, score in pairs]
        return scores, [[name for name, _ in pairs] for pairs in found]

    def metadata(self, item: str) -> dict[str, Any]:
        """See ``Searchable``."""
        return self.metadata_of([item])[0]

    def metadata_of(self, items: Sequence[str], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """See ``Searchable``."""
        found = self.collection.rows_of(list(dict.fromkeys(items)))
        for name in items:
            if name not in found:
                raise self._missing(name)
        rows = [found[name] for name in items]
        return rows if columns is None else [{name: row.get(name) for name in columns} for row in rows]

    def vector(self, item: str) -> Vectors:
        """See ``Searchable``; nothing is approximate here."""
        found = self.collection.vector(item)
        if found is None:
            raise self._missing(item)
        unit: Vectors = found / np.linalg.norm(found)
        return unit

    def refuse_no_match(self, where: Where) -> None:
        """See ``Searchable``."""
        if where == self._matched:
            return
        asked = self._expression(where)
        if asked.exact:
            matches = self.collection.count(asked.text) > 0
        else:
            rows = self.collection.rows(asked.text, _LOOKED_AT)
            matches = len(rows) == _LOOKED_AT or bool(passes(where, rows).any())
        if not matches:
            raise RefusedRequest(f"index {self.folder}: no item matches {written(where)}.")
        self._matched = dict(where)

    def _expression(self, where: Where | None) -> Expression:
        if not where:
            return Expression()
        refuse_unknown_keys(where, self.manifest["groups"])
        return expression(where)

    def _ask(self, queries: Vectors, k: int, asked: Expression) -> list[list[FoundRow]]:
        return self.collection.search(
            queries, k, where=asked.text, parameters=self._parameters, metadata=not asked.exact
        )

    def _missing(self, item: str) -> RefusedRequest:
        return RefusedRequest(f"index {self.folder} has no item {item!r}; it holds {len(self)} items.")


def read_milvus_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an index that Milvus keeps.

    Raises:
        RefusedRequest: it is missing, of a later format, or of another engine.
    """
    manifest = read_json(folder / MANIFEST, what="index", made_by=REMAKE)
    if manifest.get("engine") != "milvus":
        raise RefusedRequest(f"index {folder} is kept in FAISS files, not by milvus.")
    if manifest.get("format") != 2:
        raise RefusedRequest(
            f"index {folder} is of format {manifest.get('format')}; this version of vidvec-msg knows 2. "
            "Update vidvec-msg."
        )
    return manifest


def collection_of(folder: Path, manifest: Mapping[str, Any]) -> Collection:
    """The collection of an index; the path of a Milvus file starts from the index folder.

    Raises:
        RefusedRequest: there is no such file (milvus-lite would make an empty one), or the server does not
            answer.
    """
    uri: str = manifest["uri"]
    if not is_server(uri):
        uri = str((folder / uri).resolve())
        if not Path(uri).exists():
            raise RefusedRequest(
                f"index {folder}: there is no Milvus file {uri}. It was removed, or was not copied with the "
                f"folder. Put it there, or make the index again: `{REMAKE}`."
            )
    return Collection(uri, manifest["collection"])


def _kept(candidates: Sequence[FoundRow], where: Where, asked: Expression) -> list[tuple[str, float]]:
    """What the filter itself lets through."""
    pairs = [(name, score) for name, score, _ in candidates]
    if asked.exact or not pairs:
        return pairs
    mask = passes(where, [row for _, _, row in candidates])
    return [pair for pair, passed in zip(pairs, mask, strict=True) if passed]


def _best_first(pairs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """In trec_eval's order: score descending, then id descending."""
    by_id = [pairs[position] for position in tie_order([name for name, _ in pairs])]
    return sorted(by_id, key=lambda pair: -pair[1])  # keeps the order of equal scores
