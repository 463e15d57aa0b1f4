"""A wrong value is answered with what was given, what is accepted, and the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vidvec_msg.cli import main as cli
from vidvec_msg.train import options
from vidvec_msg.train.value_refusals import explain_value

BEST = "--trainer.callbacks+=KeepBest"


def told_of(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    assert cli(["fit", *words]) == 2
    told = capsys.readouterr().err
    for raw in ("Parser key", "Union", "<class", "typing.", "NestedArg", "Traceback"):
        assert raw not in told
    return told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--trainer.callbacks+=KeepBst"],
            "trainer.callbacks: there is no Callback 'KeepBst' (did you mean 'KeepBest'?); accepted: "
            "KeepBest, KeepLast, PairsValidation, RetrievalValidation, StopEarly, or the full path of a",
        ),
        (
            [BEST, "--trainer.callbacks.mode=maxx"],
            "trainer.callbacks.mode is 'maxx' (did you mean 'max'?); acc",
        ),
        (
            [BEST, "--trainer.callbacks.monitr=x"],
            "trainer.callbacks KeepBest: unknown option 'monitr' (did you mean 'monitor'?); its options and "
            "their defaults: monitor (val/forward/map), mode (max), embedder (True)",
        ),
        (
            ["--trainer.precision=bf17"],
            "trainer.precision is 'bf17' (did you mean 'bf16'?); accepted: 64, 32, 16, transformer-engine, "
            "transformer-engine-float16, 16-true, 16-mixed, bf16-true, bf16-mixed, 32-true, 64-true, bf16, n",
        ),
        (
            ["--config=configs.yml"],
            "--config configs.yml: there is no such file; give a YAML file of options (",
        ),
        (["words"], "no option takes 'words': options begin with two dashes, and a value of several words"),
        (["--data.batch_size=abc"], "data.batch_size is 'abc'; accepted: a whole number"),
        (
            ["--model.dtype=float33"],
            "model.dtype is 'float33' (did you mean 'float32'?); accepted: float32, b",
        ),
        (["--model.frames.fps=abc"], "model.frames.fps is 'abc'; accepted: a number"),
        (
            ["--trainer.logger=WandbLoger"],
            "there is no Logger 'WandbLoger' (did you mean 'WandbLogger'?); acc",
        ),
        (["--trainer.precision=BF16-Mixed"], "is 'BF16-Mixed' (did you mean 'bf16-mixed'?); accepted: 64,"),
        (["--trainer.strategy.class_path=DeepSpeedd"], "there is no Strategy 'DeepSpeedd'"),
    ],
)
def test_on_the_command_line(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert told in told_of(capsys, words)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"class_path": "KeepBst"}, "no Callback 'KeepBst' (did you mean 'KeepBest'?)"),
        (
            {"class_path": "KeepBest", "init_args": {"monitr": "val/loss"}},
            "trainer.callbacks KeepBest: unknown option 'monitr' (did you mean 'monitor'?)",
        ),
        (
            {"class_path": "RetrievalValidation"},
            "trainer.callbacks: RetrievalValidation needs collection; its",
        ),
    ],
)
def test_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, entry: dict[str, object], told: str
) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": [entry]}}))
    assert told in told_of(capsys, ["--config", str(tmp_path / "c.yaml")])


def test_a_file_that_is_no_yaml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("trainer: [1\n")
    assert "the config is not YAML: while parsing a flow sequence" in told_of(
        capsys, ["--config", str(tmp_path / "c.yaml")]
    )


def test_a_neighbour_of_the_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    assert "mien.yaml: there is no such file (did you mean 'mine.yaml'?)" in told_of(
        capsys, ["--config", str(tmp_path / "mien.yaml")]
    )


def test_what_is_about_something_else_is_left_to_others() -> None:
    assert explain_value("unrecognized arguments: --data.x=1", verb="fit") is None


def test_a_package_that_the_trainer_lacks_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(**_: Any) -> None:
        raise ModuleNotFoundError("Requirement 'transformer_engine>=0.11.0' not met.\nHINT: Try")

    monkeypatch.setattr(options, "Trainer", lacking)
    told = options._refusal({"precision": "transformer-engine"}, "auto")
    assert told == "Requirement 'transformer_engine>=0.11.0' not met. HINT: Try"
