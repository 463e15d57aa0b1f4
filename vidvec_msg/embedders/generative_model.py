"""A generative model with its vocabulary head: what it would say first, as logits."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vidvec_msg.embedders.adapter import put_adapter_on
from vidvec_msg.embedders.backbone import (
    check_options,
    choose_device,
    choose_dtype,
    load_backbone,
    multimodal_class,
)
from vidvec_msg.embedders.chat import Chat, Turn
from vidvec_msg.embedders.hearing import Listener
from vidvec_msg.embedders.models import digest_of_loaded, refuse_missing_weights, resolve_model, short_name
from vidvec_msg.embedders.omni import thinker_config
from vidvec_msg.embedders.processor_call import on_device
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Modality
from vidvec_msg.media.limits import DecodePool

logger = logging.getLogger(__name__)

Thinking = Literal["close", "refuse"]

_THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
_SWITCH = "enable_thinking"  # Qwen3's name, which most templates with a switch took over


class GenerativeModel:
    """A model of any family behind ``AutoModelForImageTextToText``, or a plain language model.

    Args:
        model: ``tinyworld``, a checkpoint folder, or a hub name.
        revision: commit of a hub model.
        adapter: folder of a LoRA adapter.
        max_pixels: height x width of the frames that will come, at most; 0 leaves it to the processor.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto" as for embedders.
        trust_remote_code: run Python files that come with the model.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model cannot be loaded, or has no vocabulary head.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        adapter: str | None = None,
        max_pixels: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        trust_remote_code: bool = False,
    ) -> None:
        check_options(dtype)
        source = resolve_model(model)
        self.device = choose_device(device)
        self.chat = Chat.open(
            source, revision=revision, trust_remote_code=trust_remote_code, max_pixels=max_pixels
        )
        self.full, self.modalities = _load(
            source,
            adapter,
            device=self.device,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        self.name = short_name(model, adapter)
        self.digest = digest_of_loaded(source, revision=revision, adapter=adapter)
        self.keeps_logits = "logits_to_keep" in inspect.signature(self.full.forward).parameters

    @property
    def context(self) -> int | None:
        """Tokens that the model has positions for; None if its configuration does not say."""
        found: int | None = getattr(self.full.config.get_text_config(), "max_position_embeddings", None)
        return found

    def listener(self, pool: DecodePool, *, sound: bool) -> Listener | None:
        """Who reads sound for this model; None for one that does not hear.

        Args:
            pool: decodes.
            sound: whether clips are given with their sound.

        Raises:
            RefusedRequest: ``sound`` is true, and the model takes none.
        """
        return Listener.of_model(self.chat.processor, pool, to_clips=sound, instead="transcript=true")

    def inputs(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """What the model is called with, on its device; shorter rows are filled on the right."""
        return on_device(self.chat.batch(turns), self.device, self.full.dtype)

    def last_logits(self, inputs: dict[str, Any], lengths: Sequence[int]) -> Tensor:
        """Logits behind the last token of each row, float32 (batch, vocabulary).

        Of those positions alone, where the family can: of all of them they take gigabytes.

        Args:
            inputs: of the model's ``forward``; ``use_cache`` is left to the caller.
            lengths: tokens of each row's ``input_ids`` that are no padding, which stands on the right.

        Raises:
            FloatingPointError: they are not finite.
        """
        last = torch.tensor([length - 1 for length in lengths], device=self.device)  # (batch,)
        kept, row = torch.unique(last, return_inverse=True)
        options: dict[str, Any] = {"logits_to_keep": kept} if self.keeps_logits else {}
        with torch.inference_mode():
            logits = self.full(**inputs, **options).logits  # (batch, kept or tokens, vocabulary)
        place = row if self.keeps_logits else last
        found: Tensor = logits[torch.arange(len(last), device=logits.device), place].float()
        if not torch.isfinite(found).all():
            raise FloatingPointError(
                f"the model's logits are not finite in {self.full.dtype}; try dtype=float32"
            )
        return found

    def answer_opening(self, thinking: Thinking = "close") -> str:
        """What must follow the generation prompt so that the next token is the answer's first.

        A chat template may let the model think first. Its switch is turned off here where it has one; a
        block of thoughts that it opens is closed, empty.

        Args:
            thinking: "refuse" a template whose block of thoughts has to be closed by hand, which the model
                may never have seen in training, or "close" it.

        Raises:
            RefusedRequest: thinking is "refuse", and the template opens a block of thoughts.
        """
        template = self.chat.template
        if not template:
            return "\nAnswer:"  # a model without turns goes on with the text
        if _SWITCH in template:
            self.chat.rendering.options[_SWITCH] = False
        prompt = self.chat.question_turn(("", "{query}"), "", "?").prompt
        for opens, closes in _THOUGHTS:
            if prompt.rfind(opens) <= prompt.rfind(closes):
                continue
            if thinking == "refuse":
                raise RefusedRequest(
                    f"the chat template of {self.name} makes the model think ({opens} …) before it answers, "
                    "and has no switch against it. thinking=close lets the answer begin behind an empty "
                    "block of thoughts; an instruct variant of the model is better"
                )
            logger.warning(
                "%s thinks before it answers and its chat template has no switch against it; the answer is "
                "read behind an empty block of thoughts",
                self.name,
            )
            return f"\n{closes}\n\n"
        return ""


def _load(
    source: str, adapter: str | None, *, device: torch.device, dtype: str, **options: Any
) -> tuple[Any, tuple[Modality, ...]]:
    """The whole model with its vocabulary head, and what it reads."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = thinker_config(AutoConfig.from_pretrained(source, **options))
    if multimodal_class(config) is not None:
        backbone = load_backbone(source, device=device, dtype=dtype, **options)
        full, tower, modalities = backbone.full, backbone.tower, backbone.modalities
    else:
        try:
            full, report = AutoModelForCausalLM.from_pretrained(
                source,
                dtype=choose_dtype(dtype, device),
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise RefusedRequest(
                f"cannot load {source!r} as a language model that answers: {error}"
            ) from error
        refuse_missing_weights(report, source, "; it may be an encoder, which cannot answer")
        full.eval().requires_grad_(False).to(device)
        tower, modalities = full.get_decoder(), ("text",)
    if adapter is not None:
        put_adapter_on(full, tower, Path(adapter))
        full.eval()
    if full.get_output_embeddings() is None:
        raise RefusedRequest(f"model {source!r} has no vocabulary head, so it cannot answer")
    return full, modalities
