"""``fit`` and ``validate`` from the command line, on a tiny real model."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from vidvec_msg.cli import main as cli
from vidvec_msg.embedders.saved import load_saved
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.train import artefacts
from vidvec_msg.train.fit import main
from vidvec_msg.train.module import TextContrastive


@pytest.fixture(scope="module")
def config(tiny: Path, pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "fit.yaml"
    content = {
        "trainer": {"accelerator": "cpu", "max_steps": 4, "enable_model_summary": False},
        "model": {
            "model": str(tiny),
            "lora": {"r": 4, "alpha": 8},
            "optimizer": {"lr": 0.01},
            "frames": {"fps": 2.0, "max_frames": 8},
        },
        "data": {"pairs": str(pairs_file), "batch_size": 4},
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    names = list(enumerate(["dog", "cat", "fox"]))
    corpus = [{"_id": f"d{i}", "text": f"A small {name} rolls."} for i, name in names]
    queries = [{"_id": f"q{i}", "text": f"Keep trying like the {name}."} for i, name in names]
    write_collection(
        folder, corpus=corpus, queries=queries, qrels={"test": {f"q{i}": {f"d{i}": 1} for i in range(3)}}
    )
    return folder


@pytest.fixture(scope="module")
def run(config: Path, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished fit, with retrieval measured every second step."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    callback = "--trainer.callbacks+=vidvec_msg.train.retrieval_validation.RetrievalValidation"
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(folder), callback]
    options = {"collection": collection, "every_n_steps": 2, "metrics": '["hit_rate@1", "map"]'}
    words += [f"--trainer.callbacks.{name}={value}" for name, value in options.items()]
    assert main(words) == 0
    return folder


def adapter(run: Path) -> dict[str, Any]:
    return load_file(run / "embedder" / "adapter_model.safetensors")


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_the_run_folder_holds_everything(run: Path) -> None:
    found = {path.relative_to(run).parts[0] for path in run.rglob("*")}
    assert found == {
        "config.yaml",
        "checkpoints",
        "metrics.csv",
        "curves.png",
        "tensorboard",
        "embedder",
        "summary.json",
    }
    assert (
        run / "checkpoints" / "last.ckpt"
    ).stat().st_size < 500_000  # adapter and optimizer, not the model
    assert list((run / "tensorboard").glob("events.*"))
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["pairs_seen"]) == (4, 16)
    assert summary["metrics"]["train/loss"] > 0
    assert summary["fingerprint"] == load_saved(run / "embedder").card.fingerprint


def test_metrics_stand_under_their_own_names(run: Path) -> None:
    with (run / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["step"] for row in rows if row["train/loss"]] == ["0", "1", "2", "3"]
    measured = [row["step"] for row in rows if row["val/forward/hit_rate@1"]]
    assert measured == ["0", "2", "4"]  # before the first step, and after 2 and 4
    assert {"val/forward/map", "val/reverse/hit_rate@1", "val/reverse/map", "train/loss", "lr"} <= rows[
        0
    ].keys()


def test_the_card_holds_what_the_config_says(run: Path) -> None:
    card = json.loads((run / "embedder" / "embedder.json").read_text())
    named = f"{Path(card['base_model']).parent.name}+first"  # of a folder called model
    assert (card["name"], card["layer"], card["pooling"]) == (named, -1, "last")
    assert card["frames"] == {"fps": 2.0, "max_frames": 8, "max_pixels": 0}


def test_the_saved_config_reproduces_the_run(run: Path, tmp_path: Path) -> None:
    words = ["--config", str(run / "config.yaml"), "--trainer.default_root_dir", str(tmp_path / "again")]
    assert main(["fit", *words]) == 0
    assert equal(adapter(tmp_path / "again"), adapter(run))
    first, second = (yaml.safe_load((path / "config.yaml").read_text()) for path in (run, tmp_path / "again"))
    first["trainer"].pop("default_root_dir")
    second["trainer"].pop("default_root_dir")
    assert first == second


def test_validate_measures_a_checkpoint_and_writes_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["validate", "--config", str(run / "config.yaml"), "--ckpt_path", "last"]) == 0
    assert "val/reverse/map" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_validate_without_anything_to_measure_is_refused(run: Path, tmp_path: Path) -> None:
    content = yaml.safe_load((run / "config.yaml").read_text())
    content["trainer"]["callbacks"] = content["data"]["validation"] = None
    content["data"]["validation_fraction"] = 0.0
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(RefusedRequest, match=r"there is nothing to measure: give pairs \(--data\.validation"):
        main(["validate", "--config", str(tmp_path / "bare.yaml"), "--ckpt_path", "last"])


def test_validate_needs_no_training_batch(
    config: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["validate", "--config", str(config), "--data.validation_fraction=0.5", "--data.batch_size=20"]
    assert (
        main([*words, "--trainer.default_root_dir", str(tmp_path)]) == 0
    )  # 12 pairs would train, 12 validate
    assert "val/loss" in capsys.readouterr().out


def test_an_option_wins_over_the_file(config: Path, tmp_path: Path) -> None:
    words = [
        "fit",
        "--config",
        str(config),
        "--trainer.default_root_dir",
        str(tmp_path),
        "--trainer.max_steps=1",
    ]
    assert main([*words, "--model.lora.r=2", "--model.prompt=plain"]) == 0
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (saved["model"]["lora"]["r"], saved["model"]["lora"]["alpha"]) == (2, 8)
    assert json.loads((tmp_path / "embedder" / "embedder.json").read_text())["prompt"]["video"] == "{video}"


# ---- resuming


def test_a_killed_run_is_continued_and_equals_an_undisturbed_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(folder: str, *more: str) -> list[str]:
        return ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / folder), *more]

    main(words("whole"))
    step = TextContrastive.training_step

    def interrupted(self: TextContrastive, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(TextContrastive, "training_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(words("cut"))
    cut = tmp_path / "cut"
    assert (cut / "checkpoints" / "last.ckpt").exists()
    assert not (cut / "summary.json").exists()
    with pytest.raises(RefusedRequest, match=r"already holds a run: .* or continue it with --ckpt_path last"):
        main(words("cut"))
    main(words("cut", "--ckpt_path", "last"))
    summary = json.loads((cut / "summary.json").read_text())
    assert (summary["steps"], summary["pairs_seen"]) == (4, 16)  # of the whole run
    assert summary["epochs"] == pytest.approx(16 / 24, abs=1e-3)
    assert equal(adapter(cut), adapter(tmp_path / "whole"))
    with (cut / "metrics.csv").open(newline="") as stream:
        assert [row["step"] for row in csv.DictReader(stream)] == ["0", "1", "2", "3"]
    assert yaml.safe_load((cut / "config.yaml").read_text())["ckpt_path"] is None


def test_an_embedder_that_cannot_be_written_costs_no_training(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(artefacts, "write_trained", fails)
        with pytest.raises(OSError, match="no space left"):
            main(words)
    assert not (tmp_path / "run" / "summary.json").exists()
    main([*words, "--ckpt_path", "last"])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["steps"], summary["pairs_seen"]) == (4, 16)


def test_a_finished_run_that_is_resumed_keeps_its_embedder(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.parent.name == "embedder"}
    summary = (run / "summary.json").read_bytes()
    assert main(["fit", "--config", str(run / "config.yaml"), "--ckpt_path", "last"]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert (run / "summary.json").read_bytes() == summary


@pytest.mark.slow
def test_ctrl_c_of_a_real_process_exits_130_and_leaves_a_checkpoint(config: Path, tmp_path: Path) -> None:
    words = [
        "fit",
        "--config",
        str(config),
        "--trainer.default_root_dir",
        str(tmp_path),
        "--trainer.max_steps=100000",
    ]
    command = [sys.executable, "-m", "vidvec_msg.cli", *words]
    process = subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 200
        while not (tmp_path / "metrics.csv").exists() and process.poll() is None:
            assert time.monotonic() < deadline, "no step was logged"
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=80)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert (tmp_path / "checkpoints" / "last.ckpt").exists()


# ---- refusals: exit code 2, one message, nothing written, no model built


def refused(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was built before the refusal")

    monkeypatch.setattr("vidvec_msg.train.module.load_language_model", never)
    assert cli(words) == 2
    streams = capsys.readouterr()
    assert not streams.out
    return streams.err


def test_all_problems_come_at_once_before_the_model_is_built(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "something").touch()
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path)]
    words += [
        "--model.loss.temperature=0",
        "--model.lora.r=0",
        "--model.optimizer.lr=-1",
        "--model.prompt=vidvek",
    ]
    told = refused([*words, "--data.pairs=nothing.jsonl"], capsys, monkeypatch)
    for part in (
        "fit refused: 6 problems",
        f"--trainer.default_root_dir {tmp_path} already holds a run",
        "temperature is 0.0",
        "lora.r is 0",
        "optimizer.lr is -1.0",
        "unknown prompt preset 'vidvek'",
        "nothing.jsonl",
    ):
        assert part in told
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_what_the_trainer_refuses_comes_with_all_else_before_the_model_is_built(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "run")]
    words += ["--trainer.max_steps=-5", "--trainer.accelerator=gpu", "--trainer.strategy=fsdp"]
    words += ["--model.loss.learn_temperature=true", "--data.pairs=nothing.jsonl", "--data.batch_size=1"]
    told = refused([*words, "--data.validation=nowhere.jsonl"], capsys, monkeypatch)
    for part in (
        "fit refused: 5 problems",  # the files in one of them
        "trainer: `max_steps` must be a non-negative integer or -1",
        "trainer: No supported gpu backend found! On a machine without one: --trainer.accelerator cpu",
        "loss.temperature.logarithm would train outside the language model, and FSDP2 averages no gradients",
        "batch_size is 1; at least 2 pairs",
        "pairs nothing.jsonl: 1 problem",
        "pairs nowhere.jsonl: 1 problem",
    ):
        assert part in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model.lora.rr=3"], "unknown option 'model.lora.rr' (did you mean 'model.lora.r'?)"),
        (["--trainer.max_step=3"], "unknown option 'trainer.max_step' (did you mean 'trainer.max_steps'?)"),
        (["--model.loss.temperature=.nan"], "temperature is nan"),
        (["--model.loss.temperature=warm"], "temperature"),
        (["--model.loss.temprature=1"], "unknown option 'temprature' (did you mean 'temperature'?)"),
        (["--model.loss=DualSoftmax", "--model.loss.prior_temperature=0"], "prior_temperature is 0.0"),
        (["--model.loss=InfoNSE"], "no PairLoss 'InfoNSE' (did you mean 'InfoNCE'?); accepted: DualSoftmax,"),
        (["--model.loss=torch.nn.Linear"], "'torch.nn.Linear' is no PairLoss; accepted: DualSoftmax,"),
        (
            ["--model.loss=Matryoshka"],
            "Matryoshka needs dims; its options and their defaults: dims, loss (None)",
        ),
        (
            ["--model.loss=GuidedInfoNCE"],
            "GuidedInfoNCE needs guide; its options and their defaults: guide, margin",
        ),
        (
            ["--model.loss=GuidedInfoNCE", "--model.loss.guide=sst:x"],
            "no embedder 'sst:x'. Did you mean st:x?",
        ),
        (
            ["--model.loss=GuidedInfoNCE", "--model.loss.guid=st:x"],
            "unknown option 'guid' (did you mean 'guide'?)",
        ),
        (
            ["--trainer.callbacks+=KeepBest", "--trainer.callbacks.monitor=val/pairs/forward/mapp"],
            "KeepBest: monitor is 'val/pairs/forward/mapp', which this run does not measure. It measures",
        ),
        (
            [
                "--data.validation_fraction=0.5",
                "--trainer.callbacks+=StopEarly",
                "--trainer.callbacks.monitor=val/pairs/forward/mapp",
            ],
            "StopEarly: monitor is 'val/pairs/forward/mapp' (did you mean 'val/pairs/forward/map'?)",
        ),
        (["--trainer.callbacks+=StopEarly", "--trainer.callbacks.patience=0"], "patience is 0"),
        (
            ["--trainer.callbacks+=RetrievalValidation", "--trainer.callbacks.collection=nowhere"],
            "RetrievalValidation of nowhere",
        ),
        (
            [
                "--data.validation_fraction=0.5",
                "--trainer.callbacks+=PairsValidation",
                "--trainer.callbacks+=PairsValidation",
            ],
            "2 measurements log under the prefix 'val/pairs'",
        ),
        (["--data.passage_tokens=-1"], "passage_tokens is -1"),
        (["--ckpt_path=last"], "--ckpt_path last: there is no"),
        (["--model.model=nothing"], "no model 'nothing'"),
        (["--model.frames.fps=-1"], "frames per second must be above 0"),
        (["--model.optimizer.beta2=1"], "optimizer.beta2 is 1.0"),
        (["--trainer.devices=7"], "24 pairs do not fill one batch of 28 over all ranks"),
        (["--data.batch-size=3"], "unknown option 'data.batch-size' (did you mean 'data.batch_size'?)"),
        (["--trainer.default_root_dir=null"], "give --trainer.default_root_dir RUN"),
        (["--trainer.precision=bf16-true"], "bf16-mixed"),
    ],
)
def test_refusals_of_the_command_line(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    told: str,
) -> None:
    run = str(tmp_path / "run")
    assert told in refused(
        ["fit", "--config", str(config), "--trainer.default_root_dir", run, *words], capsys, monkeypatch
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("row", "words", "told"),
    [
        (
            {"caption": "a", "positive": "b"},
            [],
            "no column 'anchor' for the anchor; it has: caption, positive",
        ),
        ({"anchor": "a", "positive": " "}, [], "line 1: positive is empty; a text is needed"),
        (
            {"anchor": "a", "positive": "b", "neg": "c"},
            [],
            "column 'neg' looks like training text but nothing reads it",
        ),
        (
            {"anchor": "a{}", "positive": "Never give up."},
            [],
            "no pair has a negative in its batch of 4 pairs over all ranks: all 8 pairs share their "
            "positive, 'Never give up.'. Give pairs of several groups",
        ),
        ({"anchor": "a{}", "positive": "p{}", "group": "g"}, [], "all 8 pairs share their group, 'g'"),
        (
            {"anchor": "a{}", "positive": "p{}", "group": "g"},
            ["--data.per_group=1"],
            "1 per group, needs 4 groups; the pairs have 1. Lower data.batch_size, or set data.per_group",
        ),
        (
            {"anchor": "a{}", "positive": "p{}"},
            ["--data.per_group=2"],
            "needs 2 groups of at least 2 pairs; the pairs have 0",
        ),
        (
            {"anchor": "a{}", "positive": "p{}"},
            ["--data.validation_fraction=0.01"],
            "validation_fraction 0.01 of 8 groups is 0 groups; training and validation both need at least",
        ),
    ],
)
def test_pairs_that_cannot_train_are_refused_with_the_reason(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, str],
    words: list[str],
    told: str,
) -> None:
    rows = [{name: text.format(number) for name, text in row.items()} for number in range(8)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    options = ["--trainer.default_root_dir", str(tmp_path / "run"), f"--data.pairs={tmp_path / 'p.jsonl'}"]
    assert told in refused(["fit", "--config", str(config), *options, *words], capsys, monkeypatch)


def test_options_of_the_batches_are_refused_together(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "run")]
    words += ["--data.batch_size=1", "--data.per_group=2", "--data.drop_last=false", "--data.negatives=-1"]
    told = refused(words, capsys, monkeypatch)
    assert "at least 2 pairs are needed for one to be a negative" in told
    assert "it must be a multiple of per_group, which is 2" in told
    assert "drop_last is false; with per_group every batch is full" in told
    assert "negatives is -1; it must be at least 0 (per pair), or null for all" in told


def test_the_option_that_per_group_replaced_is_answered_with_its_name(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load(config.read_text())
    content["data"]["one_per_group"] = True
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(content))
    told = refused(["fit", "--config", str(tmp_path / "old.yaml")], capsys, monkeypatch)
    assert "unknown option 'data.one_per_group' (did you mean 'data.per_group'?)" in told


def test_an_unknown_key_of_the_file_is_named_with_the_nearest(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load(config.read_text())
    content["data"]["batchsize"] = 4
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    told = refused(["fit", "--config", str(tmp_path / "c.yaml")], capsys, monkeypatch)
    assert "unknown option 'data.batchsize' (did you mean 'data.batch_size'?)" in told


def test_print_config_writes_every_option_with_its_default(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["fit", "--config", str(config), "--print_config"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["loss"] == {
        "class_path": "vidvec_msg.train.losses.InfoNCE",
        "init_args": {
            "temperature": 0.05,
            "learn_temperature": False,
            "symmetric": True,
            "shared": "positives",
            "false_negative_margin": None,
        },
    }
    assert printed["data"]["batch_size"] == 4
    assert printed["trainer"]["use_distributed_sampler"] is False


def test_help_tells_units_and_scope(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["fit", "--help"]) == 0
    assert "pairs per step per rank" in capsys.readouterr().out
