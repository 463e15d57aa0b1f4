"""metrics.csv: one row a step, and a resumed run goes on in it."""

from __future__ import annotations

import csv
from pathlib import Path

from vidvec_msg.train.metrics_file import MetricsFile


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_step_is_a_row_and_late_columns_are_blank_before(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    log.log_metrics({"loss": 1.5, "epoch": 0.0}, 0)
    log.log_metrics({"loss": 0.5}, 1)
    log.log_metrics({"val/forward/hit_rate@1": 0.25}, 1)
    log.finalize("success")
    assert rows(log.path) == [
        {"step": "0", "epoch": "0", "loss": "1.5", "val/forward/hit_rate@1": ""},
        {"step": "1", "epoch": "", "loss": "0.5", "val/forward/hit_rate@1": "0.25"},
    ]


def test_it_is_written_every_few_rows(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv", flush_every=2)
    log.log_metrics({"loss": 1.0}, 0)
    assert not log.path.exists()
    log.log_metrics({"loss": 1.0}, 1)
    assert len(rows(log.path)) == 2


def test_a_resumed_run_keeps_the_rows_before_and_replaces_those_after(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "metrics.csv")
    for step in range(4):
        first.log_metrics({"loss": float(step)}, step)
    first.save()
    second = MetricsFile(first.path)
    second.log_metrics({"loss": 20.0}, 2)
    second.save()
    assert [(row["step"], row["loss"]) for row in rows(first.path)] == [("0", "0"), ("1", "1"), ("2", "20")]
