"""Texts in another language than asked for: by script, and by function words where scripts are shared."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from vidvec_msg.data_synth.filters.contract import Draft, Reason
from vidvec_msg.data_synth.filters.words import FUNCTION_WORDS, OTHER_LANGUAGES, words_of

_SCRIPTS = {
    "ARABIC": "ar", "GREEK": "el", "HEBREW": "he", "DEVANAGARI": "hi", "HIRAGANA": "ja", "KATAKANA": "ja",
    "HANGUL": "ko", "CYRILLIC": "ru", "THAI": "th", "CJK": "zh",
}  # fmt: skip
LANGUAGES = ("en", *OTHER_LANGUAGES, *sorted(set(_SCRIPTS.values())))
_LATIN_END = "\u0250"  # first letter beyond Latin with its accents
_LEAST = 6  # words from which function words say anything
_PLENTY = 0.15  # share of function words that every text of a language has


class Language:
    """Rejects pairs of which a text is in another language. A text that is too short to tell passes.

    Args:
        language: two letters, one of :data:`LANGUAGES`.

    Raises:
        ValueError: another language.
    """

    name = "language"

    def __init__(self, language: str = "en") -> None:
        if language not in LANGUAGES:
            raise ValueError(f"language is {language!r}; known: {', '.join(LANGUAGES)}")
        self.language = language

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        for what, text, words in (
            ("storyline", draft.storyline, draft.storyline_words),
            ("message", draft.message, draft.message_words),
        ):
            found = language_of(text, words, expected=self.language)
            if found is not None and found != self.language:
                return Reason(f"{what} not in {self.language}", f"looks like {found}")
        return None


def language_of(text: str, words: Sequence[str] | None = None, *, expected: str = "en") -> str | None:
    """The language of a text among :data:`LANGUAGES`; None if that cannot be told.

    Args:
        text: any.
        words: of it, if they are known.
        expected: goes before others that are as likely.
    """
    script = _script_of(text)
    if script != "latin":
        return script
    words = words_of(text) if words is None else words
    if len(words) < _LEAST:
        return None
    known = {"en": FUNCTION_WORDS, **OTHER_LANGUAGES}
    hits = {expected: sum(map(known[expected].__contains__, words))} if expected in known else {}
    if hits and hits[expected] >= _PLENTY * len(words):
        return expected
    hits |= {language: sum(map(some.__contains__, words)) for language, some in known.items()}
    best = max(hits, key=lambda language: hits[language])  # of equal ones the first: the expected one
    return best if hits[best] >= max(2, len(words) // 10) else None


def _script_of(text: str) -> str | None:
    """The word latin, the language of another script that most letters have, or None without letters."""
    if text.isascii():
        return "latin"
    letters = [char for char in text if char.isalpha()]
    if not letters:
        return None
    if sum(char < _LATIN_END for char in letters) > len(letters) / 2:
        return "latin"
    counts = Counter(_SCRIPTS.get(re.split(r"[ -]", unicodedata.name(char, ""))[0], "") for char in letters)
    if counts["ja"]:
        counts["ja"] += counts["zh"]  # Japanese is written with both
    return counts.most_common(1)[0][0] or None
