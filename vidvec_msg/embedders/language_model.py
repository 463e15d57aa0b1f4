"""The language model of a multimodal LLM, alone: no vision tower in memory, no vocabulary logits.

Text-only training needs nothing else, and the adapter that it makes fits back onto the full model key for
key, because the modules below the language model have the same names in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vidvec_msg.embedders.backbone import UNREADABLE, multimodal_class, quiet_progress
from vidvec_msg.embedders.models import remote_code_refusal
from vidvec_msg.embedders.omni import thinker_config
from vidvec_msg.embedders.pooling import FINAL, reading_layer
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require

Dtype = Literal["float32", "bfloat16", "float16"]
Quantization = Literal["nf4"]

# Where the published families keep the language model in their checkpoints, and the tower does not.
# Without this mapping three families start from random weights and transformers says so only in a log line.
KEY_MAPPING = {
    r"^(?:thinker\.)?(?:model\.)?(?:language_model|text_model)\.(?:model\.)?": "",
    r"^thinker\.model\.": "",
}


def load_language_model(
    model: str | Path,
    *,
    revision: str | None = None,
    dtype: Dtype = "float32",
    quantization: Quantization | None = None,
    trust_remote_code: bool = False,
) -> nn.Module:
    """Loads the text tower of a multimodal LLM, or a plain LLM without its head.

    Args:
        model: folder or hub name.
        revision: commit of a hub model.
        dtype: of the weights.
        quantization: "nf4" keeps the linears in 4 bits and computes in ``dtype`` (QLoRA, Dettmers et al.
            2023); they cannot train, adapters on them can.
        trust_remote_code: run code that the model's repository brings.

    Returns:
        the tower in evaluation mode; ``tower(input_ids=, attention_mask=).last_hidden_state`` is the normed
        final state ``(rows, positions, width)``.

    Raises:
        RefusedRequest: the model cannot be read, has no language model, or lacks weights of it.
    """
    shared: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    config = configuration_of(model, **shared)
    tower_class: Any = type(language_model_of(_outline(config, model, trust_remote_code), model=model))
    try:
        with quiet_progress(), _quiet_about_unused_weights():
            tower, report = tower_class.from_pretrained(
                str(model),
                config=config.get_text_config(),
                key_mapping=KEY_MAPPING,
                dtype=getattr(torch, dtype),
                use_safetensors=True,  # nothing is unpickled
                output_loading_info=True,
                **({} if quantization is None else _four_bits(dtype)),
                **shared,
            )
    except UNREADABLE as error:
        raise RefusedRequest(f"model {model}: its weights cannot be read ({error})") from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise RefusedRequest(
            f"model {model}: {len(missing)} weights of its language model are not in the checkpoint "
            f"({', '.join(missing[:3])}, …), so they would be random. Its keys are laid out in a way that "
            "vidvec_msg.embedders.language_model.KEY_MAPPING does not know: add it there."
        )
    if quantization is not None:
        _check_four_bits(tower, model)
    tower.config.use_cache = False  # a cache of keys and values serves generation only
    loaded: nn.Module = tower.eval()
    return loaded


def language_model_outline(
    model: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> nn.Module:
    """The tower of :func:`load_language_model` without its weights, from the configuration alone: what it is
    made of can be asked before the slow part.

    Args:
        model: as there, like the others.
        revision: commit of a hub model.
        trust_remote_code: run code that the model's repository brings.

    Returns:
        the tower on the meta device: modules and shapes of the loaded one, and no numbers.

    Raises:
        RefusedRequest: the configuration cannot be read, or is of a model without a language model.
    """
    config = configuration_of(model, revision=revision, trust_remote_code=trust_remote_code)
    return language_model_of(_outline(config, model, trust_remote_code), model=model)


def language_model_of(full_model: Any, *, model: str | Path = "") -> nn.Module:
    """The module of a full model that an adapter of :func:`load_language_model`'s tower fits.

    Args:
        full_model: a multimodal LLM or an LLM.
        model: the folder or hub name that it is of, for the message.

    Raises:
        RefusedRequest: the model has none.
    """
    inner = getattr(full_model, "thinker", full_model)  # Qwen-Omni: the thinker reads, the talker speaks
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else None
    if not isinstance(decoder, nn.Module) or not hasattr(decoder, "layers"):
        kind = type(full_model).__name__
        raise RefusedRequest(
            f"{f'model {model} ({kind})' if model else kind} has no language model with "
            "a list of transformer blocks called layers; give (--model.model) a folder or a hub name of a "
            "multimodal LLM or an LLM that has (of transformers' AutoModelForImageTextToText or "
            "AutoModelForCausalLM, such as Qwen's or Llama's)"
        )
    return decoder


def keep_blocks(tower: Any, layer: int) -> None:
    """Removes the blocks behind a layer, which would only cost time: what is read there does not see them.

    Args:
        tower: changed in place.
        layer: the last block that is kept, counted from 1; -1 keeps all.

    Raises:
        RefusedRequest: there is no such block.
    """
    depth = len(tower.layers)
    if layer != FINAL and not 1 <= layer <= depth:
        raise RefusedRequest(
            f"model.layer is {layer}; accepted: -1 (the normed final state) or 1 to {depth} (a block's "
            "output; in front of the first block nothing trains)"
        )
    if layer != FINAL:
        tower.layers = tower.layers[:layer]


def linear_targets(tower: nn.Module) -> str:
    """A regex that matches every linear of the tower's blocks and nothing outside them.

    Plain names such as ``q_proj`` also match linears of the vision tower in five of eight families (and
    ``up_proj`` in a sixth); this regex is anchored at both ends and spells out the blocks' own paths.
    """
    # Block numbers are spelled out: a tower that keep_blocks cut must not gain adapters on the full model.
    blocks = "|".join(name for name, _ in tower.get_submodule("layers").named_children())
    paths = set()
    for name, module in tower.named_modules():
        if isinstance(module, nn.Linear) and name.startswith("layers."):
            _, _, *below = name.split(".")
            inner = [r"\d+" if part.isdigit() else re.escape(part) for part in below]
            paths.add(r"\.".join(["layers", f"(?:{blocks})", *inner]))
    if not paths:
        raise RefusedRequest(
            f"{type(tower).__name__} has no linears (torch.nn.Linear) in its blocks, which LoRA adapts; "
            "train it in full (--model.tuning full), or give another model (--model.model)"
        )
    return f"^(?:{'|'.join(sorted(paths))})$"


def hidden_state(
    tower: Any, input_ids: Tensor, attention_mask: Tensor | None, *, layer: int = FINAL
) -> Tensor:
    """The state that an embedder reads.

    Args:
        tower: from :func:`load_language_model`, with or without an adapter.
        input_ids: ``(rows, positions)``, padded on the right, so that positions count from the first token.
        attention_mask: ``(rows, positions)``, 1 where a token stands; None for a model that never looks to
            the right (:func:`vidvec_msg.embedders.padding.needs_mask`), which then takes faster kernels.
        layer: -1 the normed final state; 0 the embedding output; n block n's output, before the final norm.

    Returns:
        ``(rows, positions, width)`` in the tower's dtype.
    """
    bare = tower.get_base_model() if hasattr(tower, "get_base_model") else tower  # inside peft's wrapper
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "use_cache": False}
    if layer == FINAL:
        final: Tensor = bare(**inputs).last_hidden_state
        return final
    depth = len(bare.layers)
    if not 0 <= layer <= depth:
        raise RefusedRequest(
            f"layer {layer} does not exist; accepted: -1 (normed final state), 0 (embedding output) "
            f"to {depth} (last block)"
        )
    with reading_layer(bare, layer) as state:
        bare(**inputs)
        return state()


def configuration_of(model: str | Path, *, revision: str | None, trust_remote_code: bool) -> Any:
    """The configuration of the part of a model that reads.

    Raises:
        RefusedRequest: it cannot be read.
    """
    from transformers import AutoConfig

    shared = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        return thinker_config(AutoConfig.from_pretrained(str(model), **shared))
    except (OSError, ValueError) as error:
        if refusal := remote_code_refusal(str(model), error, revision=revision, trusted=trust_remote_code):
            raise refusal from error
        raise RefusedRequest(f"model {model}: its configuration cannot be read ({error})") from error


def _outline(config: Any, model: str | Path, trust_remote_code: bool) -> Any:
    """The full model without memory: its classes tell which class the tower has."""
    from transformers import AutoModelForCausalLM

    kind = multimodal_class(config) or AutoModelForCausalLM
    try:
        with torch.device("meta"):
            return kind.from_config(config, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise RefusedRequest(
            f"model {model} ({type(config).__name__}) is neither a multimodal LLM nor an LLM "
            f"that transformers knows: {error}"
        ) from error


def _four_bits(dtype: Dtype) -> dict[str, Any]:
    """What ``from_pretrained`` needs to quantise: QLoRA's own choice, the constants quantised once more.

    On the CPU, where the weights are read in any case: the trainer moves the model to its device, and a
    process of several does not know yet which is its own.
    """
    require("bitsandbytes", purpose="load weights in 4 bits (quantization nf4)")
    from transformers import BitsAndBytesConfig

    quantised = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
    return {"quantization_config": quantised, "device_map": {"": "cpu"}}


def _check_four_bits(tower: nn.Module, model: str | Path) -> None:
    linears = [module for module in tower.get_submodule("layers").modules() if isinstance(module, nn.Linear)]
    packed: list[Any] = [module for module in linears if getattr(module, "quant_state", None) is not None]
    if len(packed) < len(linears):
        raise RefusedRequest(
            f"model {model}: {len(linears) - len(packed)} of {len(linears)} linears of its blocks were not "
            "quantised; leave out the quantization"
        )
    for layer in packed:
        # On a CPU with AVX512-BF16 bitsandbytes packs weights anew when a layer first runs in evaluation
        # mode, for generation; measuring between two steps must leave them as they are.
        layer.support_avx512bf16_for_cpu = False


@contextmanager
def _quiet_about_unused_weights() -> Iterator[None]:
    """transformers lists every weight of the vision tower as unexpected; here that is the purpose."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
