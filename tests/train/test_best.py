"""The best checkpoint and the early stop: decided on what is measured, kept over a resumption."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning import LightningModule
from safetensors.torch import load_file

from vidvec_msg.embedders.saved import load_saved
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.train import artefacts
from vidvec_msg.train.best import Best, KeepBest, StopEarly, read_best, refuse_unknown
from vidvec_msg.train.fit import main
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.pairs_validation import PairsValidation
from vidvec_msg.train.step_report import RunSize, StepReport
from vidvec_msg.train.text_tower import TowerEmbedder

MONITOR = "val/pairs/reverse/map"
TEXTS = [Item("a", text="A small dog rolls."), Item("b", text="Keep trying like the cat.")]


@pytest.fixture(scope="module")
def config(tiny: Path, pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A learning rate that stays high: retrieval of these few pairs rises, and then falls."""
    path = tmp_path_factory.mktemp("config") / "fit.yaml"
    callbacks = [
        # deciding callbacks before the one that measures: the order must not matter
        {"class_path": "KeepBest", "init_args": {"monitor": MONITOR}},
        {"class_path": "StopEarly", "init_args": {"monitor": MONITOR, "patience": 3}},
        {"class_path": "PairsValidation", "init_args": {"every_n_steps": 1, "metrics": ["map"]}},
    ]
    content = {
        "trainer": {"accelerator": "cpu", "max_steps": 11, "callbacks": callbacks, "limit_val_batches": 0},
        "model": {
            "model": str(tiny),
            "lora": {"r": 4, "alpha": 8},
            "optimizer": {"lr": 0.005, "schedule": "constant"},
        },
        "data": {"pairs": str(pairs_file), "validation": str(pairs_file), "batch_size": 4},
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def run(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Any]]:
    """A finished fit, and the vectors after each of its steps."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    vectors: dict[int, Any] = {}
    step = TextContrastive.training_step

    def recording(self: TextContrastive, batch: Any, batch_idx: int) -> Any:
        embedder = TowerEmbedder(self.tower, self.tokenise, self.card("now"))
        vectors[self.trainer.global_step] = embedder.encode(TEXTS, role="query")
        return step(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextContrastive, "training_step", recording)
        main(["fit", "--config", str(config), "--trainer.default_root_dir", str(folder)])
    return folder, vectors


def curve(run: Path) -> list[float]:
    """The monitored metric after 0, 1, 2, … steps."""
    with (run / "metrics.csv").open(newline="") as stream:
        return [float(row[MONITOR]) for row in csv.DictReader(stream)]


def adapter(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(run / "embedder" / "adapter_model.safetensors")
    return found


def test_the_embedder_is_that_of_the_best_step(run: tuple[Path, dict[int, Any]]) -> None:
    folder, vectors = run
    measured = curve(folder)
    best = 1 + int(np.argmax(measured[1:]))
    last = len(measured) - 1
    assert 1 < best < last < 11, measured  # up, down, and stopped
    assert last == best + 3
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["best"] == {"monitor": MONITOR, "value": pytest.approx(measured[best]), "step": best}
    assert (summary["steps"], summary["embedder_step"]) == (last, best)
    assert summary["metrics"][MONITOR] == measured[best]
    assert summary["before"][MONITOR] == measured[0]
    embedder = load_saved(folder / "embedder")
    found = embedder.encode(TEXTS, role="query")
    np.testing.assert_allclose(found, vectors[best], atol=1e-5)
    assert not np.allclose(found, vectors[last - 1], atol=1e-3)
    assert (folder / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_run_that_is_cut_and_resumed_decides_alike(
    config: Path, run: tuple[Path, dict[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut one measurement after the best: its value and the count of worse ones must survive."""
    folder, _ = run
    best = json.loads((folder / "summary.json").read_text())["embedder_step"]
    step = TextContrastive.training_step

    def interrupted(self: TextContrastive, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == best:  # this step is finished, and saved
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, batch_idx)

    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "cut")]
    with monkeypatch.context() as patch:
        patch.setattr(TextContrastive, "training_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(words)
    assert read_best(tmp_path / "cut" / "checkpoints" / "best.ckpt") is not None
    main([*words, "--ckpt_path", "last"])
    assert curve(tmp_path / "cut") == pytest.approx(curve(folder), abs=1e-5)
    found, expected = adapter(tmp_path / "cut"), adapter(folder)
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    # and a run that was stopped stays so
    main([*words, "--ckpt_path", "last"])
    assert len(curve(tmp_path / "cut")) == len(curve(folder))


def test_the_last_step_makes_the_embedder_on_request(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load(config.read_text())
    content["trainer"]["callbacks"] = [
        {"class_path": "KeepBest", "init_args": {"monitor": "train/loss", "mode": "max", "embedder": False}}
    ]
    content["trainer"]["max_steps"] = 3
    content["data"] |= {"validation": None}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content))
    run = tmp_path / "run"
    main(["fit", "--config", str(tmp_path / "c.yaml"), "--trainer.default_root_dir", str(run)])
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["best"], summary["embedder_step"]) == (None, 3)
    with (run / "metrics.csv").open(newline="") as stream:
        losses = [float(row["train/loss"]) for row in csv.DictReader(stream)]
    best = read_best(run / "checkpoints" / "best.ckpt")
    assert best is not None
    assert (best.step, best.value) == (1 + int(np.argmax(losses)), pytest.approx(max(losses), rel=1e-5))
    last, kept = (
        torch.load(run / "checkpoints" / name, weights_only=True) for name in ("last.ckpt", "best.ckpt")
    )
    assert (last["global_step"], kept["global_step"]) == (3, best.step)


