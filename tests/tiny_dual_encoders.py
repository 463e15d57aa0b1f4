"""Tiny but real dual encoders, built from a configuration on the spot: no network, under a second each.

Random weights; saved as a checkpoint folder that transformers' Auto classes, or open_clip, reopen. They say
nothing about quality and everything about mechanics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny_models import SENTENCES
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import (
    ChineseCLIPConfig,
    ChineseCLIPImageProcessor,
    ChineseCLIPModel,
    ChineseCLIPProcessor,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
    LlavaOnevisionVideoProcessor,
    MetaClip2Config,
    MetaClip2Model,
    PreTrainedTokenizerFast,
    Siglip2Config,
    Siglip2ImageProcessor,
    Siglip2Model,
    Siglip2Processor,
    Siglip2Tokenizer,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
    VideoPrismClipModel,
    VideoPrismConfig,
    VideoPrismProcessor,
    VideoPrismTokenizer,
    XCLIPConfig,
    XCLIPModel,
)

WIDTH = 32
SIDE = 32  # pixels
PATCH = 8
CLIP_TOKENS = 20
SIGLIP_TOKENS = 16
PRISM_FRAMES = 4
PRISM_TOKENS = 12

_LAYERS: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def build_tiny_dual_encoder(folder: Path, family: str = "clip", *, seed: int = 0) -> Path:
    """Saves a tiny model of a family, with its processor, into a folder.

    Args:
        folder: made if it does not exist.
        family: "clip", "metaclip_2", "chinese_clip", "siglip" (fixed size, tokens of SigLIP2's fixed-size
            checkpoints), "siglip2" (NaFlex), "xclip", "videoprism".
        seed: of the random weights.
    """
    torch.manual_seed(seed)
    processor, model = _BUILDERS[family]()
    spread(model)
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def build_tiny_open_clip(folder: Path, *, timm: bool = False, seed: int = 0) -> Path:
    """Saves a tiny open_clip model into a folder: config and safetensors.

    Args:
        folder: made if it does not exist.
        timm: a vision tower of timm, as PE-Core has.
        seed: of the random weights.
    """
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    pixels = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear", "resize_mode": "squash"}
    content = {"model_cfg": open_clip_config(timm=timm), "preprocess_cfg": pixels}
    (folder / "open_clip_config.json").write_text(json.dumps(content), encoding="utf-8")
    torch.manual_seed(seed)
    model = open_clip.create_model(f"local-dir:{folder}")
    spread(model)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def open_clip_config(*, timm: bool = False) -> dict[str, Any]:
    """The architecture, as in open_clip's model_configs."""
    vision: dict[str, Any] = {
        "image_size": SIDE,
        "layers": 2,
        "width": WIDTH,
        "head_width": 8,
        "patch_size": PATCH,
    }
    if timm:
        vision = {"image_size": 160, "timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": None}
    text = {"context_length": CLIP_TOKENS, "vocab_size": 49408, "width": WIDTH, "heads": 4, "layers": 2}
    dim = 64 if timm else WIDTH  # test_vit is 64 wide and has no projection here
    return {
        "embed_dim": dim,
        "vision_cfg": vision,
        "text_cfg": text,
        **({"custom_text": True} if timm else {}),
    }


@torch.no_grad()
def spread(model: torch.nn.Module) -> None:
    """Weights large enough to tell inputs apart: at a standard deviation of 0.02 all look alike."""
    for name, parameter in model.named_parameters():
        if name.endswith("cls_emb"):
            parameter.normal_(0.0, 0.05)  # the position that is read: what comes from it is the same for all
        elif parameter.ndim >= 2:
            wide = "embed" in name and "patch" not in name
            parameter.normal_(0.0, 1.0 if wide else parameter[0].numel() ** -0.5)


def _clip_tokenizer() -> CLIPTokenizer:
    """CLIP's tokenizer with merges learned from a few sentences."""
    backend = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    backend.train_from_iterator([sentence.lower() for sentence in SENTENCES], trainer)
    learned = json.loads(backend.to_str())["model"]
    for letter in pre_tokenizers.ByteLevel.alphabet():
        learned["vocab"].setdefault(f"{letter}</w>", len(learned["vocab"]))
    merges = [tuple(pair) for pair in learned["merges"]]
    return CLIPTokenizer(vocab=learned["vocab"], merges=merges, model_max_length=CLIP_TOKENS)


def _letters(*specials: str) -> dict[str, int]:
    """A vocabulary of single characters, capitals apart from small ones."""
    characters = sorted(
        {*"".join(SENTENCES), *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\u2581"} - {" "}
    )
    return {token: row for row, token in enumerate([*specials, *characters])}


def _clip() -> tuple[Any, Any]:
    tokenizer = _clip_tokenizer()
    images = CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, resample=3
    )
    config = CLIPConfig(
        text_config=_clip_text(tokenizer),
        vision_config={**_LAYERS, "patch_size": PATCH, "image_size": SIDE},
        projection_dim=24,
    )
    return CLIPProcessor(images, tokenizer), CLIPModel(config)


