"""metrics.csv beside any logger, Weights & Biases without a network, and no secret among what is logged."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import Namespace
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.fit import main
from vidvec_msg.train.loggers import LEFT_OUT, check_loggers, loggers_of, without_secrets
from vidvec_msg.train.metrics_file import MetricsFile


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (None, [MetricsFile, TensorBoardLogger]),
        (True, [MetricsFile, TensorBoardLogger]),
        (False, [MetricsFile]),
        ("one", [MetricsFile, CSVLogger]),
        ("two", [MetricsFile, CSVLogger, TensorBoardLogger]),
    ],
)
def test_metrics_csv_is_always_among_them(tmp_path: Path, given: Any, kinds: list[type]) -> None:
    own = {"one": CSVLogger(tmp_path), "two": [CSVLogger(tmp_path), TensorBoardLogger(tmp_path)]}
    found = loggers_of(own.get(given, given), tmp_path / "run")
    assert [type(logger) for logger in found] == kinds
    assert found[0].path == tmp_path / "run" / "metrics.csv"  # type: ignore[attr-defined]


def config(tiny: Path, pairs_file: Path, logger: Any) -> dict[str, Any]:
    return {
        "trainer": {"accelerator": "cpu", "max_steps": 2, "logger": logger},
        "model": {"model": str(tiny), "lora": {"r": 4}},
        "data": {"pairs": str(pairs_file), "batch_size": 4},
    }


@pytest.mark.slow  # starts the process that Weights & Biases writes with
def test_weights_and_biases_writes_into_the_run_folder_offline(
    tiny: Path, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    token = "hf_" + "a" * 30
    logger = {
        "class_path": "pytorch_lightning.loggers.WandbLogger",
        "init_args": {"project": "tiny", "notes": token},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config(tiny, pairs_file, logger)))
    run = tmp_path / "run"
    seen: list[dict[str, Any]] = []
    from pytorch_lightning.loggers import WandbLogger

    log_hyperparams = WandbLogger.log_hyperparams

    def noting(self: WandbLogger, params: dict[str, Any]) -> None:
        seen.append(dict(params))
        log_hyperparams(self, params)

    monkeypatch.setattr(WandbLogger, "log_hyperparams", noting)
    try:
        main(["fit", "--config", str(tmp_path / "c.yaml"), "--trainer.default_root_dir", str(run)])
        assert wandb.run.summary["train/loss"] > 0
        assert wandb.run.config["model.lora.r"] == 4
    finally:
        wandb.finish()
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
    assert not (tmp_path / "wandb").exists()
    with (run / "metrics.csv").open(newline="") as stream:
        assert [row["step"] for row in csv.DictReader(stream) if row["train/loss"]] == ["0", "1"]
    assert not (run / "tensorboard").exists()  # the config's logger takes its place
    assert seen[0]["trainer.logger.init_args.notes"] == LEFT_OUT
    assert token not in str(seen)
    saved = yaml.safe_load((run / "config.yaml").read_text())["trainer"]["logger"]["init_args"]
    assert saved["save_dir"] == "."  # so that the config writes into the folder of the next run


def test_without_wandb_the_pip_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import vidvec_msg.train.loggers as loggers

    def missing(module: str, *, purpose: str) -> None:
        raise RefusedRequest(f"{module} is needed to {purpose}")

    monkeypatch.setattr(loggers, "require", missing)
    entry = Namespace(class_path="pytorch_lightning.loggers.WandbLogger", init_args=Namespace(save_dir="."))
    with pytest.raises(RefusedRequest, match="wandb is needed to log to Weights & Biases"):
        check_loggers([entry])
    check_loggers(None)
    check_loggers([Namespace(class_path="pytorch_lightning.loggers.CSVLogger", init_args=Namespace())])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token", "anything"),
        ("hf_token", "x"),
        ("api_key", "x"),
        ("apikey", "x"),
        ("password", "x"),
        ("aws.secret", "x"),
        ("note", "hf_" + "Ab1" * 10),
        ("note", "sk-proj-" + "a1" * 12),
        ("note", "ghp_" + "a" * 36),
        ("url", "https://user:word@host/path"),
        ("note", "0123456789abcdef" * 2 + "01234567"),
        ("note", "AKIA" + "A" * 16),
        ("headers", ["Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"]),
    ],
)
def test_what_looks_like_a_secret_is_left_out(name: str, value: Any) -> None:
    nested: Any = {name: value}
    assert without_secrets(nested, "trainer") == {f"trainer.{name}": LEFT_OUT}


def test_what_is_none_stays_and_lists_of_parts_are_flat() -> None:
    options = {
        "model": {"max_tokens": 128, "revision": "0123456789abcdef" * 2 + "01234567", "prompt": "vidvec"},
        "data": {"passage_tokens": 8192, "pairs": "my_tokens.jsonl", "columns": None},
        "trainer": {
            "callbacks": [{"class_path": "KeepBest", "init_args": {"api_key": "x"}}],
            "devices": [0, 1],
        },
    }
    assert without_secrets(options) == {
        "model.max_tokens": 128,
        "model.revision": "0123456789abcdef" * 2 + "01234567",
        "model.prompt": "vidvec",
        "data.passage_tokens": 8192,
        "data.pairs": "my_tokens.jsonl",
        "data.columns": None,
        "trainer.callbacks.0.class_path": "KeepBest",
        "trainer.callbacks.0.init_args.api_key": LEFT_OUT,
        "trainer.devices": [0, 1],
    }
