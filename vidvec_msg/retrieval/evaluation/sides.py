"""The two sides of an evaluation: which items take part, and their vectors in each direction's roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, reverse
from vidvec_msg.retrieval.evaluation.directions import Embedded, Pool, check_sides
from vidvec_msg.runs import digest_of

if TYPE_CHECKING:
    from vidvec_msg.embedders.contract import Embedder, Role
    from vidvec_msg.formats.vectors import VectorsFolder


@dataclass(frozen=True)
class Sides:
    """The items that take part, and who is right for whom."""

    corpus: tuple[Item, ...]
    queries: tuple[Item, ...]
    qrels: Qrels

    @classmethod
    def of(cls, collection: Collection, split: str, pool: Pool) -> Sides:
        """The sides of one split of a collection.

        Raises:
            RefusedRequest: no query has a positive.
        """
        qrels = collection.qrels[split]
        named = {document for judged in qrels.values() for document in judged}
        corpus = (
            tuple(d for d in collection.corpus if d.id in named) if pool == "split" else collection.corpus
        )
        queries = tuple(query for query in collection.queries if query.id in qrels)
        if not any(grade > 0 for judged in qrels.values() for grade in judged.values()):
            raise RefusedRequest(
                f"split {split!r} of collection {collection.root}: no query has a positive (a score above "
                "0), so there is nothing to measure"
            )
        return cls(corpus, queries, qrels)

    @property
    def backwards(self) -> Qrels:
        """The judgements, read from the documents."""
        return reverse(self.qrels)

    def identity(self) -> dict[str, str]:
        """Digests of who takes part and of the judgements, whatever the items hold; two evaluations can be
        compared if these agree."""
        judged = {query: dict(sorted(one.items())) for query, one in sorted(self.qrels.items())}
        return {
            "corpus": digest_of(sorted(item.id for item in self.corpus))[:16],
            "queries": digest_of(sorted(item.id for item in self.queries))[:16],
            "qrels": digest_of(judged)[:16],
        }

    def groups(self) -> tuple[dict[str, Mapping[str, str]], dict[str, Mapping[str, str]]]:
        """Groups by id, of the queries and of the corpus."""
        return (
            {item.id: item.groups for item in self.queries},
            {item.id: item.groups for item in self.corpus},
        )


@dataclass(frozen=True)
class Made:
    """Vectors of both sides, in the role that each direction asks for."""

    queries: Embedded
    corpus: Embedded
    queries_as_documents: Embedded
    corpus_as_queries: Embedded
    card: dict[str, Any]


def embed_sides(sides: Sides, embedder: Embedder, spec: str, folder: Path, batch_size: int) -> Made:
    """Embeds both sides; a second time in the other role if the embedder words roles differently."""

    def vectors(items: Sequence[Item], role: Role, name: str) -> Embedded:
        from vidvec_msg.retrieval.embed import embed_items

        # failures are counted over everything at the end, when the report has been written
        made: VectorsFolder = embed_items(
            items,
            embedder,
            role=role,
            out=folder / name,
            batch_size=batch_size,
            max_failures=len(items),
            spec=spec,
        )
        return Embedded(list(made.ids), np.asarray(made.matrix()), list(made.failures))

    corpus = vectors(sides.corpus, "document", "corpus")
    queries = vectors(sides.queries, "query", "queries")
    as_queries, as_documents = corpus, queries
    if embedder.card.role_prompts:
        asked = {d for d, judged in sides.backwards.items() if any(grade > 0 for grade in judged.values())}
        as_queries = vectors(
            [item for item in sides.corpus if item.id in asked], "query", "corpus_as_queries"
        )
        as_documents = vectors(sides.queries, "document", "queries_as_documents")
    check_sides({"query": queries, "corpus": corpus})
    check_sides({"corpus as query": as_queries, "query as document": as_documents})
    card = {"name": embedder.card.name, "dim": embedder.card.dim, "base_model": embedder.card.base_model}
    return Made(queries, corpus, as_documents, as_queries, {**card, "fingerprint": embedder.card.fingerprint})


def kind_of(items: Sequence[Item]) -> str:
    """What a side is made of, for labels: "video", or "video/text" for a mixed one, the commonest first."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.modality] = counts.get(item.modality, 0) + 1
    return "/".join(sorted(counts, key=lambda kind: -counts[kind]))
