"""A nursery for writers that are killed: imports once, then forks a process for each that is asked for.

Reads lines ``FOLDER FIRST_STEP WRITE`` and starts a process that changes ``FOLDER/index`` step by step, on
and on; ``FOLDER/state.json`` says what the index holds. It writes ``pid N``, and ``done STEP`` after each
change. It dies of itself as it is about to open for writing, rename or remove a file of the index for the
``WRITE``-th time (0: never).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import faiss  # noqa: F401  every child would import it again
from index_histories import carry_out

from vidvec_msg.runs import software_versions


def tell(line: str) -> None:
    """A line in one piece: print may be killed before the line's end."""
    os.write(1, f"{line}\n".encode())


def die_before(write: int, index: Path) -> None:
    """Kills this process when Python is about to change a file in a folder for the ``write``-th time."""
    count = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in ("open", "os.rename", "os.remove"):
            return
        path, how = arguments[:2]
        reads = event == "open" and not (isinstance(how, str) and set(how) & set("wax+"))
        if not reads and isinstance(path, str | os.PathLike) and index in Path(path).parents:
            count += 1
            if count == write:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


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
        folder, first, write = line.rstrip("\n").rsplit(" ", 2)
        child = os.fork()
        if not child:
            die_before(int(write), Path(folder) / "index")
            change_on_and_on(Path(folder), int(first))
        os.waitpid(child, 0)
        tell("gone")
