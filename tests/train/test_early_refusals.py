"""What is told before the weights are read, above all what the options ask of a model that it does not have:
here its weights file is damaged, and whoever opened it would complain of that."""

from __future__ import annotations

import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import build_tiny_mllm

from vidvec_msg.cli import main as cli
from vidvec_msg.errors import Problems
from vidvec_msg.train.options import check_options, options_parser
from vidvec_msg.train.resuming import expected

Told = Callable[..., str]


@pytest.fixture(scope="module")
def damaged(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three blocks, 64 wide, with a weights file that nobody can read."""
    folder = tmp_path_factory.mktemp("damaged") / "model"
    shutil.copytree(tiny, folder)
    (folder / "model.safetensors").write_bytes(b"damaged")
    return folder


@pytest.fixture
def told(damaged: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What fit says to some options; nothing is written."""

    def refused(*words: str, model: Path = damaged) -> str:
        given = ["fit", f"--model.model={model}", f"--data.pairs={pairs_file}", "--data.batch_size=4"]
        given += ["--trainer.accelerator=cpu", f"--trainer.default_root_dir={tmp_path / 'run'}"]
        assert cli([*given, *words]) == 2
        assert not (tmp_path / "run").exists()
        return capsys.readouterr().err

    return refused


def test_without_them_the_weights_are_opened(told: Told) -> None:
    assert "its weights cannot be read" in told()


LINEARS = "it has: layers.N.mlp.down_proj, layers.N.mlp.gate_proj, layers.N.mlp.up_proj, layers.N.self_attn.k"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--model.layer=4"], "model.layer is 4; accepted: -1 (the normed final state) or 1 to 3 (a block's"),
        (["--model.layer=0"], "model.layer is 0; accepted: -1 (the normed final state) or 1 to 3 (a block's"),
        (
            ["--model.lora.targets=q_proj"],
            f"'q_proj' matches none of the language model's linears; {LINEARS}",
        ),
        (
            ["--model.layer=1", r"--model.lora.targets=layers\.2\..*proj"],  # of a block that is not run
            "matches none of the language model's linears; it has: layers.N.mlp.down_proj",
        ),
        (["--model.lora.targets=.*"], "'.*' matches 'layers' too, a ModuleList, which carries no adap"),
        (["--model.lora.targets=(q"], "lora.targets '(q' is no regex (missing ), unterminated subpattern"),
        (
            ["--model.loss=Matryoshka", "--model.loss.dims=[32, 64]"],
            "dims is [32, 64]; each must be below the vectors' 64 dimensions",
        ),
    ],
)
def test_before_the_weights_are_read(told: Told, words: list[str], problem: str) -> None:
    found = told(*words)
    assert "fit refused: 1 problem" in found
    assert problem in found


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["--trainer.accumulate_grad_batches=0"],
            "trainer.accumulate_grad_batches is 0; it must be at least 1",
        ),
        (
            ["--trainer.check_val_every_n_epoch=0"],
            "trainer.check_val_every_n_epoch is 0; it must be at least 1",
        ),
        (
            [
                "--trainer.callbacks+=EarlyStopping",
                "--trainer.callbacks.monitor=x",
                "--trainer.callbacks.mode=y",
            ],
            "trainer.callbacks, EarlyStopping: `mode` can be min, max, got y",
        ),
        (
            ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_top_k=-7"],
            "trainer.callbacks, ModelCheckpoint: Invalid value for save_top_k=-7",
        ),
        (
            ["--trainer.callbacks+=GradientAccumulationScheduler", "--trainer.callbacks.scheduling={}"],
            "trainer.callbacks, GradientAccumulationScheduler: Empty dict cannot be interpreted",
        ),
        (
            ["--trainer.callbacks+=KeepLast", "--trainer.enable_checkpointing=false"],
            "KeepLast keeps checkpoints, and trainer.enable_checkpointing is false: leave one of the two out",
        ),
        (
            ["--trainer.val_check_interval=4", "--data.validation_fraction=0.5"],  # of 12 pairs, 4 a batch
            "trainer.val_check_interval is 4, and an epoch has 3 batches: give at most as many, or count the",
        ),
        (
            [
                "--trainer.val_check_interval=3",
                "--data.validation_fraction=0.5",
                "--trainer.limit_train_batches=0.7",
            ],
            "trainer.val_check_interval is 3, and an epoch has 2 batches",
        ),
        (
            ["--trainer.devices=3", "--data.validation_fraction=0.09", "--data.batch_size=2"],
            "data: 2 pairs validate on 3 ranks; each needs one",
        ),
        (
            ["--trainer.max_steps=0"],
            "trainer.max_steps is 0, and a fit without a step makes nothing: give at least 1",
        ),
        (["--trainer.max_epochs=0"], "trainer.max_epochs is 0, and a fit without a step makes nothing"),
        (
            ["--trainer.limit_train_batches=0"],
            "trainer.limit_train_batches is 0, which leaves none of an epoch's 6 batches: give at least 1",
        ),
        (
            ["--trainer.overfit_batches=0.1"],
            "trainer.overfit_batches is 0.1, which leaves none of an epoch's 6 batches",
        ),
        (
            ["--data.batch_size=25"],
            "24 pairs do not fill one batch of 25 over all ranks. Lower data.batch_size",
        ),
        (["--seed_everything=-3"], "fit refused: seed_everything: -3 is not in bounds"),
    ],
)
def test_what_lightning_tells_late_or_with_a_traceback(told: Told, words: list[str], problem: str) -> None:
    assert problem in told(*words)


