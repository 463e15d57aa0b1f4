"""What a filter is: a name and a function that gives a reason or nothing.

Two shapes: one looks at a pair alone, the other at all that are left. No base class, no registration; the
table of those that have options stands in :mod:`vidvec_msg.data_synth.filters.chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from vidvec_msg.data_synth.filters.words import content_stems, stems_of, words_of
from vidvec_msg.formats.pairs import Pair


class Reason(NamedTuple):
    """Why a pair is rejected.

    Args:
        code: kind, for counting: "message too long".
        detail: what exactly: "23 words, at most 18".
    """

    code: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.detail else self.code


class Draft:
    """A pair while filters look at it; words and stems are found once.

    Words have no case and no punctuation; ``content`` are the distinct stems of those that carry meaning, in
    order. ``words`` are those of message and storyline, and their parts around apostrophes. ``persona`` is
    empty where the provenance names none.

    Args:
        pair: anchor (storyline), positive (message), and the persona in its provenance.
    """

    __slots__ = (
        "message", "message_content", "message_stems", "message_words", "pair", "persona", "persona_content",
        "storyline", "storyline_stem_set", "storyline_stems", "storyline_words", "words",
    )  # fmt: skip

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.message, self.storyline = pair.positive, pair.anchor
        persona = pair.provenance.get("persona")
        self.persona = persona if isinstance(persona, str) else ""
        self.message_words, self.storyline_words = words_of(self.message), words_of(self.storyline)
        self.words = {*self.message_words, *self.storyline_words}
        for text, words in ((self.message, self.message_words), (self.storyline, self.storyline_words)):
            if "'" in text or "’" in text:
                self.words.update(*[word.split("'") for word in words if "'" in word])
        self.message_stems, self.storyline_stems = (
            stems_of(self.message_words),
            stems_of(self.storyline_words),
        )
        self.storyline_stem_set = frozenset(self.storyline_stems)
        self.message_content = content_stems(self.message_words)
        self.persona_content = content_stems(words_of(self.persona))


@runtime_checkable
class DraftFilter(Protocol):
    """Looks at one pair."""

    name: str

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected; None if it is not."""
        ...


@runtime_checkable
class SetFilter(Protocol):
    """Looks at all pairs that are left."""

    name: str

    def reasons(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        """Why each pair is rejected, in the order of the pairs; of two alike the first one stays."""
        ...


Filter = DraftFilter | SetFilter
