"""Retrieval in both directions while the adapter trains: when it is measured, how, and who is told.

Row n of the metrics is the model after n optimizer steps, as in the rows of the steps themselves: row 0 holds
the numbers before training beside the loss of the first batch.
"""

from __future__ import annotations

import gc
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer

from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.embedders.saved import load_saved
from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import encode_batch
from vidvec_msg.retrieval.evaluate import evaluate_vectors
from vidvec_msg.retrieval.metrics import parse_metrics
from vidvec_msg.train.gather import rank, ranks
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.strategies.whole import whole_weights
from vidvec_msg.train.text_tower import TowerEmbedder
from vidvec_msg.train.trained_embedder import write_trained

log = logging.getLogger(__name__)

DIRECTIONS = ("forward", "reverse")


@runtime_checkable
class Watches(Protocol):
    """A callback that wants to know of every measurement, whatever its place among the callbacks."""

    def on_measured(self, trainer: Trainer, values: Mapping[str, float]) -> None:
        """Called on every rank with the same values, in the midst of a step's end."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What is ranked.

    Args:
        queries: they ask in the forward direction.
        corpus: they ask in the reverse direction.
        qrels: query id → document id → grade.
    """

    queries: Sequence[Item]
    corpus: Sequence[Item]
    qrels: Mapping[str, Mapping[str, int]]


