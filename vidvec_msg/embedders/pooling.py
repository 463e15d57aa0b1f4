"""Where a vector is read: which layer, and how positions become one vector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Pooling = Literal["last", "mean", "visual"]

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
    weights = (mask > 0).to(hidden.device, torch.float32).unsqueeze(1)  # (batch, 1, tokens)
    total = torch.bmm(weights, hidden.float()).squeeze(1)  # (batch, dim)
    return (total / weights.sum(dim=2)).to(hidden.dtype)


# "visual": the mean over what frames and images became, see visual_mask
POOLINGS: dict[Pooling, Callable[[Tensor, Tensor], Tensor]] = {
    "last": last_token,
    "mean": mean_token,
    "visual": mean_token,
}


def visual_mask(mask: Tensor, input_ids: Tensor, visual_ids: Collection[int]) -> Tensor:
    """The mask of the visual pooling: a row's visual tokens; all of its content where it has none, as a text
    has none.

    Args:
        mask: (batch, tokens), 1 at content and 0 at padding.
        input_ids: (batch, tokens).
        visual_ids: ids that the model replaces by what it sees.

    Returns:
        (batch, tokens), 1 and 0.
    """
    wanted = torch.tensor(list(visual_ids), dtype=input_ids.dtype, device=input_ids.device)
    seen = torch.isin(input_ids, wanted) & (mask > 0)  # (batch, tokens)
    return torch.where(seen.any(dim=1, keepdim=True), seen, mask > 0).to(mask.dtype)


def check_read_out(layer: int, pooling: str, *, blocks: int, normed: bool = False) -> None:
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
    if normed and layer in (FINAL, blocks):
        raise ValueError(f"normed is true and layer is {layer}: that is layer -1, without normed")


@contextmanager
def reading_layer(tower: nn.Module, layer: int) -> Iterator[Callable[[], Tensor]]:
    """Catches one layer's state while the model runs inside the block, as :func:`reading_layers` does.

    Args:
        tower: the language model; holds its blocks.
        layer: 0 for the embedding output, n for the raw output of block n.

    Yields:
        a function that returns the state, (batch, tokens, dim), once the model has run.
    """
    caught: list[Tensor] = []
    with reading_layers(tower, [layer], lambda _, state: caught.append(state)):
        yield lambda: caught[-1]


@contextmanager
def reading_layers(
    tower: nn.Module,
    layers: Collection[int],
    take: Callable[[int, Tensor], None],
    *,
    to_the_end: bool = False,
) -> Iterator[None]:
    """Hands over states of layers while the model runs inside the block; the blocks behind the last of those
    layers, which would only cost time, are left out of the run.

    transformers' own ``hidden_states[-1]`` is normed, hence the raw output of the last block cannot be had
    from there; for all other layers the state is the one that transformers gives.

    Args:
        tower: the language model; holds its blocks.
        layers: 0 for the embedding output, n for the raw output of block n; none of them reads nothing.
        take: gets layer and state, (batch, tokens, dim), as soon as it is there, in the thread that runs the
            model; nothing here keeps it.
        to_the_end: runs every block all the same, for whoever wants the normed final state too.
    """
    name = blocks_name(tower)
    blocks: Any = getattr(tower, name)

    def take_input(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        take(0, args[0] if args else kwargs["hidden_states"])

    def taking_output(layer: int) -> Callable[..., None]:
        def take_output(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            take(layer, output[0] if isinstance(output, tuple) else output)

        return take_output

    hooks = [
        blocks[layer - 1].register_forward_hook(taking_output(layer))
        if layer
        else blocks[0].register_forward_pre_hook(take_input, with_kwargs=True)
        for layer in sorted(set(layers))
    ]
    needed = max([1, *layers])  # the first block's input can only be caught if there is a first block
    try:
        if layers and needed < len(blocks) and not to_the_end:
            setattr(tower, name, blocks[:needed])
        yield
    finally:
        setattr(tower, name, blocks)
        for hook in hooks:
            hook.remove()


def final_norm(tower: nn.Module) -> Any | None:
    """The norm behind the last block; None where there is none (BERT norms inside its blocks)."""
    found = (getattr(tower, name, None) for name in ("norm", "final_layernorm", "final_layer_norm", "ln_f"))
    return next((norm for norm in found if norm is not None), None)


def blocks_name(tower: object) -> str:
    """Under which name a tower holds its blocks: encoders such as BERT call them ``layer``."""
    return "layers" if hasattr(tower, "layers") else "layer"


def _refuse_empty(mask: Tensor) -> None:
    empty = (mask > 0).sum(dim=1) == 0
    if bool(empty.any()):
        rows = ", ".join(str(row) for row in empty.nonzero().flatten().tolist())
        raise ValueError(f"row {rows} of the batch has no content to pool")
