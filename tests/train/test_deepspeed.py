"""ZeRO-1, 2, 3, offload and FSDP2 through the command line, on real processes with gloo: the losses of plain
training, what their checkpoints hold, resuming, and the embedder that comes out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from ranks_of_fits import launch
from safetensors.torch import load_file
from torch.testing import assert_close

from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.formats.items import Item

pytest.importorskip("deepspeed")
pytestmark = [
    pytest.mark.slow(minutes=2),
    pytest.mark.timeout(1200),
]  # two launches, for whichever test comes first

SHARDED = {  # without it, ZeRO-3 keeps weights as small as a tiny model's whole on every rank
    "class_path": "vidvec_msg.train.strategies.DeepSpeed",
    "init_args": {"stage": 3, "zero": {"stage3_param_persistence_threshold": 0}},
}
LIGHTNINGS = {
    "class_path": "pytorch_lightning.strategies.DeepSpeedStrategy",
    "init_args": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
}
SHARDS: dict[str, Any] = {"zero-2": "deepspeed_stage_2", "zero-3": SHARDED, "fsdp2": "fsdp"}
BEST = [
    "--trainer.callbacks+=PairsValidation",
    "--trainer.callbacks.every_n_steps=1",
    "--trainer.callbacks+=KeepBest",
    "--trainer.callbacks.monitor=val/pairs/forward/map",
]
FIRST, ALL = 3, 5  # steps, before a resumption and in all


@pytest.fixture(scope="module")
def config(tiny: Path, pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "fit.yaml"
    content = {
        "trainer": {"accelerator": "cpu", "max_steps": ALL},
        # without dropout: strategies draw noise in different ways
        "model": {
            "model": str(tiny),
            "lora": {"r": 4, "dropout": 0.0},
            "optimizer": {"lr": 2e-3, "warmup_ratio": 0.0, "schedule": "constant"},
        },
        "data": {"pairs": str(pairs_file), "batch_size": 4, "validation_fraction": 0.25},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def words(config: Path, run: Path, strategy: Any, *more: str) -> list[str]:
    told = strategy if isinstance(strategy, str) else json.dumps(strategy)
    shared = ["--config", str(config), "--trainer.default_root_dir", str(run)]
    return ["fit", *shared, f"--trainer.strategy={told}", *more]


def in_two_parts(config: Path, run: Path, strategy: Any, *more: str) -> list[list[str]]:
    """A fit that ends early, and one that goes on from its checkpoint."""
    first = words(config, run, strategy, f"--trainer.max_steps={FIRST}", *more)
    return [first, words(config, run, strategy, "--ckpt_path=last", *more)]


@pytest.fixture(scope="module")
def two_ranks(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    jobs = [words(config, folder / "plain", "ddp", "--trainer.devices=2")]
    for name, strategy in SHARDS.items():
        jobs += in_two_parts(config, folder / name, strategy, "--trainer.devices=2")
    best = ["--trainer.devices=2", f"--trainer.max_steps={FIRST}", *BEST]
    jobs += [words(config, folder / f"{name}-best", how, *best) for name, how in SHARDS.items()]
    dora = ["--trainer.devices=2", f"--trainer.max_steps={FIRST}", "--model.lora.dora=true"]
    jobs += [words(config, folder / f"{name}-dora", name, *dora) for name in ("ddp", "fsdp")]
    assert launch(folder / "told", jobs, ranks=2) == [None] * len(jobs)
    return folder


@pytest.fixture(scope="module")
def one_rank(config: Path, two_ranks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    frugal = ["--model.grad_cache=true", "--model.gradient_checkpointing=true"]
    halves = ["--trainer.precision=bf16-mixed", "--trainer.max_steps=2"]
    jobs = [words(config, folder / "plain", "auto")]
    jobs += in_two_parts(config, folder / "zero-1", "deepspeed_stage_1")
    jobs += in_two_parts(config, folder / "zero-2-offload", "deepspeed_stage_2_offload")
    jobs += [words(config, folder / "zero-3-offload", LIGHTNINGS, *frugal)]
    jobs += [words(config, folder / "zero-3-halves", SHARDED, *halves)]
    fine = len(jobs)
    other = [*words(config, folder / "zero-1", "deepspeed_stage_1", "--ckpt_path=last"), "--model.lora.r=2"]
    shards = f"--ckpt_path={two_ranks / 'zero-3' / 'checkpoints' / 'last.ckpt'}"
    jobs += [other, words(config, folder / "shards", SHARDED, shards)]
    told = launch(folder / "told", jobs, ranks=1)
    assert told[:fine] == [None] * fine
    (folder / "refused.json").write_text(json.dumps(told[fine:]))
    return folder


@pytest.fixture(scope="module")
def runs(one_rank: Path, two_ranks: Path) -> dict[str, Path]:
    return {"one": one_rank, "two": two_ranks}


def column(run: Path, name: str) -> list[float]:
    with (run / "metrics.csv").open(newline="") as stream:
        return [float(row[name]) for row in csv.DictReader(stream) if row[name]]


CASES = [
    ("one", "zero-1"),
    ("one", "zero-2-offload"),
    ("one", "zero-3-offload"),
    ("two", "zero-2"),
    ("two", "zero-3"),
    ("two", "fsdp2"),
]


@pytest.mark.parametrize(("ranks", "name"), CASES, ids=[name for _, name in CASES])
def test_losses_and_measurements_are_those_of_plain_training(
    runs: dict[str, Path], ranks: str, name: str
) -> None:
    run, plain = runs[ranks] / name, runs[ranks] / "plain"
    losses = column(run, "train/loss")
    assert len(losses) == ALL
    # the first is that of a fresh adapter, which changes nothing; the last two of the resumed run
    assert losses == pytest.approx(column(plain, "train/loss"), rel=1e-3)
    assert column(run, "val/loss")[-1:] == pytest.approx(column(plain, "val/loss")[-1:], rel=1e-3)


@pytest.mark.parametrize(("ranks", "name"), CASES, ids=[name for _, name in CASES])
def test_the_embedder_opens_and_is_that_of_plain_training(
    runs: dict[str, Path], ranks: str, name: str
) -> None:
    run, plain = runs[ranks] / name, runs[ranks] / "plain"
    found, expected = (load_file(path / "embedder" / "adapter_model.safetensors") for path in (run, plain))
    assert found.keys() == expected.keys()
    for key, weight in expected.items():
        assert_close(found[key], weight, rtol=0, atol=1e-3)  # Adam amplifies the order of sums
    items = [Item("a", text="A small fox rolls."), Item("b", text="Keep trying like the owl.")]
    vectors, plain_vectors = (
        load_embedder(str(path / "embedder")).encode(items, role="document") for path in (run, plain)
    )
    assert np.abs(vectors - plain_vectors).max() < 0.01
    assert np.abs(vectors[0] - vectors[1]).max() > 0.05


def weights_in(checkpoint: Path) -> set[str]:
    """Names of the weights in a checkpoint, whatever its form."""
    if checkpoint.is_file():
        return set(torch.load(checkpoint, weights_only=True)["state_dict"])
    parts = list((checkpoint / "checkpoint").glob("*model_states.pt"))
    assert parts
    return {name for part in parts for name in torch.load(part, weights_only=True)["module"]}


@pytest.mark.parametrize(("ranks", "name"), CASES, ids=[name for _, name in CASES])
def test_checkpoints_hold_what_trains_alone(runs: dict[str, Path], ranks: str, name: str) -> None:
    checkpoint = runs[ranks] / name / "checkpoints" / "last.ckpt"
    trained = {
        f"tower.{key}".replace("lora_A", "lora_A.default").replace("lora_B", "lora_B.default")
        for key in load_file(runs[ranks] / name / "embedder" / "adapter_model.safetensors")
    }
    assert weights_in(checkpoint) == trained
    files = [path for path in [checkpoint, *checkpoint.rglob("*.pt")] if path.is_file()]
    trained_bytes = 4 * sum(
        weight.numel()
        for weight in load_file(runs[ranks] / name / "embedder" / "adapter_model.safetensors").values()
    )
    # the weights, their masters and two moments, and a few kilobytes a file; the frozen weights are 576 kB
    assert sum(path.stat().st_size for path in files) < 5 * trained_bytes + 60_000 * len(files)


@pytest.mark.parametrize("name", SHARDS)
def test_the_best_step_is_kept_whole_and_makes_the_embedder(two_ranks: Path, name: str) -> None:
    run, kept = two_ranks / f"{name}-best", two_ranks / f"{name}-best" / "checkpoints"
    best = json.loads((kept / "best.json").read_text())
    assert weights_in(kept / "best.ckpt") == weights_in(kept / "last.ckpt")
    assert json.loads((run / "summary.json").read_text())["embedder_step"] == best["step"]
    measured = column(run, "val/pairs/forward/map")[1:]
    assert best["value"] == pytest.approx(max(measured))
    assert best["step"] == 1 + measured.index(max(measured))
    adapter = load_file(run / "embedder" / "adapter_model.safetensors")
    assert all(weight.numel() and bool(weight.isfinite().all()) for weight in adapter.values())
    assert all(bool(weight.any()) for key, weight in adapter.items() if "lora_B" in key)


def test_dora_trains_in_shards_as_it_does_whole(two_ranks: Path) -> None:
    losses, plain = (column(two_ranks / f"{name}-dora", "train/loss") for name in ("fsdp", "ddp"))
    assert losses == pytest.approx(plain, rel=1e-3)
    found, expected = (
        load_file(two_ranks / f"{name}-dora" / "embedder" / "adapter_model.safetensors")
        for name in ("fsdp", "ddp")
    )
    assert found.keys() == expected.keys()
    assert any("magnitude" in key for key in expected)
    for key, weight in expected.items():
        assert_close(found[key], weight, rtol=0, atol=1e-3)


def test_half_precision_begins_with_the_same_loss(one_rank: Path) -> None:
    losses, plain = (column(one_rank / name, "train/loss") for name in ("zero-3-halves", "plain"))
    assert losses == pytest.approx(plain[:2], rel=0.05)
    adapter = load_file(one_rank / "zero-3-halves" / "embedder" / "adapter_model.safetensors")
    assert all(weight.numel() and weight.isfinite().all() for weight in adapter.values())


def test_a_checkpoint_of_another_adapter_or_of_more_ranks_is_refused(one_rank: Path) -> None:
    other, shards = json.loads((one_rank / "refused.json").read_text())
    assert other.startswith("RefusedRequest: fit refused: 1 problem\n  - --ckpt_path ")
    assert ": the checkpoint is of another adapter: 42 weights differ" in other
    assert shards.startswith("RefusedRequest: fit refused: 1 problem\n  - --ckpt_path ")
    assert shards.endswith(
        ": the checkpoint was written by 2 ranks and holds a share for each; this run has 1. "
        "Continue it with as many (--trainer.devices, --trainer.num_nodes)."
    )
