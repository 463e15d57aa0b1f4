"""Dual encoders by transformers: any model with ``get_text_features`` and ``get_image_features``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.backbone import choose_dtype, multimodal_class, quiet_progress
from vidvec_msg.embedders.models import (
    digest_of_loaded,
    refuse_missing_weights,
    remote_code_refusal,
    resolve_model,
)
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Pixels

logger = logging.getLogger(__name__)

# Trained on texts in lower case, padded on the right to the full length, without a mask over the padding
# (big_vision; transformers' convert_siglip_to_hf.py and convert_siglip2_to_hf.py keep the mask out of the
# tokenizer for that reason). Newer tokenizer classes of transformers neither lower nor leave the mask out on
# their own for every checkpoint, so it is done here.
SIGLIP = ("siglip", "siglip2")


class TransformersTowers:
    """Text and image features of a transformers model.

    Args:
        model: a checkpoint folder or a hub name.
        revision: commit of a hub model.
        device: where it runs.
        dtype: a name of :data:`vidvec_msg.embedders.backbone.DTYPES`, or "auto".
        max_patches: patches per image of a model that takes images of any shape (SigLIP2 NaFlex); 0 leaves it
            to the model's processor.
        trust_remote_code: run Python files that come with the model.

    Raises:
        ValueError: ``max_patches`` for a model of fixed size.
        RefusedRequest: it cannot be loaded, or is no dual encoder of texts and images.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None,
        device: torch.device,
        dtype: str,
        max_patches: int,
        trust_remote_code: bool,
    ) -> None:
        source = _checkpoint(model)
        self.model, self.processor = _load(source, revision, choose_dtype(dtype, device), trust_remote_code)
        self.model.to(device)
        self.device = device
        self.weights = digest_of_loaded(source, revision=revision)
        config = self.model.config
        self._siglip = config.model_type in SIGLIP
        self._image_options = self._options(max_patches)
        self._patch = getattr(config.vision_config, "patch_size", None)
        longest = int(getattr(config.text_config, "max_position_embeddings", 0) or 0)
        self.max_tokens = min(int(self.processor.tokenizer.model_max_length), longest or UNLIMITED)
        if self.max_tokens == UNLIMITED:
            raise RefusedRequest(f"model {model!r}: neither its config nor its tokenizer has a longest text")
        self.dim = self._probed(model)
        self._warn_of_a_missing_end()

    @property
    def dtype(self) -> str:
        """Arithmetic of the model."""
        return str(self.model.dtype).removeprefix("torch.")

    def wording(self, text: str) -> str:
        """The text; in lower case for the SigLIP families."""
        return text.lower() if self._siglip else text

    def count_tokens(self, wording: str) -> int:
        """Tokens of a text before any cut, the tokenizer's own marks included."""
        return len(self.processor.tokenizer(wording, verbose=False)["input_ids"])

    @torch.inference_mode()
    def texts(self, wordings: Sequence[str]) -> np.ndarray:
        """Float32 (texts, dim), of any norm."""
        inputs = self.processor.tokenizer(
            list(wordings),
            padding="max_length" if self._siglip else "longest",
            padding_side="right",
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=not self._siglip,
            return_tensors="pt",
        )
        return _vectors(self.model.get_text_features(**inputs.to(self.device)))

    @torch.inference_mode()
    def frames(self, frames: Sequence[Pixels]) -> np.ndarray:
        """Float32 (frames, dim), of any norm, from frames of uint8 (height, width, 3), of any sizes."""
        by_size: dict[tuple[int, ...], list[int]] = {}
        for row, frame in enumerate(frames):
            by_size.setdefault(frame.shape, []).append(row)
        parts = [self._pixels([frames[row] for row in rows]) for rows in by_size.values()]
        order = [row for rows in by_size.values() for row in rows]
        if len({part["pixel_values"].shape[1:] for part in parts}) == 1:  # the usual case: one size for all
            parts = [{name: torch.cat([part[name] for part in parts]) for name in parts[0]}]
        found = [_vectors(self.model.get_image_features(**part)) for part in parts]
        features = np.empty((len(frames), found[0].shape[1]), dtype=np.float32)
        features[order] = np.concatenate(found)
        return features

    def visual_tokens(self, frame: Pixels) -> int:
        """Patches of one frame; 0 where the vision tower has none."""
        inputs = self._pixels([frame])
        if "spatial_shapes" in inputs:
            return int(inputs["spatial_shapes"].prod())
        if not isinstance(self._patch, int):
            return 0
        height, width = inputs["pixel_values"].shape[-2:]
        return (height // self._patch) * (width // self._patch)

    def _pixels(self, frames: list[Pixels]) -> dict[str, torch.Tensor]:
        """The vision tower's inputs; channels are named last, or a frame three pixels high is taken for
        one with the channels first."""
        inputs = self.processor.image_processor(
            images=frames, input_data_format="channels_last", return_tensors="pt", **self._image_options
        )
        placed = {name: value.to(self.device) for name, value in inputs.items()}
        placed["pixel_values"] = placed["pixel_values"].to(self.model.dtype)
        return placed

    def _options(self, max_patches: int) -> dict[str, int]:
        if not max_patches:
            return {}
        if not hasattr(self.processor.image_processor, "max_num_patches"):
            raise ValueError(
                f"max_patches is for models that take images of any shape (SigLIP2 NaFlex); "
                f"{type(self.model).__name__} takes one size: leave it at 0"
            )
        return {"max_num_patches": max_patches}

    def _probed(self, model: str) -> int:
        """Dimensions of the common space.

        Raises:
            RefusedRequest: a text or an image does not become one vector there.
        """
        text = self.texts(["a"]).shape
        image = self.frames([np.zeros((32, 32, 3), np.uint8)]).shape
        if len(text) != 2 or text != image:
            raise RefusedRequest(
                f"model {model!r} ({type(self.model).__name__}) is no dual encoder: one text becomes "
                f"features of shape {text}, one image {image}; both must be (1, dim)"
            )
        return int(text[1])

    def _warn_of_a_missing_end(self) -> None:
        """SigLIP reads the last position, trained with an end mark behind every text."""
        end = self.processor.tokenizer.eos_token_id
        if self._siglip and end not in self.processor.tokenizer("a")["input_ids"]:
            logger.warning(
                "the tokenizer puts no end mark behind a text (%s); SigLIP was trained with one: its "
                "tokenizer files are not those of the checkpoint",
                type(self.processor.tokenizer).__name__,
            )


UNLIMITED = int(1e12)  # tokenizers that know no longest text say 1e30


def _vectors(output: Any) -> np.ndarray:
    """Features as numpy; transformers 5 gives an output object, remote code and older versions a tensor."""
    features = output if isinstance(output, torch.Tensor) else output.pooler_output
    vectors: np.ndarray = features.float().cpu().numpy()
    return vectors


def _checkpoint(model: str) -> str:
    path = Path(model).expanduser()
    if (path / "modules.json").is_file():
        raise RefusedRequest(f"{model} is a sentence-transformers model; use st:{model}")
    return resolve_model(model)


def _load(source: str, revision: str | None, dtype: torch.dtype, trust_remote_code: bool) -> tuple[Any, Any]:
    """The model in evaluation mode, and its processor."""
    from transformers import AutoConfig, AutoModel, AutoProcessor

    options: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        config = AutoConfig.from_pretrained(source, **options)
        refuse_if_no_dual_encoder(config, source)
        with quiet_progress():
            model, report = AutoModel.from_pretrained(
                source, dtype=dtype, use_safetensors=True, output_loading_info=True, **options
            )
        processor = AutoProcessor.from_pretrained(source, **options)
        _refuse_class(type(model), config, source)
    except RefusedRequest:
        raise
    except (OSError, ValueError, ImportError, KeyError) as error:
        if refusal := remote_code_refusal(
            source, error, revision=revision, trusted=trust_remote_code, form="clip"
        ):
            raise refusal from error
        said = " ".join(str(error).split())  # transformers writes paragraphs
        raise RefusedRequest(
            f"cannot load the dual encoder {source!r}: {said}{_hint(source, said)}"
        ) from error
    refuse_missing_weights(report, source)
    if absent := [part for part in ("tokenizer", "image_processor") if not hasattr(processor, part)]:
        raise RefusedRequest(
            f"{source}: its processor ({type(processor).__name__}) has no {' and no '.join(absent)}; the "
            "folder lacks files that processor.save_pretrained writes"
        )
    return model.eval().requires_grad_(False), processor


def _hint(source: str, said: str) -> str:
    if "SentencePiece" in said:
        return " SigLIP's first tokenizer needs it: pip install sentencepiece."
    return "" if Path(source).is_dir() else f" If it is an open_clip model, write clip:hf-hub:{source}."


def refuse_if_no_dual_encoder(config: Any, source: str) -> None:
    """Refuses a checkpoint that is something else, before its weights are read; says what to use.

    Raises:
        RefusedRequest: not a model with features for texts and for images.
    """
    from transformers import MODEL_MAPPING

    if getattr(config, "auto_map", None):
        return  # its class is known when its own code was run
    found = MODEL_MAPPING.get(type(config), None)
    _refuse_class(found[0] if isinstance(found, tuple) else found, config, source)


def _refuse_class(made: type | None, config: Any, source: str) -> None:
    both = all(hasattr(made, name) for name in ("get_text_features", "get_image_features"))
    if config.model_type == "videoprism":
        reason = f"it sees whole clips; use videoprism:{source}"
    elif config.model_type == "xclip":
        reason = (
            "X-CLIP rewrites the vector of a text for each clip it is compared with: there is no one vector "
            "per text to index"
        )
    elif both:
        return  # whether their features have one space is seen when they are asked
    elif multimodal_class(config):
        reason = f"it is a generative multimodal LLM; use mllm:{source}"
    elif hasattr(config, "vision_config") or hasattr(config, "audio_config"):
        reason = "it has no get_text_features and get_image_features"
    elif hasattr(config, "vocab_size"):
        reason = f"it reads text alone; use st:{source}, or mllm:{source} for a language model"
    else:
        reason = "it has no text tower"
    raise RefusedRequest(
        f"model {source!r} is no dual encoder of texts and images ({config.model_type}): {reason}"
    )
