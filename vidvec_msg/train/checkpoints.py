"""``checkpoints/last.ckpt``: what a run is continued from."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint


class KeepLast(Checkpoint):
    """Keeps one checkpoint: every n optimizer steps, when the fit ends, and when it is interrupted.

    It takes its place only when it is whole, so a run that is killed while writing keeps the one before.
    (Lightning's ModelCheckpoint writes in place, and with a period it leaves out the end of the fit.)

    Args:
        path: the file; under DeepSpeed a folder.
        every_n_steps: optimizer steps between two writes. VidVec-Msg's whole run is about 240.
    """

    def __init__(self, path: Path, every_n_steps: int = 100) -> None:
        self.path = path
        self.every_n_steps = every_n_steps
        self.interrupted = False
        self._saved_at = 0  # optimizer steps, as the next two
        self._stepped_at = 0
        self._written_at = -1
        self._ended = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes if it is time or if the run is interrupted, where a step is whole: the gradients of a step
        that is still accumulating would be lost, and its batches not seen again."""
        whole = trainer.global_step != self._stepped_at
        self._stepped_at = trainer.global_step
        if whole and (self.interrupted or trainer.global_step - self._saved_at >= self.every_n_steps):
            self.write(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Here the metrics of the step before are logged. Brings them to disk with its checkpoint, so that a
        run that is killed and resumed has a row for every step; ends an interrupted run."""
        if self._written_at != trainer.global_step:
            return
        for logger in trainer.loggers:
            logger.after_save_checkpoint(self)  # type: ignore[arg-type]  # any Checkpoint will do
        if self.interrupted:
            raise KeyboardInterrupt

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the end of the fit; once, although WriteEmbedder asks for it before Lightning does."""
        if not self._ended:
            self.write(trainer)
            self._ended = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts from where a resumed fit begins."""
        self._saved_at = self._stepped_at = trainer.global_step
        self._ended = False

    def write(self, trainer: Trainer) -> None:
        """Saves on every rank (a sharded model needs them all), then puts the result in place on one."""
        partial = self.path.with_name(f".{self.path.name}.partial")
        trainer.save_checkpoint(partial, weights_only=False)  # optimizer and position too
        trainer.strategy.barrier("checkpoint written")
        if trainer.is_global_zero:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            partial.replace(self.path)
        self._saved_at = self._written_at = trainer.global_step

    @contextmanager
    def saving_on_interrupt(self) -> Iterator[None]:
        """While it lasts, the first Ctrl-C finishes the step and saves; the second stops at once."""

        def finish_the_step(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, before)

        before = signal.signal(signal.SIGINT, finish_the_step)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
