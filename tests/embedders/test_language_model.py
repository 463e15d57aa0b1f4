"""The text tower alone equals the text tower inside the full model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, Family, build_tiny_mllm
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, BertConfig

from vidvec_msg.embedders.backbone import load_backbone
from vidvec_msg.embedders.language_model import (
    hidden_state,
    language_model_of,
    language_model_outline,
    linear_targets,
    load_language_model,
)
from vidvec_msg.errors import RefusedRequest

MASK = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
IDS = torch.arange(18).reshape(2, 9) + 20


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_mllm(tmp_path_factory.mktemp(family) / "model", family)


def full_model(folder: Path, family: Family) -> nn.Module:
    kind = AutoModelForCausalLM if family == "text" else AutoModelForImageTextToText
    model: nn.Module = kind.from_pretrained(folder).eval()
    return model


def test_the_tower_alone_gives_the_full_models_states(folder: Path, family: Family) -> None:
    tower, full = load_language_model(folder), full_model(folder, family)
    with torch.no_grad():
        alone = hidden_state(tower, IDS, MASK)
        inside = full.model(input_ids=IDS, attention_mask=MASK).last_hidden_state
        module = language_model_of(full)(input_ids=IDS, attention_mask=MASK).last_hidden_state
    assert torch.equal(alone[MASK > 0], inside[MASK > 0])
    assert torch.equal(alone[MASK > 0], module[MASK > 0])


def test_nothing_but_the_language_model_is_in_memory(folder: Path, family: Family) -> None:
    tower = load_language_model(folder)
    names = [name for name, _ in tower.named_parameters()]
    assert not [name for name in names if re.search("vis|projector|connector|merger|lm_head", name)]
    assert sum(p.numel() for p in tower.parameters()) == sum(
        p.numel() for p in language_model_of(full_model(folder, family)).parameters()
    )


def test_the_targets_are_the_linears_of_the_blocks_and_nothing_of_the_full_model(
    folder: Path, family: Family
) -> None:
    tower, full = load_language_model(folder), full_model(folder, family)
    targets = linear_targets(tower)
    inner = {id(module) for module in language_model_of(full).modules()}
    outside = [name for name, m in full.named_modules() if isinstance(m, nn.Linear) and id(m) not in inner]
    assert family == "text" or len(outside) > 6  # the vision tower's and the projector's
    for prefix in ("", "base_model.model.", "model.language_model.", "model."):
        assert not [name for name in outside if re.fullmatch(targets, name.removeprefix(prefix))]
    matched = {name for name, _ in tower.named_modules() if re.fullmatch(targets, name)}
    assert matched == {name for name, m in tower.named_modules() if isinstance(m, nn.Linear)}
    assert len(matched) == 3 * 7
    if family != "text":
        assert not [name for name, _ in full.named_modules() if re.fullmatch(targets, name)]


def test_the_outline_has_the_towers_modules_and_reads_no_weights(folder: Path, tmp_path: Path) -> None:
    tower = load_language_model(folder)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())  # and no other file
    before = torch.get_rng_state()
    outline = language_model_outline(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)  # a fit with this check draws the same adapter
    assert {(name, type(m)) for name, m in outline.named_modules()} == {
        (name, type(m)) for name, m in tower.named_modules()
    }
    assert {(name, p.shape) for name, p in outline.named_parameters()} == {
        (name, p.shape) for name, p in tower.named_parameters()
    }
    assert {p.device.type for p in outline.parameters()} == {"meta"}
    assert outline.config.hidden_size == tower.config.hidden_size


def test_a_damaged_weights_file_is_a_refusal(tmp_path: Path) -> None:
    folder = build_tiny_mllm(tmp_path / "model", "text")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(RefusedRequest, match=r"its weights cannot be read .*header too small"):
        load_language_model(folder)
    where = {"device": torch.device("cpu"), "dtype": "float32"}
    with pytest.raises(RefusedRequest, match=r"cannot load the model .*header too small"):
        load_backbone(str(folder), revision=None, trust_remote_code=False, **where)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    return load_language_model(build_tiny_mllm(tmp_path_factory.mktemp("one") / "model"))


def test_a_layer_is_a_blocks_raw_output_and_minus_one_is_the_normed_final_state(tower: nn.Module) -> None:
    with torch.no_grad():
        states = [hidden_state(tower, IDS, MASK, layer=layer) for layer in range(4)]
        final = hidden_state(tower, IDS, MASK)
        reference = tower(input_ids=IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
        assert torch.equal(states[0], tower.get_submodule("embed_tokens")(IDS))
        assert torch.equal(states[1], reference[1])
        assert torch.equal(states[2], reference[2])
        assert torch.equal(tower.get_submodule("norm")(states[3]), final)
        assert not torch.equal(states[3], final)


def test_a_layer_that_does_not_exist_is_refused(tower: nn.Module) -> None:
    with pytest.raises(RefusedRequest, match=r"layer 4 does not exist; accepted: -1 .* to 3"):
        hidden_state(tower, IDS, MASK, layer=4)


def test_dtype(tmp_path: Path) -> None:
    folder = build_tiny_mllm(tmp_path / "model", "text")
    assert next(load_language_model(folder, dtype="bfloat16").parameters()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "layout",
    [
        (r"^model\.language_model\.", "language_model.model."),  # checkpoints of transformers before 4.52
        (r"^model\.language_model\.", "thinker.model."),  # Qwen-Omni
        (r"^model\.language_model\.", "model."),  # Qwen2-VL and Qwen2.5-VL on the hub
    ],
    ids=["language_model.model", "thinker.model", "model"],
)
def test_checkpoints_with_other_key_layouts_load_the_same_weights(
    tmp_path: Path, layout: tuple[str, str]
) -> None:
    folder = build_tiny_mllm(tmp_path / "model")
    expected = hidden_state(load_language_model(folder), IDS, MASK)
    rename(folder, *layout)
    torch.testing.assert_close(hidden_state(load_language_model(folder), IDS, MASK), expected, rtol=0, atol=0)


def test_weights_that_are_not_found_are_refused_and_never_random(tmp_path: Path) -> None:
    folder = build_tiny_mllm(tmp_path / "model")
    rename(folder, r"^model\.language_model\.", "somewhere.else.")
    with pytest.raises(
        RefusedRequest, match=r"weights of its language model are not in the checkpoint .*KEY_MAPPING"
    ):
        load_language_model(folder)


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    folder = build_tiny_mllm(tmp_path / "model", "text")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")  # a whole checkpoint, but a pickled one
    with pytest.raises(RefusedRequest, match="its weights cannot be read"):
        load_language_model(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="its configuration cannot be read"):
        load_language_model(tmp_path)


def test_a_model_without_a_language_model_is_refused() -> None:
    with pytest.raises(
        RefusedRequest, match="Linear has no language model with a list of transformer blocks"
    ):
        language_model_of(nn.Linear(2, 2))


def test_the_model_without_a_language_model_is_named_with_what_is_accepted(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    BertConfig(vocab_size=9, is_decoder=True, **sizes).save_pretrained(tmp_path)
    for load in (load_language_model, language_model_outline):
        with pytest.raises(RefusedRequest) as refusal:
            load(tmp_path)
        assert str(refusal.value) == (
            f"model {tmp_path} (BertLMHeadModel) has no language model with a list of transformer blocks "
            "called layers; give (--model.model) a folder or a hub name of a multimodal LLM or an LLM that "
            "has (of transformers' AutoModelForImageTextToText or AutoModelForCausalLM, such as Qwen's or "
            "Llama's)"
        )


def rename(folder: Path, pattern: str, replacement: str) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file(
        {re.sub(pattern, replacement, key): tensor for key, tensor in weights.items()}, path, {"format": "pt"}
    )