# ---- decisions alone

FORWARD = "val/pairs/forward/map"


class Steps:
    """What the callbacks touch of a Trainer, for measurements without a model."""

    def __init__(self, folder: Path, *callbacks: Any) -> None:
        self.default_root_dir = str(folder)
        self.callbacks = [*callbacks, PairsValidation(metrics=["map"])]
        self.datamodule = SimpleNamespace(validation=["a pair"])
        self.strategy = SimpleNamespace(
            barrier=lambda name: None, reduce_boolean_decision=lambda decision, all: decision
        )
        self.global_step = self.current_epoch = 0
        self.is_global_zero, self.fast_dev_run, self.world_size = True, False, 1
        self.should_stop = False
        self.callback_metrics: dict[str, torch.Tensor] = {}

    def save_checkpoint(self, path: Path, weights_only: bool) -> None:
        torch.save({"global_step": self.global_step}, path)

    def run(self, values: list[float], name: str = FORWARD) -> None:
        """Measures before the first step and after each, in three accumulated batches a step."""
        trainer: Any = self
        module: Any = None
        for callback in self.callbacks[:-1]:
            callback.setup(trainer, module, "fit")
            callback.on_train_start(trainer, module)
        for self.global_step, value in enumerate(values):
            self.callback_metrics[name] = torch.tensor(value)
            for callback in self.callbacks[:-1]:
                if name == FORWARD:
                    callback.on_measured(trainer, {name: value, "val/other/forward/map": -value})
                for _ in range(3):
                    callback.on_train_batch_end(trainer, module, None, None, 0)
            if self.should_stop:
                break


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("max", [0.9, 0.2, 0.5, 0.5, 0.4], (0.5, 2)),  # before training is no candidate; the first of equals
        ("min", [0.1, 0.4, 0.3, 0.2, 0.5], (0.2, 3)),
        ("max", [0.1, float("nan"), 0.3, float("inf"), 0.2], (0.3, 2)),  # no number is never the best
    ],
)
@pytest.mark.parametrize("name", [FORWARD, "train/accuracy"])
def test_the_best_is_kept(
    tmp_path: Path, mode: Any, values: list[float], best: tuple[float, int], name: str
) -> None:
    keep = KeepBest(name, mode)
    Steps(tmp_path, keep).run(values, name)
    path = tmp_path / "checkpoints" / "best.ckpt"
    assert keep.best == read_best(path) == Best(name, pytest.approx(best[0]), best[1])
    assert torch.load(path, weights_only=True) == {"global_step": best[1]}


def test_a_resumed_run_must_surpass_what_the_folder_holds(tmp_path: Path) -> None:
    Steps(tmp_path, KeepBest(FORWARD)).run([0.1, 0.5])
    keep = KeepBest(FORWARD)
    Steps(tmp_path, keep).run([0.1, 0.2, 0.4])
    assert keep.best == Best(FORWARD, 0.5, 1)
    Steps(tmp_path, keep).run([0.1, 0.2, 0.6])
    assert keep.best == Best(FORWARD, 0.6, 2)


def test_the_best_by_another_metric_is_replaced_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Steps(tmp_path, KeepBest("train/loss", "min")).run([0.0, 0.9], "train/loss")
    keep = KeepBest(FORWARD)
    Steps(tmp_path, keep).run([0.1, 0.2])
    assert keep.best == Best(FORWARD, 0.2, 1)
    assert "is the best by train/loss; the first measurement of val/pairs/forward/map replaces" in caplog.text


@pytest.mark.parametrize(
    ("options", "values", "stopped"),
    [
        ({"patience": 2}, [0.1, 0.2, 0.1, 0.15, 0.9, 0.9], 3),
        ({"patience": 2, "min_delta": 0.1}, [0.1, 0.15, 0.18, 0.9, 0.9], 2),
        ({"patience": 1, "mode": "min"}, [0.5, 0.4, 0.3, 0.4, 0.1], 3),
        ({"patience": 3}, [0.1, 0.2, float("nan"), 0.3, 0.4], 2),
        ({"patience": 3}, [0.1, 0.2, 0.1, 0.3, 0.2], 4),  # the end of the fit
    ],
)
def test_a_fit_stops_when_its_metric_does_not_become_better(
    tmp_path: Path, options: dict[str, Any], values: list[float], stopped: int
) -> None:
    trainer = Steps(tmp_path, StopEarly(FORWARD, **options))
    trainer.run(values)
    assert trainer.global_step == stopped


