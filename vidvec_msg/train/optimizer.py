"""AdamW with a warm-up and a schedule, both in shares of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

Schedule = Literal["cosine", "constant"]


@dataclass(frozen=True)  # no slots: jsonargparse reads defaults with vars()
class OptimizerOptions:
    """AdamW and its schedule. VidVec does not publish them; the defaults are LamRA's.

    Args:
        lr: highest learning rate.
        weight_decay: decoupled decay per step, times lr.
        warmup_ratio: share of all steps in which lr rises from 0. A ratio and not a number of steps: 100
            steps of warm-up would be half of VidVec-Msg's whole run of about 240.
        schedule: after the warm-up: "cosine" falls to 0 at the end, "constant" stays.
        beta1: decay of the mean of gradients.
        beta2: decay of the mean of squared gradients.
    """

    lr: float = 2e-4
    weight_decay: float = 0.0
    warmup_ratio: float = 0.03
    schedule: Schedule = "cosine"
    beta1: float = 0.9
    beta2: float = 0.999

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"optimizer.lr is {self.lr}; it must be a finite number above 0")
        if not self.weight_decay >= 0:
            raise ValueError(f"optimizer.weight_decay is {self.weight_decay}; it must be at least 0")
        if not 0 <= self.warmup_ratio < 1:
            raise ValueError(
                f"optimizer.warmup_ratio is {self.warmup_ratio}; it must be at least 0 and below 1"
            )
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise ValueError(f"optimizer.{name} is {beta}; it must be at least 0 and below 1")
        if self.schedule not in get_args(Schedule):
            raise ValueError(
                f"optimizer.schedule is {self.schedule!r}; accepted: {', '.join(get_args(Schedule))}"
            )


def make_optimizer(
    parameters: Iterable[nn.Parameter], options: OptimizerOptions, steps: int
) -> tuple[torch.optim.AdamW, LambdaLR]:
    """The optimizer and its scheduler, to be stepped once per optimizer step.

    Args:
        parameters: those that train.
        options: see :class:`OptimizerOptions`.
        steps: optimizer steps of the whole run.
    """
    optimizer = torch.optim.AdamW(
        parameters, lr=options.lr, weight_decay=options.weight_decay, betas=(options.beta1, options.beta2)
    )
    return optimizer, LambdaLR(optimizer, lambda step: lr_share(step, steps, options))


def lr_share(step: int, steps: int, options: OptimizerOptions) -> float:
    """Share of the highest learning rate at a step (the first is 0): (0, 1]."""
    warmup = math.ceil(options.warmup_ratio * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if options.schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(steps - warmup, 1)
    return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
