"""Messages that the storyline says outright: shared content words, and shared runs of words."""

from __future__ import annotations

from itertools import pairwise

from vidvec_msg.data_synth.filters.contract import Draft, Reason
from vidvec_msg.data_synth.filters.profession import named_in, profession_of
from vidvec_msg.data_synth.filters.words import FUNCTION_WORDS, stem, words_of

_OF_ANYBODY = frozenset({"year", "years", "old", "aged"})  # of "a forty-year-old notary"


class Stated:
    """Rejects pairs whose storyline uses the message's own words. Words are compared by their stems.

    Args:
        share: of the message's content words that may stand in the storyline; above, the pair is rejected.
        least: content words that must be shared for that: one shared word is half of a short message.
        run: consecutive words of the message that must not stand in the storyline in the same order; runs
            without a content word do not count. 0 looks at no runs.

    Raises:
        ValueError: an option out of its range.
    """

    name = "stated"

    def __init__(self, share: float = 0.4, least: int = 2, run: int = 4) -> None:
        if not 0 <= share <= 1 or least < 1 or run < 0:
            raise ValueError(
                f"share is {share}, least {least} and run {run}; share lies between 0 and 1, least is at "
                "least 1, run at least 0"
            )
        self.share, self.least, self.run = share, least, run

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        content = draft.message_content
        shared = [word for word in content if word in draft.storyline_stem_set]
        if len(shared) >= self.least and len(shared) > self.share * len(content):
            return Reason(
                "message's words in the storyline", f"{len(shared)} of {len(content)}: {', '.join(shared)}"
            )
        if self.run and (found := self._run(draft)):
            return Reason("run of the message in the storyline", repr(found))
        return None

    def _run(self, draft: Draft) -> str:
        size = self.run
        message = draft.message_stems
        shown = list(map(draft.storyline_stem_set.__contains__, message))
        starts = [start for start in range(len(message) - size + 1) if all(shown[start : start + size])]
        if not starts:
            return ""
        told = f" {' '.join(draft.storyline_stems)} "
        for start in starts:
            if f" {' '.join(message[start : start + size])} " in told:
                words = draft.message_words[start : start + size]
                if any(word not in FUNCTION_WORDS for word in words):
                    return " ".join(words)
        return ""


class PersonaLeak:
    """Rejects pairs in which the persona appears: it should decide what comes to mind and not be depicted.

    Pairs without a persona pass.

    Args:
        share: of the persona's content words that may stand in message and storyline together.
        least: content words that must be shared for that.
        neighbours: whether two neighbouring content words of the persona ("tram conductor") are enough.
        profession: whether what the persona is (the conductor) is enough, alone: one in either text, several
            in the message.

    Raises:
        ValueError: an option out of its range.
    """

    name = "persona"

    def __init__(
        self, share: float = 0.4, least: int = 2, neighbours: bool = True, profession: bool = True
    ) -> None:
        if not 0 <= share <= 1 or least < 1:
            raise ValueError(
                f"share is {share} and least {least}; share lies between 0 and 1, least is at least 1"
            )
        self.share, self.least, self.neighbours, self.profession = share, least, neighbours, profession

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        content = [word for word in draft.persona_content if word not in _OF_ANYBODY]
        if not content:
            return None
        shown, said = draft.storyline_stem_set, draft.message_stems
        shared = [word for word in content if word in shown or word in said]
        if len(shared) >= min(self.least, len(content)) and len(shared) > self.share * len(content):
            return Reason(
                "persona in the texts", f"{len(shared)} of {len(content)} words: {', '.join(shared)}"
            )
        if self.neighbours and len(shared) >= 2 and (found := self._neighbours(draft)):
            return Reason("persona in the texts", f"its words {found!r}")
        if self.profession and (noun := profession_of(draft.persona)):
            place = named_in(noun, draft.message_words, draft.storyline_words)
            if place:
                return Reason("persona in the texts", f"its profession {noun!r} in the {place}")
        return None

    def _neighbours(self, draft: Draft) -> str:
        words = words_of(draft.persona)
        said = FUNCTION_WORDS | _OF_ANYBODY
        wanted = {
            (stem(one), stem(other)): f"{one} {other}"
            for one, other in pairwise(words)
            if one not in said and other not in said
        }
        for stems in (draft.storyline_stems, draft.message_stems):
            for pair in pairwise(stems):
                if pair in wanted:
                    return wanted[pair]
        return ""
