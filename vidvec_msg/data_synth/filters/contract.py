"""What a filter is: a name and a function that gives a reason or nothing.

Two shapes: one looks at a pair alone, the other at all that are left. No base class, no registration; the
table of those that have options stands in :mod:`vidvec_msg.data_synth.filters.chain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
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

    Args:
        pair: anchor (storyline), positive (message), and the persona in its provenance.
    """

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.message = pair.positive
        self.storyline = pair.anchor
        persona = pair.provenance.get("persona")
        self.persona = persona if isinstance(persona, str) else ""

    @cached_property
    def message_words(self) -> list[str]:
        """Without case and punctuation."""
        return words_of(self.message)

    @cached_property
    def storyline_words(self) -> list[str]:
        """Without case and punctuation."""
        return words_of(self.storyline)

    @cached_property
    def message_stems(self) -> list[str]:
        """Of all words of the message."""
        return stems_of(self.message_words)

    @cached_property
    def storyline_stems(self) -> list[str]:
        """Of all words of the storyline."""
        return stems_of(self.storyline_words)

    @cached_property
    def storyline_stem_set(self) -> frozenset[str]:
        """Distinct stems of the storyline."""
        return frozenset(self.storyline_stems)

    @cached_property
    def message_content(self) -> list[str]:
        """Distinct stems of the message's content words, in order."""
        return content_stems(self.message_words)

    @cached_property
    def persona_content(self) -> list[str]:
        """Distinct stems of the persona's content words, in order."""
        return content_stems(words_of(self.persona))


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
