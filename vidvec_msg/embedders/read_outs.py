"""One forward pass, read in one place or in many: layers, raw or normed, and the ways to pool them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from vidvec_msg.embedders.pooling import (
    FINAL,
    POOLINGS,
    Pooling,
    blocks_name,
    check_read_out,
    final_norm,
    reading_layers,
)
from vidvec_msg.errors import RefusedRequest


@dataclass(frozen=True, slots=True)
class ReadOut:
    """Where a vector is read.

    Args:
        layer: -1 the normed final state, 0 the embedding output, n block n's output.
        pooling: how positions become one vector.
        normed: the model's final norm is applied to the state of a layer before the final one.
    """

    layer: int = FINAL
    pooling: Pooling = "last"
    normed: bool = False

    def __str__(self) -> str:
        """As people name it: "final, last token", "layer 12 normed, mean"."""
        place = "final" if self.layer == FINAL else f"layer {self.layer}{' normed' if self.normed else ''}"
        names = {"last": "last token", "mean": "mean", "visual": "mean of visual tokens"}
        return f"{place}, {names[self.pooling]}"


def every_read_out(tower: Any, poolings: Sequence[Pooling]) -> tuple[ReadOut, ...]:
    """All places where a model can be read: the final state first, then every layer raw and normed.

    Layer n of a model of n blocks, normed, is the final state and stands there once. A model without a norm
    behind its blocks has raw layers alone, and its final state is the last of them.

    Args:
        tower: the language model.
        poolings: the ways to pool.
    """
    blocks = len(getattr(tower, blocks_name(tower)))
    normed = final_norm(tower) is not None
    places = [(FINAL, False), *((layer, False) for layer in range(blocks + 1 if normed else blocks))]
    if normed:
        places += [(layer, True) for layer in range(blocks)]
    return tuple(ReadOut(layer, pooling, norm) for pooling in poolings for layer, norm in places)


def recorded(read_outs: Sequence[ReadOut]) -> dict[str, Any]:
    """What a card says of them."""
    if len(read_outs) == 1:
        return asdict(read_outs[0])
    return {"layer": None, "pooling": " | ".join(map(str, read_outs)), "normed": False}


class StateReader:
    """Reads a model in some places while it runs.

    Args:
        tower: the language model.
        read_outs: at least one. The vector of one is its pooled state; of several, their unit vectors side by
            side, each shortened to the same length so that the whole has norm 1.
        keep: dimensions of each that are kept, the first ones.

    Raises:
        ValueError: a place that the model does not have.
        RefusedRequest: a normed layer of a model that has no final norm.
    """

    def __init__(self, tower: Any, read_outs: Sequence[ReadOut], *, keep: int) -> None:
        self.tower, self.read_outs, self.keep = tower, tuple(read_outs), keep
        self._norm: Any = final_norm(tower)
        for one in self.read_outs:
            blocks = len(getattr(tower, blocks_name(tower)))
            check_read_out(one.layer, one.pooling, blocks=blocks, normed=one.normed)
            if one.normed and self._norm is None:
                raise RefusedRequest(
                    f"normed is true, and this model ({type(tower).__name__}) has no norm behind its blocks"
                )
        self._at: dict[int, list[int]] = {}  # layer → numbers of the read-outs there
        for number, one in enumerate(self.read_outs):
            self._at.setdefault(one.layer, []).append(number)
        self._batch = threading.local()  # batches run side by side, a thread each

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return self.keep * len(self.read_outs)

    @property
    def sees(self) -> bool:
        """Whether a visual mask of its own is needed."""
        return any(one.pooling == "visual" for one in self.read_outs)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """While it lasts the model may be run by :meth:`pooled`; blocks that nobody reads are not run."""
        layers = [layer for layer in self._at if layer != FINAL]
        with reading_layers(self.tower, layers, self._take, to_the_end=FINAL in self._at):
            yield

    def pooled(self, run: Callable[[], Tensor], mask: Tensor, visual: Tensor) -> Tensor:
        """Runs one batch inside :meth:`attached`.

        Args:
            run: the model on the batch; returns the normed final state (batch, tokens, dim).
            mask: (batch, tokens), 1 at content and 0 at padding.
            visual: the mask of the visual pooling, see :func:`~vidvec_msg.embedders.pooling.visual_mask`.

        Returns:
            (batch, dim) float32; not normed if there is one read-out.
        """
        batch = self._batch
        batch.masks = {"last": mask, "mean": mask, "visual": visual}
        batch.vectors = None
        final = run()
        if FINAL in self._at:
            self._take(FINAL, final)
        found: Tensor = batch.vectors  # (batch, read-outs, keep)
        batch.vectors = batch.masks = None
        return found.flatten(1)  # (batch, dim)

    def _take(self, layer: int, state: Tensor) -> None:
        """Pools one layer's state at once, so that it need not be kept until the model has run."""
        batch = self._batch
        if getattr(batch, "masks", None) is None:  # a run that is not ours: a trial of the attention mask
            return
        if batch.vectors is None:
            shape = (len(state), len(self.read_outs), self.keep)
            batch.vectors = torch.empty(shape, dtype=torch.float32, device=state.device)
        states: dict[bool, Tensor] = {False: state}
        pooled: dict[tuple[bool, bool, int], Tensor] = {}  # without media the visual mask is the other one
        for number in self._at[layer]:
            one, mask = self.read_outs[number], batch.masks[self.read_outs[number].pooling]
            key = (one.normed, one.pooling == "last", id(mask))
            if key not in pooled:
                pooled[key] = self._pooled(states, one, mask)  # (batch, width)
            kept = pooled[key][:, : self.keep].float()  # (batch, keep)
            if len(self.read_outs) > 1:
                kept = kept / (kept.norm(dim=1, keepdim=True) * len(self.read_outs) ** 0.5)
            batch.vectors[:, number] = kept

    def _pooled(self, states: dict[bool, Tensor], one: ReadOut, mask: Tensor) -> Tensor:
        """One read-out of a layer; ``states`` holds the raw state, and the normed one once it was needed."""
        if one.normed and one.pooling == "last":
            vector: Tensor = self._norm(POOLINGS["last"](states[False], mask))  # of one position, not of all
            return vector
        if one.normed and True not in states:
            states[True] = self._norm(states[False])
        return POOLINGS[one.pooling](states[one.normed], mask)
