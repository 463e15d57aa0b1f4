"""English words: function words, stems, and which words can be filmed. Lists of our own, no model.

The stemmer cuts inflections and the commonest endings; it is no Porter stemmer and need not be, since stems
are compared with stems and never shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vidvec_msg.retrieval.near_texts import ascii_words

_LISTS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "english.yaml").read_text("utf-8"))

FUNCTION_WORDS = frozenset(_LISTS["function"].split())
OTHER_LANGUAGES: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _LISTS["other_languages"].items()
}

_IRREGULAR: Mapping[str, str] = dict(entry.split("=") for entry in _LISTS["irregular"].split())
_WORD = re.compile(r"\w+(?:'\w+)?")
_REMEMBERED = 500_000  # words; some 60 MB
_VOWEL = re.compile(r"[aeiouy]")
_ENDINGS = (
    "fulness", "ousness", "iveness", "ational", "ization", "ness", "ment", "ing", "edly", "ed", "ly", "er",
    "est", "ers",
)  # fmt: skip


def words_of(text: str) -> list[str]:
    """Words without case and punctuation; an apostrophe inside a word stays, as the plain one."""
    plain = ascii_words(text, apostrophes=True)
    if plain is None:
        return _WORD.findall(text.casefold().replace("’", "'"))
    if "'" not in text and "’" not in text:
        return plain
    for place in [place for place, word in enumerate(plain) if "'" in word][::-1]:
        plain[place : place + 1] = _WORD.findall(plain[place])
    return plain


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 3:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and _VOWEL.search(word[: -len(ending)]):
            word = word[: -len(ending)]
            break
    if word.endswith("i") and len(word) > 3:
        word = word[:-1] + "y"
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]  # running → runn → run
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


class _Stems(dict[str, str]):
    """Stems by word, found once each: a look-up where a cached function would be a call."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[word] = found = _stem(word)
        return found


_STEMS = _Stems()


def stem(word: str) -> str:
    """A word without its inflection: "carrying", "carried", "carries" and "carry" are one."""
    return _STEMS[word]


def stems_of(words: Sequence[str]) -> list[str]:
    """One stem a word."""
    return list(map(_STEMS.__getitem__, words))


def content_stems(words: Iterable[str], *, shortest: int = 3) -> list[str]:
    """Distinct stems of the words that carry meaning, in order.

    Args:
        words: without case.
        shortest: characters that a content word has at least.
    """
    stems = [_STEMS[word] for word in words if word not in FUNCTION_WORDS and len(word) >= shortest]
    return list(dict.fromkeys(stems))


GENERIC_PEOPLE = frozenset(_LISTS["generic_people"].split())
"""Words for people that name no profession: a mother, a student, a worker."""

PERSONA_ENDS = frozenset(_LISTS["persona_ends"].split())
"""Words after which a persona's first phrase is over: "a doctor turned poet"."""

CONCRETE_STEMS = frozenset(stem(word) for word in _LISTS["concrete"].split())
ABSTRACT_STEMS = frozenset(stem(word) for word in _LISTS["abstract"].split()) - CONCRETE_STEMS
