"""Which tokens mean yes and no, and how much probability they have."""

from __future__ import annotations

import logging
from typing import Any, Literal

import torch
from torch import Tensor

from vidvec_msg.embedders.answer_tokens import first_tokens, single_tokens
from vidvec_msg.errors import RefusedRequest

logger = logging.getLogger(__name__)

Forms = Literal["sum", "max"]


class YesNoTokens:
    """The tokens that begin an answer with yes, and those that begin it with no.

    A word counts in its own spelling and in lower case, bare and with a space before it, where that is one
    token. A word that is no single token in any form stands for its first token, if no other of the two
    words begins with it.

    Args:
        tokenizer: of the model.
        yes: the word for yes.
        no: the word for no.
        forms: "sum" adds the probabilities of a word's forms, "max" takes the likeliest.
        model: for messages.

    Raises:
        ValueError: a word is blank, or ``forms`` is neither.
        RefusedRequest: both words begin with the same token.
    """

    def __init__(
        self, tokenizer: Any, *, model: str, yes: str = "Yes", no: str = "No", forms: Forms = "sum"
    ) -> None:
        if not yes.strip() or not no.strip() or yes.strip().casefold() == no.strip().casefold():
            raise ValueError(f"yes and no must be two different words, got {yes!r} and {no!r}")
        if forms not in ("sum", "max"):
            raise ValueError(f"forms must be sum or max, got {forms!r}")
        self.yes, yes_begun = _tokens(tokenizer, yes.strip())
        self.no, no_begun = _tokens(tokenizer, no.strip())
        self.forms = forms
        lacking = [word for word, found in ((yes, self.yes), (no, self.no)) if not found]
        if lacking or set(self.yes) & set(self.no):
            reason = (
                f"cannot write {' and '.join(lacking)}"
                if lacking
                else f"begins {yes!r} and {no!r} with the same token, so an answer's first token does not "
                "tell them apart"
            )
            raise RefusedRequest(
                f"the vocabulary of model {model} {reason}. Give two words that are one token each: yes= "
                "and no= in the spec"
            )
        for word, begun, found in ((yes, yes_begun, self.yes), (no, no_begun, self.no)):
            if begun:
                logger.warning(
                    "%s: %r is several tokens; its first (%s) stands for it, which other words may begin "
                    "with too",
                    model,
                    word,
                    ", ".join(repr(tokenizer.decode([token])) for token in found),
                )

    def log_probabilities(self, logits: Tensor) -> list[tuple[float, float]]:
        """Logarithms of the probabilities of yes and of no, by the softmax over the whole vocabulary.

        Args:
            logits: ``(pairs, vocabulary)`` at the answer's first position.
        """
        logs = torch.log_softmax(logits.double(), dim=-1)  # in float32 pairs that are sure tie
        join = torch.logsumexp if self.forms == "sum" else torch.amax
        both = torch.stack([join(logs[:, self.yes], dim=1), join(logs[:, self.no], dim=1)], dim=1)
        return [(yes, no) for yes, no in both.tolist()]  # (pairs, 2)


def _tokens(tokenizer: Any, word: str) -> tuple[list[int], bool]:
    """Ids of a word, and whether they are only its beginnings."""
    words = dict.fromkeys((word, word.lower()))
    single = {token for one in words for token in single_tokens(tokenizer, one, any_case=True)}
    if single:
        return sorted(single), False
    return first_tokens(tokenizer, words), True
