"""Vectors of messages by the user's embedder, if there is one; it is loaded once, and asked once a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vidvec_msg.data_synth.diversity import Vectors
from vidvec_msg.data_synth.filters.meaning import TextVectors
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.runs import file_digest


@dataclass(slots=True)
class MessageVectors:
    """The embedder of a run.

    Args:
        spec: as ``--embedder`` takes it; None for none.
    """

    spec: str | None
    _loaded: TextVectors | None = field(init=False, default=None)

    @property
    def identity(self) -> str | None:
        """What tells the embedder from another one, found without loading it: its spec, and of a folder or
        file that the spec names the digest of its card, which holds that of its weights."""
        if self.spec is None:
            return None
        path = Path(self.spec)
        card = path / "embedder.json" if path.is_dir() else path
        return f"{self.spec} {file_digest(card)[:12]}" if card.is_file() else self.spec

    def check(self, problems: Problems) -> None:
        """Notes what is wrong with the spec, without loading the model."""
        if self.spec is None:
            return
        from vidvec_msg.embedders.readable import refuse_unreadable

        try:
            refuse_unreadable(self.spec)
        except RefusedRequest as refusal:
            problems.add(str(refusal).replace("\n", "\n  "))

    def vectors(self) -> TextVectors | None:
        """What makes vectors and keeps those of messages; the embedder is loaded on first use."""
        if self.spec is not None and self._loaded is None:
            from vidvec_msg.embedders.load import load_embedder

            self._loaded = TextVectors(load_embedder(self.spec))
        return self._loaded

    def of(self, pairs: Sequence[Pair]) -> Vectors | None:
        """``(pairs, dim)`` unit vectors of the messages; None without an embedder."""
        vectors = self.vectors()
        return None if vectors is None else vectors.of([pair.positive for pair in pairs])
