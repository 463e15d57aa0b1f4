"""A tiny but real LLaVA-NeXT on Llama, E5-V's family, as :mod:`tiny_models` builds the others."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_models import LAYERS, PATCH, WIDTH, build_tokenizer
from transformers import (
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
)

SPECIALS = {
    "image_token": "<image>",
    "start_header": "<|start_header_id|>",
    "end_header": "<|end_header_id|>",
    "end_of_turn": "<|eot_id|>",
}
TEMPLATE = (
    "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def build_tiny_llava_next(folder: Path | str, *, seed: int = 0) -> Path:
    """Saves the model, with its processor, into a folder.

    Args:
        folder: made if it does not exist.
        seed: of the random weights.
    """
    folder = Path(folder)
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(SPECIALS, TEMPLATE, eos="<|eot_id|>", pad="<|pad|>")
    processor = LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, image_grid_pinpoints=[[32, 64]]
        ),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )
    config = LlavaNextConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": PATCH,
            "image_size": 32,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=[[32, 64]],
    )
    LlavaNextForConditionalGeneration(config).eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
