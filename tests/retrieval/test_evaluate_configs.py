"""Every shipped evaluate config is understood and names real options and metrics."""

import inspect
from pathlib import Path

import pytest
import yaml

from vidvec_msg.retrieval.evaluate import evaluate
from vidvec_msg.retrieval.metrics import parse_metrics

CONFIGS = sorted((Path(__file__).parents[2] / "configs/evaluate").rglob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config(path: Path) -> None:
    options = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(options) <= set(inspect.signature(evaluate).parameters)
    parse_metrics(options.get("metrics", ["map"]))


def test_there_are_some() -> None:
    assert len(CONFIGS) >= 4