STOPPING = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor"]
KEEPING = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor"]
KEEPING_BEST = ["--trainer.callbacks+=KeepBest", "--trainer.callbacks.monitor"]
VALIDATING = "--data.validation_fraction=0.5"


def monitoring(callback: list[str], metric: str, *more: str) -> list[str]:
    return [*callback[:-1], f"{callback[-1]}={metric}", *more]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            monitoring(STOPPING, "val/los", VALIDATING),
            "EarlyStopping: monitor is 'val/los' (did you mean 'val/loss'?), which this run does not measure"
            ". It measures val/pairs/forward/hit_rate@1, ",
        ),
        (
            monitoring(KEEPING, "val/loss"),
            "ModelCheckpoint: monitor is 'val/loss' (did you mean 'train/loss'?), which this run does not "
            "measure. It measures nothing beside its steps (add RetrievalValidation to trainer.callbacks); "
            "and of every step train/loss, train/accuracy",
        ),
        (
            monitoring(KEEPING, "val/loss", VALIDATING, "--trainer.limit_val_batches=0"),
            "It measures val/pairs/forward/hit_rate@1, val/pairs/forward/map, val/pairs/forward/mrr, "
            "val/pairs/reverse/hit_rate@1, val/pairs/reverse/map, val/pairs/reverse/mrr; and of every step",
        ),
        (monitoring(KEEPING, "lr-AdamW"), "monitor is 'lr-AdamW', which this run does not measure"),
        (monitoring(KEEPING_BEST, "train/los"), "monitor is 'train/los' (did you mean 'train/loss'?), which"),
        (monitoring(KEEPING_BEST, "train/temperature"), "monitor is 'train/temperature'"),
        (monitoring(KEEPING_BEST, "train/cosine_hard_negatives"), "monitor is 'train/cosine_hard_negatives'"),
    ],
)
def test_a_metric_that_nobody_logs(told: Told, words: list[str], problem: str) -> None:
    found = told(*words)
    assert "fit refused: 1 problem" in found
    assert problem in found


@pytest.mark.parametrize(
    "words",
    [
        monitoring(STOPPING, "val/loss", VALIDATING),
        monitoring(STOPPING, "val/pairs/reverse/map", VALIDATING),
        monitoring(KEEPING, "lr"),
        monitoring(KEEPING, "epoch"),
        ["--trainer.callbacks+=ModelCheckpoint"],  # the latest
        [*monitoring(KEEPING, "lr-AdamW"), "--trainer.callbacks+=LearningRateMonitor"],
        monitoring(KEEPING_BEST, "train/temperature", "--model.loss.learn_temperature=true"),
        # a user's own callback may log it
        [
            *monitoring(STOPPING, "mine"),
            "--trainer.callbacks+=train_dying.Dies",
            "--trainer.callbacks.batch=1",
        ],
        [
            *monitoring(KEEPING_BEST, "train/mine"),
            "--trainer.callbacks+=train_dying.Dies",
            "--trainer.callbacks.batch=1",
        ],
        [*monitoring(STOPPING, "mine"), "--trainer.callbacks+=LambdaCallback"],
        monitoring(STOPPING, "mine", "--trainer.callbacks.strict=false"),  # asked to go on without it
    ],
)
def test_a_metric_that_somebody_logs_or_may_log(told: Told, words: list[str]) -> None:
    found = told(*words)
    assert "its weights cannot be read" in found
    assert "monitor" not in found


@pytest.mark.parametrize("option", ["--trainer.fast_dev_run=true", "--trainer.limit_val_batches=0"])
def test_a_rare_validation_is_no_matter_where_lightning_makes_none_of_it(told: Told, option: str) -> None:
    found = told(option, "--trainer.val_check_interval=40", "--data.validation_fraction=0.5")
    assert "its weights cannot be read" in found
    assert "val_check_interval" not in found


