"""A storyline is a caption of what can be seen, not an essay about it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vidvec_msg.data_synth.filters.contract import Draft, Reason
from vidvec_msg.data_synth.filters.watched import Watched
from vidvec_msg.data_synth.filters.words import ABSTRACT_STEMS, CONCRETE_STEMS, stems_of, words_of

_SHOWS = (
    r"(?:shows? (?:us )?(?:that|how|why)|teaches|reminds|symboli[sz]es|represents|suggests|conveys|"
    r"illustrates|highlights|underscores|speaks|is about)"
)
_MEANT = ("message", "moral", "lesson", "meaning", "point", "takeaway")
_SHOWN = ("clip", "video", "scene", "image", "moment", "story", "gesture", "film")
EXPLAINS: Mapping[str, str] = {
    rf"\bthe (?:{'|'.join(_MEANT)}) (?:is|here|of)\b": " ".join(_MEANT),
    rf"\b(?:this|the|that) (?:{'|'.join(_SHOWN)}) (?:\w+ )?{_SHOWS}": " ".join(_SHOWN),
    r"\bsymboli[sz](?:es|ing)\b": "symbolises symbolizes symbolising symbolizing",
    r"\b(?:serves|stands) as a (?:reminder|metaphor|symbol|testament)": "serves stands",
    r"\ba metaphor (?:for|of)\b": "metaphor",
    r"\ba symbol (?:for|of)\b": "symbol",
    r"\breminding (?:us|viewers|the viewer|everyone)\b": "reminding",
    r"\bconveying (?:the|a|that)\b": "conveying",
    r"\bimplying (?:the|a|that)\b": "implying",
    r"\bas if to say\b": "say",
    r"\bviewers? (?:realis|realiz|understand|learn|see that|come to)": "viewer viewers",
    r"\bwe (?:realis|realiz|understand|learn|are reminded|are left|come to)": "we",
}
_EXPLAINS = Watched(EXPLAINS)
_MORAL = re.compile(
    r"\b(?:sometimes|in the end|after all|ultimately|because|true|real|always|never|life|love|people|we|us"
    r"|our)\b.{0,80}?\b(?:is|are|isn't|aren't|means|matters?|never|always|makes?|becomes?)\b",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[\"'”’)\]]*\s+")  # behind the end of one sentence, before the next
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
        if found := _EXPLAINS.first(draft.storyline, draft.words):
            return Reason("storyline explains", repr(found))
        stems = draft.storyline_stems
        if not stems:
            return Reason("storyline without words")
        abstract = sum(map(stems.count, draft.storyline_stem_set & ABSTRACT_STEMS))
        if abstract > self.abstract * len(stems):
            named = ", ".join(dict.fromkeys(filter(ABSTRACT_STEMS.__contains__, stems)))
            return Reason("storyline abstract", f"{abstract} of {len(stems)} words: {named}")
        least = self.concrete * len(stems)
        # distinct ones are enough of them nearly always, and found faster than all
        if len(draft.storyline_stem_set & CONCRETE_STEMS) < least and (
            (seen := sum(map(CONCRETE_STEMS.__contains__, stems))) < least
        ):
            return Reason("storyline shows little", f"{seen} of {len(stems)} words can be filmed")
        last = last_sentence(draft.storyline.strip())
        if _MORAL.search(last) and _concrete_words(last) <= _EVIDENCE:
            return Reason("storyline ends on a moral", repr(last[:100]))
        return None


def last_sentence(text: str) -> str:
    """What stands behind the last end of a sentence that something follows."""
    end = len(text)
    while (end := max(text.rfind(mark, 0, end) for mark in ".!?…")) >= 0:
        if space := _BETWEEN.match(text, end + 1):
            return text[space.end() :]
    return text


def _concrete_words(sentence: str) -> int:
    return sum(word in CONCRETE_STEMS for word in stems_of(words_of(sentence)))
