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


def test_it_is_written_now_and_then_with_a_checkpoint_and_at_the_end(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv", every=1000)
    found = []
    for step in range(4):
        log.log_metrics({"loss": 1.0}, step)
        log.save()  # as Lightning does after every step; a whole file each time would be quadratic
        found.append(len(rows(log.path)))
        if step == 1:
            log.after_save_checkpoint(None)
            found.append(len(rows(log.path)))
    assert found == [1, 1, 2, 2, 2]
    log.finalize("success")
    assert len(rows(log.path)) == 4


def test_it_may_be_written_after_every_step(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv", every=0)
    for step in range(3):
        log.log_metrics({"loss": 1.0}, step)
        log.save()
        assert len(rows(log.path)) == step + 1


def test_a_resumed_run_keeps_the_rows_before_and_replaces_those_after(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "metrics.csv")
    for step in range(4):
        first.log_metrics({"loss": float(step)}, step)
    first.save()
    second = MetricsFile(first.path)
    second.log_metrics({"loss": 20.0}, 2)
    second.finalize("success")
    assert [(row["step"], row["loss"]) for row in rows(first.path)] == [("0", "0"), ("1", "1"), ("2", "20")]


def test_what_was_measured_at_the_resumed_step_stays(tmp_path: Path) -> None:
    """A fit measures at step 2, saves, and is killed; resumed, it does not measure step 2 again."""
    first = MetricsFile(tmp_path / "metrics.csv")
    first.log_metrics({"loss": 0.0}, 0)
    first.log_metrics({"val/forward/map": 0.5}, 2)
    first.finalize("failed")
    second = MetricsFile(first.path)
    assert second.table() == {0: {"loss": 0.0}, 2: {"val/forward/map": 0.5}}  # before anything is logged
    second.log_metrics({"loss": 2.0}, 2)
    second.log_metrics({"loss": 3.0}, 3)
    assert second.table()[2] == {"loss": 2.0, "val/forward/map": 0.5}
    second.finalize("success")
    assert [row["step"] for row in rows(first.path)] == ["0", "2", "3"]
