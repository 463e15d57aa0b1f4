"""Where a vector is read: which layer, and how positions become one vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Pooling = Literal["last", "mean"]

FINAL = -1  # the normed final state; the other layers are read before any norm


def last_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """The state at each row's last content position, found in the row's own mask.

    Right for either padding side, also for a batch in which no row is padded; ``mask.sum() - 1`` is wrong
    under left padding and nobody notices at batch size 1.

    Args:
        hidden: (batch, tokens, dim).
        mask: (batch, tokens), 1 at content and 0 at padding.

    Returns:
        (batch, dim).

    Raises:
        ValueError: a row without content, named by number.
    """
    _refuse_empty(mask)
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = (positions * (mask > 0)).argmax(dim=1)  # (batch,)
    return hidden[torch.arange(len(hidden), device=hidden.device), last.to(hidden.device)]  # (batch, dim)


def mean_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over each row's content positions, summed in float32.

    Args:
        hidden: (batch, tokens, dim).
        mask: (batch, tokens), 1 at content and 0 at padding.

    Returns:
        (batch, dim), in the dtype of ``hidden``.

    Raises:
        ValueError: a row without content, named by number.
    """
    _refuse_empty(mask)
    weights = (mask > 0).to(hidden.device).unsqueeze(-1)  # (batch, tokens, 1)
    total = (hidden.float() * weights).sum(dim=1)  # (batch, dim)
    return (total / weights.sum(dim=1)).to(hidden.dtype)


POOLINGS: dict[Pooling, Callable[[Tensor, Tensor], Tensor]] = {"last": last_token, "mean": mean_token}


def check_read_out(layer: int, pooling: str, *, blocks: int) -> None:
    """Refuses a layer or pooling that the model does not have.

    Raises:
        ValueError: the message names what is accepted.
    """
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {pooling!r}")
    if not FINAL <= layer <= blocks:
        raise ValueError(
            f"layer must be -1 (normed final state), 0 (embedding output) or 1 to {blocks} (raw output of "
            f"that block), got {layer}"
        )


@contextmanager
def reading_layer(tower: nn.Module, layer: int) -> Iterator[Callable[[], Tensor]]:
    """Catches one layer's state while the model runs inside the block; the blocks behind that layer, which
    would only cost time, are left out of the run.

    transformers' own ``hidden_states[-1]`` is normed, hence the raw output of the last block cannot be had
    from there; for all other layers the state is the one that transformers gives.

    Args:
        tower: the language model; holds its blocks.
        layer: 0 for the embedding output, n for the raw output of block n.

    Yields:
        a function that returns the state, (batch, tokens, dim), once the model has run.
    """
    caught: list[Tensor] = []
    name = blocks_name(tower)
    layers: Any = getattr(tower, name)

    def catch_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        caught.append(args[0] if args else kwargs["hidden_states"])

    def catch_output(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        caught.append(output[0] if isinstance(output, tuple) else output)

    if layer == 0:
        hook = layers[0].register_forward_pre_hook(catch_input, with_kwargs=True)
    else:
        hook = layers[layer - 1].register_forward_hook(catch_output)
    needed = max(layer, 1)  # the first block's input can only be caught if there is a first block
    try:
        if needed < len(layers):
            setattr(tower, name, layers[:needed])
        yield lambda: caught[-1]
    finally:
        setattr(tower, name, layers)
        hook.remove()


def blocks_name(tower: object) -> str:
    """Under which name a tower holds its blocks: encoders such as BERT call them ``layer``."""
    return "layers" if hasattr(tower, "layers") else "layer"


def _refuse_empty(mask: Tensor) -> None:
    empty = (mask > 0).sum(dim=1) == 0
    if bool(empty.any()):
        rows = ", ".join(str(row) for row in empty.nonzero().flatten().tolist())
        raise ValueError(f"row {rows} of the batch has no content to pool")
