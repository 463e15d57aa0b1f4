"""The two sides of the training benchmarks: our module and sentence-transformers', the same but for the way.

The same weights, texts with the same words around them (their token ids are compared), LoRA on the same
linears from the same start, AdamW and its learning rate, symmetric InfoNCE at a temperature of 0.05
(``MultipleNegativesRankingLoss`` with a scale of 20, both directions apart), float32.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses import InfoNCE
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions

PAIRS = Path(__file__).parent.parent / "data" / "pairs.jsonl"
LR = 5e-4
TEMPERATURE = 0.05
R, ALPHA = 32, 64  # the shape of configs/train/smollm2_cpu.yaml; rank 64 leaves the ratios as they are
MAX_TOKENS = 512


def read(count: int) -> list[Pair]:
    """The first of the project's pairs; all their texts differ."""
    with PAIRS.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for _, line in zip(range(count), lines, strict=False)]
    return [Pair(row["anchor"], row["positive"]) for row in rows]


def our_module(
    folder: Path,
    *,
    dropout: float,
    dtype: str = "float32",
    grad_cache: bool = False,
    blocks: int | None = None,
) -> TextContrastive:
    """Our side; ``blocks`` leaves out the later ones."""
    torch.manual_seed(0)
    with quiet_progress():
        made = TextContrastive(
            str(folder),
            loss=InfoNCE(TEMPERATURE),
            lora=LoraOptions(R, ALPHA, dropout),
            optimizer=OptimizerOptions(lr=LR, warmup_ratio=0.0, schedule="constant"),
            max_tokens=MAX_TOKENS,
            dtype=dtype,  # type: ignore[arg-type]  # a name
            grad_cache=grad_cache,
        )
    if blocks is not None:
        tower = made.tower.get_base_model()
        tower.layers = tower.layers[:blocks]
    return made


def their_model(folder: Path, ours: TextContrastive, *, dropout: float, blocks: int | None = None) -> Any:
    """sentence-transformers' model: the same tower, last token, unit vectors, the same adapter."""
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    with quiet_progress():
        words = modules.Transformer(str(folder), max_seq_length=MAX_TOKENS)
    if words.tokenizer.pad_token is None:
        words.tokenizer.pad_token = words.tokenizer.eos_token
    words.tokenizer.padding_side = "right"
    pooling = modules.Pooling(words.get_embedding_dimension(), pooling_mode="lasttoken")
    model = SentenceTransformer(modules=[words, pooling, modules.Normalize()], device="cpu")
    tower = words.model if hasattr(words, "model") else words.auto_model
    if blocks is not None:
        tower.layers = tower.layers[:blocks]
    (ours_config,) = ours.tower.peft_config.values()
    targets = ours_config.target_modules
    model.add_adapter(
        LoraConfig(r=R, lora_alpha=ALPHA, lora_dropout=dropout, target_modules=targets, bias="none")
    )
    copy_adapter(adapter_of(ours), model)
    return model


def adapter_of(model: Any) -> dict[str, Tensor]:
    """Weights that train, under names that both sides share."""
    return {
        shared_name(name): parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def copy_adapter(weights: dict[str, Tensor], model: Any) -> None:
    """Puts an adapter's weights onto a side; refuses one that does not fit."""
    own = {shared_name(name): p for name, p in model.named_parameters() if p.requires_grad}
    if own.keys() != weights.keys():
        strange = sorted(own.keys() ^ weights.keys())
        raise SystemExit(f"the adapters of the two sides differ, for example in {strange[0]}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def shared_name(name: str) -> str:
    """``layers.0.self_attn.q_proj.lora_A.default.weight`` of what either side calls it."""
    return name[name.index("layers.") :]


def worded(ours: TextContrastive, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with the words of our prompt around each text, for the side that knows no prompts."""

    def words(text: str) -> str:
        return ours.chat.text_turn(ours.prompt, text, max_tokens=MAX_TOKENS).prompt

    return [Pair(words(pair.anchor), words(pair.positive)) for pair in pairs]


def refuse_other_tokens(ours: TextContrastive, theirs: Any, pairs: Sequence[Pair]) -> None:
    """Both sides must read the same tokens."""
    for plain, full in zip(pairs, worded(ours, pairs), strict=True):
        for text, whole in ((plain.anchor, full.anchor), (plain.positive, full.positive)):
            expected, found = list(ours.tokenise(text).ids), theirs.tokenizer(whole)["input_ids"]
            if expected != found:
                raise SystemExit(f"the two sides read {text!r} as {expected} and {found}")


def their_loss(model: Any, *, cached: bool = False, rows: int = 32) -> Any:
    """MultipleNegativesRankingLoss in the form that ours has.

    Args:
        model: of :func:`their_model`.
        cached: its GradCache form.
        rows: texts of a chunk of it; 32 is its default.
    """
    from sentence_transformers.sentence_transformer import losses

    form: dict[str, Any] = {
        "scale": 1 / TEMPERATURE,
        "directions": ("query_to_doc", "doc_to_query"),
        "partition_mode": "per_direction",
    }
    if cached:
        return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=rows, **form)
    return losses.MultipleNegativesRankingLoss(model, **form)
