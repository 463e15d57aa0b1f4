"""Tiny but real models that hear: the thinkers of Qwen2.5-Omni and Qwen3-Omni, as :mod:`tiny_models` builds
the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file, save_file
from tiny_models import LAYERS, PATCH, WIDTH, build_tokenizer
from transformers import (
    Qwen2_5OmniConfig,
    Qwen2_5OmniProcessor,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeProcessor,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
    WhisperFeatureExtractor,
)

OmniFamily = Literal["qwen2_5_omni", "qwen3_omni"]
OMNI_FAMILIES: tuple[OmniFamily, ...] = get_args(OmniFamily)

MEL_BINS = 16
LONGEST = 6  # seconds of sound that the feature extractor takes; 300 in the published checkpoints

# in transformers 5 the tokenizer's file holds them; without them the processor cannot be built
OMNI_SPECIALS = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
    "im_start_token": "<|im_start|>",
}
OMNI_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_bos|><|IMAGE|><|vision_eos|>"
    "{% elif part['type'] == 'video' %}<|vision_bos|><|VIDEO|><|vision_eos|>"
    "{% elif part['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tiny_omni(
    folder: Path | str, family: OmniFamily = "qwen2_5_omni", *, whole: bool = False, seed: int = 0
) -> Path:
    """Saves a tiny thinker, with its processor, into a folder.

    Args:
        folder: made if it does not exist.
        family: which thinker.
        whole: as the hub holds it: the thinker under its prefix and a talker beside it.
        seed: of the random weights.
    """
    folder = Path(folder)
    torch.manual_seed(seed)
    processor, model = _BUILDERS[family]()
    _spread(model)
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    if whole:
        _make_whole(folder, family)
    return folder


def _spread(model: torch.nn.Module) -> None:
    """Weights that tell texts apart, as in :func:`tiny_models.build_tiny_mllm`; experts too."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and name.endswith("norm.weight"):
                parameter.uniform_(0.3, 1.7)
            elif parameter.ndim >= 2 and "embed_tokens" in name:
                parameter.normal_(0.0, 1.0)
            elif "experts" in name:  # (experts, out, in)
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
            elif parameter.ndim >= 2 and "pos_embed" not in name:  # (out, in) or a convolution's (out, in, …)
                parameter.normal_(0.0, parameter[0].numel() ** -0.5)


def _make_whole(folder: Path, family: OmniFamily) -> None:
    """The published layout: `thinker.model.layers…`, `thinker.visual…`, and a talker that nobody needs."""
    weights = load_file(folder / "model.safetensors")  # saved without the prefix, the rest as published
    weights = {f"thinker.{name}": tensor for name, tensor in weights.items()}
    weights["talker.model.layers.0.self_attn.q_proj.weight"] = torch.zeros(8, 8)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    kind = {"qwen2_5_omni": Qwen2_5OmniConfig, "qwen3_omni": Qwen3OmniMoeConfig}[family]
    kind(thinker_config=config).save_pretrained(folder)


def _tokenizer() -> Any:
    return build_tokenizer(OMNI_SPECIALS, OMNI_TEMPLATE, eos="<|im_end|>", pad="<|endoftext|>")


def _parts(tokenizer: Any) -> dict[str, Any]:
    shape = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    return {
        "image_processor": Qwen2VLImageProcessor(**shape, size=size),
        "video_processor": Qwen2VLVideoProcessor(**shape, size=size),
        "feature_extractor": WhisperFeatureExtractor(
            feature_size=MEL_BINS, chunk_length=LONGEST, return_attention_mask=True
        ),
        "tokenizer": tokenizer,
        "chat_template": OMNI_TEMPLATE,
    }


def _text(tokenizer: Any, sections: list[int]) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections},
    }


def _audio() -> dict[str, Any]:
    return {
        "num_mel_bins": MEL_BINS,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 2 * WIDTH,
        "d_model": WIDTH,
        "output_dim": WIDTH,
    }


def _vision() -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "depth": 2,
        "num_heads": 4,
        "patch_size": PATCH,
        "out_hidden_size": WIDTH,
    }


def _ids(tokenizer: Any, kind: str) -> dict[str, int]:
    names = {
        f"image_token_{kind}": "<|IMAGE|>",
        f"audio_token_{kind}": "<|AUDIO|>",
        f"video_token_{kind}": "<|VIDEO|>",
        "vision_start_token_id": "<|vision_bos|>",
        "vision_end_token_id": "<|vision_eos|>",
        "audio_start_token_id": "<|audio_bos|>",
        "audio_end_token_id": "<|audio_eos|>",
    }
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}


def _qwen2_5_omni() -> tuple[Any, Any]:
    tokenizer = _tokenizer()
    config = Qwen2_5OmniThinkerConfig(
        text_config=_text(tokenizer, [2, 3, 3]),
        vision_config={**_vision(), "window_size": 32, "fullatt_block_indexes": [1]},
        audio_config=_audio(),
        **_ids(tokenizer, "index"),
    )
    model = Qwen2_5OmniThinkerForConditionalGeneration(config)
    return Qwen2_5OmniProcessor(**_parts(tokenizer)), model


def _qwen3_omni() -> tuple[Any, Any]:
    tokenizer = _tokenizer()
    config = Qwen3OmniMoeThinkerConfig(
        text_config={
            **_text(tokenizer, [4, 2, 2]),
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": WIDTH,
        },
        vision_config={**_vision(), "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
        audio_config={**_audio(), "downsample_hidden_size": 8},
        position_id_per_seconds=13,  # as published; one position per sound token
        **_ids(tokenizer, "id"),
    )
    model = Qwen3OmniMoeThinkerForConditionalGeneration(config)
    return Qwen3OmniMoeProcessor(**_parts(tokenizer)), model


_BUILDERS = {"qwen2_5_omni": _qwen2_5_omni, "qwen3_omni": _qwen3_omni}
