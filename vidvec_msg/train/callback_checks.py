"""What is wrong with the callbacks that a config names, found before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping, LambdaCallback, ModelCheckpoint

from vidvec_msg.errors import Problems
from vidvec_msg.train.best import KeepBest, StopEarly, refuse_several_best, refuse_unknown
from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.losses import PairLoss
from vidvec_msg.train.measurement import Measurement, refuse_shared_prefixes
from vidvec_msg.train.options import collecting, made
from vidvec_msg.train.pairs_validation import PairsValidation
from vidvec_msg.train.retrieval_validation import RetrievalValidation
from vidvec_msg.train.step_report import names_of_steps

CALLBACKS = (RetrievalValidation, PairsValidation, KeepBest, KeepLast, StopEarly)
"""Those of this package that a config names; imported here, they need no module before their name there."""


def check_callbacks(
    options: Namespace, data: PairsData | None, loss: PairLoss | None, problems: Problems, *, trains: bool
) -> None:
    """Notes wrong options, collections that cannot be read, prefixes given twice, and metrics that nobody
    measures.

    Args:
        options: of the trainer.
        data: as read; None if that failed, and what is measured of it is not known.
        loss: of the training; None if its options are wrong.
        problems: takes what is wrong.
        trains: False where a checkpoint is measured alone, and nothing is decided.
    """
    given = options.callbacks
    entries = given if isinstance(given, list) else [] if given is None else [given]
    keeps = options.enable_checkpointing is not False
    strangers = False
    callbacks: list[object] = []
    before = len(problems.found)
    for entry in entries:
        if not isinstance(entry, Namespace):
            continue
        kind = _kind(entry)
        if not keeps and issubclass(kind, Checkpoint):
            problems.add(
                f"trainer.callbacks: {kind.__name__} keeps checkpoints, and trainer.enable_checkpointing is "
                "false: leave one of the two out"
            )
        # making one of Lightning's own does nothing yet
        lightnings = kind.__module__.startswith("pytorch_lightning.")
        strangers |= kind is LambdaCallback or not (lightnings or kind in CALLBACKS)
        if lightnings or issubclass(kind, (*CALLBACKS, Measurement)):
            with collecting(problems, about=f"trainer.callbacks, {kind.__name__}: " if lightnings else ""):
                callbacks.append(made(entry))
    if len(problems.found) > before:
        return  # a metric would seem unknown because its measurement could not be made
    validates = bool(data and data.validation)
    callbacks = with_pairs_validation(callbacks, validates=validates)
    with collecting(problems):
        refuse_shared_prefixes(callbacks)
    with collecting(problems):
        refuse_several_best(callbacks)
    if not trains or data is None:
        return
    # a user's own callback may log anything: of each step, and what only Lightning's would look at
    judged = (KeepBest, StopEarly) if strangers else (KeepBest, EarlyStopping, ModelCheckpoint)
    steps = None
    if loss is not None and not strangers:
        hard = data.negatives != 0 and any(pair.negatives for pair in data.training)
        steps = names_of_steps(loss, hard_negatives=hard)
    for callback in callbacks:
        if isinstance(callback, judged):
            with collecting(problems):
                refuse_unknown(
                    callback,
                    callbacks,
                    validates=validates and options.limit_val_batches != 0,
                    steps=steps,
                )


def with_pairs_validation(callbacks: Sequence[Any], *, validates: bool) -> list[Any]:
    """The callbacks, and PairsValidation if there are validation pairs and none of them measures them."""
    if not validates or any(isinstance(callback, PairsValidation) for callback in callbacks):
        return list(callbacks)
    return [*callbacks, PairsValidation()]


def _kind(entry: Namespace) -> type:
    module, _, name = entry.class_path.rpartition(".")
    found = getattr(import_module(module), name)
    return found if isinstance(found, type) else object
