"""Filters that compare meanings by any embedder's vectors: messages repeated, and messages said outright."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from vidvec_msg.data_synth.filters.contract import Reason
from vidvec_msg.data_synth.filters.duplicates import first_stays
from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.errors import ItemError
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.near_texts import NearPair

_SENTENCE = re.compile(r"(?<=[.!?…;])\s+")
_BLOCK = 2_048  # rows of the similarity matrix at once: 70,000 columns of float32 are 570 MB
_BATCH = 1_024  # texts per call of the embedder


class TextVectors:
    """Vectors of texts by an embedder; those of texts that come back are made once.

    Args:
        embedder: any.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._rows: dict[str, int] = {}
        self._vectors: Vectors | None = None  # (distinct texts, dim)

    def of(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors ``(texts, dim)``, kept: for messages, which every step looks at."""
        new = list(dict.fromkeys(text for text in texts if text not in self._rows))
        if new or self._vectors is None:
            known = [] if self._vectors is None else [self._vectors]
            self._rows |= {text: row for row, text in enumerate(new, start=len(self._rows))}
            self._vectors = np.concatenate([*known, vectors_of(new, self.embedder)])
        return self._vectors[[self._rows[text] for text in texts]]

    def once(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors ``(texts, dim)``, not kept: for sentences, which are many."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        return vectors_of(list(rows), self.embedder)[[rows[text] for text in texts]]

    @classmethod
    def by(cls, embedder: Embedder | TextVectors) -> TextVectors:
        """Those that are there already, or new ones."""
        return embedder if isinstance(embedder, TextVectors) else cls(embedder)


class MessageMeanings:
    """Rejects messages that mean what an earlier one means.

    Args:
        embedder: any, or the vectors that it made so far.
        cosine: from which the later of two messages goes. 0.9 is what PersonaHub's authors took for personas;
            look at what goes with your embedder, whose scale is its own.
    """

    name = "message_meanings"

    def __init__(self, embedder: Embedder | TextVectors, cosine: float = 0.9) -> None:
        self.vectors, self.cosine = TextVectors.by(embedder), cosine

    def reasons(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        """Why each pair is rejected."""
        messages = [pair.positive for pair in pairs]
        result: list[Reason | None] = [None] * len(pairs)
        found = near_vectors(self.vectors.of(messages), self.cosine)
        for row, pair in first_stays(found).items():
            like = f"cosine {pair.likeness:.2f} with {messages[pair.one][:80]!r}"
            result[row] = Reason("message means the same", like)
        return result


class StatedMeaning:
    """Rejects storylines of which a sentence means what the message says.

    Args:
        embedder: any, or the vectors that it made so far.
        cosine: of the message and the nearest sentence, from which the pair is rejected. By MiniLM the
            highest of 75 of the pairs in data/ is 0.42.
    """

    name = "stated_meaning"

    def __init__(self, embedder: Embedder | TextVectors, cosine: float = 0.65) -> None:
        self.vectors, self.cosine = TextVectors.by(embedder), cosine

    def reasons(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        """Why each pair is rejected."""
        result: list[Reason | None] = []
        for start in range(0, len(pairs), _BATCH):  # sentences are many: their vectors are not kept
            result += self._of_some(pairs[start : start + _BATCH])
        return result

    def _of_some(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        sentences = [[one for one in _SENTENCE.split(pair.anchor) if one.strip()] for pair in pairs]
        texts = [sentence for some in sentences for sentence in some]
        of_sentences = self.vectors.once(texts)
        of_messages = self.vectors.of([pair.positive for pair in pairs])
        result: list[Reason | None] = []
        begin = 0
        for row, some in enumerate(sentences):
            cosines = of_sentences[begin : begin + len(some)] @ of_messages[row]  # (sentences,)
            begin += len(some)
            best = int(np.argmax(cosines))
            said = float(cosines[best]) >= self.cosine
            told = f"cosine {cosines[best]:.2f} with {some[best][:100]!r}"
            result.append(Reason("a sentence means the message", told) if said else None)
        return result


def vectors_of(texts: Sequence[str], embedder: Embedder, *, role: Role = "query") -> Vectors:
    """Unit vectors (texts, dim); a text that cannot be embedded has zeros, and is near nothing."""
    result = np.zeros((len(texts), embedder.card.dim), np.float32)
    for start in range(0, len(texts), _BATCH):
        items = [Item(str(row), text=texts[row]) for row in range(start, min(start + _BATCH, len(texts)))]
        while items:
            try:
                result[[int(item.id) for item in items]] = embedder.encode(items, role=role)
                break
            except ItemError as error:
                bad = {failure.item for failure in error.failures}
                items = [item for item in items if item.id not in bad]
    return result


def near_vectors(vectors: Vectors, least: float) -> list[NearPair]:
    """Pairs of rows whose cosine is at least so much, in order.

    Args:
        vectors: ``(rows, dim)`` of norm 1.
        least: cosine.
    """
    found: list[NearPair] = []
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK] @ vectors[start:].T  # (block, rows from start)
        ones, others = np.nonzero(block >= least)
        for one, other in zip(ones.tolist(), others.tolist(), strict=True):
            if one < other:
                found.append(NearPair(start + one, start + other, float(block[one, other])))
    return found
