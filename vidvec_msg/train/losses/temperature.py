"""What divides the cosines of a contrast: a number, or a parameter that trains."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LOWEST = 0.01  # CLIP clips its learned scale at 100 (Radford et al. 2021, §2.5): below, training diverges


class Temperature(nn.Module):
    """A temperature, fixed or learned.

    Args:
        value: the temperature, or where a learned one begins.
        learned: trains its logarithm together with the adapter, never below 0.01.

    Raises:
        ValueError: not a finite number above 0; or learned and below 0.01.
    """

    def __init__(self, value: float, *, learned: bool = False) -> None:
        super().__init__()
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"temperature is {value}; it must be a finite number above 0 (0.02 to 0.1 is usual)"
            )
        if learned and value < LOWEST:
            raise ValueError(f"temperature is {value}; a learned one begins at {LOWEST} or above")
        self.value = value
        self.logarithm = nn.Parameter(torch.tensor(math.log(value))) if learned else None

    def forward(self) -> Tensor | float:
        """What to divide by; a learned one is a scalar with gradients."""
        if self.logarithm is None:
            return self.value
        with torch.no_grad():  # the parameter itself: below a clamp in the graph there is no way back
            self.logarithm.clamp_(min=math.log(LOWEST))
        return self.logarithm.exp()
