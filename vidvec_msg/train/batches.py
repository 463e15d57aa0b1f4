"""Pairs → arrays: each distinct text once, texts of similar length together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses.pairs import PairKeys


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text as the model reads it.

    Args:
        ids: token ids, prompt and chat template included.
        cut: tokens of the text itself that did not fit.
    """

    ids: Sequence[int]
    cut: int = 0


Tokenise = Callable[[str], Tokens]

NO_TEXT = -1
"""Row of the negative that a pair does not have."""


@dataclass(slots=True)
class Passage:
    """Texts that go through the model together.

    Args:
        input_ids: int64 ``(texts, tokens)``, padded on the right.
        attention_mask: int64 ``(texts, tokens)``, 1 where a token stands.
    """

    input_ids: Tensor
    attention_mask: Tensor


@dataclass(slots=True)
class PairBatch:
    """A rank's share of a batch. Rows of texts count through the passages in order.

    Args:
        passages: the distinct texts, shortest first.
        anchors: int64 ``(pairs,)``, row of each pair's anchor among the texts.
        positives: int64 ``(pairs,)``.
        negatives: int64 ``(pairs, n)``, NO_TEXT where a pair has fewer than n.
        keys: identity of texts and groups.
        texts: the distinct texts themselves, in the order of their rows.
        names: what to call each pair in a message.
        tokens: tokens of the distinct texts, padding not counted.
        cut: distinct texts that were too long and lost their end.
        number: how many batches were given out before this one since training began.
        noise_seed: of the dropout of this batch on this rank, so that a resumed run drops the same.
    """

    passages: list[Passage]
    anchors: Tensor
    positives: Tensor
    negatives: Tensor
    keys: PairKeys
    texts: list[str]
    names: list[str]
    tokens: int
    cut: int = 0
    number: int = 0
    noise_seed: int = 0

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PairBatch:
        """The batch on another device; Lightning calls it."""
        return replace(
            self,
            passages=[
                Passage(
                    passage.input_ids.to(device, non_blocking=non_blocking),
                    passage.attention_mask.to(device, non_blocking=non_blocking),
                )
                for passage in self.passages
            ],
            anchors=self.anchors.to(device),
            positives=self.positives.to(device),
            negatives=self.negatives.to(device),
            keys=self.keys.to(device),
        )


@dataclass(frozen=True, slots=True)
class Collate:
    """Makes a batch of pairs; travels into DataLoader workers.

    Args:
        tokenise: a text's tokens.
        passages: how many padded arrays the texts are cut into. Storylines are several times longer than
            messages, so two waste far less than one. The number is the same in every batch (as far as there
            are texts), because sharded models need equal numbers of forward passes on all ranks.
        passage_tokens: if above 0, as many passages as it takes to hold each within so many tokens, padding
            counted. Ranks may then differ in their number, which sharded models do not bear.
        pad_id: token that fills the rest of a row.
    """

    tokenise: Tokenise
    passages: int = 2
    passage_tokens: int = 0
    pad_id: int = 0

    def __call__(self, rows: Sequence[tuple[int, Pair]]) -> PairBatch:
        """The batch of some rows of the pairs."""
        pairs = [pair for _, pair in rows]
        read = {
            text: self.tokenise(text) for text in dict.fromkeys(texts_of(pairs))
        }  # each distinct text once
        ids = {text: tokens.ids for text, tokens in read.items()}
        ordered = sorted(ids, key=lambda text: len(ids[text]))
        place = {text: row for row, text in enumerate(ordered)}
        width = max(len(pair.negatives) for pair in pairs)
        negatives = torch.full((len(pairs), width), NO_TEXT)  # (pairs, n)
        for row, pair in enumerate(pairs):
            for column, text in enumerate(pair.negatives):
                negatives[row, column] = place[text]
        lengths = [len(ids[text]) for text in ordered]
        bounds = (
            cut_within(lengths, self.passage_tokens) if self.passage_tokens else cut(lengths, self.passages)
        )
        return PairBatch(
            passages=[
                pad([ids[text] for text in ordered[first:last]], self.pad_id) for first, last in bounds
            ],
            anchors=torch.tensor([place[pair.anchor] for pair in pairs]),
            positives=torch.tensor([place[pair.positive] for pair in pairs]),
            negatives=negatives,
            keys=PairKeys.of(pairs),
            texts=ordered,
            names=[pair.id or f"pair {row + 1}" for row, pair in rows],
            tokens=sum(lengths),
            cut=sum(tokens.cut > 0 for tokens in read.values()),
        )


def cut(lengths: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Cuts ascending lengths into consecutive parts that hold the fewest padded tokens.

    Args:
        lengths: tokens per text, ascending.
        parts: number of parts; fewer if there are fewer texts.

    Returns:
        first and one past the last text of each part.
    """
    count, parts = len(lengths), min(parts, len(lengths))
    # cost[i] = padded tokens of the first i texts cut in p parts; a part costs (texts) × (its longest)
    cost = np.array([0.0] + [np.inf] * count)
    choices: list[list[int]] = []
    for _ in range(parts):
        new, choice = np.full(count + 1, np.inf), [0] * (count + 1)
        for last in range(1, count + 1):
            options = cost[:last] + (last - np.arange(last)) * lengths[last - 1]  # (last,)
            choice[last] = int(options.argmin())
            new[last] = options[choice[last]]
        cost = new
        choices.append(choice)
    bounds: list[tuple[int, int]] = []
    last = count
    for choice in reversed(choices):
        bounds.append((choice[last], last))
        last = choice[last]
    return bounds[::-1]


def cut_within(lengths: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Cuts ascending lengths into the fewest consecutive parts of at most so many tokens, padding counted.

    Args:
        lengths: tokens per text, ascending.
        most: tokens of a part at most; a longer text is a part of its own.

    Returns:
        first and one past the last text of each part.
    """
    bounds: list[tuple[int, int]] = []
    last = len(lengths)
    while last:
        first = max(last - max(most // lengths[last - 1], 1), 0)
        bounds.append((first, last))
        last = first
    return bounds[::-1]


def pad(ids: Sequence[Sequence[int]], pad_id: int = 0) -> Passage:
    """Rows of token ids as one array, padded on the right: positions then count from the first token."""
    width = max(map(len, ids))
    input_ids = torch.full((len(ids), width), pad_id)  # (texts, tokens)
    attention_mask = torch.zeros_like(input_ids)
    for row, tokens in enumerate(ids):
        input_ids[row, : len(tokens)] = torch.tensor(tokens)
        attention_mask[row, : len(tokens)] = 1
    return Passage(input_ids, attention_mask)


def texts_of(pairs: Iterable[Pair]) -> Iterator[str]:
    """Every text of some pairs, pair by pair."""
    for pair in pairs:
        yield pair.anchor
        yield pair.positive
        yield from pair.negatives