def _clip_text(tokenizer: CLIPTokenizer) -> dict[str, Any]:
    return {
        **_LAYERS,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": CLIP_TOKENS,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _metaclip_2() -> tuple[Any, Any]:
    tokenizer = _clip_tokenizer()
    images = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    vision = {**_LAYERS, "patch_size": PATCH, "image_size": SIDE}
    config = MetaClip2Config(text_config=_clip_text(tokenizer), vision_config=vision, projection_dim=24)
    return CLIPProcessor(images, tokenizer), MetaClip2Model(config)


def _chinese_clip() -> tuple[Any, Any]:
    """Its text tower looks both ways: padding shows unless it is masked."""
    tokenizer = _clip_tokenizer()
    images = ChineseCLIPImageProcessor(size={"height": SIDE, "width": SIDE}, do_center_crop=False)
    config = ChineseCLIPConfig(
        text_config={**_LAYERS, "vocab_size": len(tokenizer), "max_position_embeddings": 64},
        vision_config={**_LAYERS, "patch_size": PATCH, "image_size": SIDE},
        projection_dim=24,
    )
    return ChineseCLIPProcessor(images, tokenizer), ChineseCLIPModel(config)


def _siglip_text(size: int) -> dict[str, Any]:
    return {
        **_LAYERS,
        "vocab_size": size,
        "max_position_embeddings": SIGLIP_TOKENS,
        "projection_size": WIDTH,
    }


def _siglip() -> tuple[Any, Any]:
    """As the fixed-size SigLIP2 checkpoints: SigLIP's model with Gemma's tokenizer, which does not lower."""
    vocabulary = _letters("<pad>", "<eos>", "<unk>")
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", vocabulary["<eos>"])]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=SIGLIP_TOKENS,
    )
    images = SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    config = SiglipConfig(
        text_config=_siglip_text(len(tokenizer)),
        vision_config={**_LAYERS, "patch_size": PATCH, "image_size": SIDE},
    )
    return SiglipProcessor(images, tokenizer), SiglipModel(config)


def _siglip2() -> tuple[Any, Any]:
    """NaFlex: images keep their shape and become at most 24 patches."""
    vocabulary = _letters("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
    tokenizer = Siglip2Tokenizer(vocab=vocabulary, model_max_length=SIGLIP_TOKENS, padding_side="right")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", vocabulary["<eos>"])]
    )
    images = Siglip2ImageProcessor(patch_size=PATCH, max_num_patches=24)
    config = Siglip2Config(
        text_config=_siglip_text(len(tokenizer)),
        vision_config={**_LAYERS, "patch_size": PATCH, "num_patches": 16},
    )
    return Siglip2Processor(images, tokenizer), Siglip2Model(config)


def _xclip() -> tuple[Any, Any]:
    tokenizer = _clip_tokenizer()
    config = XCLIPConfig(
        text_config=_clip_text(tokenizer),
        vision_config={
            **_LAYERS,
            "patch_size": PATCH,
            "image_size": SIDE,
            "mit_hidden_size": WIDTH,
            "mit_intermediate_size": WIDTH,
            "mit_num_attention_heads": 4,
        },
        projection_dim=WIDTH,
        prompt_num_attention_heads=4,
    )
    return CLIPProcessor(CLIPImageProcessor(), tokenizer), XCLIPModel(config)


def _videoprism() -> tuple[Any, Any]:
    """The processor says size and range wrongly on purpose: what the model needs is passed with each call."""
    words = sorted({word for sentence in SENTENCES for word in sentence.lower().split()})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(f"\u2581{word}", -3.0) for word in words if word.isalpha()]
    pieces += [(letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyz."]
    tokenizer = VideoPrismTokenizer(vocab=pieces, extra_ids=0)
    side = 36
    config = VideoPrismConfig(
        text_config={**_LAYERS, "vocab_size": len(tokenizer), "max_position_embeddings": PRISM_TOKENS},
        vision_config={
            **{name: value for name, value in _LAYERS.items() if name != "num_hidden_layers"},
            "image_size": side,
            "num_frames": PRISM_FRAMES,
            "tubelet_size": [1, 18, 18],
            "num_spatial_layers": 2,
            "num_temporal_layers": 1,
            "num_auxiliary_layers": 1,
        },
    )
    videos = LlavaOnevisionVideoProcessor(
        size={"height": 30, "width": 30}, do_sample_frames=True, num_frames=2
    )
    return VideoPrismProcessor(videos, tokenizer), VideoPrismClipModel(config)


_BUILDERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "clip": _clip,
    "metaclip_2": _metaclip_2,
    "chinese_clip": _chinese_clip,
    "siglip": _siglip,
    "siglip2": _siglip2,
    "xclip": _xclip,
    "videoprism": _videoprism,
}
