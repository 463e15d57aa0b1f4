"""A storyline is a caption of what can be seen, not an essay about it."""

from __future__ import annotations

import re

from vidvec_msg.data_synth.filters.contract import Draft, Reason
from vidvec_msg.data_synth.filters.watched import Watched
from vidvec_msg.data_synth.filters.words import ABSTRACT_STEMS, CONCRETE_STEMS, stems_of, words_of

_SHOWS = (
    r"(?:shows? (?:us )?(?:that|how|why)|teaches|reminds|symboli[sz]es|represents|suggests|conveys|"
    r"illustrates|highlights|underscores|speaks|is about)"
)
_EXPLAINS = Watched(
    {
        **{
            rf"\bthe {what} (?:is|here|of)\b": f"the {what} "
            for what in ("message", "moral", "lesson", "meaning", "point", "takeaway")
        },
        **{
            rf"\b(?:this|the|that) {what} (?:\w+ )?{_SHOWS}": f" {what}"
            for what in ("clip", "video", "scene", "image", "moment", "story", "gesture", "film")
        },
        r"\bsymboli[sz](?:es|ing)\b": "symboli",
        r"\b(?:serves|stands) as a (?:reminder|metaphor|symbol|testament)": "as a",
        r"\ba metaphor (?:for|of)\b": "a metaphor",
        r"\ba symbol (?:for|of)\b": "a symbol",
        r"\breminding (?:us|viewers|the viewer|everyone)\b": "reminding",
        r"\bconveying (?:the|a|that)\b": "conveying",
        r"\bimplying (?:the|a|that)\b": "implying",
        r"\bas if to say\b": "as if to say",
        r"\bviewers? (?:realis|realiz|understand|learn|see that|come to)": "viewer",
        r"\bwe (?:realis|realiz|understand|learn|are reminded|are left|come to)": "we ",
    }
)
_MORAL = re.compile(
    r"\b(?:sometimes|in the end|after all|ultimately|because|true|real|always|never|life|love|people|we|us"
    r"|our)\b.{0,80}?\b(?:is|are|isn't|aren't|means|matters?|never|always|makes?|becomes?)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+")
_EVIDENCE = 1  # concrete words that a moral may hold; a sentence with more shows something


class Density:
    """Rejects storylines that explain, that end on a moral, or that hold little to see.

    Args:
        concrete: least share of words that can be filmed, by a list of some 500 words; the rest of a good
            caption are names, function words and things that no list has.
        abstract: largest share of words that can only be meant.

    Raises:
        ValueError: an option out of its range.
    """

    name = "density"

    def __init__(self, concrete: float = 0.1, abstract: float = 0.06) -> None:
        if not 0 <= concrete <= 1 or not 0 <= abstract <= 1:
            raise ValueError(f"concrete is {concrete} and abstract {abstract}; both lie between 0 and 1")
        self.concrete, self.abstract = concrete, abstract

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        if found := _EXPLAINS.first(draft.storyline):
            return Reason("storyline explains", repr(found))
        stems = draft.storyline_stems
        if not stems:
            return Reason("storyline without words")
        abstract = [word for word in stems if word in ABSTRACT_STEMS]
        if len(abstract) > self.abstract * len(stems):
            named = ", ".join(dict.fromkeys(abstract))
            return Reason("storyline abstract", f"{len(abstract)} of {len(stems)} words: {named}")
        seen = len([word for word in stems if word in CONCRETE_STEMS])
        if seen < self.concrete * len(stems):
            return Reason("storyline shows little", f"{seen} of {len(stems)} words can be filmed")
        last = _SENTENCE.split(draft.storyline.strip())[-1]
        if _MORAL.search(last) and _concrete_words(last) <= _EVIDENCE:
            return Reason("storyline ends on a moral", repr(last[:100]))
        return None


def _concrete_words(sentence: str) -> int:
    return sum(word in CONCRETE_STEMS for word in stems_of(words_of(sentence)))
