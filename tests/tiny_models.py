"""Tiny but real multimodal LLMs, built from a configuration on the spot: no network, a second each.

Random weights, about 300 thousand parameters; saved as a checkpoint folder that the Auto classes reopen.
They say nothing about quality and everything about mechanics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from tiny_templates import (
    GEMMA_TEMPLATE,
    INTERNVL_TEMPLATE,
    LLAVA_ONEVISION_TEMPLATE,
    QWEN_TEMPLATE,
    SMOLVLM_TEMPLATE,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    Gemma3Processor,
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
    VideoLlama3Config,
    VideoLlama3ForConditionalGeneration,
    VideoLlama3ImageProcessor,
    VideoLlama3Processor,
    VideoLlama3VideoProcessor,
)

Family = Literal[
    "videollama3",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "smolvlm",
    "llava_onevision",
    "internvl",
    "gemma3",
    "text",
]
FAMILIES: tuple[Family, ...] = get_args(Family)

WIDTH = 64
LAYERS = 3
PATCH = 8

SENTENCES = (
    "A small red ball rolls towards a wall and bounces back again and again until the wall breaks.",
    "Keep trying, patience and persistence bring down every obstacle in the end.",
    "The slow turtle passes the fast hare that stopped to rest beside the road.",
    "Two friends share their bread with a stranger who has nothing to eat.",
    "Lights come on in a dark house while rain falls on the roof of the garden shed.",
    "Summarize above sentence in one word: Summarize above video in one word: ",
    "Summarize above image in one word: ",
    "user assistant system Time seconds frame clip 0 1 2 3 4 5 6 7 8 9 . , : ; ! ?",
)

QWEN_SPECIALS = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
    "im_start_token": "<|im_start|>",
}
SMOLVLM_SPECIALS = {
    "image_token": "<image>",
    "fake_image_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
    "video_token": "<video>",
}
LLAVA_ONEVISION_SPECIALS = {
    "image_token": "<image>",
    "video_token": "<video>",
    "im_start_token": "<|im_start|>",
}
INTERNVL_SPECIALS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
    "im_start_token": "<|im_start|>",
}
GEMMA_SPECIALS = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
    "start_of_turn": "<start_of_turn>",
    "end_of_turn": "<end_of_turn>",
    "bos": "<bos>",
}


def build_tiny_mllm(
    folder: Path | str, family: Family = "videollama3", *, seed: int = 0, chat_template: bool = True
) -> Path:
    """Saves a tiny model of a family, with its processor, into a folder.

    Args:
        folder: made if it does not exist.
        family: a multimodal family, or "text" for a plain language model with a tokenizer only.
        seed: of the random weights.
        chat_template: False leaves the chat template out.

    Returns:
        the folder, ready for ``AutoProcessor`` and ``AutoModelForImageTextToText`` (``AutoModelForCausalLM``
        for "text").
    """
    folder = Path(folder)
    torch.manual_seed(seed)
    processor, model = _BUILDERS[family]()
    # spread the vectors (at a standard deviation of 0.02 all texts look alike), and give norms a direction
    # (with weights of 1 a normed and a raw state are the same unit vector)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and name.endswith("norm.weight"):
                parameter.uniform_(0.3, 1.7)
            elif parameter.ndim == 2 and "embed" not in name:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5)
            elif parameter.ndim == 2:
                parameter.normal_(0.0, 1.0)
    if not chat_template:
        processor.chat_template = None
        if hasattr(processor, "tokenizer"):
            processor.tokenizer.chat_template = None
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def build_tokenizer(
    specials: dict[str, str], template: str, *, eos: str, pad: str
) -> PreTrainedTokenizerFast:
    """A byte-level BPE of about 600 tokens, trained on the spot."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[pad, eos, *(token for token in specials.values() if token not in (pad, eos))],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=eos, pad_token=pad, extra_special_tokens=specials
    )
    tokenizer.chat_template = template
    return tokenizer


def _qwen_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(QWEN_SPECIALS, QWEN_TEMPLATE, eos="<|im_end|>", pad="<|endoftext|>")


def _text_settings(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
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
        "bos_token_id": None,
        "tie_word_embeddings": True,
    }


def _qwen_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    return {
        "image_token_id": tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        "video_token_id": tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        "vision_start_token_id": tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        "vision_end_token_id": tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    }


def _videollama3() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    size = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64 * 64}
    shape = {"patch_size": PATCH, "merge_size": 1, "size": size}
    processor = VideoLlama3Processor(
        image_processor=VideoLlama3ImageProcessor(**shape),
        tokenizer=tokenizer,
        video_processor=VideoLlama3VideoProcessor(**shape, use_token_compression=False),
        chat_template=QWEN_TEMPLATE,
    )
    ids = _qwen_ids(tokenizer)
    config = VideoLlama3Config(
        text_config={"model_type": "qwen2", **_text_settings(tokenizer)},
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": PATCH,
        },
        image_token_id=ids["image_token_id"],
        video_token_id=ids["video_token_id"],
    )
    return processor, VideoLlama3ForConditionalGeneration(config)


