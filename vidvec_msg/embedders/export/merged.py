"""Adapters merged into the weights they sit on, so that a model needs no PEFT any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from vidvec_msg.errors import RefusedRequest


def merge_adapters(full: nn.Module) -> int:
    """Adds every adapter of a loaded model to its weights, in place.

    What comes out has the modules of a model that never had an adapter. The sum is rounded to the dtype of
    the weights: merged vectors are those of the adapter to float tolerance in float32, and in bfloat16 to
    about three digits.

    Args:
        full: the whole model, as :func:`vidvec_msg.embedders.adapter.put_adapter_on` left it.

    Returns:
        how many modules were merged; 0 where there is no adapter.

    Raises:
        RefusedRequest: a module that cannot be merged, or a sum that is not finite.
    """
    # PEFT's layers are known by what they offer: PEFT itself has its homes in adapter.py and train/lora.py
    adapted = [(name, module) for name, module in full.named_modules() if hasattr(module, "base_layer")]
    strangers = [name for name, module in full.named_modules() if hasattr(module, "modules_to_save")]
    strangers += [name for name, module in adapted if not hasattr(module, "merge")]
    if strangers:
        raise RefusedRequest(
            f"the adapter cannot be merged: {strangers[0]} is a "
            f"{type(full.get_submodule(strangers[0])).__name__}, not an addition to a weight as LoRA is"
        )
    packed = [name for name, module in adapted if any(not w.is_floating_point() for w in _weights(module))]
    if packed:  # a sum would be rounded to 4 bits again
        raise RefusedRequest(
            f"the adapter cannot be merged: the weights at {packed[0]} are quantised. Put it onto the model "
            "as it is published, which is what an embedder folder opens on, and merge it there"
        )
    for name, module in adapted:
        _merge(full, name, module)
    return len(adapted)


def _weights(module: Any) -> Iterator[nn.Parameter]:
    base: nn.Module = module.get_base_layer()
    yield from base.parameters()


def _merge(full: nn.Module, name: str, module: Any) -> None:
    module.merge()
    base: nn.Module = module.get_base_layer()
    if not all(bool(torch.isfinite(weight).all()) for weight in _weights(module)):
        raise RefusedRequest(
            f"merging the adapter at {name} gave weights that are not finite; try dtype float32"
        )
    parent, _, child = name.rpartition(".")
    setattr(full.get_submodule(parent), child, base)
