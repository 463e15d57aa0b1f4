"""Which option a written answer means: a strict reading, so that nothing is guessed."""

from __future__ import annotations

import re

from vidvec_msg.retrieval.mcq.question import Question

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)  # reasoning that some models write first
_PREFIX = re.compile(
    r"^(?:(?:the|my)\s+)?(?:(?:right|correct|best|final)\s+)?(?:answer|option|choice)"
    r"(?:\s+(?:is|would\s+be))?\s*[:\-]?\s*(?:option\s+)?",
    re.IGNORECASE,
)
_LETTER = re.compile(r"^[(\[{*\"'`]*([A-Za-z])[)\]}*\"'`.:,]*(?:\s+(.*))?$", re.DOTALL)
_EDGES = " \t\n\"'`*().[]{}:"


def option_meant(written: str, question: Question) -> int | None:
    """The position of the option that an answer names; None if it does not name exactly one.

    Read are: a letter (``B``, ``b``, ``(B)``, ``**B**``, ``Answer: B.``), a letter with its own option's text
    (``B. Patience pays``), and an option's whole text. A letter within a sentence, two letters, a letter that
    no option has, and a letter beside another option's text are not.

    Args:
        written: what the model wrote.
        question: what it was asked.
    """
    text = _THOUGHT.sub("", written).strip()
    texts = [_plain(option.text) for option in question.options]
    if _plain(text) in texts:  # first: an option may be a single letter itself
        place = texts.index(_plain(text))
        return place if texts.count(_plain(text)) == 1 and not _contradicted(text, place, question) else None
    found = _LETTER.match(_PREFIX.sub("", text, count=1))
    if found is None or found[1].upper() not in question.letters:
        return None
    place = question.letters.index(found[1].upper())
    return place if not found[2] or _plain(found[2]) == texts[place] else None


def _contradicted(text: str, place: int, question: Question) -> bool:
    """Whether the text is also the letter of another option: nobody knows which one is meant."""
    letter = text.strip(_EDGES).upper()
    return len(letter) == 1 and letter in question.letters and question.letters.index(letter) != place


def _plain(text: str) -> str:
    return " ".join(text.strip(_EDGES).split()).casefold()