def _qwen_vl(
    processor: Any,
    config: Any,
    model: Any,
    *,
    vision: dict[str, Any],
    text: dict[str, Any] | None = None,
    sections: tuple[int, int, int] = (2, 3, 3),
    video: Any = Qwen2VLVideoProcessor,
    longest: int = 64 * 64,
) -> tuple[Any, Any]:
    """The families have the same parts, under names of their own."""
    tokenizer = _qwen_tokenizer()
    shape = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 32 * 32, "longest_edge": longest}
    made = processor(
        image_processor=Qwen2VLImageProcessor(**shape, size=size),
        tokenizer=tokenizer,
        video_processor=video(**shape, size=size),
        chat_template=QWEN_TEMPLATE,
    )
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections)}
    settings = config(
        text_config={**_text_settings(tokenizer), **(text or {}), "rope_parameters": rope},
        vision_config={"hidden_size": WIDTH, "depth": 2, "num_heads": 4, "patch_size": PATCH, **vision},
        tie_word_embeddings=True,
        **_qwen_ids(tokenizer),
    )
    return made, model(settings)


def _qwen2_vl() -> tuple[Any, Any]:
    vision = {"embed_dim": WIDTH, "mlp_ratio": 2}
    return _qwen_vl(Qwen2VLProcessor, Qwen2VLConfig, Qwen2VLForConditionalGeneration, vision=vision)


def _qwen2_5_vl() -> tuple[Any, Any]:
    return _qwen_vl(
        Qwen2_5_VLProcessor,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        vision={
            "intermediate_size": 2 * WIDTH,
            "window_size": 32,
            "fullatt_block_indexes": [1],
            "out_hidden_size": WIDTH,
        },
    )


def _qwen3_vl() -> tuple[Any, Any]:
    return _qwen_vl(
        Qwen3VLProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        text={"head_dim": 16},
        sections=(4, 2, 2),
        video=Qwen3VLVideoProcessor,
        longest=64 * 64 * 64,
        vision={
            "intermediate_size": 2 * WIDTH,
            "out_hidden_size": WIDTH,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    )


def _smolvlm() -> tuple[Any, Any]:
    specials = {**SMOLVLM_SPECIALS, "bos": "<|im_start|>"}
    tokenizer = build_tokenizer(specials, SMOLVLM_TEMPLATE, eos="<end_of_utterance>", pad="<|im_end|>")
    tokenizer.bos_token = "<|im_start|>"
    side = {"longest_edge": 32}
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(size=side, max_image_size=side, do_image_splitting=False),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(size=side, max_image_size=side, num_frames=8, fps=1),
        image_seq_len=4,
        chat_template=SMOLVLM_TEMPLATE,
    )
    config = SmolVLMConfig(
        text_config={"model_type": "llama", **_text_settings(tokenizer)},
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": PATCH,
            "image_size": 32,
        },
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=True,
    )
    return processor, SmolVLMForConditionalGeneration(config)


def _siglip() -> dict[str, Any]:
    return {
        "model_type": "siglip_vision_model",
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "patch_size": PATCH,
        "image_size": 32,
        "vision_use_head": False,
    }


def _llava_onevision() -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        LLAVA_ONEVISION_SPECIALS, LLAVA_ONEVISION_TEMPLATE, eos="<|im_end|>", pad="<|endoftext|>"
    )
    side = {"height": 32, "width": 32}
    grids = [[32, 32], [32, 64], [64, 32], [64, 64]]
    processor = LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=side, image_grid_pinpoints=grids),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(size=side),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=LLAVA_ONEVISION_TEMPLATE,
    )
    config = LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **_text_settings(tokenizer)},
        vision_config=_siglip(),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=grids,
        tie_word_embeddings=True,
    )
    return processor, LlavaOnevisionForConditionalGeneration(config)


def _internvl() -> tuple[Any, Any]:
    tokenizer = build_tokenizer(INTERNVL_SPECIALS, INTERNVL_TEMPLATE, eos="<|im_end|>", pad="<|endoftext|>")
    side = {"height": 32, "width": 32}
    processor = InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=side, crop_to_patches=True, max_patches=4),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=side),
        image_seq_length=4,
        chat_template=INTERNVL_TEMPLATE,
    )
    config = InternVLConfig(
        text_config={"model_type": "qwen2", **_text_settings(tokenizer)},
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": PATCH,
            "image_size": 32,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
        tie_word_embeddings=True,
    )
    return processor, InternVLForConditionalGeneration(config)


def _gemma3() -> tuple[Any, Any]:
    tokenizer = build_tokenizer(GEMMA_SPECIALS, GEMMA_TEMPLATE, eos="<eos>", pad="<pad>")
    tokenizer.bos_token = "<bos>"
    processor = Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        image_seq_length=4,
        chat_template=GEMMA_TEMPLATE,
    )
    config = Gemma3Config(
        text_config={
            **_text_settings(tokenizer),
            "bos_token_id": tokenizer.bos_token_id,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 24,  # shorter than a clip
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        vision_config=_siglip(),
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<end_of_image>"),
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
    )
    return processor, Gemma3ForConditionalGeneration(config)


def _text() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    return tokenizer, Qwen2ForCausalLM(Qwen2Config(**_text_settings(tokenizer)))


_BUILDERS = {
    "videollama3": _videollama3,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "smolvlm": _smolvlm,
    "llava_onevision": _llava_onevision,
    "internvl": _internvl,
    "gemma3": _gemma3,
    "text": _text,
}
