"""Texts → vectors with the language model alone, while it trains and in between."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.check import unit_vectors
from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.embedders.language_model import hidden_state
from vidvec_msg.embedders.padding import needs_mask
from vidvec_msg.embedders.pooling import FINAL, last_token
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item
from vidvec_msg.train.batches import Passage, Tokenise, Tokens, pad


@dataclass(frozen=True, slots=True)
class ChatTexts:
    """A text's tokens under a prompt; travels into DataLoader workers.

    Args:
        chat: the model's chat template and tokenizer.
        prompt: wording around a text.
        max_tokens: longer content is cut, the prompt never.
    """

    chat: Chat
    prompt: PromptTemplate
    max_tokens: int

    def __call__(self, text: str) -> Tokens:
        """The tokens, chat template and generation prompt included."""
        turn = self.chat.text_turn(self.prompt, text, max_tokens=self.max_tokens)
        return Tokens(turn.ids, turn.cut)

    def needed(self, texts: Iterable[str]) -> int:
        """The ``max_tokens`` under which none of some texts is cut, prompt included.

        Tried out on the longest 100 of them, in bytes: all of a large set would take minutes.
        """
        longest = nlargest(100, set(texts), key=lambda text: len(text.encode()))
        uncut = replace(self, max_tokens=sys.maxsize)
        return max(len(uncut(text).ids) for text in longest)


def encode(tower: nn.Module, passage: Passage, *, layer: int) -> Tensor:
    """Unit vectors ``(texts, dim)`` in float32, with gradients: the state of each text's last token.

    Args:
        tower: the language model, with or without an adapter.
        passage: the texts.
        layer: state that is read; -1 the normed final one.
    """
    return normalize(last_states(tower, passage, layer=layer), dim=-1)


def last_states(tower: nn.Module, passage: Passage, *, layer: int, masked: bool = True) -> Tensor:
    """What :func:`encode` brings to norm 1: ``(texts, dim)`` in float32, with gradients.

    Args:
        tower: as there, like the next two.
        passage: the texts.
        layer: state that is read.
        masked: tell the tower of the padding; see :func:`reads_padding`.
    """
    mask = passage.attention_mask
    hidden = hidden_state(tower, passage.input_ids, mask if masked else None, layer=layer)
    # hidden: (texts, tokens, dim)
    return last_token(hidden, mask).float()  # (texts, dim)


def reads_padding(tower: Any, tokenise: Tokenise) -> bool:
    """Whether a tower has to be told of the padding on the right of a text. Causal ones never look there.

    Tried out on two texts and the first two blocks: what attention sees does not change further up.
    """
    short, long = tokenise("a").ids, tokenise("the quick brown fox jumps over the lazy dog").ids
    passage = pad([short, long])
    where = next(tower.parameters()).device
    inputs = {
        "input_ids": passage.input_ids.to(where),
        "attention_mask": passage.attention_mask.to(where),
    }
    blocks = tower.layers
    tower.layers = blocks[:2]
    try:
        return needs_mask(tower, inputs)
    finally:
        tower.layers = blocks


class TowerEmbedder:
    """An embedder over the language model as it stands, for items that are text.

    Args:
        tower: the language model, with an adapter.
        tokenise: a text's tokens.
        card: what it is; its layer is read.
        batch_size: texts encoded together.
    """

    def __init__(
        self, tower: nn.Module, tokenise: Tokenise, card: EmbedderCard, *, batch_size: int = 32
    ) -> None:
        self.tower = tower
        self.tokenise = tokenise
        self.card = card
        self.batch_size = batch_size

    @torch.no_grad()
    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """See :class:`vidvec_msg.embedders.contract.Embedder`. Leaves the tower's training mode as it was."""
        failures = [Failure(item.id, "no text in it") for item in items if not item.full_text]
        if failures:
            raise ItemError(failures)
        ids = [self.tokenise(item.full_text).ids for item in items]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        device = next(self.tower.parameters()).device
        vectors = torch.empty(len(items), self.card.dim)  # (items, dim)
        layer = FINAL if self.card.layer is None else self.card.layer
        training = self.tower.training
        self.tower.eval()
        try:
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                passage = pad([ids[row] for row in rows])
                passage = Passage(passage.input_ids.to(device), passage.attention_mask.to(device))
                vectors[rows] = encode(self.tower, passage, layer=layer).cpu()
        finally:
            self.tower.train(training)
        return unit_vectors(vectors.numpy(), items)
