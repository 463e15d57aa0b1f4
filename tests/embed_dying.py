"""Embeds a collection in processes that are killed at random moments, until one of them ends by itself.

    python tests/embed_dying.py COLLECTION FOLDER SLICES KILLS

Makes FOLDER/whole, undisturbed, and FOLDER/0, FOLDER/1, … until KILLS processes were killed; with SLICES
above 0 each process embeds the slices one after the other and joins them. Prints what lay there after each
kill, as JSON. Processes are forks of this one, which has imported everything: a start costs a second, a fork
nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pandas as pd  # noqa: F401  # pyarrow imports it late: each fork would spend most of its life on that
from fakes import KeywordEmbedder

from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval import embed as module
from vidvec_msg.retrieval.embed import embed

PAUSE = 0.006  # seconds a batch


class Slow(KeywordEmbedder):
    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        time.sleep(PAUSE)
        return super().encode(items, role=role)


def job(collection: Path, out: Path, slices: int) -> None:
    """The commands of a user, one after the other."""
    for shard in [*(f"{number}/{slices}" for number in range(1, slices + 1)), None]:
        if not (out / "manifest.json").exists() or shard is None:
            embed(
                collection, "embed_dying:Slow", out, shard=shard, batch_size=2, shard_size=7, max_failures=0.5
            )


def start(collection: Path, out: Path, slices: int) -> int:
    """The id of a process that does the job and ends with 0."""
    child = os.fork()
    if child:
        return child
    try:
        job(collection, out, slices)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(collection: Path, folder: Path, slices: int, kills: int) -> None:
    began = time.monotonic()
    if os.waitpid(start(collection, folder / "whole", slices), 0)[1] != 0:
        raise SystemExit("the undisturbed run failed")
    seconds = time.monotonic() - began
    moments = random.Random(slices)
    states: list[list[str]] = []
    runs = 0
    while len(states) < kills:
        out = folder / str(runs)
        runs += 1
        ended = False
        while not ended:
            child = start(collection, out, slices)
            time.sleep(moments.uniform(0, seconds / 2))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            ended = status == 0
            if not ended and not os.WIFSIGNALED(status):
                raise SystemExit(f"a process ended with {status}")
            if not ended:
                states.append(sorted(str(path.relative_to(out)) for path in out.rglob("*")))
    print(json.dumps({"runs": runs, "states": states}))


if __name__ == "__main__":
    embed_items = module.embed_items

    def saving_each_batch(*given: object, **options: object) -> object:
        return embed_items(*given, **options, save_every=0)  # type: ignore[arg-type]

    module.embed_items = saving_each_batch  # type: ignore[assignment]
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
