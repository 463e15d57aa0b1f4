"""Which token of a vocabulary is the letter of an option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vidvec_msg.embedders.answer_tokens import single_tokens
from vidvec_msg.errors import RefusedRequest


class LetterTokens:
    """The tokens that begin an answer with a letter: the letter itself, and the one with a space before it.

    Args:
        tokenizer: of the model.
        letters: that are needed.
        model: for the message.

    Raises:
        RefusedRequest: the vocabulary has no single token for a letter, or one for two of them.
    """

    def __init__(self, tokenizer: Any, letters: str, *, model: str) -> None:
        self.of = {letter: single_tokens(tokenizer, letter) for letter in letters}
        lacking = [letter for letter, tokens in self.of.items() if not tokens]
        every = [token for tokens in self.of.values() for token in tokens]
        if lacking or len(set(every)) < len(every):
            raise RefusedRequest(
                f"model {model}: its vocabulary has no token of its own for the letters "
                f"{', '.join(lacking or letters)}, so their likelihood cannot be read; use read=generate"
            )

    def log_likelihoods(self, logits: Tensor, letters: Sequence[str]) -> tuple[tuple[float, ...], float]:
        """Of each letter, the logarithm of the probability that the answer begins with it.

        Args:
            logits: ``(vocabulary,)`` at the answer's first position.
            letters: of the question's options.

        Returns:
            a value per letter, and the probability of all of them together.
        """
        logs = torch.log_softmax(logits.float(), dim=-1)  # float32: in bfloat16 letters tie
        values = tuple(float(torch.logsumexp(logs[self.of[letter]], dim=0)) for letter in letters)
        return values, float(torch.tensor(values).exp().sum())
