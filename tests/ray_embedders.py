"""Embedders for actors of a cluster: other processes, which tests know by what they leave in a folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fakes import KeywordEmbedder

from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.formats.items import Item


class Noting(KeywordEmbedder):
    """Leaves a file ``ID.PID`` for each batch, ID that of its first item.

    Args:
        notes: the folder.
        dies_at: id of an item at which the process kills itself.
        times: how often; the files tell how often it has.
        fails_at: id of an item at which it raises an error that is not about single items.
        pause: seconds a batch.
    """

    def __init__(
        self,
        notes: str,
        dies_at: str = "",
        times: int = 1,
        fails_at: str = "",
        pause: float = 0.0,
    ) -> None:
        super().__init__()
        self.notes, self.dies_at, self.times = Path(notes), dies_at, times
        self.fails_at, self.pause = fails_at, pause

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        ids = [item.id for item in items]
        (self.notes / f"{ids[0]}.{os.getpid()}").touch()
        time.sleep(self.pause)
        if self.dies_at in ids:
            deaths = len(list(self.notes.glob("death.*")))
            if deaths < self.times:
                (self.notes / f"death.{deaths}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if self.fails_at in ids:
            raise MemoryError("out of memory")
        return super().encode(items, role=role)
