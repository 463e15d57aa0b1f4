"""LoRA: on every linear of the blocks, on nothing else, changing nothing before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_models import LAYERS

from vidvec_msg.embedders.language_model import hidden_state, load_language_model
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.lora import LoraOptions, add_lora
from vidvec_msg.train.tuning import account

IDS = torch.arange(5, 14)[None]


def test_a_fresh_adapter_changes_nothing_and_only_it_trains(tiny: Path) -> None:
    tower = load_language_model(tiny)
    before = hidden_state(tower, IDS, torch.ones_like(IDS))
    adapted = add_lora(tower, LoraOptions(r=4))
    torch.testing.assert_close(hidden_state(adapted, IDS, torch.ones_like(IDS)), before, rtol=0, atol=0)
    names = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(names) == LAYERS * 7 * 2  # q k v o gate up down, A and B
    assert all("lora_" in name for name in names)


def test_a_fresh_dora_keeps_the_vectors_and_trains_a_length_per_weight_row(tiny: Path) -> None:
    tower = load_language_model(tiny)
    before = hidden_state(tower, IDS, torch.ones_like(IDS))
    adapted = add_lora(tower, LoraOptions(r=4, dora=True))
    torch.testing.assert_close(hidden_state(adapted, IDS, torch.ones_like(IDS)), before)
    layer = adapted.get_submodule("base_model.model.layers.0.mlp.up_proj")
    lengths = layer.lora_magnitude_vector["default"].weight  # (out,)
    torch.testing.assert_close(lengths, layer.get_base_layer().weight.norm(dim=1))
    assert lengths.requires_grad


def test_targets_narrow_the_adapter(tiny: Path) -> None:
    adapted = add_lora(load_language_model(tiny), LoraOptions(r=4, targets=r".*self_attn\.(q|v)_proj"))
    assert account(adapted).endswith(f"LoRA on q_proj ×{LAYERS}, v_proj ×{LAYERS}")


def test_targets_that_match_nothing_are_refused_with_what_there_is(tiny: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"matches none of .* it has: layers.N.mlp.down_proj"):
        add_lora(load_language_model(tiny), LoraOptions(targets="q_proj"))


def test_targets_that_carry_no_adapter_are_refused_by_name(tiny: Path) -> None:
    tower = load_language_model(tiny)
    for targets, found in ((".*", "'layers' too, a ModuleL"), (".*norm|.*q_proj", "norm' too, a Qwen2RMSN")):
        with pytest.raises(RefusedRequest, match=rf"{found}.*, which carries no adapter; .* has: layers\.N"):
            add_lora(tower, LoraOptions(targets=targets))
    assert add_lora(tower, LoraOptions(r=4, targets=".*embed_tokens|.*q_proj"))


def test_targets_that_are_no_regex_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lora.targets '\(q' is no regex \(missing \), .*give one such as"):
        LoraOptions(targets="(q")


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
