"""A temperature that trains, and values that cannot be one."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import EncodedPairs, InfoNCE, PairKeys
from vidvec_msg.train.losses.temperature import LOWEST, Temperature


def test_a_fixed_one_is_a_number_and_has_nothing_to_train() -> None:
    temperature = Temperature(0.05)
    assert temperature() == 0.05
    assert not list(temperature.parameters())


def test_a_learned_one_begins_at_its_value_and_never_falls_below_the_bound() -> None:
    temperature = Temperature(0.05, learned=True)
    assert temperature().item() == pytest.approx(0.05)
    with torch.no_grad():
        temperature.logarithm.fill_(-50.0)
    assert temperature().item() == pytest.approx(LOWEST)
    temperature().backward()
    assert temperature.logarithm.grad > 0  # it can rise again


def test_pairs_that_fit_pull_a_learned_temperature_down() -> None:
    """Separated pairs gain by a sharper softmax; that is what the gradient says."""
    torch.manual_seed(0)
    vectors = normalize(torch.eye(4) + 0.1 * torch.randn(4, 4), dim=-1)
    pairs = EncodedPairs(
        vectors, vectors, torch.zeros(4, 0, 4), PairKeys.of([Pair(f"a{i}", f"p{i}") for i in range(4)])
    )
    loss = InfoNCE(0.2, learn_temperature=True)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    before = loss.temperature().item()
    for _ in range(5):
        optimizer.zero_grad()
        loss(pairs, pairs, 0).rows.mean().backward()
        optimizer.step()
    assert loss.temperature().item() < before - 0.01


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_values_that_are_none(value: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {value}; it must be a finite number above 0"):
        Temperature(value)


def test_a_learned_one_cannot_begin_below_its_bound() -> None:
    with pytest.raises(ValueError, match=r"temperature is 0.001; a learned one begins at 0.01 or above"):
        Temperature(0.001, learned=True)
