"""What is wrong with the callbacks that a config names, found before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.callbacks import Checkpoint

from vidvec_msg.errors import Problems
from vidvec_msg.train.best import KeepBest, StopEarly, refuse_several_best, refuse_unknown
from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.measurement import Measurement, refuse_shared_prefixes
from vidvec_msg.train.options import collecting, made
from vidvec_msg.train.pairs_validation import PairsValidation
from vidvec_msg.train.retrieval_validation import RetrievalValidation

CALLBACKS = (RetrievalValidation, PairsValidation, KeepBest, KeepLast, StopEarly)
"""Those of this package that a config names; imported here, they need no module before their name there."""


def check_callbacks(given: Any, *, validates: bool, keeps: bool, problems: Problems) -> None:
    """Notes wrong options, collections that cannot be read, prefixes given twice, and metrics that nobody
    measures.

    Args:
        given: trainer.callbacks as parsed: a list, a single one, or None.
        validates: whether the run has validation pairs.
        keeps: whether the trainer lets callbacks keep checkpoints (trainer.enable_checkpointing).
        problems: takes what is wrong.
    """
    entries = given if isinstance(given, list) else [] if given is None else [given]
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
        lightnings = kind.__module__.startswith(
            "pytorch_lightning."
        )  # making one of its own does nothing yet
        if lightnings or issubclass(kind, (*CALLBACKS, Measurement)):
            with collecting(problems, about=f"trainer.callbacks, {kind.__name__}: " if lightnings else ""):
                callbacks.append(made(entry))
    if len(problems.found) > before:
        return  # a metric would seem unknown because its measurement could not be made
    callbacks = with_pairs_validation(callbacks, validates=validates)
    with collecting(problems):
        refuse_shared_prefixes(callbacks)
    with collecting(problems):
        refuse_several_best(callbacks)
    for callback in callbacks:
        if isinstance(callback, (KeepBest, StopEarly)):
            with collecting(problems):
                refuse_unknown(callback, callbacks, validates=validates)


def with_pairs_validation(callbacks: Sequence[Any], *, validates: bool) -> list[Any]:
    """The callbacks, and PairsValidation if there are validation pairs and none of them measures them."""
    if not validates or any(isinstance(callback, PairsValidation) for callback in callbacks):
        return list(callbacks)
    return [*callbacks, PairsValidation()]


def _kind(entry: Namespace) -> type:
    module, _, name = entry.class_path.rpartition(".")
    found = getattr(import_module(module), name)
    return found if isinstance(found, type) else object
