"""Turns → pooled states: batches side by side on a CPU, in halves where the GPU's memory ends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vidvec_msg.embedders.backbone import Backbone
from vidvec_msg.embedders.batching import BatchLimits, halved_if_out_of_memory
from vidvec_msg.embedders.chat import Chat, Turn
from vidvec_msg.embedders.padding import needs_mask
from vidvec_msg.embedders.pooling import visual_mask
from vidvec_msg.embedders.processor_call import on_device
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.embedders.read_outs import StateReader
from vidvec_msg.errors import RefusedRequest

Count = Callable[[Sequence[Turn], Tensor], None]
"""Is told of every batch that was run: its turns, and their ids (batch, tokens) on the CPU."""


class Forward:
    """Runs a model on turns; serves one caller at a time.

    Args:
        backbone: the model.
        chat: its words.
        reader: where it is read.
        limits: how much runs together.
        visual_ids: ids that it replaces by what it sees.
        device: where it is.
    """

    def __init__(
        self,
        backbone: Backbone,
        chat: Chat,
        reader: StateReader,
        limits: BatchLimits,
        *,
        visual_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        self.backbone, self.chat, self.reader, self.limits = backbone, chat, reader, limits
        self.visual_ids, self.device = visual_ids, device
        self._needs_mask = cache(partial(_needs_mask, backbone, chat, device))  # once, wherever it is read

    def read_by(self, reader: StateReader) -> Forward:
        """The same model, read elsewhere."""
        made = copy.copy(self)
        made.reader = reader
        return made

    def states(
        self, stream: Iterable[tuple[int, Turn]], count: Count, refused: Callable[[int, str], None]
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Pooled states batch by batch, while the stream is read.

        Args:
            stream: places and turns.
            count: is told of every batch.
            refused: is told the place of a turn that the model's processor does not take even alone (a strip
                of 5,000 × 3 pixels), and why; the others go on.

        Yields:
            the places of a batch, and its states, float32 (batch, dim).
        """
        for window in self.limits.windows(stream):
            left = dict(window)  # place → turn
            while left:
                places, turns = list(left), list(left.values())
                batches = list(self.limits.batches(turns, self.chat.go_together))
                found = self.states_of_all([[turns[number] for number in batch] for batch in batches], count)
                try:
                    for batch, state in zip(batches, found, strict=True):
                        done = [places[number] for number in batch]
                        yield done, state
                        for place in done:
                            del left[place]
                except RefusedRequest:
                    raise
                except ValueError:
                    if not (faults := self._faults(left)):
                        raise
                    for place, fault in faults.items():
                        del left[place]
                        refused(place, fault)

    def _faults(self, turns: Mapping[int, Turn]) -> dict[int, str]:
        """What the processor says of turns that it does not take alone, by their place."""
        found = {}
        for place, turn in turns.items():
            try:
                self.chat.batch([turn])
            except ValueError as error:
                found[place] = str(error)
        return found

    def states_of_all(self, batches: list[list[Turn]], count: Count) -> Iterator[np.ndarray]:
        """Pooled states of each batch, float32 (batch, dim).

        On a CPU batches of texts run side by side, one thread each: inside one batch the threads would wait
        for each other at every layer.
        """
        with self.reader.attached():
            yield from self._all_run(batches, count)

    def _all_run(self, batches: list[list[Turn]], count: Count) -> Iterator[np.ndarray]:
        threads = torch.get_num_threads()
        apart = self.device.type == "cpu" and threads > 1 and len(batches) > 1
        if not apart or any(turns[0].kind != "text" for turns in batches):
            for turns in batches:
                yield halved_if_out_of_memory(lambda part: self._run(part, count), turns)
            return
        # worded here: a fast tokenizer that several threads call says "Already borrowed"
        given = [self._inputs(turns) for turns in batches]
        torch.set_num_threads(1)  # for the threads that begin now
        try:
            with ThreadPoolExecutor(min(threads, len(batches))) as side_by_side:
                yield from side_by_side.map(self._pooled, given)
        finally:
            torch.set_num_threads(threads)
        for turns, (inputs, _) in zip(batches, given, strict=True):
            count(turns, inputs["input_ids"].cpu())

    def _run(self, turns: Sequence[Turn], count: Count) -> np.ndarray:
        given = self._inputs(turns)
        pooled = self._pooled(given)
        count(turns, given[0]["input_ids"].cpu())
        return pooled

    def _inputs(self, turns: Sequence[Turn]) -> tuple[dict[str, Any], Tensor]:
        """What the model is called with, and the mask (batch, tokens) of what is no padding."""
        inputs = on_device(self.chat.batch(turns), self.device, self.backbone.full.dtype)
        mask: Tensor = inputs["attention_mask"]
        if self.chat.padding == "right" and turns[0].kind == "text" and not self._needs_mask():
            del inputs["attention_mask"]
        return inputs, mask

    @torch.inference_mode()
    def _pooled(self, given: tuple[dict[str, Any], Tensor]) -> np.ndarray:
        inputs, mask = given
        ids = inputs["input_ids"]
        seen = self.reader.sees and bool(
            torch.isin(ids, torch.tensor(self.visual_ids, device=ids.device)).any()
        )
        visual = visual_mask(mask, ids, self.visual_ids) if seen else mask

        def run() -> Tensor:
            final: Tensor = self.backbone.base(**inputs, use_cache=False).last_hidden_state
            return final  # (batch, tokens, width)

        pooled: np.ndarray = self.reader.pooled(run, mask, visual).cpu().numpy()  # (batch, dim)
        return pooled


def _needs_mask(backbone: Backbone, chat: Chat, device: torch.device) -> bool:
    """Whether a model must be told what is padding: tried out on two texts of different length."""
    words = ("a", "the quick brown fox jumps over the lazy dog " * 3)
    turns = [chat.text_turn(PROMPTS["plain"], text, max_tokens=10**6) for text in words]
    return needs_mask(backbone.base, on_device(chat.batch(turns), device, backbone.full.dtype))
