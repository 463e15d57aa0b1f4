"""Whether a text uses the message's own words: what no model has to be asked."""

from __future__ import annotations

from itertools import pairwise

from vidvec_msg.data_synth.filters.words import FUNCTION_WORDS, content_stems, stem, stems_of, words_of

SHARE = 0.25
"""Of the message's content words that a query may use: one of a message of four, and never two in a row."""


def disclosed_words(message: str, text: str, share: float = SHARE) -> list[str]:
    """The message's content words that a text uses, if they are more than it may; empty if not.

    Words are compared by their stems, so that "saving" discloses "saved". Two content words that follow each
    other in the message must not follow each other in the text, whatever the share.

    Args:
        message: that must not be given away.
        text: a query, or a story.
        share: of the message's content words that may be used.
    """
    content = content_stems(words_of(message))
    said = words_of(text)
    stems = set(stems_of(said))
    shared = [word for word in content if word in stems]
    if not shared:
        return []
    words = {stem(word): word for word in words_of(message)}
    if len(shared) > share * len(content):
        return [words[one] for one in shared]
    neighbours = {
        (stem(one), stem(other))
        for one, other in pairwise(words_of(message))
        if one not in FUNCTION_WORDS and other not in FUNCTION_WORDS
    }
    runs = [pair for pair in pairwise(stems_of(said)) if pair in neighbours]
    return [words[one] for one in dict.fromkeys(part for pair in runs for part in pair)]
