"""Fits through the command line on several ranks, one after the other in the same processes: starting a
process takes longer than a tiny fit.

``launch`` starts the ranks as torchrun does; each runs this file, and leaves ``told-RANK.json``: for each fit
null, or the kind and the message of what ended it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SECONDS = 540  # of a launch; a machine that does other things besides is ten times slower than an idle one


def launch(folder: Path, jobs: Sequence[Sequence[str]], *, ranks: int) -> list[str | None]:
    """Runs some fits on some ranks.

    Args:
        folder: for what the ranks say.
        jobs: words of the command line, of each fit.
        ranks: processes.

    Returns:
        how each fit ended on rank 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    # the last one tells Lightning that the ranks are there already
    shared |= {"MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "test"}
    processes = []
    for rank in range(ranks):
        with (folder / f"output-{rank}.txt").open("w") as stream:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
            command = [sys.executable, str(Path(__file__)), str(folder)]
            environment = {**os.environ, **shared, **own}
            processes.append(
                subprocess.Popen(
                    command, env=environment, stdout=stream, stderr=stream, start_new_session=True
                )
            )
    try:
        codes = [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert not any(codes), "\n".join((folder / f"output-{rank}.txt").read_text() for rank in range(ranks))
    told: list[str | None] = json.loads((folder / "told-0.json").read_text())
    return told


def run(folder: Path) -> None:
    """What a rank does."""
    import torch.distributed as dist

    from vidvec_msg.train.fit import main

    told: list[str | None] = []
    for words in json.loads((folder / "jobs.json").read_text()):
        try:
            main(words)
            told.append(None)
        except Exception as error:
            traceback.print_exc()
            told.append(f"{type(error).__name__}: {error}")
    (folder / f"told-{os.environ['RANK']}.json").write_text(json.dumps(told))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
