"""Vectors of every read-out of a model, from one pass, in shards on disk: a row holds them side by side.

A read-out is a stretch of columns. A folder is written as any vectors folder is, so that it survives a kill
and knows its failures; a call of the model and a shard are kept small, since a row is long (28 layers of
width 3,584, raw and normed, three poolings: 610,000 numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.embedders.contract import Role
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.disk_space import bytes_needed, free_bytes, in_words
from vidvec_msg.retrieval.embed import StoredType, embed_items
from vidvec_msg.retrieval.embedding.encoding import items_per_call
from vidvec_msg.retrieval.evaluation.ranked import Embedded
from vidvec_msg.retrieval.evaluation.sides import Made
from vidvec_msg.retrieval.probing.halves import Halves

_CALL_BYTES = 128 << 20  # float32 states of one call of the model, which are copied some times
_SHARD_BYTES = 256 << 20


@dataclass(frozen=True)
class SideBySide:
    """One side's folder, of which one read-out at a time is in memory.

    Args:
        folder: rows of ``read_outs`` vectors each.
        read_outs: how many.
    """

    folder: VectorsFolder
    read_outs: int

    def of(self, number: int) -> Embedded:
        """A read-out's vectors, (items, dim) float32 of norm 1."""
        width = self.folder.dim // self.read_outs
        columns = slice(number * width, (number + 1) * width)
        vectors = np.empty((self.folder.count, width), dtype=np.float32)
        first = 0
        for shard in self.folder.files:
            stored: npt.NDArray[Any] = np.load(
                self.folder.path / shard.file, mmap_mode="r", allow_pickle=False
            )
            vectors[first : first + shard.rows] = stored[:, columns]
            first += shard.rows
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Embedded(list(self.folder.ids), vectors, list(self.folder.failures))


class LayerVectors:
    """Vectors of both sides under every read-out.

    Args:
        embedder: read in many places.
        halves: whose items are embedded.
        folder: where the vectors are kept; what an interrupted run left there is taken up.
        dtype: how they are stored.
        batch_size: items per call; 0: as many as fit.
        spec: of the embedder, recorded.
    """

    def __init__(
        self,
        embedder: MultimodalLLM,
        halves: Halves,
        folder: Path,
        *,
        dtype: StoredType,
        batch_size: int,
        spec: str,
    ) -> None:
        self.embedder, self.folder, self.dtype, self.spec = embedder, folder, dtype, spec
        self.batch_size = batch_size
        sides: dict[str, tuple[Sequence[Item], Role]] = {
            "corpus": (halves.corpus, "document"),
            "queries": (halves.queries, "query"),
        }
        if embedder.card.role_prompts:  # the reverse direction asks in the other role
            sides["corpus_as_queries"] = (halves.corpus, "query")
            sides["queries_as_documents"] = (halves.queries, "document")
        self._sides = sides

    def refuse_without_room(self) -> None:
        """Refuses what cannot fit on the disk; what is there of it already counts.

        Raises:
            RefusedRequest: with what is needed, what is free, and the ways out.
        """
        dim = self.embedder.card.dim
        there = sum(path.stat().st_size for path in self.folder.rglob("*.npy")) if self.folder.is_dir() else 0

        def needed(dtype: str) -> int:
            return sum(
                bytes_needed(len(items), dim, dtype, shard_size(dim, dtype))
                for items, _ in self._sides.values()
            )

        wanted, free = needed(self.dtype) - there, free_bytes(self.folder)
        if wanted <= free:
            return
        half = "" if self.dtype == "float16" else f", --dtype float16 ({in_words(needed('float16'))})"
        items = sum(len(items) for items, _ in self._sides.values())
        raise RefusedRequest(
            f"{items:,} items × {len(self.embedder.read_outs)} read-outs ({dim:,} numbers an item) need "
            f"about {in_words(wanted)} in {self.folder}, and the disk has {in_words(free)} free; make room, "
            f"give a --vectors folder with more of it{half}, or fewer --poolings"
        )

    def make(self) -> None:
        """Embeds what is missing."""
        for name in self._sides:
            self._made(name)

    def of(self, number: int) -> Made:
        """The vectors of one read-out."""
        queries, corpus = self._opened("queries").of(number), self._opened("corpus").of(number)
        if not self.embedder.card.role_prompts:
            return Made(queries, corpus, queries, corpus, {})
        return Made(
            queries,
            corpus,
            self._opened("queries_as_documents").of(number),
            self._opened("corpus_as_queries").of(number),
            {},
        )

    @property
    def failed(self) -> dict[str, int]:
        """Items without a vector, by side."""
        return {name: int(self._opened(name).folder.manifest["failed"]) for name in self._sides}

    def _opened(self, name: str) -> SideBySide:
        return SideBySide(VectorsFolder.open(self.folder / name), len(self.embedder.read_outs))

    def _made(self, name: str) -> VectorsFolder:
        items, role = self._sides[name]
        dim = self.embedder.card.dim
        most = max(1, _CALL_BYTES // (4 * dim))
        return embed_items(
            items,
            self.embedder,
            role=role,
            out=self.folder / name,
            batch_size=self.batch_size or min(items_per_call(items), most),
            shard_size=shard_size(dim, self.dtype),
            dtype=self.dtype,
            max_failures=len(items),  # counted over everything at the end, when the report has been written
            spec=self.spec,
        )


def shard_size(dim: int, dtype: str) -> int:
    """Items of a shard: as many as memory may hold."""
    return max(1, min(50_000, _SHARD_BYTES // (dim * np.dtype(dtype).itemsize)))
