"""The passages of a step side by side on a CPU, one thread each, forward and backward.

Inside one passage the threads of a CPU wait for each other at every operation; two passages never do.
Autograd runs a CPU's backward pass in the thread that asks for it, so each passage gets a graph of its own
and the loss stands between: states of all passages, loss, gradients of the states, gradients of the weights
per passage, summed in one order. These are the plain loss's gradients, and every weight receives its own
once, however many passages there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vidvec_msg.train.batches import Passage, cut_within
from vidvec_msg.train.fused_lora import draws_shared_noise, noise_from

Encode = Callable[[Passage], Tensor]
"""A passage's states ``(texts, dim)``, with gradients."""

_PARTS = 4  # per thread: their ends differ by a part at most
_FEWEST_TOKENS = 256  # of a part; smaller matrices take longer per token


def runs_side_by_side(tower: nn.Module) -> bool:
    """Whether passages may run side by side: on a CPU, with threads to spare, in a training of one process,
    and where nothing draws noise from the generator that all threads share: under autocast LoRA linears take
    peft's own way, which does."""
    return (
        next(tower.parameters()).device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and torch.get_num_threads() > 1
        and not (dist.is_available() and dist.is_initialized())
        and not any(getattr(module, "gradient_checkpointing", False) for module in tower.modules())
        and not draws_shared_noise(tower)
    )


def portions(passages: Sequence[Passage], *, bounded: bool) -> list[Passage]:
    """Passages cut for the threads, in the order of their texts.

    Args:
        passages: of a batch, each sorted by length.
        bounded: all threads together hold no more than the largest passage, padding counted.
    """
    threads = torch.get_num_threads()
    tokens = [passage.input_ids.numel() for passage in passages]
    most = max(-(-sum(tokens) // (_PARTS * threads)), _FEWEST_TOKENS)
    if bounded:
        most = min(most, -(-max(tokens) // threads))
    parts = []
    for passage in passages:
        lengths = passage.attention_mask.sum(1).tolist()
        for first, last in cut_within(lengths, most):
            wide = lengths[last - 1]
            parts.append(
                Passage(passage.input_ids[first:last, :wide], passage.attention_mask[first:last, :wide])
            )
    return parts


def states_side_by_side(
    encode: Encode, passages: Sequence[Passage], weights: Sequence[nn.Parameter], *, keep: bool
) -> Tensor:
    """States of all passages' texts ``(texts, dim)``, with gradients for the weights.

    Args:
        encode: is called in several threads at once.
        passages: of a batch.
        weights: those that train.
        keep: keep the activations for the backward pass; if not, each passage runs again when its gradients
            are due, with the same noise (GradCache).
    """
    seeds = torch.randint(2**62, (len(passages),)).tolist()
    states: Tensor = _SideBySide.apply(encode, passages, seeds, keep, *weights)
    return states


class _SideBySide(Function):
    @staticmethod
    def forward(
        ctx: Any, encode: Encode, passages: Sequence[Passage], seeds: list[int], keep: bool, *weights: Tensor
    ) -> Tensor:
        computing = _as_here()

        def run(number: int, grad: bool) -> Tensor:
            with computing(), torch.set_grad_enabled(grad), noise_from(seeds[number]):
                return encode(passages[number])

        made: list[Any] = [None] * len(passages)
        for number, states in _longest_first(lambda number: run(number, keep), len(passages)):
            made[number] = states
        ctx.run, ctx.weights, ctx.made = run, weights, made if keep else None
        ctx.sizes = [len(states) for states in made]
        return torch.cat([states.detach() for states in made])  # (texts, dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        parts = torch.split(gradient, ctx.sizes)

        def gradients(number: int) -> tuple[Tensor | None, ...]:
            if ctx.made is None:
                states = ctx.run(number, True)
            else:
                states, ctx.made[number] = ctx.made[number], None  # its activations go when they were used
            found: tuple[Tensor | None, ...] = torch.autograd.grad(
                states, ctx.weights, parts[number], allow_unused=True
            )
            return found

        total: list[Tensor | None] = [None] * len(ctx.weights)
        for _, found in _longest_first(gradients, len(parts)):
            for place, share in enumerate(found):
                if share is not None:
                    known = total[place]
                    total[place] = share if known is None else known.add_(share)
        return None, None, None, None, *total


def _as_here() -> Callable[[], Any]:
    """Autocast as it is in this thread, for others."""
    on, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return lambda: torch.autocast("cpu", dtype=dtype, enabled=on)


def _longest_first(run: Callable[[int], Any], count: int) -> Iterator[tuple[int, Any]]:
    """Numbers and results, the last number first; as many at a time as torch has threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for the threads that begin now
    try:
        with ThreadPoolExecutor(min(threads, count)) as apart:
            order = range(count - 1, -1, -1)
            yield from zip(order, apart.map(run, order), strict=True)
    finally:
        torch.set_num_threads(threads)
