"""What a fit leaves behind: the embedder folder and a summary."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer

from vidvec_msg.embedders.models import short_name
from vidvec_msg.runs import write_json
from vidvec_msg.train import run_folder
from vidvec_msg.train.best import Best, KeepBest, load_weights
from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.curves import CURVES, draw_curves
from vidvec_msg.train.ending import Table, changes, no_better, told
from vidvec_msg.train.metrics_file import MetricsFile
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.record import record_of
from vidvec_msg.train.step_report import STEP
from vidvec_msg.train.strategies.whole import whole_weights
from vidvec_msg.train.trained_embedder import write_trained

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
            if isinstance(callback, (KeepLast, KeepBest)):
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
        best = _best(trainer)
        size = pl_module.run_size()  # of the whole fit: a strategy may load the best step's account too
        if best is not None:
            load_weights(trainer, run_folder.best_checkpoint(self.run))  # on every rank, as the next
        weights = whole_weights(pl_module.tower)
        if not trainer.is_global_zero:
            return
        folder = self.run / EMBEDDER
        step = size.steps if best is None else best.step
        table = _table(trainer)
        found = changes(table, step)
        # what was measured of the embedder itself, and not of the last step
        metrics |= {change.name: change.after for change in found}
        card = write_trained(
            folder,
            pl_module,
            name=short_name(pl_module.base_model, self.run),
            weights=weights,
            training=record_of(
                trainer, pl_module, run=self.run, size=size, step=step, found=found, metrics=metrics
            ),
        )
        write_json(
            self.run / SUMMARY,
            {
                "embedder": EMBEDDER,
                "fingerprint": card.fingerprint,
                "steps": size.steps,
                "embedder_step": step,
                "best": None if best is None else asdict(best),
                "pairs_seen": size.pairs,
                "epochs": _epochs(trainer, size.pairs),
                "seconds": round(size.seconds, 2),
                "peak_memory_gb": round(pl_module.report.peak_memory_gb, 3),
                "before": {change.name: change.before for change in found if change.before is not None},
                "metrics": metrics,
                "versions": dict(card.versions),
            },
        )
        _draw(self.run / CURVES, table, best)
        for line in told(found):
            log.info(line)
        for place in no_better(found):
            log.warning(f"{place}: no metric is higher than before training")
        report = pl_module.report
        rate = f" (lately {report.pairs_per_second:.1f} pairs/s)" if report.pairs_per_second else ""
        of = "" if best is None else f" of step {best.step}, {best.monitor} {best.value:.4f} being the best"
        log.info(
            f"made {folder} ({card.fingerprint}){of}: {size.steps} steps, {size.pairs:,} pairs{rate}, "
            f"{size.seconds:.0f} s, {report.peak_memory_gb:.2f} GB at most"
        )


def _best(trainer: Trainer) -> Best | None:
    """The step that the embedder is made from, if that is not the last."""
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, KeepBest) and callback.embedder:
            return callback.best
    return None


def _table(trainer: Trainer) -> Table:
    for logger in trainer.loggers:
        if isinstance(logger, MetricsFile):
            return logger.table()
    return {}


def _draw(path: Path, table: Table, best: Best | None) -> None:
    """Draws the run; the picture is a courtesy, and a fit does not fail for want of it."""
    try:
        draw_curves(path, table, best=None if best is None else best.step)
    except Exception as error:
        log.warning(f"{path} is not drawn: {type(error).__name__}: {error}")


def _epochs(trainer: Trainer, seen: int) -> float | None:
    """How often the training pairs were seen, resumed runs and partial epochs included."""
    training = getattr(trainer.datamodule, "training", None)  # type: ignore[attr-defined]  # set in a connector
    return round(seen / len(training), 3) if training else None


def _numbers(trainer: Trainer) -> dict[str, Any]:
    """The last value of every metric; a value that is not finite as text, because JSON has none."""
    found = {name: float(value) for name, value in trainer.callback_metrics.items() if name != STEP}
    return {name: value if abs(value) < float("inf") else str(value) for name, value in sorted(found.items())}
