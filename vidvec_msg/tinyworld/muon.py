"""Muon for small matrices on a CPU.

Momentum, then the nearest orthogonal matrix by Newton–Schulz steps (Jordan 2024,
kellerjordan.github.io/posts/muon). torch.optim.Muon does the same in bfloat16, one matrix at a time, which
CPUs without bf16 units run slowly; here matrices of one shape go through in float32 together, in four
steps instead of five.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: torch.Tensor, steps: int = 4) -> torch.Tensor:
    """Matrices with the same singular vectors and singular values near 1; (count, rows, columns)."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x: torch.Tensor = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; steps are scaled to AdamW's usual size, so one rate serves both.

    Args:
        params: matrices only.
        lr: step size; an update's root mean square is about 0.2 lr (Moonshot's matching of Muon to AdamW).
        momentum: of the gradient average.
        weight_decay: decoupled.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 2e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step; parameters without a gradient stay."""
        del closure
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state: dict[str, Any] = self.state[parameter]
                if "average" not in state:
                    state["average"] = torch.zeros_like(parameter)
                average = state["average"].mul_(group["momentum"]).add_(parameter.grad)
                update = parameter.grad.add(average, alpha=group["momentum"])
                by_shape.setdefault(parameter.shape, []).append((parameter, update))
            for shape, pairs in by_shape.items():
                updates = orthogonalize(torch.stack([update for _, update in pairs]))
                scale = 0.2 * max(shape) ** 0.5
                for (parameter, _), update in zip(pairs, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(
                        update, alpha=-group["lr"] * scale
                    )