class Measurement(Callback):
    """Measures retrieval every so many steps and logs it; a subclass says on what.

    Args:
        metrics: names; hit_rate counts queries with at least one positive found, recall the share of all.
        every_n_steps: optimizer steps between two measurements; none measures at the ends alone.
        at_start: measure before the first step too; a number after training means little without it.
        batch_size: items encoded together.
        pool: candidates of a query: the whole "corpus", or only the documents that are judged.
        prefix: of the logged names.
    """

    def __init__(
        self,
        metrics: Sequence[str],
        every_n_steps: int | None,
        at_start: bool,
        batch_size: int,
        pool: Literal["corpus", "split"],
        prefix: str,
        problems: Problems,
    ) -> None:
        if every_n_steps is not None and every_n_steps < 1:
            problems.add(
                f"every_n_steps is {every_n_steps}; it must be at least 1, "
                "or null for the ends of the fit alone"
            )
        if batch_size < 1:
            problems.add(f"batch_size is {batch_size}; it must be at least 1")
        try:
            parse_metrics(metrics)
        except RefusedRequest as error:
            problems.add(str(error))
        problems.refuse_if_any()
        self.metrics = list(metrics)
        self.every_n_steps = every_n_steps
        self.at_start = at_start
        self.batch_size = batch_size
        self.pool: Literal["corpus", "split"] = pool
        self.prefix = prefix
        self._measured_at = -1  # optimizer steps at the last measurement
        self._stepped_at = -1  # optimizer steps at the end of the last batch

    @property
    def names(self) -> list[str]:
        """What it logs, for example ``val/forward/map``."""
        return [f"{self.prefix}/{direction}/{metric}" for direction in DIRECTIONS for metric in self.metrics]

    def sides(self) -> Sides:
        """What is ranked."""
        raise NotImplementedError(f"{type(self).__name__} says nothing to rank")

    # ---- when

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures before the first step; a resumed fit has done so, and counts from where it begins."""
        self._stepped_at = trainer.global_step
        if self.at_start and trainer.global_step == 0:
            self._measure(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Measures after every n-th optimizer step, and after the last."""
        step = trainer.global_step
        whole = step != self._stepped_at  # gradients may accumulate over several batches
        self._stepped_at = step
        last = step >= trainer.estimated_stepping_batches
        if whole and (last or (self.every_n_steps and step % self.every_n_steps == 0)):
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures the end of a fit that was stopped early."""
        self._measure(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures in ``validate``; within a fit the steps above decide."""
        if trainer.state.fn == "validate":
            # every rank holds the same numbers of all vectors: nothing is left to reduce
            pl_module.log_dict(self._values(pl_module), sync_dist=False)

    def _measure(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures a step once; tells the loggers and the callbacks that decide."""
        step = trainer.global_step
        if step == self._measured_at:
            return
        self._measured_at = step
        values = self._values(pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)  # Lightning's `log` would repeat them in later rows
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})
        for callback in trainer.callbacks:  # type: ignore[attr-defined]  # Lightning sets it in a connector
            if isinstance(callback, Watches):
                callback.on_measured(trainer, values)

    # ---- how

    def _values(self, pl_module: LightningModule) -> dict[str, float]:
        """Metrics under their full names."""
        if not isinstance(pl_module, TextContrastive):
            raise RefusedRequest(
                f"{type(self).__name__} needs a TextContrastive, not a {type(pl_module).__name__}"
            )
        values = {
            f"{self.prefix}/{direction}/{metric}": value
            for direction, metrics in self.measure(pl_module).items()
            for metric, value in metrics.items()
        }
        log.info(", ".join(f"{name} {value:.4f}" for name, value in values.items()))
        return values

    def measure(self, module: TextContrastive) -> dict[str, dict[str, float]]:
        """Metrics per direction, with the adapter as it stands."""
        sides = self.sides()
        with embedder_of(module, [*sides.corpus, *sides.queries], batch_size=self.batch_size) as embedder:
            corpus_ids, corpus_vectors = self._encode(embedder, sides.corpus, "document")
            query_ids, query_vectors = self._encode(embedder, sides.queries, "query")
        # One rank ranks for all: others would do the same again, and compile ranx's kernels into one cache.
        values: list[dict[str, dict[str, float]]] = [{}]
        if rank() == 0:
            report = evaluate_vectors(
                query_vectors,
                query_ids,
                corpus_vectors,
                corpus_ids,
                sides.qrels,
                metrics=self.metrics,
                pool=self.pool,
                unreachable="keep",  # an item that cannot be embedded is a positive that nobody finds
                chance=False,
                intervals=False,
            )
            found = zip(DIRECTIONS, (report.forward, report.reverse), strict=True)
            values = [
                {
                    direction: {
                        name: metric.value
                        for name, metric in side.metrics.items()
                        if metric.value is not None
                    }
                    for direction, side in found
                }
            ]
        if ranks() > 1:
            dist.broadcast_object_list(values)
        return values[0]

    def _encode(self, embedder: Embedder, items: Sequence[Item], role: Role) -> tuple[list[str], Vectors]:
        """Ids and vectors ``(items, dim)`` in the order of the items; each rank encodes its share."""
        vectors: dict[str, np.ndarray] = {}
        failures: list[Failure] = []
        share = items[rank() :: ranks()]
        # equally many calls on all ranks: a sharded model gathers its weights in each
        for call in range(math.ceil(math.ceil(len(items) / ranks()) / self.batch_size)):
            batch = share[call * self.batch_size : (call + 1) * self.batch_size] or items[:1]
            made, ids, failed = encode_batch(batch, embedder, role=role)
            vectors |= dict(zip(ids, made, strict=True))
            failures += failed
        if ranks() > 1:
            # by id, so that no gather can reorder, pad or count twice
            everyone: list[tuple[dict[str, np.ndarray], list[Failure]]] = [({}, [])] * ranks()
            dist.all_gather_object(everyone, (vectors, failures))
            vectors = {name: vector for found, _ in everyone for name, vector in found.items()}
            failures = list({failure.item: failure for _, found in everyone for failure in found}.values())
        if len(vectors) + len(failures) != len(items):
            raise RuntimeError(f"{len(items)} items gave {len(vectors)} vectors and {len(failures)} failures")
        if failures:
            log.warning(
                f"{self.prefix}: {len(failures)} items cannot be embedded and are left out, for example "
                f"{failures[0].item}: {failures[0].reason}"
            )
        if not vectors:
            raise RefusedRequest(
                f"{self.prefix}: no item can be embedded ({failures[0].item}: {failures[0].reason})"
            )
        ids = [item.id for item in items if item.id in vectors]
        return ids, np.stack([vectors[name] for name in ids])


def refuse_shared_prefixes(callbacks: Sequence[object]) -> None:
    """Refuses two measurements that would log under one name.

    Raises:
        RefusedRequest: the message names the prefix.
    """
    prefixes = [callback.prefix for callback in callbacks if isinstance(callback, Measurement)]
    for prefix in dict.fromkeys(prefixes):
        if (count := prefixes.count(prefix)) > 1:
            raise RefusedRequest(
                f"trainer.callbacks: {count} measurements log under the prefix {prefix!r}, and one would "
                "hide the other; give each a prefix of its own, for example the name of its collection "
                "(prefix: val/clips)"
            )


@contextmanager
def embedder_of(
    module: TextContrastive, items: Sequence[Item], *, batch_size: int = 16
) -> Iterator[Embedder]:
    """An embedder of the module's adapter as it stands, fit for the items; released when the block ends."""
    name = "in training"
    if all(item.modality == "text" for item in items):
        yield TowerEmbedder(module.tower, module.tokenise, module.card(name), batch_size=batch_size)
        return
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "embedder"
        # before the first step there is nothing trained yet, and that is what is measured
        weights = whole_weights(module.tower)
        write_trained(saved, module, name=name, weights=weights, allow_untrained=True)
        embedder: Embedder | None = load_saved(saved, trust_remote_code=module.trust_remote_code)
        try:
            yield embedder  # type: ignore[misc]  # not None before the release below
        finally:
            embedder = None
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
