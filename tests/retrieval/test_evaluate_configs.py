"""Every shipped evaluate config is understood by the command line and names real metrics."""

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from vidvec_msg.cli import run_function
from vidvec_msg.retrieval.evaluate import evaluate
from vidvec_msg.retrieval.metrics import parse_metrics

CONFIGS = sorted((Path(__file__).parents[2] / "configs/evaluate").rglob("*.yaml"))


@functools.wraps(evaluate)
def parsed(**options: Any) -> dict[str, Any]:
    return options


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config(path: Path) -> None:
    words = ["--config", str(path), "--collection", "c", "--embedder", "e", "--out", "o"]
    options = run_function(parsed, words, program="vidvec-msg evaluate")
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {name: options[name] for name in written} == written
    assert options["out"] == Path("o")
    parse_metrics(written.get("metrics", ["map"]))


def test_there_are_some() -> None:
    assert len(CONFIGS) >= 4
