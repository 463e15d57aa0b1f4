"""One rank fails, and all end: its message is the last one, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vidvec_msg.train.ending_together import ending_together

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


def test_a_single_rank_needs_nobody() -> None:
    alone: Any = SimpleNamespace(world_size=1)
    with pytest.raises(ValueError, match="as it is"), ending_together(alone):
        raise ValueError("as it is")
