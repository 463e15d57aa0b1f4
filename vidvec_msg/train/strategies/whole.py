"""Weights that lie in shards, put together."""

from __future__ import annotations

from torch import Tensor, nn


def whole_weights(model: nn.Module) -> dict[str, Tensor] | None:
    """The weights that train, put together from all ranks' shards, on every rank; all ranks must ask.

    Returns:
        the weights by name, on the CPU; None where every rank holds them whole.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if any(hasattr(weight, "ds_id") for weight in trained.values()):
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(trained.values())):
            return {name: weight.detach().cpu().clone() for name, weight in trained.items()}
    if any(hasattr(weight, "full_tensor") for weight in trained.values()):
        return {
            name: (weight.full_tensor() if hasattr(weight, "full_tensor") else weight).detach().cpu()
            for name, weight in trained.items()
        }
    return None
