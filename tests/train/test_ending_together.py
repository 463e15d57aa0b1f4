"""One rank fails, and all end: its message is the last one, and no process is left behind."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented, and not in its stubs

from vidvec_msg.train.ending_together import FAILED, _store, _Watch, ending_together
from vidvec_msg.train.metrics_file import MetricsFile

pytest.importorskip("resource", reason="limits the size of files")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="looks for processes by their POSIX group")
@pytest.mark.parametrize(
    ("kind", "rank", "last"),
    [
        ("disk", 0, "vidvec-msg: the checkpoint of step 3 cannot be written to "),
        ("error", 1, "[rank1]: ValueError: rank 1 cannot go on"),
        ("kill", 1, "vidvec-msg: local rank 1 was killed (SIGKILL; "),
    ],
)
def test_all_ranks_end_with_the_one_that_fails(
    tiny: Path, pairs_file: Path, tmp_path: Path, kind: str, rank: int, last: str
) -> None:
    words = ["fit", f"--model.model={tiny}", "--model.lora.r=4", f"--data.pairs={pairs_file}"]
    words += [
        "--data.batch_size=4",
        "--trainer.accelerator=cpu",
        "--trainer.devices=2",
        "--trainer.strategy=ddp",
    ]
    words += ["--trainer.max_steps=3", f"--trainer.default_root_dir={tmp_path / 'run'}"]
    words += ["--trainer.callbacks+=failing_rank.FailingRank", f"--trainer.callbacks.kind={kind}"]
    surrounding = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in surrounding}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    fit = subprocess.Popen(
        [sys.executable, "-m", "vidvec_msg.cli", *words, f"--trainer.callbacks.rank={rank}"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = fit.communicate(timeout=240)  # the other rank held the output open until its own timeout
        with pytest.raises(ProcessLookupError):
            os.killpg(fit.pid, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(fit.pid, signal.SIGKILL)
    assert fit.returncode == 1, told
    assert told.splitlines()[-1].startswith(last), told
    assert "Connection closed" not in told
    assert "Connection reset" not in told
    with (tmp_path / "run" / "metrics.csv").open(newline="", encoding="utf-8") as stream:
        logged = {row["step"] for row in csv.DictReader(stream)}
    assert logged >= {"0", "1"}  # the second within the five seconds between two writes of the file


def test_a_single_rank_needs_nobody() -> None:
    alone: Any = SimpleNamespace(world_size=1)
    with pytest.raises(ValueError, match="as it is"), ending_together(alone):
        raise ValueError("as it is")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """A store as the ranks have it, without ranks."""
    served = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(served.port))
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    return served


def test_ranks_that_torchrun_starts_again_do_not_end_by_the_word_of_their_first_life(
    server: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _store()
    assert first is not None
    first.set(FAILED, "1 1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = _store()
    assert again is not None
    assert first.check([FAILED])
    assert not again.check([FAILED])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_other_machines_hear_of_a_rank_that_was_killed_and_the_log_is_whole(
    server: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = object.__new__(_SubprocessScriptLauncher)
    launcher.procs = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)]
    launcher.procs[0].kill()
    launcher.procs[0].wait()
    log = MetricsFile(tmp_path / "metrics.csv")
    log.log_metrics({"loss": 1.5}, 0)
    hangs = SimpleNamespace(finalize=lambda _: Event().wait())
    fails = SimpleNamespace(finalize=lambda _: 1 / 0)
    trainer: Any = SimpleNamespace(
        global_rank=2,
        world_size=4,
        strategy=SimpleNamespace(launcher=launcher),
        loggers=[hangs, fails, log],
    )
    monkeypatch.setattr(os, "_exit", lambda code: (_ for _ in ()).throw(SystemExit(code)))
    with pytest.raises(SystemExit):
        _Watch(trainer).run()
    assert "local rank 1 was killed (SIGKILL;" in capsys.readouterr().err
    assert log.path.read_text() == "step,epoch,loss\n0,,1.5\n"
    store = _store()
    assert store is not None
    assert store.get(FAILED) == b"2 1"
