"""A callback for processes that tests start: it kills its own, as nothing can be prepared for."""

from __future__ import annotations

import os
import signal
from typing import Any

from pytorch_lightning import Callback


class Dies(Callback):
    """``kill -9`` in the midst of a batch; batches count from the beginning of the fit."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)
