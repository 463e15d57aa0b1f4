"""``checkpoints/last.ckpt``: what a run is continued from."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from vidvec_msg.errors import JobFailed
from vidvec_msg.train import run_folder


class CheckpointNotWritten(JobFailed):
    """A checkpoint could not be written, for example because the disk is full."""


def save_atomically(trainer: Trainer, path: Path) -> None:
    """Writes a checkpoint that takes its place only when it is whole.

    It is written under another name beside ``path``, brought to disk, and renamed; whatever goes wrong, or
    whenever the process is killed, the checkpoint that was there before stays. Every rank must call it: a
    sharded model needs them all.

    Args:
        trainer: of the running fit.
        path: the file; under DeepSpeed a folder.

    Raises:
        CheckpointNotWritten: the disk is full, or refuses in another way.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        if trainer.is_global_zero:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove(partial)  # of a run that was killed
        trainer.strategy.barrier("room for a checkpoint")
        trainer.save_checkpoint(partial, weights_only=False)  # optimizer and position too
        trainer.strategy.barrier("checkpoint written")
        if trainer.is_global_zero:
            _to_disk(partial)
            _put_in_place(partial, path)
    except (OSError, RuntimeError) as error:  # torch's writer reports a full disk as a RuntimeError
        with suppress(OSError):
            _remove(partial)  # half a checkpoint would keep the disk full
        kept = (
            f"The checkpoint before it is whole: make room and continue with --ckpt_path {path}."
            if path.exists()
            else "There is none before it."
        )
        raise CheckpointNotWritten(
            f"the checkpoint of step {trainer.global_step} cannot be written to {path}: {error}. {kept}"
        ) from error


def _to_disk(written: Path) -> None:
    """Names reach the disk before contents do, where a machine loses its power."""
    for file in sorted(written.rglob("*")) if written.is_dir() else [written]:
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def _put_in_place(partial: Path, path: Path) -> None:
    """Renames; a folder cannot replace another in one step, so the old one is kept until the new one stands
    (see :func:`vidvec_msg.train.run_folder.resolve_checkpoint`)."""
    before = run_folder.before_replacement(path)
    if path.is_dir():
        _remove(before)
        path.rename(before)
    partial.rename(path)
    shutil.rmtree(before, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class KeepLast(Checkpoint):
    """Keeps one checkpoint: every n optimizer steps, when the fit ends, and when it is interrupted.

    It takes its place only when it is whole, so a run that is killed while writing keeps the one before.
    (Lightning's ModelCheckpoint writes in place, and with a period it leaves out the end of the fit.)
    A fit has one without being asked; one among ``trainer.callbacks`` takes its place.

    Args:
        path: the file; under DeepSpeed a folder. By default ``checkpoints/last.ckpt`` of the run folder,
            which is what ``--ckpt_path last`` means.
        every_n_steps: optimizer steps between two writes. VidVec-Msg's whole run is about 240.
    """

    def __init__(self, path: Path | None = None, every_n_steps: int = 100) -> None:
        if every_n_steps < 1:
            raise ValueError(f"KeepLast: every_n_steps is {every_n_steps}; it must be at least 1")
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

    def place(self, trainer: Trainer) -> Path:
        """Where the checkpoint is kept."""
        return self.path or run_folder.last_checkpoint(Path(trainer.default_root_dir))

    def write(self, trainer: Trainer) -> None:
        """Saves, on every rank."""
        save_atomically(trainer, self.place(trainer))
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
