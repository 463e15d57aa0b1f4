"""Tiny but real multimodal LLMs, built from a configuration on the spot: no network, a second each.

Random weights, about 300 thousand parameters; saved as a checkpoint folder that the Auto classes reopen.
They say nothing about quality and everything about mechanics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLImageProcessor,
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

Family = Literal["videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm", "text"]
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

QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}{{ '<image>' }}{% elif part['type'] == 'video' %}{{ '<video>' }}"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
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


def _qwen2_5_vl() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    shape = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**shape, size=size),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**shape, size=size),
        chat_template=QWEN_TEMPLATE,
    )
    config = Qwen2_5_VLConfig(
        text_config={
            **_text_settings(tokenizer),
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        },
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "depth": 2,
            "num_heads": 4,
            "patch_size": PATCH,
            "window_size": 32,
            "fullatt_block_indexes": [1],
            "out_hidden_size": WIDTH,
        },
        tie_word_embeddings=True,
        **_qwen_ids(tokenizer),
    )
    return processor, Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    shape = {"patch_size": PATCH, "merge_size": 2, "temporal_patch_size": 2}
    size = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64 * 64}
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**shape, size=size),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**shape, size=size),
        chat_template=QWEN_TEMPLATE,
    )
    config = Qwen3VLConfig(
        text_config={
            **_text_settings(tokenizer),
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
        },
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "depth": 2,
            "num_heads": 4,
            "patch_size": PATCH,
            "out_hidden_size": WIDTH,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        tie_word_embeddings=True,
        **_qwen_ids(tokenizer),
    )
    return processor, Qwen3VLForConditionalGeneration(config)


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


def _text() -> tuple[Any, Any]:
    tokenizer = _qwen_tokenizer()
    return tokenizer, Qwen2ForCausalLM(Qwen2Config(**_text_settings(tokenizer)))


_BUILDERS = {
    "videollama3": _videollama3,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "smolvlm": _smolvlm,
    "text": _text,
}
