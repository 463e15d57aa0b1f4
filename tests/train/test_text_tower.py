"""Whether the tower is told of padding: only one that would look at it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vidvec_msg.embedders.language_model import load_language_model
from vidvec_msg.train.batches import Tokens, pad
from vidvec_msg.train.text_tower import last_states, reads_padding


class Looks(nn.Module):
    """A tower without a causal mask: each state holds the mean of all that it is not told to leave out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(300, 8)
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity(), nn.Identity()])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> SimpleNamespace:
        states = self.embed(input_ids)  # (texts, tokens, dim)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mean = (states * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        return SimpleNamespace(last_hidden_state=states + mean[:, None])


def letters(text: str) -> Tokens:
    return Tokens([ord(letter) for letter in text])


def test_a_causal_tower_is_not_told_and_keeps_its_blocks(tiny: Path) -> None:
    tower = load_language_model(tiny)
    blocks = tower.layers
    assert not reads_padding(tower, letters)
    assert tower.layers is blocks
    passage = pad([[5, 6, 7], [8, 9, 10, 11, 12, 13]])
    told, untold = (last_states(tower, passage, layer=-1, masked=masked) for masked in (True, False))
    torch.testing.assert_close(untold, told)


def test_a_tower_that_looks_to_the_right_is_told() -> None:
    tower = Looks()
    assert reads_padding(tower, letters)
    passage = pad([[5, 6, 7], [8, 9, 10, 11, 12, 13]])
    told, alone = (last_states(tower, which, layer=-1)[0] for which in (passage, pad([[5, 6, 7]])))
    torch.testing.assert_close(told, alone)
    assert not torch.allclose(last_states(tower, passage, layer=-1, masked=False)[0], alone)


def test_the_blocks_come_back_when_the_trial_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise RuntimeError("the trial fails")

    tower = Looks()
    monkeypatch.setattr("vidvec_msg.train.text_tower.needs_mask", fail)
    with pytest.raises(RuntimeError, match="the trial fails"):
        reads_padding(tower, letters)
    assert len(tower.layers) == 3
