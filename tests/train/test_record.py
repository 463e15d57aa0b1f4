"""What a fit says of itself in its embedder's folder, compared with what was asked of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from vidvec_msg.embedders.training_record import PairsRecord, TrainingRecord, read_training
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.runs import file_digest
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.fit import main
from vidvec_msg.train.record import decisive_options, pairs_record, record_of
from vidvec_msg.train.step_report import RunSize


@pytest.fixture(scope="module")
def pairs(pairs_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs with columns that say where they come from, and hard negatives in some."""
    path = tmp_path_factory.mktemp("pairs") / "told.jsonl"
    rows = [json.loads(line) for line in pairs_file.read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"license": "CC-BY-4.0", "persona": "a baker"}
        row |= {"language": "en"} if number else {}
        row |= {"negatives": ["Something else."]} if number < 3 else {}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def run(tiny: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished fit, measured on a collection before and after."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = [
        {"_id": f"d{i}", "text": f"A small {name} rolls."} for i, name in enumerate(("dog", "cat", "fox"))
    ]
    queries = [{"_id": f"q{i}", "text": f"Keep trying, {i}."} for i in range(4)]
    qrels = {"test": {"q0": {"d0": 1, "d1": 1}, "q1": {"d1": 1}, "q2": {"d2": 0}}}
    write_collection(folder / "world", corpus=corpus, queries=queries, qrels=qrels)
    callback = {
        "class_path": "vidvec_msg.train.retrieval_validation.RetrievalValidation",
        "init_args": {"collection": str(folder / "world"), "metrics": ["map"], "prefix": "val/world"},
    }
    trainer = {"accelerator": "cpu", "max_steps": 3, "callbacks": [callback], "accumulate_grad_batches": 2}
    model = {"model": str(tiny), "lora": {"r": 4, "alpha": 8}, "optimizer": {"lr": 0.01}}
    data = {"pairs": str(pairs), "batch_size": 4}
    config = folder / "fit.yaml"
    config.write_text(yaml.safe_dump({"trainer": trainer, "model": model, "data": data}))
    assert main(["fit", "--config", str(config), "--trainer.default_root_dir", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def record(run: Path) -> TrainingRecord:
    found = read_training(run / "embedder")
    assert found is not None
    return found


def test_the_pairs(record: TrainingRecord, pairs: Path) -> None:
    assert record.pairs == PairsRecord(
        source="told.jsonl",
        sha256=file_digest(pairs),
        training=24,
        validation=0,
        groups=12,
        with_negatives=3,
        provenance={"license": {"CC-BY-4.0": 24}, "language": {"en": 23, "": 1}},
    )


def test_the_batch_and_the_steps(record: TrainingRecord, run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert (record.steps, record.pairs_seen) == (summary["steps"], summary["pairs_seen"]) == (3, 24)
    assert (record.pairs_per_step, record.ranks, record.accumulated) == (8, 1, 2)
    assert record.negatives_per_anchor == summary["metrics"]["train/negatives_per_anchor"]
    assert record.losses["train/loss"] == summary["metrics"]["train/loss"]
    assert "LoRA on" in record.trained


def test_the_measurements_with_their_counts(record: TrainingRecord, run: Path) -> None:
    """A query without a positive (q2, q3) is not averaged over, and is a candidate of the reverse."""
    summary = json.loads((run / "summary.json").read_text())
    forward, reverse = record.measurements
    assert (forward.name, forward.collection, forward.kinds) == (
        "val/world/forward/map",
        "world",
        "text → text",
    )
    assert (forward.queries, forward.candidates, forward.step) == (2, 3, 3)
    assert (reverse.queries, reverse.candidates) == (2, 4)
    for one in record.measurements:
        assert one.after == summary["metrics"][one.name]
        assert one.before == summary["before"][one.name]


def test_the_options_without_folders_of_this_machine(record: TrainingRecord, run: Path, tiny: Path) -> None:
    config = record.config
    assert config["model"]["model"] == tiny.name
    assert config["data"]["pairs"] == "told.jsonl"
    assert config["model"]["lora"]["r"] == 4
    assert config["trainer"]["max_steps"] == 3
    assert "callbacks" not in config["trainer"]
    for name in ("README.md", "training.json"):
        text = (run / "embedder" / name).read_text()
        assert str(tiny) not in text
        assert str(run.parent) not in text


def test_the_page_says_it(run: Path) -> None:
    page = (run / "embedder" / "README.md").read_text()
    assert page.startswith("---\nlibrary_name: peft\n")
    assert "told.jsonl: 24 for training" in page
    assert "| world | forward (text → text) | 2 | 3 | map | 0." in page


def test_a_fit_without_a_config(tmp_path: Path) -> None:
    assert decisive_options(tmp_path / "config.yaml") == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/home/me/pairs.jsonl", "pairs.jsonl"),
        ("st:/home/me/x", "st:x"),
        ("cascade:asr:st:/home/me/x/", "cascade:asr:st:x"),
        ("mllm:org/name?adapter=/home/me/a&fps=2", "mllm:org/name?adapter=a&fps=2"),
        ("/home/me/e?model=/home/me/base", "e?model=base"),
        ("/home/me/a&b/e", "e"),
        ("st:org/name", "st:org/name"),
        ("openai:x?base_url=http://host:80/v1", "openai:x?base_url=http://host:80/v1"),
    ],
)
def test_a_guide_without_folders_of_this_machine(tmp_path: Path, given: str, told: str) -> None:
    loss = {"class_path": "GuidedInfoNCE", "init_args": {"guide": given}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": {"loss": loss}}))
    found = decisive_options(tmp_path / "config.yaml")
    assert found["model"]["loss"]["init_args"]["guide"] == told


def test_what_cannot_be_told_does_not_cost_the_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.yaml").write_text("[: no YAML")
    trainer = SimpleNamespace(datamodule=None, world_size=1, accumulate_grad_batches=1, callbacks=[])
    module = SimpleNamespace(tower=torch.nn.Linear(2, 2))
    told: Any = {"run": tmp_path, "size": RunSize(7, 28, 1.0), "step": 7, "found": [], "metrics": {}}
    found = record_of(trainer, module, **told)  # type: ignore[arg-type]  # as much of them as is asked for
    assert found == TrainingRecord(steps=7, pairs_seen=28)
    assert "the model card says less than it could: " in caplog.text


def test_pairs_of_a_function() -> None:
    data = PairsData("vidvec_msg.tinyworld.collections:training_pairs")
    data.read()
    found = pairs_record(data)
    assert (found.source, found.sha256) == ("vidvec_msg.tinyworld.collections:training_pairs", "")
    assert found.groups == 32


def test_a_column_of_many_values(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"anchor": f"a {i}", "positive": f"p {i}", "source": f"page {i}"} for i in range(40)
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = PairsData(str(tmp_path / "p.jsonl"), batch_size=4)
    data.read()
    values = pairs_record(data).provenance["source"]
    assert len(values) == 13
    assert values["28 other values"] == 28
