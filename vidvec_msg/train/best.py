"""Decisions on what is measured during a fit: which checkpoint is the best, and when to stop.

Any metric of the run will do: those of RetrievalValidation and PairsValidation (decided on when they are
measured), ``val/loss`` and its siblings (when Lightning has validated), and the ``train/`` metrics (after
every optimizer step; they are of one batch, and jump). What is measured is measured of the weights that are
kept; a ``train/`` metric is of the weights before the step: nothing has seen the new ones yet.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping, LearningRateMonitor, ModelCheckpoint

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.runs import write_json
from vidvec_msg.train import run_folder
from vidvec_msg.train.checkpoints import save_atomically
from vidvec_msg.train.measurement import Measurement
from vidvec_msg.train.step_report import OF_STEPS, OF_VALIDATION

log = logging.getLogger(__name__)

Mode = Literal["max", "min"]


@dataclass(frozen=True, slots=True)
class Best:
    """The best step so far.

    Args:
        monitor: name of the metric.
        value: its value.
        step: optimizer steps of the weights that are kept. A ``train/`` metric is of the batch that the last
            of them was made of, and of the weights before it.
    """

    monitor: str
    value: float
    step: int


class KeepBest(Checkpoint):
    """Keeps the checkpoint of the best measurement, ``checkpoints/best.ckpt``; ``embedder/`` is made from it.

    The measurement before training is not a candidate: what it measures is not trained. Beside the checkpoint
    lies ``best.json`` with the value and the step. They are what is best for a resumed run too: a measurement
    must be better than the one whose weights the folder holds. A value that is not a number is never the
    best; of equal values the first is.

    Args:
        monitor: name of a metric of the run, for example val/forward/map.
        mode: whether more of it is better ("max") or less ("min").
        embedder: make embedder/ from the best step; otherwise from the last.
    """

    def __init__(self, monitor: str = "val/forward/map", mode: Mode = "max", embedder: bool = True) -> None:
        self.monitor = monitor
        self.mode: Mode = _checked(mode, "KeepBest")
        self.embedder = embedder
        self.best: Best | None = None
        self._due: float | None = None  # measured in this step, and better
        self._stepped_at = -1

    def place(self, trainer: Trainer) -> Path:
        """Where the checkpoint is kept."""
        return run_folder.best_checkpoint(Path(trainer.default_root_dir))

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses a metric that this run does not have, and takes up what a resumed run found."""
        if stage != "fit":
            return
        refuse_unknown(self, _callbacks(trainer), validates=_validates(trainer))
        refuse_several_best(_callbacks(trainer))
        self.best = read_best(self.place(trainer))
        if self.best is not None and self.best.monitor != self.monitor:
            log.warning(
                f"{self.place(trainer)} is the best by {self.best.monitor}; the first measurement of "
                f"{self.monitor} replaces it"
            )
            self.best = None

    def on_measured(self, trainer: Trainer, values: Mapping[str, float]) -> None:
        """Notes a better value; it is written when the step has ended for all callbacks."""
        if self.monitor in values and trainer.global_step:
            self._judge(values[self.monitor])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts from where a resumed fit begins."""
        self._stepped_at = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes the best so far. Checkpoints come after all other callbacks: their states are whole."""
        whole = trainer.global_step != self._stepped_at
        self._stepped_at = trainer.global_step
        if whole and _of_steps(self.monitor):
            self._judge(logged(self.monitor, trainer, "KeepBest"))
        self._write_if_due(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Judges what Lightning's validation logged."""
        if self.monitor in OF_VALIDATION and _in_training(trainer):
            self._judge(logged(self.monitor, trainer, "KeepBest"))
            self._write_if_due(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes if the end was measured and is the best."""
        self._write_if_due(trainer)

    def _judge(self, value: float) -> None:
        before = self.best.value if self._due is None and self.best else self._due
        if math.isfinite(value) and (before is None or _better(value, before, self.mode)):
            self._due = value

    def _write_if_due(self, trainer: Trainer) -> None:
        if self._due is None:
            return
        best, self._due = Best(self.monitor, self._due, trainer.global_step), None
        path = self.place(trainer)
        save_atomically(trainer, path)
        if trainer.is_global_zero:
            write_json(_beside(path), asdict(best))
        self.best = best
        before = ", of its batch, before it" if _of_steps(best.monitor) else ""
        log.info(f"best so far: {best.monitor} {best.value:.4f} at step {best.step}{before}")


class StopEarly(EarlyStopping):
    """Stops a fit when a metric has not become better for some measurements in a row.

    Lightning's EarlyStopping, asked when its metric is measured instead of at the ends of validations. Its
    best value and its count are part of every checkpoint; a value that is not a number stops the fit.

    Args:
        monitor: name of a metric of the run, for example val/forward/map.
        mode: whether more of it is better ("max") or less ("min").
        patience: measurements without a better value after which the fit stops.
        min_delta: a value is better if it is so by more than this.
    """

    def __init__(
        self,
        monitor: str = "val/forward/map",
        mode: Mode = "max",
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        _checked(mode, "StopEarly")
        if patience < 1:
            raise ValueError(f"StopEarly: patience is {patience}; it must be at least 1 measurement")
        if not min_delta >= 0:
            raise ValueError(f"StopEarly: min_delta is {min_delta}; it must be at least 0")
        super().__init__(monitor, min_delta=min_delta, patience=patience, mode=mode)
        self._stepped_at = -1

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses a metric that this run does not have."""
        if stage == "fit":
            refuse_unknown(self, _callbacks(trainer), validates=_validates(trainer))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on counting; how much patience there is, the options of the resumed run say."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A run that was stopped stays so, unless it is given more patience."""
        self._stepped_at = trainer.global_step
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience

    def on_measured(self, trainer: Trainer, values: Mapping[str, float]) -> None:
        """Decides."""
        if self.monitor in values:
            self._decide(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Decides after an optimizer step, on a metric of steps."""
        whole = trainer.global_step != self._stepped_at
        self._stepped_at = trainer.global_step
        if whole and _of_steps(self.monitor):
            logged(self.monitor, trainer, "StopEarly")
            self._decide(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing; Lightning would decide again on an old value."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Decides on what Lightning's validation logged."""
        if self.monitor in OF_VALIDATION and _in_training(trainer):
            self._decide(trainer)

    def _decide(self, trainer: Trainer) -> None:
        if bool(trainer.should_stop):  # bool(): mypy would believe that the check below changes nothing
            return
        self._run_early_stopping_check(trainer)
        if trainer.should_stop:
            log.info(f"stopped at step {trainer.global_step}: {self.stopping_reason_message}")


def read_best(checkpoint: Path) -> Best | None:
    """What the best checkpoint of a run folder is the best of; None if there is none."""
    beside = _beside(checkpoint)
    if not (beside.is_file() and checkpoint.exists()):
        return None
    return Best(**json.loads(beside.read_text(encoding="utf-8")))


def load_weights(trainer: Trainer, checkpoint: Path) -> None:
    """Puts a checkpoint's weights into the model of the running trainer; every rank must call it."""
    content = trainer.strategy.load_checkpoint(checkpoint, weights_only=True)
    trainer.strategy.load_model_state_dict(content, strict=False)  # the frozen weights are not in it


def refuse_unknown(
    callback: KeepBest | EarlyStopping | ModelCheckpoint,
    callbacks: Sequence[object],
    *,
    validates: bool,
    steps: Sequence[str] | None = None,
) -> None:
    """Refuses a metric that the run will not have, before its first step.

    Args:
        callback: decides on the metric; Lightning's two take anything that is logged.
        callbacks: of the run.
        validates: whether validation pairs go through the loss.
        steps: names of what is logged of each step; if not given, any that begin with ``train/`` are taken.

    Raises:
        RefusedRequest: the message names those that it will have.
    """
    monitor = callback.monitor
    lenient = isinstance(callback, EarlyStopping) and not callback.strict
    if monitor is None or lenient:  # a ModelCheckpoint that keeps whatever is the latest; a wish to go on
        return
    known = [name for other in callbacks if isinstance(other, Measurement) for name in other.names]
    known += OF_VALIDATION if validates else ()
    anything = not isinstance(callback, (KeepBest, StopEarly))
    of_steps = [name for name in steps or OF_STEPS if anything or _of_steps(name)]
    if monitor in known or (monitor in of_steps if steps is not None else _of_steps(monitor)):
        return
    if anything and _is_lightnings_own(monitor, callbacks):
        return
    nothing = "nothing beside its steps (add RetrievalValidation to trainer.callbacks)"
    raise RefusedRequest(
        f"{type(callback).__name__}: monitor is {monitor!r}{did_you_mean(monitor, [*known, *of_steps])}, "
        f"which this run does not measure. It measures {', '.join(known) or nothing}; and of every step "
        f"{', '.join(of_steps)}"
    )


def _is_lightnings_own(monitor: str, callbacks: Sequence[object]) -> bool:
    """Whether a name is one that Lightning itself gives: its counters, and rates that its monitor logs."""
    rates = any(isinstance(callback, LearningRateMonitor) for callback in callbacks)
    return monitor in ("epoch", "step") or (rates and monitor.startswith("lr-"))


def refuse_several_best(callbacks: Sequence[object]) -> None:
    """Refuses two KeepBest in one run."""
    if sum(isinstance(callback, KeepBest) for callback in callbacks) > 1:
        raise RefusedRequest("trainer.callbacks: two KeepBest would write the same best.ckpt; keep one")


def logged(monitor: str, trainer: Trainer, who: str) -> float:
    """The value of a metric that was logged in this step or validation.

    Raises:
        RefusedRequest: it was not; the message names what was.
    """
    found = trainer.callback_metrics
    if monitor not in found:
        raise RefusedRequest(
            f"{who}: there is no {monitor!r}{did_you_mean(monitor, found)} in this run, whose metrics are "
            f"{', '.join(sorted(found))}"
        )
    return float(found[monitor])


def _of_steps(monitor: str) -> bool:
    return monitor.startswith("train/")


def _callbacks(trainer: Trainer) -> list[Callback]:
    found: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # Lightning sets it in a connector
    return found


def _validates(trainer: Trainer) -> bool:
    data = getattr(trainer, "datamodule", None)
    return bool(getattr(data, "validation", None)) and getattr(trainer, "limit_val_batches", 1) != 0


def _in_training(trainer: Trainer) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _better(value: float, than: float, mode: Mode) -> bool:
    return value > than if mode == "max" else value < than


def _checked(mode: Mode, who: str) -> Mode:
    if mode not in get_args(Mode):
        raise ValueError(f"{who}: mode is {mode!r}; accepted: {', '.join(get_args(Mode))}")
    return mode


def _beside(checkpoint: Path) -> Path:
    return checkpoint.with_suffix(".json")