def test_a_logger_without_its_package(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as if it were not installed
    assert "mlflow is needed to log to MLflow and is not installed" in told("--trainer.logger=MLFlowLogger")


def test_a_checkpoint_that_is_none(told: Told, tmp_path: Path) -> None:
    (tmp_path / "half.ckpt").write_bytes(b"PK\x03\x04")
    assert f"--ckpt_path {tmp_path / 'half.ckpt'} is no checkpoint, or a part of one" in told(
        f"--ckpt_path={tmp_path / 'half.ckpt'}"
    )


def test_a_checkpoint_that_torch_cannot_read(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "other.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    assert f"--ckpt_path {path}: it cannot be read (" in told(f"--ckpt_path={path}")


def test_a_checkpoint_of_another_run(
    told: Told, damaged: Path, tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.ckpt"
    torch.save({"state_dict": {}}, path)
    found = told(f"--ckpt_path={path}")
    assert "fit refused: 1 problem" in found
    assert (
        f"--ckpt_path {path}: the checkpoint does not say what it is of: it is not one of this ver" in found
    )

    options = options_parser().parse_args([f"--model.model={tiny}", f"--data.pairs={pairs_file}"])
    account = expected(options, check_options(options, Problems("")))
    torch.save({"of": account}, path)
    assert f"{path}: the checkpoint is of another base model: {tiny} (hidden size 64" in told(
        f"--ckpt_path={path}"
    )

    options = options_parser().parse_args([f"--model.model={damaged}", f"--data.pairs={pairs_file}"])
    account = expected(options, check_options(options, Problems("")))
    torch.save({"of": account}, path)
    assert "its weights cannot be read" in told(f"--ckpt_path={path}")  # it is of this run
    found = told(f"--ckpt_path={path}", "--model.lora.r=4")
    assert f"--ckpt_path {path}: the checkpoint is of another adapter: 42 weights differ" in found
    found = told(f"--ckpt_path={path}", "--model.loss.learn_temperature=true")
    assert "1 weights differ, for example loss.temperature.logarithm is not there in it and ()" in found


def test_a_guide_that_cannot_be_read(told: Told, damaged: Path, tmp_path: Path) -> None:
    def of(guide: object) -> str:
        return told("--model.loss=GuidedInfoNCE", f"--model.loss.guide={guide}")

    assert f"'st:{tmp_path / 'none'}': cannot load the sentence-transformers model" in of(
        f"st:{tmp_path / 'none'}"
    )
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "embedder.json").write_text("{}")
    assert f"embedder '{tmp_path / 'saved'}': embedder {tmp_path / 'saved'}: embedder.json: " in of(
        tmp_path / "saved"
    )
    found = of(f"mllm:{damaged}")
    assert f"embedder 'mllm:{damaged}': {damaged / 'model.safetensors'} cannot be read (" in found
    assert "fit refused: 1 problem" in found


def test_deepspeeds_options(told: Told, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    (tmp_path / "zero.json").write_text("{bad")
    strategy = "--trainer.strategy=vidvec_msg.train.strategies.DeepSpeed"
    found = told(strategy, f"--trainer.strategy.config={tmp_path / 'zero.json'}")
    assert "fit refused: 1 problem" in found
    assert (
        f"trainer: DeepSpeed's config {tmp_path / 'zero.json'} is no JSON: Expecting property name" in found
    )
    assert "trainer: stage is 7; accepted: 1 to 3" in told(strategy, "--trainer.strategy.stage=7")


def test_together_with_all_else(told: Told) -> None:
    found = told("--model.layer=9", "--model.lora.targets=q_proj", "--data.passages=0")
    for part in ("fit refused: 3 problems", "model.layer is 9", "'q_proj' matches none", "passages is 0"):
        assert part in found


def test_a_configuration_that_cannot_be_read_is_one_problem_of_several(
    told: Told, damaged: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{")
    found = told("--data.passages=0", model=tmp_path / "model")
    assert "fit refused: 2 problems" in found
    assert "its configuration cannot be read" in found


@pytest.mark.parametrize("family", ["qwen3_vl", "smolvlm", "gemma3", "text"])
def test_in_other_families_too(told: Told, family: str, tmp_path: Path) -> None:
    folder = build_tiny_mllm(tmp_path / "model", family)  # type: ignore[arg-type]  # parametrized
    (folder / "model.safetensors").unlink()
    found = told("--model.layer=4", "--model.lora.targets=q_proj", model=folder)
    assert "or 1 to 3 (a block's output" in found
    assert LINEARS in found
