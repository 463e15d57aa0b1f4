"""LoRA: on every linear of the blocks, on nothing else, changing nothing before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import LAYERS

from vidvec_msg.embedders.language_model import hidden_state, load_language_model
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.lora import LoraOptions, account, add_lora

IDS = torch.arange(5, 14)[None]


def test_a_fresh_adapter_changes_nothing_and_only_it_trains(tiny: Path) -> None:
    tower = load_language_model(tiny)
    before = hidden_state(tower, IDS, torch.ones_like(IDS))
    adapted = add_lora(tower, LoraOptions(r=4))
    torch.testing.assert_close(hidden_state(adapted, IDS, torch.ones_like(IDS)), before, rtol=0, atol=0)
    names = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(names) == LAYERS * 7 * 2  # q k v o gate up down, A and B
    assert all("lora_" in name for name in names)


def test_the_account_says_what_trains(tiny: Path) -> None:
    text = account(add_lora(load_language_model(tiny), LoraOptions(r=4)))
    assert "12,288 of 156,160 parameters train (7.87%)" in text
    assert f"q_proj ×{LAYERS}" in text


def test_targets_narrow_the_adapter(tiny: Path) -> None:
    adapted = add_lora(load_language_model(tiny), LoraOptions(r=4, targets=r".*self_attn\.(q|v)_proj"))
    assert account(adapted).endswith(f"LoRA on q_proj ×{LAYERS}, v_proj ×{LAYERS}")


def test_targets_that_match_nothing_are_refused_with_what_there_is(tiny: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"matches none of .* it has: layers.N.mlp.down_proj"):
        add_lora(load_language_model(tiny), LoraOptions(targets="q_proj"))


def test_rank_alpha_dropout_and_scaling_reach_the_layers(tiny: Path) -> None:
    options = LoraOptions(r=4, alpha=8, dropout=0.25, rank_stabilised=True)
    layer = add_lora(load_language_model(tiny), options).get_submodule(
        "base_model.model.layers.0.mlp.up_proj"
    )
    assert layer.r["default"] == 4
    assert layer.scaling["default"] == 8 / 2
    assert layer.lora_dropout["default"].p == 0.25
    plain = add_lora(load_language_model(tiny), LoraOptions(r=4, alpha=8))
    assert plain.get_submodule("base_model.model.layers.0.mlp.up_proj").scaling["default"] == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [({"r": 0}, "lora.r is 0"), ({"alpha": 0}, "lora.alpha is 0"), ({"dropout": 1.0}, "lora.dropout is 1.0")],
)
def test_wrong_options_are_refused(options: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        LoraOptions(**options)  # type: ignore[arg-type]
