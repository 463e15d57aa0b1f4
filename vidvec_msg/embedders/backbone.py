"""A multimodal LLM, or a plain one, loaded to give hidden states and no logits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError

from vidvec_msg.embedders.models import refuse_missing_weights, remote_code_refusal
from vidvec_msg.embedders.omni import thinker_config
from vidvec_msg.embedders.pooling import blocks_name
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Modality

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

UNREADABLE = (OSError, ValueError, ImportError, KeyError, SafetensorError)
"""What ``from_pretrained`` raises for a checkpoint that is not there, damaged, or of an unknown kind."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """A loaded model.

    Args:
        full: the whole model as its checkpoint describes it.
        base: the part that is run: everything but the vocabulary head.
        tower: the language model inside: holds ``layers`` (an encoder such as BERT: ``layer``), carries
            adapters.
        modalities: what it can read.
    """

    full: Any
    base: Any
    tower: Any
    modalities: tuple[Modality, ...]

    @property
    def dim(self) -> int:
        """Width of a hidden state."""
        return int(self.full.config.get_text_config().hidden_size)

    @property
    def positions(self) -> int | None:
        """Tokens that an encoder with learned positions takes; None for the others, which rotate theirs."""
        if blocks_name(self.tower) == "layers":
            return None
        found: int | None = getattr(self.full.config, "max_position_embeddings", None)
        return found

    @property
    def blocks(self) -> int:
        """Transformer blocks of the language model."""
        return len(getattr(self.tower, blocks_name(self.tower)))


def load_backbone(
    model: str, *, revision: str | None, device: torch.device, dtype: str, trust_remote_code: bool
) -> Backbone:
    """Loads a checkpoint, safetensors only, in evaluation mode.

    Args:
        model: folder or hub name, as :func:`vidvec_msg.embedders.models.resolve_model` gives it.
        revision: commit of a hub model.
        device: where it runs.
        dtype: a name of :data:`DTYPES`, or "auto", see :func:`choose_dtype`.
        trust_remote_code: run the model's own Python files.

    Raises:
        RefusedRequest: it cannot be loaded, or loads with parts left at random.
    """
    from transformers import AutoConfig, AutoModel

    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        config = thinker_config(AutoConfig.from_pretrained(model, **options))
        sees = multimodal_class(config)
        with quiet_progress():
            full, report = (sees or AutoModel).from_pretrained(
                model,
                config=config,
                dtype=choose_dtype(dtype, device),
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
    except UNREADABLE as error:
        if refusal := remote_code_refusal(model, error, revision=revision, trusted=trust_remote_code):
            raise refusal from error
        raise RefusedRequest(f"cannot load the model {model!r}: {error}") from error
    refuse_missing_weights(report, model)
    full.eval().requires_grad_(False).to(device)
    base = full.base_model if sees else full
    tower = _tower(base)
    if tower is None:
        raise RefusedRequest(
            f"model {model!r} ({type(full).__name__}): its language model has no `layers` to read"
        )
    return Backbone(full, base, tower, ("text", "image", "video") if sees else ("text",))


def _tower(base: Any) -> Any | None:
    """The module that holds the blocks, of a decoder or of a text encoder; None if there is none."""
    found = [
        base,
        base.get_decoder() if hasattr(base, "get_decoder") else None,
        getattr(base, "encoder", None),
    ]
    return next((tower for tower in found if hasattr(tower, blocks_name(tower))), None)


def check_options(dtype: str, **counts: int) -> None:
    """Raises ValueError for a dtype that there is not, or a count below 1."""
    if dtype != "auto" and dtype not in DTYPES:
        raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, got {dtype!r}")
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def choose_device(device: str) -> torch.device:
    """The device of a name; "auto" is the first GPU, or the CPU.

    Raises:
        ValueError: not a device, or CUDA was asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r} and torch sees no GPU; use auto or cpu")
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype of a name of :data:`DTYPES`; "auto" is bfloat16 where the device computes it fast, float32
    elsewhere.

    How the weights are stored does not count: bfloat16 takes about thirty times as long as float32 on a CPU
    that has to emulate it. Vectors of the two agree to a cosine of about 0.999.
    """
    if dtype == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    return DTYPES[dtype]


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16: a GPU since Ampere (compute capability 8), a CPU with
    AMX or AVX512-BF16."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8 and torch.cuda.is_bf16_supported()
    asked = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")  # private: a later torch may lack them
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in asked)


@contextmanager
def quiet_progress() -> Iterator[None]:
    """transformers' progress bars only where somebody looks at a terminal."""
    from transformers.utils import logging as bars

    if sys.stderr.isatty() or not bars.is_progress_bar_enabled():
        yield
        return
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()


def multimodal_class(config: Any) -> Any | None:
    """The Auto class for a model that takes pixels; None for a plain language model."""
    from transformers import AutoModelForImageTextToText as Multimodal

    known = type(config) in Multimodal._model_mapping or Multimodal.__name__ in getattr(
        config, "auto_map", {}
    )
    return Multimodal if known else None
