"""Which items run together: turns sorted by length, batches bounded by tokens and by frames."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from vidvec_msg.embedders.turns import Turn

logger = logging.getLogger(__name__)

Part = TypeVar("Part")

# CPU seconds on an AVX2 core for batches of 512, 1,024 and 2,048 tokens: SmolLM2-135M 13.7, 13.9, 15.2
# (single texts: 18.0); MiniLM 8.0, 7.6, 8.9
_CPU_TOKENS = 1024
_GPU_TOKENS = 8192  # reasoned, not measured: fills a large GPU from about a billion parameters on
_TEXTS_SORTED = 4096  # texts that are held, worded, to be sorted by length


def halved_if_out_of_memory(run: Callable[[Sequence[Part]], np.ndarray], batch: Sequence[Part]) -> np.ndarray:
    """The rows of a batch; in two halves, and those in two, if the GPU's memory does not suffice."""
    try:
        return run(batch)
    except torch.OutOfMemoryError:
        if len(batch) == 1:
            raise
    # outside the except block: the traceback there would keep the tensors alive
    torch.cuda.empty_cache()
    half = len(batch) // 2
    logger.warning(
        "out of GPU memory with %d items; going on with %d (see batch_size, batch_frames)", len(batch), half
    )
    return np.concatenate(
        [halved_if_out_of_memory(run, batch[:half]), halved_if_out_of_memory(run, batch[half:])]
    )


def tokens_at_once(device: torch.device) -> int:
    """Tokens of texts that run together, where nobody says how many."""
    return _GPU_TOKENS if device.type == "cuda" else _CPU_TOKENS


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much runs together.

    Batches depend on the turns alone, never on time or memory: the same items give the same bytes again.

    Args:
        items: of a batch at most.
        tokens: of a batch of texts at most, padding counted; a longer text runs alone.
        pictures: frames, images and sounds of a batch at most; a longer clip runs alone.
    """

    items: int
    tokens: int
    pictures: int

    def windows(self, turns: Iterable[tuple[int, Turn]]) -> Iterator[list[tuple[int, Turn]]]:
        """Turns that are sorted and run before more is read, with their places: media as many as fill two
        batches, for their pixels are large; texts by the thousand, after all media."""
        media: list[tuple[int, Turn]] = []
        texts: list[tuple[int, Turn]] = []
        pictures = 0
        for place, turn in turns:
            if turn.kind == "text":
                texts.append((place, turn))
                if len(texts) == _TEXTS_SORTED:
                    yield texts
                    texts = []
                continue
            media.append((place, turn))
            pictures += turn.pictures
            if len(media) >= 2 * self.items or pictures >= 2 * self.pictures:
                yield media
                media, pictures = [], 0
        yield from (window for window in (media, texts) if window)

    def batches(
        self, turns: Sequence[Turn], go_together: Callable[[Turn, Turn], bool]
    ) -> Iterator[list[int]]:
        """Numbers of turns that run together: one kind of medium, longest first, so that memory is exhausted
        at once or never.

        Args:
            turns: of one window.
            go_together: whether two turns may share a batch, see
                :meth:`~vidvec_msg.embedders.chat.Chat.go_together`.
        """
        order = sorted(range(len(turns)), key=lambda number: _order(turns[number]))
        batch: list[int] = []
        pictures = 0
        for number in order:
            turn = turns[number]
            if batch:
                longest = turns[batch[0]]
                if not (self._has_room(longest, len(batch), pictures, turn) and go_together(longest, turn)):
                    yield batch
                    batch, pictures = [], 0
            batch.append(number)
            pictures += turn.pictures
        if batch:
            yield batch

    def _has_room(self, longest: Turn, count: int, pictures: int, turn: Turn) -> bool:
        if count == self.items:
            return False
        if turn.kind == "text":
            return longest.tokens * (count + 1) <= self.tokens
        return pictures + turn.pictures <= self.pictures


def _order(turn: Turn) -> tuple[str, bool, int]:
    return turn.kind, turn.sound is None, -turn.size
