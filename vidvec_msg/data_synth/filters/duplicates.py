"""Messages and storylines that were written already: of two alike, the first one stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vidvec_msg.data_synth.filters.contract import Reason
from vidvec_msg.data_synth.filters.words import content_stems, stems_of, words_of
from vidvec_msg.data_synth.near_sets import near_sets
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.near_texts import NearPair, near_pairs


class MessageDuplicates:
    """Rejects messages of the same words as an earlier one, or of nearly the same.

    Args:
        likeness: shared stems over all stems of two messages, from which the later one goes; above 1 only
            messages of the same words do.

    Raises:
        ValueError: an option out of its range.
    """

    name = "message_duplicates"

    def __init__(self, likeness: float = 0.8) -> None:
        if likeness <= 0:
            raise ValueError(f"likeness is {likeness}; it must be above 0")
        self.likeness = likeness

    def reasons(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        """Why each pair is rejected."""
        messages = [pair.positive for pair in pairs]
        found = _repeated([" ".join(words_of(message)) for message in messages])
        if self.likeness <= 1:
            found += near_sets([stem_set(text) for text in messages], least=self.likeness)
        return _reasons(found, messages, "message")


class StorylineDuplicates:
    """Rejects storylines that repeat an earlier one, or nearly.

    Args:
        likeness: shared word triples over all word triples, from which the later one goes. Two storylines of
            one template ("Time-lapse of one evening in …") share far fewer.

    Raises:
        ValueError: an option out of its range.
    """

    name = "storyline_duplicates"

    def __init__(self, likeness: float = 0.5) -> None:
        if not 0 < likeness <= 1:
            raise ValueError(f"likeness is {likeness}; it lies above 0 and is at most 1")
        self.likeness = likeness

    def reasons(self, pairs: Sequence[Pair]) -> list[Reason | None]:
        """Why each pair is rejected."""
        texts = [pair.anchor for pair in pairs]
        return _reasons(near_pairs(texts, least=self.likeness), texts, "storyline")


def stem_set(message: str) -> frozenset[str]:
    """A message's stems: of its content words, or of all where it has hardly any."""
    words = words_of(message)
    content = content_stems(words)
    return frozenset(content if len(content) >= 3 else stems_of(words))


def first_stays(found: Iterable[NearPair]) -> dict[int, NearPair]:
    """Rows that go, each with the pair that says so: near an earlier one that stays."""
    gone: dict[int, NearPair] = {}
    for pair in sorted(found):
        if pair.one not in gone and pair.other not in gone:
            gone[pair.other] = pair
    return gone


def _repeated(texts: Sequence[str]) -> list[NearPair]:
    first: dict[str, int] = {}
    return [
        NearPair(first[text], row, 1.0)
        for row, text in enumerate(texts)
        if first.setdefault(text, row) != row
    ]


def _reasons(found: Iterable[NearPair], texts: Sequence[str], what: str) -> list[Reason | None]:
    result: list[Reason | None] = [None] * len(texts)
    for row, pair in first_stays(found).items():
        same = " ".join(words_of(texts[row])) == " ".join(words_of(texts[pair.one]))
        kind = f"{what} repeated" if same else f"{what} nearly repeated"
        result[row] = Reason(kind, f"{pair.likeness:.2f} like {texts[pair.one][:80]!r}")
    return result
