"""LoRA on the language model, and its kin: rank-stabilised LoRA and DoRA."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from vidvec_msg.embedders.language_model import linear_targets
from vidvec_msg.errors import RefusedRequest

ALL_LINEARS = "language-model-linears"

ADAPTABLE = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""What peft adapts of the modules that language models are made of."""


@dataclass(frozen=True)  # no slots: jsonargparse reads defaults with vars()
class LoraOptions:
    """Low-rank adapters.

    Args:
        r: rank. VidVec and LamRA take 64.
        alpha: scale; an update is weighted alpha / r. VidVec and LamRA take 128.
        dropout: share of an adapter's inputs that is dropped in training. LamRA takes 0.05.
        targets: "language-model-linears" adapts every linear of the language model's blocks; otherwise a
            regex that must match a whole module path of the tower, such as ".*self_attn.(q|v)_proj".
        rank_stabilised: weight updates by alpha / √r instead (rsLoRA, Kalajdzievski 2023).
        dora: split each weight into length and direction and adapt both (DoRA, Liu et al. 2024): closer to
            full fine-tuning at low ranks, for the norm of every adapted weight in every forward pass. Not
            under ZeRO-3.
    """

    r: int = 64
    alpha: float = 128
    dropout: float = 0.05
    targets: str = ALL_LINEARS
    rank_stabilised: bool = False
    dora: bool = False

    def __post_init__(self) -> None:
        if self.r < 1:
            raise ValueError(f"lora.r is {self.r}; it must be at least 1")
        if not self.alpha > 0:
            raise ValueError(f"lora.alpha is {self.alpha}; it must be above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"lora.dropout is {self.dropout}; it must be at least 0 and below 1")
        try:
            re.compile(self.targets)
        except re.error as error:
            raise ValueError(
                f"lora.targets {self.targets!r} is no regex ({error}); give one such as "
                f"'.*self_attn.(q|v)_proj', or {ALL_LINEARS}"
            ) from error


def targets_of(tower: nn.Module, options: LoraOptions) -> str:
    """The regex of the modules that carry adapters.

    Args:
        tower: the language model, with weights or without.
        options: of the adapter.

    Raises:
        RefusedRequest: the targets match no linear of the tower, or a module that cannot carry an adapter.
    """
    targets = linear_targets(tower) if options.targets == ALL_LINEARS else options.targets
    inner = ((name, module) for name, module in tower.named_modules() if name)
    matched = {name: module for name, module in inner if re.fullmatch(targets, name)}
    strangers = [name for name, module in matched.items() if not isinstance(module, ADAPTABLE)]
    if any(isinstance(module, nn.Linear) for module in matched.values()) and not strangers:
        return targets
    linears = {re.sub(r"\d+", "N", name) for name, m in tower.named_modules() if isinstance(m, nn.Linear)}
    wrong = "matches none of the language model's linears"
    if strangers:
        first = strangers[0]
        wrong = (
            f"matches {first!r} too, a {type(matched[first]).__name__}, which carries no adapter; name the "
            "language model's linears alone"
        )
    raise RefusedRequest(
        f"lora.targets {targets!r} {wrong}; it has: {', '.join(sorted(linears))}. Targets are a regex of "
        f"whole paths, such as '.*self_attn.(q|v)_proj', or {ALL_LINEARS}"
    )


def add_lora(tower: nn.Module, options: LoraOptions) -> PeftModel:
    """Freezes the tower and puts adapters on it; a fresh adapter changes nothing (its B matrices are 0, and
    DoRA's lengths those of the weights).

    Raises:
        RefusedRequest: see :func:`targets_of`.
    """
    targets = targets_of(tower, options)
    return get_peft_model(
        tower,
        LoraConfig(
            r=options.r,
            lora_alpha=options.alpha,
            lora_dropout=options.dropout,
            target_modules=targets,
            use_rslora=options.rank_stabilised,
            use_dora=options.dora,
            bias="none",
            task_type="FEATURE_EXTRACTION",
        ),
    )
