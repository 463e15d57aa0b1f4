"""N + M steps equal N, save, load, M: batches, losses, weights; also mid-epoch, with dropout."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pytorch_lightning import Callback, Trainer
from safetensors.torch import load_file

from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.fit import main
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.metrics_file import MetricsFile
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions

STEPS = 8  # 6 an epoch


class Record(Callback):
    """Batches and losses; interrupts after some step, as a kill would."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen: list[tuple[list[str], float]] = []
        self.stop_after = stop_after

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.seen.append((batch.names, outputs["loss"].item()))
        if trainer.global_step == self.stop_after:
            raise RuntimeError("killed")


class Interrupt(Callback):
    """Ctrl-C in the midst of a batch; batches count from the beginning of the fit."""

    def __init__(self, keep: KeepLast, *, batch: int) -> None:
        self.keep, self.batch = keep, batch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch.number == self.batch:
            signal.raise_signal(signal.SIGINT)


def run(
    tiny: Path,
    pairs: Path,
    folder: Path,
    *,
    stop_after: int | None = None,
    resume: bool = False,
    accumulate: int = 1,
    every: int = 1,
    interrupt_in: int | None = None,
) -> tuple[list[tuple[list[str], float]], dict[str, torch.Tensor]]:
    torch.manual_seed(1234 if resume else 0)  # a resumed process starts from another random state
    module = TextContrastive(
        str(tiny), lora=LoraOptions(r=4, dropout=0.3), optimizer=OptimizerOptions(lr=1e-2, warmup_ratio=0.3)
    )
    keep, record = KeepLast(folder / "last.ckpt", every_n_steps=every), Record(stop_after)
    trainer = Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=True,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[record, keep],
        accumulate_grad_batches=accumulate,
        limit_val_batches=0,
    )
    data = PairsData(str(pairs), batch_size=4)
    checkpoint = folder / "last.ckpt" if resume else None
    if interrupt_in is not None:
        trainer.callbacks.insert(0, Interrupt(keep, batch=interrupt_in))
    try:
        with keep.saving_on_interrupt():
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    except RuntimeError as error:
        if str(error) != "killed":
            raise
    except SystemExit:  # Lightning's answer to an interrupt
        assert interrupt_in is not None
    return record.seen, {name: module.get_parameter(name).detach().clone() for name in module.trained_names()}


@pytest.fixture(scope="module")
def undisturbed(tiny: Path, pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(tiny, pairs_file, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("done", [2, 6, 7], ids=["in an epoch", "between epochs", "in the second epoch"])
def test_a_resumed_run_equals_an_undisturbed_one(
    tiny: Path, pairs_file: Path, tmp_path: Path, undisturbed: Any, done: int
) -> None:
    # killed in the step after the checkpoint of step `done`, before the next is written
    first, _ = run(tiny, pairs_file, tmp_path, stop_after=done + 1)
    second, weights = run(tiny, pairs_file, tmp_path, resume=True)
    steps, expected = undisturbed
    assert [names for names, _ in second] == [names for names, _ in steps[done:]]
    assert [loss for _, loss in first[:done] + second] == pytest.approx([loss for _, loss in steps], rel=1e-6)
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("batch", [2, 3], ids=["first half of a step", "second half"])
def test_an_interrupt_while_gradients_accumulate_loses_none(
    tiny: Path, pairs_file: Path, tmp_path: Path, batch: int
) -> None:
    steps, expected = run(tiny, pairs_file, tmp_path / "whole", accumulate=2)
    cut = tmp_path / "cut"
    first, _ = run(tiny, pairs_file, cut, accumulate=2, every=100, interrupt_in=batch)
    assert len(first) == 4  # two whole steps of two batches
    second, weights = run(tiny, pairs_file, cut, accumulate=2, resume=True)
    assert first + second == steps
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX")
def test_a_process_that_was_killed_is_continued_with_other_workers(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    keep = {"class_path": "vidvec_msg.train.checkpoints.KeepLast", "init_args": {"every_n_steps": 2}}
    content = {
        "trainer": {"accelerator": "cpu", "max_steps": 5, "accumulate_grad_batches": 2, "callbacks": [keep]},
        "model": {"model": str(tiny), "lora": {"r": 4, "dropout": 0.2}, "optimizer": {"lr": 0.01}},
        "data": {"pairs": str(pairs_file), "batch_size": 4},  # 6 batches an epoch, 3 steps
    }
    config = tmp_path / "fit.yaml"
    config.write_text(yaml.safe_dump(content))

    def words(run: str, *more: str) -> list[str]:
        return ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / run), *more]

    # in the second epoch, in the first half of step 5; step 4 was the last to be kept
    dies = ["--trainer.callbacks+=train_dying.Dies", "--trainer.callbacks.batch=8"]
    tests = str(Path(__file__).parents[1])
    killed = subprocess.run(
        [sys.executable, "-m", "vidvec_msg.cli", *words("killed", *dies)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": tests},
        stderr=subprocess.PIPE,
        text=True,
        timeout=480,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed" / "summary.json").exists()
    main(words("killed", "--ckpt_path=last", "--data.num_workers=2"))
    main(words("whole"))

    found, expected = (
        load_file(tmp_path / run / "embedder" / "adapter_model.safetensors") for run in ("killed", "whole")
    )
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    told, undisturbed = (read_metrics(tmp_path / run / "metrics.csv") for run in ("killed", "whole"))
    assert [row["step"] for row in told] == [row["step"] for row in undisturbed]
    assert [row["train/loss"] for row in told] == [row["train/loss"] for row in undisturbed]


def read_metrics(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_rows_of_metrics_reach_the_disk_with_each_checkpoint(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.csv"
    found: list[int] = []

    class Look(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            found.append(len(path.read_text().splitlines()) - 1 if path.exists() else 0)

    trainer = Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=MetricsFile(path, every=1000),
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[Look(), KeepLast(tmp_path / "last.ckpt", every_n_steps=2)],
    )
    trainer.fit(
        TextContrastive(str(tiny), lora=LoraOptions(r=4)), datamodule=PairsData(str(pairs_file), batch_size=4)
    )
    assert found == [0, 1, 2, 2]  # the first row at once; after the checkpoint of step 2 its rows


def test_the_first_interrupt_finishes_the_step_and_saves_and_the_second_stops(tmp_path: Path) -> None:
    keep = KeepLast(tmp_path / "last.ckpt")
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with keep.saving_on_interrupt():
            signal.raise_signal(signal.SIGINT)
            assert keep.interrupted
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, found)
