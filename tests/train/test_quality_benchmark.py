"""The quality benchmark, whole, on a tiny model: fits, control, evaluations, lines and picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_models import build_tiny_mllm

ROOT = Path(__file__).parents[2]
SUBJECTS = ("lamp", "river", "train", "garden", "window", "market", "bridge", "kite", "piano", "snow")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which imports its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_quality

    monkeypatch.setattr(bench_quality, "minilm", lambda: None)
    return bench_quality


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Path]:
    """A config for a tiny language model, pairs, and a collection."""
    model = build_tiny_mllm(tmp_path / "model", "text")
    options = yaml.safe_load((ROOT / "configs" / "train" / "smollm2_cpu.yaml").read_text())
    options["trainer"]["max_epochs"] = 1
    options["model"] |= {"layer": 1}
    options["model"]["lora"] = {"r": 2, "alpha": 4, "dropout": 0.0}
    options["data"]["batch_size"] = 3
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(options))
    rows = [{"anchor": f"A {word}. It is dark.", "positive": f"The {word} waits."} for word in SUBJECTS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": f"m{n}", "text": f"A {word} is a promise."} for n, word in enumerate(SUBJECTS)]
    corpus = [{"_id": f"s{n}", "text": f"Somebody paints a {word}."} for n, word in enumerate(SUBJECTS)]
    (folder / "queries.jsonl").write_text("\n".join(json.dumps(row) for row in queries))
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps(row) for row in corpus))
    relevant = "".join(f"m{n}\ts{n}\t1\n" for n in range(len(SUBJECTS)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + relevant)
    return {"model": model, "config": tmp_path / "config.yaml", "pairs": tmp_path / "pairs.jsonl"} | {
        "collection": folder,
        "runs": tmp_path / "runs",
        "picture": tmp_path / "quality.png",
    }


def run(benchmark: Any, given: dict[str, Path], *more: str) -> int:
    words = [word for name, path in given.items() for word in (f"--{name}", str(path))]
    code: int = benchmark.main([*words, *more])
    return code


@pytest.mark.slow
def test_it_measures_prints_draws_and_takes_up_what_is_finished(
    benchmark: Any,
    given: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdout = sys.stdout
    assert run(benchmark, given, "--seeds", "1", "--controls", "1") == 0
    assert sys.stdout is stdout
    printed = capsys.readouterr().out
    lines = [json.loads(line) for line in printed.splitlines()]
    report = json.loads((given["runs"] / "seed0" / "storylines52" / "report.json").read_text())
    for direction, label in benchmark.LABELS.items():
        mine = [line for line in lines if line["claim"].startswith(f"map, {label}: ")]
        value = report[direction]["metrics"]["map"]["value"]
        assert [line["ours"] for line in mine] == [round(value, 4)] * 3  # goal, before, shuffled
        assert mine[0]["ok"] is (value >= benchmark.GOALS[direction])
    fits = {name: (given["runs"] / name / "config.yaml").read_text() for name in ("seed0", "shuffled0")}
    assert str(given["pairs"]) in fits["seed0"]
    assert "shuffled0.jsonl" in fits["shuffled0"]
    assert given["picture"].stat().st_size > 10_000

    def unwanted(words: list[str]) -> None:
        raise AssertionError(words)

    monkeypatch.setattr(benchmark, "done", unwanted)
    assert run(benchmark, given, "--seeds", "1", "--controls", "1") == 0
    assert capsys.readouterr().out == printed


def test_the_control_has_the_same_texts_in_other_pairs(benchmark: Any, given: dict[str, Path]) -> None:
    path = benchmark.shuffled(given["pairs"], given["runs"] / "other.jsonl", seed=0)
    before, after = (
        [json.loads(line) for line in file.read_text().splitlines()] for file in (given["pairs"], path)
    )
    assert [row["anchor"] for row in after] == [row["anchor"] for row in before]
    assert sorted(row["positive"] for row in after) == sorted(row["positive"] for row in before)
    assert [row["positive"] for row in after] != [row["positive"] for row in before]


def test_a_number_of_seeds_that_is_none(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--seeds", "0"])
    assert "--seeds is at least 1" in capsys.readouterr().err
