"""What trains: an adapter of any kind or the weights themselves, and nothing but the language model."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from pytorch_lightning import Trainer
from tiny_models import FAMILIES, LAYERS, build_tiny_mllm
from tiny_omni import OMNI_FAMILIES, build_tiny_omni

from vidvec_msg.cli import main as cli
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.language_model import load_language_model
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.saved import load_saved, save_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.fit import main as fit
from vidvec_msg.train.lora import LoraOptions, add_lora
from vidvec_msg.train.losses import InfoNCE
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions
from vidvec_msg.train.text_tower import TowerEmbedder
from vidvec_msg.train.trained_embedder import write_trained
from vidvec_msg.train.tuning import account, check_tuning, sharding_of, tune

PAIRS = [
    Pair("A small red ball rolls towards a wall.", "Keep trying."),
    Pair("Two friends share their bread with a stranger.", "Sharing is caring."),
]
ITEMS = [Item(str(row), text=pair.anchor) for row, pair in enumerate(PAIRS)]
SMALL = LoraOptions(r=4, alpha=8, dropout=0.0)
NOT_LANGUAGE = r"vis(ion|ual)|audio|projector|connector|merger|lm_head|patch"
LINEARS = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


def on(kinds: tuple[str, ...], count: int = LAYERS) -> str:
    return ", ".join(f"{kind} ×{count}" for kind in kinds)


def build(folder: Path, family: Any) -> Path:
    return (build_tiny_omni if family in OMNI_FAMILIES else build_tiny_mllm)(folder, family)


def module(model: Path, **options: Any) -> TextContrastive:
    torch.manual_seed(0)
    return TextContrastive(**{"model": str(model), **options})


def with_gradients(made: TextContrastive) -> set[str]:
    batch = Collate(made.tokenise)(list(enumerate(PAIRS)))
    made.contrast(batch)[0].backward()
    return {name for name, parameter in made.named_parameters() if parameter.grad is not None}


def trained_a_little(made: TextContrastive) -> TextContrastive:
    with torch.no_grad():
        for name, parameter in made.tower.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.05)
            if "lora_magnitude_vector" in name:
                parameter.mul_(1.1)
    return made


def vectors(made: TextContrastive) -> np.ndarray:
    return TowerEmbedder(made.tower, made.tokenise, made.card("x")).encode(ITEMS, role="document")


# ---- nothing but the language model, whatever the family


@pytest.mark.parametrize("family", [*FAMILIES, *OMNI_FAMILIES])
def test_only_the_language_model_is_in_memory_and_only_its_blocks_train(family: Any, tmp_path: Path) -> None:
    folder = build(tmp_path / "model", family)
    made = trained_a_little(module(folder, lora=SMALL))
    tower = made.tower.get_base_model()
    held = {re.sub(r"\.base_layer|\.lora_[AB]\.default", "", name) for name, _ in tower.named_parameters()}
    assert not [name for name in held if re.search(NOT_LANGUAGE, name)]
    trained = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert all(re.fullmatch(r"tower\.base_model\.model\.layers\.\d+\..+\.lora_[AB]\..+", n) for n in trained)
    assert with_gradients(made) == trained  # none idle, none other

    save_embedder(tmp_path / "embedder", model=made.tower, card=made.card("x"))
    opened = load_saved(tmp_path / "embedder")
    full, inside = opened.backbone.full, set(opened.backbone.tower.modules())
    plain = {name.replace(".base_layer", "") for name, _ in opened.backbone.tower.named_parameters()}
    assert {name for name in plain if ".lora_" not in name} == held  # the whole tower, and no more
    adapted = [m for name, m in full.named_modules() if ".lora_" in name or hasattr(m, "base_layer")]
    assert adapted
    assert set(adapted) <= inside
    np.testing.assert_allclose(opened.encode(ITEMS, role="document"), vectors(made), atol=2e-6)

    whole = module(folder, tuning="full")
    trained = {name.removeprefix("tower.") for name in with_gradients(whole)}
    assert trained == held - {"embed_tokens.weight"}


def test_in_a_mixture_of_experts_lora_lands_on_the_attention_and_the_account_says_so(tmp_path: Path) -> None:
    tower = load_language_model(build_tiny_omni(tmp_path / "model", "qwen3_omni"))
    assert account(add_lora(tower, SMALL)).endswith(
        f": LoRA on {on(('k_proj', 'o_proj', 'q_proj', 'v_proj'))}"
    )


# ---- the account


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lora": SMALL}, f"12,288 of 156,160 parameters train (7.87%): LoRA on {on(LINEARS)}"),
        (
            {"lora": LoraOptions(r=4, rank_stabilised=True)},
            f"12,288 of 156,160 parameters train (7.87%): rank-stabilised LoRA on {on(LINEARS)}",
        ),
        (
            {"lora": LoraOptions(r=4, dora=True)},
            f"13,824 of 157,696 parameters train (8.77%): DoRA on {on(LINEARS)}",
        ),
        (
            {"lora": SMALL, "quantization": "nf4"},
            f"12,288 of 156,160 parameters train (7.87%): LoRA on {on(LINEARS)}, kept in nf4",
        ),
        (
            {"tuning": "full"},
            "111,424 of 143,872 parameters train (77.45%): in full, down_proj ×3, gate_proj ×3, "
            "input_layernorm ×3, k_proj ×3, norm ×1, o_proj ×3, post_attention_layernorm ×3, q_proj ×3, "
            "up_proj ×3, v_proj ×3; frozen: embed_tokens ×1",
        ),
    ],
)
def test_the_account_is_one_line_on_what_trains(tiny: Path, options: dict[str, Any], told: str) -> None:
    assert account(module(tiny, **options).tower) == told


def test_the_embeddings_train_only_if_asked_for(tiny: Path) -> None:
    told = account(module(tiny, tuning="full-with-embeddings").tower)
    assert told.startswith(
        "143,872 of 143,872 parameters train (100.00%): in full, down_proj ×3, embed_tokens ×1"
    )
    assert told.endswith("; frozen: nothing")


def test_a_norm_that_is_not_read_does_not_train(tiny: Path) -> None:
    made = module(tiny, tuning="full", layer=1)
    assert account(made.tower).endswith("; frozen: embed_tokens ×1, norm ×1")
    assert with_gradients(made) == made.trained_names()  # none is idle, as DDP demands


# ---- adapters on the full model, and merged


@pytest.mark.parametrize(
    "lora",
    [
        LoraOptions(r=4, dropout=0.0, dora=True),
        LoraOptions(r=4, dropout=0.0, rank_stabilised=True),
        LoraOptions(r=4, dropout=0.0, rank_stabilised=True, dora=True),
    ],
)
def test_an_adapter_of_any_kind_gives_its_vectors_on_the_full_model_and_merged(
    tiny: Path, tmp_path: Path, lora: LoraOptions
) -> None:
    made = trained_a_little(module(tiny, lora=lora))
    expected = vectors(made)
    assert np.abs(expected - vectors(module(tiny, lora=lora))).max() > 0.01
    save_embedder(tmp_path / "embedder", model=made.tower, card=made.card("x"))
    opened = load_saved(tmp_path / "embedder")
    np.testing.assert_allclose(opened.encode(ITEMS, role="document"), expected, atol=5e-6)
    assert merge_adapters(opened.backbone.full) == LAYERS * 7
    np.testing.assert_allclose(opened.encode(ITEMS, role="query"), expected, atol=5e-6)


# ---- QLoRA


def test_a_fit_over_4_bit_weights_learns_and_its_embedder_opens_on_the_published_model(
    tiny: Path, pairs_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="vidvec_msg")
    options: dict[str, Any] = {
        "lora": SMALL,
        "quantization": "nf4",
        "optimizer": OptimizerOptions(lr=1e-2),
        "loss": InfoNCE(temperature=0.1),
    }
    before, after = module(tiny, **options), module(tiny, **options)
    trainer = Trainer(
        max_steps=10,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(after, datamodule=PairsData(str(pairs_file), batch_size=4))
    assert ", kept in nf4" in caplog.text
    data = PairsData(str(pairs_file), batch_size=12)
    data.read()
    batch = Collate(before.tokenise)(list(enumerate(data.training[:12])))
    losses = [made.eval().contrast(batch)[1].rows.mean().item() for made in (before, after)]
    assert losses[1] < 0.9 * losses[0]

    save_embedder(tmp_path / "embedder", model=after.tower, card=after.card("x"))
    card = json.loads((tmp_path / "embedder" / "embedder.json").read_text())
    assert (card["trained_over"], card["dtype"], card["base_model"]) == ("nf4", "float32", str(tiny))
    opened = load_saved(tmp_path / "embedder")
    linears = [m for m in opened.backbone.full.modules() if isinstance(m, torch.nn.Linear)]
    assert all(linear.weight.dtype == torch.float32 for linear in linears)
    # Not the vectors of the training, which saw rounded weights, but those of its adapter on the exact ones.
    exact = load_language_model(tiny)
    exact = PeftModel.from_pretrained(exact, str(tmp_path / "embedder"))
    same = TowerEmbedder(exact, after.tokenise, after.card("x")).encode(ITEMS, role="document")
    found = opened.encode(ITEMS, role="document")
    np.testing.assert_allclose(found, same, atol=5e-6)
    assert 0.8 < (found * vectors(after)).sum(1).min() < 0.9999


def test_4_bit_gradients_are_the_same_with_checkpointing(tiny: Path) -> None:
    found = []
    for checkpointed in (False, True):
        made = trained_a_little(
            module(tiny, lora=SMALL, quantization="nf4", gradient_checkpointing=checkpointed)
        )
        with_gradients(made)
        found.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() == made.trained_names()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient)


def test_4_bit_weights_are_those_of_the_model_rounded(tiny: Path) -> None:
    import bitsandbytes.functional as bits

    packed, plain = load_language_model(tiny, quantization="nf4"), load_language_model(tiny)
    linear = packed.get_submodule("layers.1.mlp.up_proj")
    assert linear.weight.dtype == torch.uint8
    assert linear.quant_state.nested  # double quantisation
    assert linear.compute_dtype == torch.float32
    weight = plain.get_submodule("layers.1.mlp.up_proj").weight
    rounded = bits.dequantize_4bit(linear.weight.data, linear.quant_state)
    error = (rounded - weight).norm() / weight.norm()
    assert 0.02 < error < 0.15
    assert torch.equal(packed.get_submodule("norm").weight, plain.get_submodule("norm").weight)


def test_adapters_over_4_bit_weights_are_not_merged_there(tiny: Path) -> None:
    made = module(tiny, lora=SMALL, quantization="nf4")
    with pytest.raises(
        RefusedRequest, match=r"the weights at .*layers\.0\..* are quantised\. Put it onto the"
    ):
        merge_adapters(made.tower.get_base_model())


def test_quantisation_without_its_library_is_refused_with_the_pip_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        RefusedRequest, match=r"bitsandbytes is needed to train over 4-bit weights .*\[qlora\]"
    ):
        check_tuning("lora", SMALL, "nf4", "bfloat16")


def test_a_quantised_checkpoint_is_not_trained_in_full(tiny: Path) -> None:
    tower = load_language_model(tiny, quantization="nf4")
    with pytest.raises(
        RefusedRequest, match=r"layers\.0\.\S+ is stored as torch\.uint8, in a quantised check"
    ):
        tune(tower, "full", LoraOptions(), final_norm=True)


# ---- full


def test_a_full_fit_writes_a_whole_embedder_in_which_the_language_model_alone_has_changed(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = {
        "trainer.default_root_dir": run,
        "trainer.accelerator": "cpu",
        "trainer.max_steps": 2,
        "model.model": tiny,
        "model.tuning": "full",
        "model.optimizer.lr": 1e-3,
        "data.pairs": pairs_file,
        "data.batch_size": 4,
    }
    assert fit(["fit", *(f"--{key}={value}" for key, value in options.items())]) == 0
    assert not (run / "embedder" / "adapter_config.json").exists()
    opened = load_saved(run / "embedder").backbone.full.state_dict()
    base = MultimodalLLM(str(tiny), dtype="float32").backbone.full.state_dict()
    changed = {name for name in base if not torch.equal(base[name], opened[name])}
    assert {name.partition("layers.")[0] for name in changed} == {
        "model.language_model.",
        "model.language_model.norm.weight",
    }
    assert any("up_proj" in name for name in changed)
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert "tower.layers.0.mlp.up_proj.weight" in saved
    assert "tower.embed_tokens.weight" not in saved


@pytest.mark.parametrize("gathered", [False, True])
def test_weights_that_were_gathered_from_shards_are_written_too(
    tiny: Path, tmp_path: Path, gathered: bool
) -> None:
    made = module(tiny, tuning="full")
    with torch.no_grad():
        made.tower.get_submodule("layers.0.mlp.up_proj").weight.mul_(2)
    trained = {name: p.detach() for name, p in made.tower.named_parameters() if p.requires_grad}
    write_trained(tmp_path / "embedder", made, name="x", weights=trained if gathered else None)
    found = load_saved(tmp_path / "embedder").encode(ITEMS, role="document")
    np.testing.assert_allclose(found, vectors(made), atol=2e-6)
    assert np.abs(found - vectors(module(tiny))).max() > 0.01


# ---- combinations


DEEPSPEED = "pytorch_lightning.strategies.DeepSpeedStrategy"


@pytest.mark.parametrize(
    ("strategy", "sharding"),
    [
        (None, ""),
        ("auto", ""),
        ("ddp", ""),
        ("deepspeed", ""),
        ("deepspeed_stage_1", ""),
        ("deepspeed_stage_2_offload", ""),
        ("deepspeed_stage_3", "ZeRO-3"),
        ("deepspeed_stage_3_offload", "ZeRO-3"),
        ("fsdp", "FSDP"),
        ({"class_path": DEEPSPEED}, ""),
        ({"class_path": DEEPSPEED, "init_args": {"stage": 3}}, "ZeRO-3"),
        ({"class_path": DEEPSPEED, "init_args": {"config": {"zero_optimization": {"stage": 3}}}}, "ZeRO-3"),
        ({"class_path": DEEPSPEED, "init_args": {"stage": 3, "config": {}}}, ""),
        ({"class_path": "pytorch_lightning.strategies.FSDPStrategy"}, "FSDP"),
        ({"class_path": "pytorch_lightning.strategies.ModelParallelStrategy"}, "FSDP"),
        ({"class_path": "pytorch_lightning.strategies.DDPStrategy", "init_args": None}, ""),
    ],
)
def test_how_a_strategy_shards(strategy: object, sharding: str) -> None:
    assert sharding_of(strategy) == sharding


def test_deepspeeds_own_file_says_how_it_shards(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    assert sharding_of({"class_path": DEEPSPEED, "init_args": {"config": str(path)}}) == "ZeRO-3"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tuning": "ful"}, "model.tuning is 'ful'; accepted: lora, full, full-with-embeddings"),
        ({"quantization": "int8"}, "model.quantization is 'int8'; accepted: nf4, null"),
        ({"tuning": "full", "lora": SMALL}, "model.tuning full makes no adapter, and model.lora has options"),
        ({"tuning": "full", "quantization": "nf4"}, "leaves 4 bits of each, too few to take a step"),
        ({"tuning": "full", "dtype": "bfloat16"}, "weights that train need float32, because bfloat16 rounds"),
        (
            {"quantization": "nf4", "strategy": "deepspeed_stage_3"},
            "nf4 with ZeRO-3: 4-bit weights cannot be cut",
        ),
        ({"quantization": "nf4", "strategy": "fsdp"}, "nf4 with FSDP: 4-bit weights cannot be cut"),
        (
            {"lora": LoraOptions(dora=True), "strategy": "deepspeed_stage_3"},
            "model.lora.dora with ZeRO-3: DoRA needs whole weights",
        ),
        ({"precision": "bf16-true"}, "trainer.precision bf16-true rounds the weights that train"),
        ({"tuning": "full", "precision": "16-true"}, "use --trainer.precision bf16-mixed, which computes in"),
    ],
)
def test_what_cannot_train_is_refused(given: dict[str, Any], told: str) -> None:
    usual = {"tuning": "lora", "lora": LoraOptions(), "quantization": None, "dtype": "float32"}
    with pytest.raises(RefusedRequest, match=re.escape(told)):
        check_tuning(**{**usual, **given})


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": "bfloat16"},
        {"quantization": "nf4", "dtype": "bfloat16", "strategy": "deepspeed_stage_2"},
        {"lora": LoraOptions(dora=True), "quantization": "nf4", "strategy": "ddp"},
        {"tuning": "full", "strategy": "deepspeed_stage_3"},
        {"precision": "bf16-mixed"},
        {"precision": "32-true"},
    ],
)
def test_what_can_train_is_accepted(given: dict[str, Any]) -> None:
    check_tuning(
        **{"tuning": "lora", "lora": LoraOptions(), "quantization": None, "dtype": "float32", **given}
    )


def test_several_problems_come_at_once_from_a_config_before_the_model_is_read(
    tiny: Path,
    pairs_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was built before the refusal")

    monkeypatch.setattr("vidvec_msg.train.module.load_language_model", never)
    config = tmp_path / "fit.yaml"
    config.write_text(
        f"trainer: {{default_root_dir: {tmp_path / 'run'}, accelerator: cpu, devices: 1, "
        f"strategy: {{class_path: {DEEPSPEED}, init_args: {{stage: 3}}}}}}\n"
        f"model: {{model: {tiny}, quantization: nf4, lora: {{dora: true}}}}\n"
        f"data: {{pairs: {pairs_file}, batch_size: 4}}\n"
    )
    assert cli(["fit", "--config", str(config)]) == 2
    told = capsys.readouterr().err
    assert "model.quantization nf4 with ZeRO-3" in told
    assert "model.lora.dora with ZeRO-3" in told
    assert cli(["fit", "--config", str(config), "--model.tuning=full", "--trainer.strategy=auto"]) == 2
    assert "model.tuning full makes no adapter, and model.lora has options" in capsys.readouterr().err
