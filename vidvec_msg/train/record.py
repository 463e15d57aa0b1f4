"""What a fit knows of itself, for the model card of the embedder that it makes."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pytorch_lightning import Trainer

from vidvec_msg.embedders.training_record import Measurement as Measured
from vidvec_msg.embedders.training_record import PairsRecord, TrainingRecord
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.runs import file_digest
from vidvec_msg.train import run_folder
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.ending import Change
from vidvec_msg.train.measurement import DIRECTIONS, Measurement
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.step_report import RunSize
from vidvec_msg.train.tuning import account

log = logging.getLogger(__name__)

PROVENANCE = ("license", "licence", "language", "lang", "generator", "source")
"""Columns of pairs that a reader of a model card asks for."""

_SEVERAL = 12  # distinct values of such a column that are named; the others are counted

# of the trainer's options, those that decide what comes out
_DECISIVE = (
    "accelerator",
    "strategy",
    "devices",
    "num_nodes",
    "precision",
    "max_epochs",
    "max_steps",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
)

# an absolute path: the whole text, or part of an embedder's spec, behind its form or as an option's value
_FOLDER = re.compile(r"(?:^|(?<==)|(?<=:)(?!//[^/]))/[^?]*?(?=$|\?|&\w+=)")


def record_of(
    trainer: Trainer,
    module: TextContrastive,
    *,
    run: Path,
    size: RunSize,
    step: int,
    found: Sequence[Change],
    metrics: Mapping[str, Any],
) -> TrainingRecord:
    """The record of a fit that ends. It is an account, and a fit does not fail for want of it: what cannot be
    told is left out with a warning.

    Args:
        trainer: of the fit; its data module and its callbacks tell of pairs and measurements.
        module: what was trained.
        run: the run folder, with the config that reproduces the run.
        size: how much the fit trained.
        step: optimizer steps of the weights that the embedder holds.
        found: retrieval before and after.
        metrics: last value of every metric, by name.
    """
    try:
        return _record(trainer, module, run, size, step, found, metrics)
    except Exception as error:  # whatever it is, hours of training lie behind
        log.warning(f"the model card says less than it could: {type(error).__name__}: {error}")
        return TrainingRecord(steps=step, pairs_seen=size.pairs)


def _record(
    trainer: Trainer,
    module: TextContrastive,
    run: Path,
    size: RunSize,
    step: int,
    found: Sequence[Change],
    metrics: Mapping[str, Any],
) -> TrainingRecord:
    data = trainer.datamodule  # type: ignore[attr-defined]  # Lightning sets it in a connector
    known = data if isinstance(data, PairsData) else None
    ranks, accumulated = trainer.world_size, trainer.accumulate_grad_batches
    return TrainingRecord(
        pairs=PairsRecord() if known is None else pairs_record(known),
        steps=step,
        pairs_seen=size.pairs,
        seconds=round(size.seconds, 1),
        pairs_per_step=0 if known is None else known.batch_size * ranks * accumulated,
        ranks=ranks,
        accumulated=accumulated,
        negatives_per_anchor=_number(metrics.get("train/negatives_per_anchor")),
        cut_texts=_number(metrics.get("train/cut_texts")),
        trained=account(module.tower),
        config=decisive_options(run / run_folder.CONFIG),
        measurements=_measured(found, trainer),
        losses={
            name: value
            for name, value in metrics.items()
            if name.endswith(("/loss", "/accuracy")) and isinstance(value, float)
        },
    )


def _number(value: Any) -> float | None:
    """What was logged; a number that is not finite was noted as text."""
    return value if isinstance(value, float) else None


def pairs_record(data: PairsData) -> PairsRecord:
    """What is known of the pairs."""
    path = Path(data.source)
    pairs = data.training
    return PairsRecord(
        source=path.name if path.is_file() else data.source,
        sha256=file_digest(path) if path.is_file() else "",
        training=len(pairs),
        validation=len(data.validation),
        groups=len({pair.group for pair in pairs if pair.group is not None}),
        with_negatives=sum(bool(pair.negatives) for pair in pairs),
        provenance=_provenance(pairs),
    )


def _provenance(pairs: Sequence[Pair]) -> dict[str, dict[str, int]]:
    """Value → pairs for every column that says where texts come from; "" counts the pairs without one."""
    found: dict[str, dict[str, int]] = {}
    for column in PROVENANCE:
        values = Counter(str(pair.provenance.get(column) or "") for pair in pairs)
        if set(values) != {""}:
            found[column] = dict(values.most_common(_SEVERAL))
            if (others := len(values) - _SEVERAL) > 0:
                found[column][f"{others} other values"] = len(pairs) - sum(found[column].values())
    return found


def decisive_options(config: Path) -> dict[str, Any]:
    """The options of a run that decide its outcome; empty where the run was not started from a config.

    Folders of this machine are shortened to their last part: a model card is read elsewhere.
    """
    if not config.is_file():
        return {}
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    trainer = content.get("trainer") or {}
    kept = {
        "seed_everything": content.get("seed_everything"),
        "trainer": {name: trainer[name] for name in _DECISIVE if trainer.get(name) is not None},
        "model": content.get("model") or {},
        "data": content.get("data") or {},
    }
    placeless: dict[str, Any] = _placeless(kept)
    return placeless


def _placeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _placeless(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_placeless(entry) for entry in value]
    if isinstance(value, str):
        return _FOLDER.sub(lambda found: Path(found[0]).name, value)
    return value


def _measured(found: Sequence[Change], trainer: Trainer) -> tuple[Measured, ...]:
    """Every metric, with what was ranked."""
    callbacks: dict[str, Measurement] = {
        callback.prefix: callback
        for callback in trainer.callbacks  # type: ignore[attr-defined]  # Lightning sets it in a connector
        if isinstance(callback, Measurement)
    }
    ranked = {
        prefix: _ranked(callbacks[prefix]) for prefix in {change.prefix for change in found} & {*callbacks}
    }
    return tuple(
        Measured(
            change.name,
            change.after,
            before=change.before,
            step=change.step,
            **ranked.get(change.prefix, {}).get(change.direction, {}),
        )
        for change in found
    )


def _ranked(callback: Measurement) -> dict[str, dict[str, Any]]:
    """What asks and what is ranked, per direction. Only queries with a positive are averaged over."""
    sides = callback.sides()
    right = [(query, document) for query, grades in sides.qrels.items() for document in grades]
    judged = {document for _, document in right}
    right = [pair for pair in right if sides.qrels[pair[0]][pair[1]] > 0]
    corpus = [item for item in sides.corpus if callback.pool == "corpus" or item.id in judged]
    collection = getattr(callback, "collection", None)
    name = "validation pairs" if collection is None else collection.root.name
    forward, reverse = DIRECTIONS
    return {
        direction: {
            "collection": name,
            "queries": asking,
            "candidates": len(answers),
            "kinds": f"{_kinds(asks)} → {_kinds(answers)}",
        }
        for direction, asking, asks, answers in (
            (forward, len({query for query, _ in right}), sides.queries, corpus),
            (reverse, len({document for _, document in right}), corpus, sides.queries),
        )
    }


def _kinds(items: Sequence[Item]) -> str:
    return ", ".join(sorted({item.modality for item in items}))
