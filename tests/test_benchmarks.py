"""Benchmarks that a machine may be unable to run whole: their code runs, their sums are right."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import bench_gpu_train
import bench_text_only
from run import FIELDS


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines that run.py reads; libraries print others between them."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_the_gpu_script_takes_real_steps_of_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    bench_gpu_train.main(["--shape", "tiny"])
    lines = printed(capsys)
    assert [line["claim"].split(", ")[2] for line in lines] == [
        "plain",
        "gradient checkpointing",
        "GradCache",
    ]
    for line in lines:
        assert set(line) == set(FIELDS)
        assert line["ok"] is None
        assert line["note"].startswith("not measured")


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would measure")
def test_the_gpu_script_says_so_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    bench_gpu_train.main([])
    lines = printed(capsys)
    assert len(lines) == 6
    assert {line["note"] for line in lines} == {"not measured: there is no GPU here"}


def test_useful_operations_are_counted_by_the_formula() -> None:
    """By hand: two blocks of width 64, heads of 16, 4 of them and 2 of keys, mlp of 128, rank 4."""
    way = bench_gpu_train.ways(argparse.Namespace(pairs=2, many_pairs=4, passage_tokens=512))[0]
    module = bench_gpu_train.random_module("tiny", "sdpa", torch.device("cpu"), way)
    linears = [(64, 64), (64, 32), (64, 32), (64, 64), (64, 128), (64, 128), (128, 64)]  # (in, out)
    frozen = 2 * sum(a * b for a, b in linears)
    adapter = 2 * sum(4 * (a + b) for a, b in linears)
    lengths = [10, 20]
    expected = (4 * frozen + 6 * adapter) * 30 + 6 * 2 * 64 * (100 + 400)
    assert bench_gpu_train.useful(module, lengths) == expected


@pytest.mark.parametrize(
    ("name", "billions", "tower"),
    [("Qwen2.5-VL-7B", 8.29, 7.07), ("Qwen3-VL-8B", 8.77, 7.57), ("InternVL3-8B", 7.94, 7.07)],
)
def test_published_shapes_have_the_published_size(name: str, billions: float, tower: float) -> None:
    full = bench_text_only.published(name)
    assert next(full.parameters()).device.type == "meta"
    assert bench_text_only.parameters(full) / 1e9 == pytest.approx(billions, abs=0.01)
    inner = bench_text_only.language_model_of(full)
    assert bench_text_only.parameters(inner) / 1e9 == pytest.approx(tower, abs=0.01)
