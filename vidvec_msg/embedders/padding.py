"""Whether a model has to be told which positions are padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

_ROUNDING = 1e-4  # of the largest state: two runs of the same kernels on the same shapes differ by less
_SAME = 0.999  # cosine: the kernels with and without a mask round differently, in bfloat16 most


@torch.inference_mode()
def needs_mask(model: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether the states of content change when the model is not told of the padding on its right.

    They do not in a causal model, which never looks to the right. Without a mask it takes the faster
    attention kernels (SmolLM2-135M in batches of 512 to 2,048 tokens on an AVX2 core: 9 to 17% less time).
    Tried out, because configurations do not say it reliably: some decoders were made bidirectional for
    embedding. Two things must hold: other tokens in the place of the padding change no state of content, and
    the states are those that the mask gives.

    Args:
        model: the part that is run.
        inputs: of a batch of texts that differ in length, padded on the right.
    """
    content = inputs["attention_mask"] > 0  # (batch, tokens)
    bare = {key: value for key, value in inputs.items() if key != "attention_mask"}
    other = torch.where(content, inputs["input_ids"], inputs["input_ids"][content][0])

    def states(given: Mapping[str, Any]) -> Tensor:
        found: Tensor = model(**given, use_cache=False).last_hidden_state
        return found[content].float()  # (content, dim)

    told, untold, changed = states(inputs), states(bare), states({**bare, "input_ids": other})
    seen = (untold - changed).abs().max() > _ROUNDING * untold.abs().max()
    alike = (cosine_similarity(told, untold, dim=-1) > _SAME).all()
    return bool(seen) or not bool(alike)
