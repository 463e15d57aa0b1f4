"""The contract of every opened index, FAISS's or Milvus's: unit vectors in, ids and cosines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.conditions import Where
from vidvec_msg.retrieval.indexes.folder import engine_of


class Searchable(Protocol):
    """An index folder, opened. Searches may run in several threads at once."""

    folder: Path
    manifest: Mapping[str, Any]
    card: EmbedderCard

    def __len__(self) -> int:
        """Items that can be found."""
        ...

    def search(
        self, vectors: Vectors, k: int, *, where: Where | None = None
    ) -> tuple[Vectors, list[list[str]]]:
        """The nearest neighbours of each query, best first; equal scores by id, descending, as trec_eval.

        Args:
            vectors: (queries, dim), of norm 1.
            k: neighbours per query; more than there are is fine.
            where: which items may be found; all by default.

        Returns:
            scores, float32 (queries, n) with n ≤ k, and the ids of each query. Where fewer were found, that
            query's list is shorter and the rest of its scores is -inf.

        Raises:
            RefusedRequest: k below 1, another dimension, a vector that is not finite or not of norm 1, or a
                filter with a key that no item has.
        """
        ...

    def metadata(self, item: str) -> dict[str, Any]:
        """What the index knows of an item: id, text, video, image, audio, start, end, groups.

        Raises:
            RefusedRequest: there is no such item.
        """
        ...

    def metadata_of(self, items: Sequence[str], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The metadata of several items, in their order; of all columns, or of these.

        Raises:
            RefusedRequest: there is no such item.
        """
        ...

    def vector(self, item: str) -> Vectors:
        """The stored vector of an item, (dim,), of norm 1; approximate where the index compresses.

        Raises:
            RefusedRequest: there is no such item, or the index cannot give its vectors back.
        """
        ...

    def close(self) -> None:
        """Ends connections, where there are any; the index is not used after that."""
        ...

    def refuse_no_match(self, where: Where) -> None:
        """Refuses a filter that lets nothing through.

        Raises:
            RefusedRequest: no item matches, or a key that no item has.
        """
        ...


def open_index(
    folder: Path,
    *,
    embedder_card: EmbedderCard | None = None,
    search_parameters: str = "",
    verify: bool = True,
    mmap: bool = False,
) -> Searchable:
    """Opens an index folder with the engine that its manifest names.

    Args:
        folder: the index folder.
        embedder_card: of the embedder that will make the queries; another one than the index was made with is
            refused.
        search_parameters: the engine's names and values, such as "nprobe=64" or "ef=256".
        verify: compares the files' checksums: of FAISS's files while they are read, of exact vectors by
            reading them whole; else their sizes alone.
        mmap: leaves FAISS's files on disk and reads what a search touches.

    Raises:
        RefusedRequest: it is not complete, damaged, of another embedder, or its server does not answer.
    """
    if engine_of(folder) == "milvus":
        from vidvec_msg.retrieval.milvus.index import MilvusIndex

        if mmap:
            raise RefusedRequest(f"index {folder} is kept by Milvus: mmap is for indexes in FAISS files.")
        return MilvusIndex.open(folder, embedder_card=embedder_card, search_parameters=search_parameters)
    from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

    return VectorIndex.open(
        folder, embedder_card=embedder_card, search_parameters=search_parameters, verify=verify, mmap=mmap
    )
