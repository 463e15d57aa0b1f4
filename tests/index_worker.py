"""A nursery for writers that are killed: imports once, then forks a process for each that is asked for.

Reads lines ``FOLDER FIRST_STEP`` and starts a process that changes ``FOLDER/index`` step by step, on and on;
``FOLDER/state.json`` says what the index holds. It writes ``pid N``, and ``done STEP`` after each change.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import faiss  # noqa: F401  every child would import it again
from index_histories import carry_out

from vidvec_msg.runs import software_versions


def tell(line: str) -> None:
    """A line in one piece: print may be killed before the line's end."""
    os.write(1, f"{line}\n".encode())


def change_on_and_on(folder: Path, step: int) -> None:
    state = json.loads((folder / "state.json").read_text())
    tell(f"pid {os.getpid()}")
    while True:
        state = carry_out(folder, state, step)
        tell(f"done {step}")
        step += 1


if __name__ == "__main__":
    software_versions()  # kept: half of the time of a small change
    for line in sys.stdin:
        folder, first = line.rstrip("\n").rsplit(" ", 1)
        child = os.fork()
        if not child:
            change_on_and_on(Path(folder), int(first))
        os.waitpid(child, 0)
        tell("gone")
