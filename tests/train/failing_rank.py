"""A callback that makes one rank of a fit fail before its third step."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer


class FailingRank(Callback):
    """Fails.

    Args:
        kind: "error" raises; "disk" lets no file grow over 50 kB, so that the next checkpoint fails; "kill"
            is what a system does that has run out of memory.
        rank: which.
    """

    def __init__(self, kind: str, rank: int) -> None:
        self.kind = kind
        self.rank = rank

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Before the third step."""
        if (trainer.global_rank, trainer.global_step) != (self.rank, 2):
            return
        if self.kind == "error":
            raise ValueError(f"rank {self.rank} cannot go on")
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
