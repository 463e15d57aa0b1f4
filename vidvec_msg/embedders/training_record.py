"""What a fit has to say about the embedder that it made: ``training.json`` in the embedder's folder.

It says what is known and nothing else: a field that nobody filled in is absent from the model card, or named
there as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json

TRAINING_FILE = "training.json"


@dataclass(frozen=True, slots=True)
class PairsRecord:
    """The pairs of a fit.

    Args:
        source: name of the file, or the function that yields them.
        sha256: of the file; empty for a function.
        training: pairs to train on.
        validation: pairs kept aside.
        groups: distinct groups among the training pairs; 0 if no pair has one.
        with_negatives: training pairs with hard negatives of their own.
        provenance: values of columns that say where the texts come from (licence, language, generator, …),
            each with its number of training pairs.
    """

    source: str = ""
    sha256: str = ""
    training: int = 0
    validation: int = 0
    groups: int = 0
    with_negatives: int = 0
    provenance: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric of one direction of one collection.

    Args:
        name: full, direction included: "val/forward/map".
        collection: name of the collection's folder.
        queries: of the direction, those with a positive.
        candidates: of the direction.
        kinds: modalities of both: "text → video".
        before: value before the first step; None if that was not measured.
        after: last value.
        step: optimizer steps at the last value.
    """

    name: str
    after: float
    collection: str = ""
    queries: int | None = None
    candidates: int | None = None
    kinds: str = ""
    before: float | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """A fit, as its embedder's folder tells of it.

    Args:
        pairs: what it was trained on.
        steps: optimizer steps.
        pairs_seen: over all steps and ranks, repetitions included.
        seconds: of training, those before a resumption included.
        pairs_per_step: over all ranks and accumulated batches.
        ranks: processes.
        accumulated: batches per step.
        negatives_per_anchor: in the last step; None if it was not logged.
        cut_texts: distinct texts of the last step that were too long; None if it was not logged.
        trained: one line on what trains.
        config: options of the fit that decide its outcome, by section.
        measurements: retrieval, in both directions.
        losses: last loss and accuracy, by name.
    """

    pairs: PairsRecord = field(default_factory=PairsRecord)
    steps: int = 0
    pairs_seen: int = 0
    seconds: float = 0.0
    pairs_per_step: int = 0
    ranks: int = 1
    accumulated: int = 1
    negatives_per_anchor: float | None = None
    cut_texts: float | None = None
    trained: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    losses: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form; the content of ``training.json``."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TrainingRecord:
        """The record of :meth:`to_dict`'s form.

        Raises:
            ValueError: unknown or missing fields, named.
        """
        try:
            given = dict(content)
            given["pairs"] = PairsRecord(**given.get("pairs", {}))
            given["measurements"] = tuple(Measurement(**entry) for entry in given.get("measurements", ()))
            return cls(**given)
        except TypeError as error:
            raise ValueError(f"not a record of a training: {error}") from error


def read_training(folder: Path) -> TrainingRecord | None:
    """The record in an embedder's folder; None if there is none.

    Raises:
        RefusedRequest: it cannot be read.
    """
    path = folder / TRAINING_FILE
    if not path.is_file():
        return None
    try:
        return TrainingRecord.from_dict(read_json(path, what="embedder", made_by="vidvec-msg fit"))
    except ValueError as error:
        raise RefusedRequest(f"embedder {folder}: {TRAINING_FILE}: {error}") from error


def training_of(spec: str, adapter: str | None) -> TrainingRecord | None:
    """The record of an opened embedder's training.

    Args:
        spec: that it was opened by; a folder holds the record itself.
        adapter: folder of the adapter on it, if there is one.
    """
    folder = Path(spec.rpartition("?")[0] or spec)
    return read_training(folder) or (None if adapter is None else read_training(Path(adapter)))
