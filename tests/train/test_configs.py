"""Every config that is shipped is parsed, and its data and options are accepted; no model is built."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from vidvec_msg.cli import main as cli
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.train import losses
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.optimizer import OptimizerOptions

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs" / "train").rglob("*.yaml"))


def test_there_are_configs() -> None:
    assert ROOT / "configs" / "train" / "tinyworld.yaml" in CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_is_accepted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["fit", "--config", str(path), "--print_config"]) == 0, capsys.readouterr().err
    printed = yaml.safe_load(capsys.readouterr().out)
    model = printed["model"]
    loss = getattr(losses, model["loss"]["class_path"].rpartition(".")[2])
    assert isinstance(loss(**model["loss"]["init_args"]), losses.PairLoss)
    LoraOptions(**model["lora"])
    OptimizerOptions(**model["optimizer"])
    resolve_prompt(model["prompt"])
    data = PairsData(**printed["data"])
    if ":" in data.source or (ROOT / data.source).is_file():
        data.read()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_key_is_explained_and_the_table_has_it(path: Path) -> None:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if value.strip() and not key.lstrip().startswith("#"):
            assert "#" in line, f"{path.name}: {line.strip()} has no comment"
    assert f"]({path.name})" in (path.parent / "README.md").read_text()


@pytest.mark.parametrize("program", ["train.py", "train/train.py", "train/preview_batch.py"])
def test_a_program_is_a_docstring_and_a_call_of_the_command_line(program: str) -> None:
    source = (ROOT / program).read_text()
    code = source.rpartition('"""')[2]
    assert "vidvec_msg.cli import main" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 5