def test_a_fit_stops_by_a_metric_of_steps_too(tmp_path: Path) -> None:
    trainer = Steps(tmp_path, StopEarly("train/accuracy", patience=2))
    trainer.run([0.0, 0.5, 0.4, 0.6, 0.5, 0.4, 0.9], "train/accuracy")
    assert trainer.global_step == 5


def test_a_stopped_run_goes_on_with_more_patience() -> None:
    first = StopEarly(FORWARD, patience=2)
    first.wait_count = 2
    second = StopEarly(FORWARD, patience=5)
    second.load_state_dict(first.state_dict())
    assert (second.wait_count, second.patience) == (2, 5)


def test_the_account_is_the_whole_fits_where_the_best_step_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP2 loads a checkpoint with its account."""

    class Fitted(TextContrastive):
        def __init__(self) -> None:
            LightningModule.__init__(self)
            self.tower, self.report, self.base_model = torch.nn.Linear(2, 2), StepReport(), "tinyworld"

        def run_size(self) -> RunSize:
            return self.report.size(9)

    fitted, keep, asked = Fitted(), KeepBest(FORWARD), {}
    fitted.report.restore({"pairs_seen": 36, "seconds": 9.0})
    keep.best = Best(FORWARD, 0.5, 2)

    def written(*_: Any, training: RunSize, **__: Any) -> SimpleNamespace:
        asked["pairs"] = training.pairs
        return SimpleNamespace(fingerprint="f", versions={})

    def restored(*_: Any) -> None:
        fitted.report.restore({"pairs_seen": 8, "seconds": 2.0})

    monkeypatch.setattr(artefacts, "load_weights", restored)
    monkeypatch.setattr(artefacts, "record_of", lambda *_, size, **__: size)
    monkeypatch.setattr(artefacts, "write_trained", written)
    monkeypatch.setattr(artefacts, "_draw", lambda *_: None)
    trainer: Any = SimpleNamespace(
        callback_metrics={}, checkpoint_callbacks=[keep], loggers=[], is_global_zero=True, datamodule=None
    )
    artefacts.WriteEmbedder(tmp_path).on_fit_end(trainer, fitted)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["pairs_seen"], summary["embedder_step"], asked) == (36, 2, {"pairs": 36})
    assert summary["seconds"] >= 9


# ---- refusals


@pytest.mark.parametrize(
    ("monitor", "told"),
    [
        (
            "val/pairs/forward/mapp",
            "(did you mean 'val/pairs/forward/map'?), which this run does not measure",
        ),
        ("val/forward/map", "It measures val/pairs/forward/map, val/pairs/reverse/map, val/loss"),
        ("lr", "and of every step train/loss, train/accuracy"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused_before_training(monitor: str, told: str) -> None:
    measuring = PairsValidation(metrics=["map"])
    with pytest.raises(RefusedRequest) as refusal:
        refuse_unknown(KeepBest(monitor), [measuring], validates=True)
    assert told in str(refusal.value)
    assert str(refusal.value).startswith(f"KeepBest: monitor is {monitor!r}")


def test_without_measurements_the_way_to_have_some_is_told() -> None:
    with pytest.raises(RefusedRequest, match=r"nothing beside its steps \(add RetrievalValidation"):
        refuse_unknown(StopEarly(), [], validates=False)


@pytest.mark.parametrize("kind", [KeepBest, StopEarly])
def test_an_unknown_metric_of_steps_is_refused_after_the_first(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(RefusedRequest) as refusal:
        Steps(tmp_path, kind("train/los")).run([0.1, 0.2], "train/loss")
    assert str(refusal.value) == (
        f"{kind.__name__}: there is no 'train/los' (did you mean 'train/loss'?) in this run, whose metrics "
        "are train/loss"
    )


def test_two_that_would_write_the_same_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"two KeepBest would write the same best\.ckpt"):
        Steps(tmp_path, KeepBest(FORWARD), KeepBest("train/loss")).run([0.1])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: KeepBest(mode="most"), "KeepBest: mode is 'most'; accepted: max, min"),  # type: ignore[arg-type]
        (lambda: StopEarly(mode="most"), "StopEarly: mode is 'most'; accepted: max, min"),  # type: ignore[arg-type]
        (lambda: StopEarly(patience=0), "patience is 0; it must be at least 1"),
        (lambda: StopEarly(min_delta=-1.0), "min_delta is -1.0; it must be at least 0"),
    ],
)
def test_bad_options_are_refused(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()
