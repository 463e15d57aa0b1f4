"""The model, from nothing but a config: a stock VideoLlama3 of about 3 M parameters with its stock processor.

No class of its own: what `build` saves is opened by transformers' Auto classes. A clip of 8 frames at 48 ×
48 px costs 80 tokens (one timestamp and 9 patches a frame).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch.nn import functional
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    VideoLlama3Config,
    VideoLlama3ForConditionalGeneration,
    VideoLlama3ImageProcessor,
    VideoLlama3Processor,
    VideoLlama3VideoProcessor,
)
from transformers.models.video_llama_3.configuration_video_llama_3 import VideoLlama3VisionConfig
from transformers.models.video_llama_3.modeling_video_llama_3 import apply_rotary_pos_emb_vision

from vidvec_msg.tinyworld.clips import MODEL_FRAMES, MODEL_SIZE

PAD, USER, SYSTEM, ASSISTANT, END = "<|pad|>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
SPECIAL_TOKENS = (PAD, USER, SYSTEM, ASSISTANT, END, IMAGE, VIDEO)

# A role token, the contents, an end token: with no newline between, the first word of a text is the same
# token as the same word elsewhere, which a model this small cannot afford to learn twice.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<|video_pad|>"
    "{% elif part['type'] == 'image' %}<|image_pad|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Widths and depths.

    Args:
        width, layers, heads, kv_heads, feed_forward: the language model's.
        vision_width, vision_layers, vision_heads, vision_feed_forward: the vision tower's.
        vocabulary: tokens the BPE may learn, timestamps and special tokens on top.
        patch: side of a patch, pixels.
    """

    width: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    feed_forward: int = 384
    vision_width: int = 192
    vision_layers: int = 3
    vision_heads: int = 4
    vision_feed_forward: int = 384
    vocabulary: int = 1400
    patch: int = 16


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A lower-casing byte-level BPE; timestamps up to 5.9 s are one token each, their comma included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, SYSTEM, ASSISTANT, IMAGE, VIDEO],
        padding_side="left",
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    times = [f"Time {tenths / 10:.1f}s:" for tenths in range(60)]
    fast.add_tokens(times + [f",{time}" for time in times])
    return fast


def build_processor(tokenizer: PreTrainedTokenizerFast, size: ModelSize) -> VideoLlama3Processor:
    """The stock processor; every frame of an 8-frame clip is resized to 48 × 48 px."""
    pixels = MODEL_SIZE * MODEL_SIZE
    shared: dict[str, Any] = {"patch_size": size.patch, "temporal_patch_size": 1, "merge_size": 1}
    return VideoLlama3Processor(
        image_processor=VideoLlama3ImageProcessor(min_pixels=pixels, max_pixels=pixels, **shared),
        # the video processor's upper bound is for the whole clip: it divides it by the number of frames
        video_processor=VideoLlama3VideoProcessor(
            min_pixels=pixels,
            max_pixels=pixels * MODEL_FRAMES,
            use_token_compression=False,
            do_sample_frames=False,
            max_frames=MODEL_FRAMES,
            **shared,
        ),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, size: ModelSize) -> VideoLlama3ForConditionalGeneration:
    """The model with random weights drawn from torch's global generator."""
    text = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=1024,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    vision = VideoLlama3VisionConfig(
        hidden_size=size.vision_width,
        intermediate_size=size.vision_feed_forward,
        num_hidden_layers=size.vision_layers,
        num_attention_heads=size.vision_heads,
        patch_size=size.patch,
    )
    config = VideoLlama3Config(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        video_token_id=tokenizer.convert_tokens_to_ids(VIDEO),
        tie_word_embeddings=True,
    )
    return VideoLlama3ForConditionalGeneration(config)


def patchify(frames: torch.Tensor, patch: int) -> torch.Tensor:
    """What the video processor does to frames of the right size, for a whole batch at once.

    Args:
        frames: (frames, height, width, 3) uint8.
        patch: side of a patch, pixels.

    Returns:
        (frames, patches, 3 * patch * patch) float32 in [-1, 1].
    """
    count, height, width, _ = frames.shape
    pixels = frames.permute(0, 3, 1, 2).float().div(127.5).sub(1)  # (frames, 3, height, width)
    grid = pixels.reshape(count, 3, height // patch, patch, width // patch, patch)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(count, -1, 3 * patch * patch)


def encode_frames(model: VideoLlama3ForConditionalGeneration, patches: torch.Tensor) -> torch.Tensor:
    """The vision tower and projector on equal frames, as one batch.

    The stock tower attends frame by frame in a Python loop on CPUs: 256 calls a layer for a batch of 32
    clips. This is the same arithmetic with the same weights (a test compares them), about twice as fast to
    train.

    Args:
        model: the model.
        patches: (frames, patches, patch pixels), see `patchify`.

    Returns:
        (frames, patches, text width).
    """
    tower = model.model.vision_model
    count, tokens, _ = patches.shape
    # a convolution whose stride is its kernel is a matrix product, and on CPUs a faster one
    filters = tower.embeddings.patch_embedding
    hidden = functional.linear(
        patches, filters.weight.flatten(1), filters.bias
    )  # (frames, patches, vision width)
    side = round(tokens**0.5)
    rows = torch.arange(side).repeat_interleave(side)
    positions = torch.stack([rows, torch.arange(side).repeat(side)], dim=-1)  # (patches, 2)
    cos, sin = tower.rotary_pos_emb(hidden, positions)
    for layer in tower.encoder.layers:
        attention = layer.self_attn
        normed = layer.layer_norm1(hidden)
        heads = (count, tokens, attention.num_heads, attention.head_dim)
        query, key = apply_rotary_pos_emb_vision(
            attention.q_proj(normed).view(heads), attention.k_proj(normed).view(heads), cos, sin
        )
        value = attention.v_proj(normed).view(heads)
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=attention.scaling
        )  # (frames, heads, patches, head width)
        hidden = hidden + attention.out_proj(mixed.transpose(1, 2).reshape(count, tokens, -1))
        hidden = hidden + layer.mlp(layer.layer_norm2(hidden))
    features: torch.Tensor = model.model.projector(tower.post_layernorm(hidden))
    return features
