"""What a persona is, in one word: the nurse of "a retired nurse in Leeds who keeps bees"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from vidvec_msg.data_synth.filters.words import FUNCTION_WORDS, GENERIC_PEOPLE, PERSONA_ENDS

_TOKEN = re.compile(r"[\w'’-]+|[,;:.()]")
_ARTICLES = ("a", "an", "the", "one", "this", "my", "our", "very")


@lru_cache(maxsize=4_096)
def profession_of(persona: str) -> str:
    """The noun that says what a persona is; empty where it says nothing particular ("a mother of two").

    It is the last word of the first phrase: what stands before the first function word, comma or participle
    that opens another ("turned", "based", "struggling"), after an article.
    """
    phrase: list[str] = []
    for token in _TOKEN.findall(persona.casefold().replace("’", "'")):
        if not phrase and token in _ARTICLES:
            continue
        if token in FUNCTION_WORDS or token in PERSONA_ENDS or not token[0].isalnum():
            break
        phrase.append(token)
    noun = phrase[-1].removesuffix("'s").rpartition("-")[2] if phrase else ""
    return "" if len(noun) < 3 or noun in GENERIC_PEOPLE else noun


def plural_of(noun: str) -> str:
    """Of a noun for people: nurses, secretaries, coaches, firemen."""
    if noun.endswith("man"):
        return f"{noun[:-2]}en"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def named_in(noun: str, message: Sequence[str], storyline: Sequence[str]) -> str:
    """Where somebody of that profession appears: "message", "storyline", or empty.

    Words are compared as they stand: by their stems a driver would be found in every drive. One persona is
    one person, so a storyline may show drivers; a message that speaks of drivers is the persona's own.

    Args:
        noun: from :func:`profession_of`.
        message: its words.
        storyline: its words.
    """
    one = {noun, f"{noun}'s"}
    if not one.isdisjoint(storyline):
        return "storyline"
    plural = plural_of(noun)
    return "" if one.isdisjoint(message) and {plural, f"{plural}'"}.isdisjoint(message) else "message"
