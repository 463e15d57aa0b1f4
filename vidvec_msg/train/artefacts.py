"""What a fit leaves behind: the embedder folder and a summary."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from vidvec_msg.embedders.saved import save_embedder  # here: an import that fails must not wait for the end
from vidvec_msg.runs import write_json
from vidvec_msg.train import run_folder
from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.module import TextContrastive

log = logging.getLogger(__name__)

EMBEDDER = "embedder"
SUMMARY = "summary.json"


class WriteEmbedder(Callback):
    """Writes ``embedder/`` and ``summary.json`` into the run folder when a fit ends.

    Args:
        run: the run folder.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self._ended = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A resumed run is not complete until it ends again."""
        if trainer.is_global_zero:
            run_folder.start_again(self.run)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes what the fit made, its last checkpoint before all else."""
        self._ended = True
        for callback in trainer.checkpoint_callbacks:  # Lightning lets them come last: too late if this fails
            if isinstance(callback, KeepLast):
                callback.on_train_end(trainer, pl_module)
        self._write(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A resumed fit with no step left reaches no end of training; its embedder may still be missing."""
        if not self._ended and not (self.run / SUMMARY).exists():
            self._write(trainer, pl_module)

    def _write(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the adapter with its card; the summary is written last, so its presence means complete."""
        if not isinstance(pl_module, TextContrastive):
            log.warning(f"no embedder is written: {type(pl_module).__name__} is not a TextContrastive")
            return
        metrics = _numbers(trainer)  # on every rank: reading them may reduce them over ranks
        if not trainer.is_global_zero:
            return
        folder = self.run / EMBEDDER
        card = save_embedder(folder, model=pl_module.tower, card=pl_module.card(self.run.resolve().name))
        size = pl_module.run_size()
        write_json(
            self.run / SUMMARY,
            {
                "embedder": EMBEDDER,
                "fingerprint": card.fingerprint,
                "steps": size.steps,
                "epoch": trainer.current_epoch,
                "pairs_seen": size.pairs,
                "seconds": round(size.seconds, 2),
                "metrics": metrics,
                "versions": dict(card.versions),
            },
        )
        log.info(
            f"made {folder} ({card.fingerprint}): {size.steps} steps, {size.pairs:,} pairs, "
            f"{size.seconds:.0f} s"
        )


def _numbers(trainer: Trainer) -> dict[str, Any]:
    """The last value of every metric; a value that is not finite as text, because JSON has none."""
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return {name: value if abs(value) < float("inf") else str(value) for name, value in sorted(found.items())}
