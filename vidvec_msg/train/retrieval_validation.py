"""Retrieval in both directions on a collection, while the adapter trains and in ``validate``."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from pytorch_lightning import Callback, LightningModule, Trainer

from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.embedders.saved import load_saved, save_embedder
from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import encode_batch
from vidvec_msg.retrieval.evaluate import evaluate_vectors
from vidvec_msg.retrieval.metrics import parse_metrics
from vidvec_msg.train.gather import rank, ranks
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.text_tower import TowerEmbedder

log = logging.getLogger(__name__)


class RetrievalValidation(Callback):
    """Measures retrieval on a collection; each metric is logged under its own name and direction, for example
    ``val/forward/hit_rate@1`` (queries → corpus) and ``val/reverse/map``. The two are never averaged.

    A collection of texts is embedded by the language model as it stands. Clips and images need the full
    model: the adapter is saved to a temporary folder, opened on the full model, and both are released after.

    Args:
        collection: folder.
        split: of its qrels.
        metrics: names; hit_rate counts queries with at least one positive found, recall the share of all.
        every_n_steps: optimizer steps between two measurements; none measures when the fit ends.
        batch_size: items encoded together.
        pool: candidates of a query: the whole "corpus", or only the documents that the "split" judges.
        prefix: of the logged names; give another to each of several collections.
    """

    def __init__(
        self,
        collection: str,
        split: str = "test",
        metrics: list[str] | None = None,
        every_n_steps: int | None = None,
        batch_size: int = 16,
        pool: Literal["corpus", "split"] = "corpus",
        prefix: str = "val",
    ) -> None:
        problems = Problems(f"RetrievalValidation of {collection}")
        if every_n_steps is not None and every_n_steps < 1:
            problems.add(
                f"every_n_steps is {every_n_steps}; it must be at least 1, "
                "or null for the end of the fit alone"
            )
        if batch_size < 1:
            problems.add(f"batch_size is {batch_size}; it must be at least 1")
        self.metrics = metrics or ["hit_rate@1", "hit_rate@10", "recall@10", "map"]
        try:
            parse_metrics(self.metrics)
            self.collection = Collection.load(collection, split=split)  # now, not after an hour of training
        except RefusedRequest as error:
            problems.add(str(error))
        problems.refuse_if_any()
        self.split = split
        self.pool: Literal["corpus", "split"] = pool
        self.every_n_steps = every_n_steps
        self.batch_size = batch_size
        self.prefix = prefix
        self._measured_at = -1  # optimizer steps at the last measurement

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Measures after every n-th optimizer step, and after the last."""
        step = trainer.global_step
        last = step >= int(trainer.estimated_stepping_batches)
        if step != self._measured_at and (last or (self.every_n_steps and step % self.every_n_steps == 0)):
            self._measured_at = step
            values = self._values(pl_module)
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step - 1)  # Lightning's `log` would repeat them in later rows
            trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures in ``validate``; within a fit the steps above decide."""
        if trainer.state.fn == "validate":
            # every rank holds the same numbers of all vectors: nothing is left to reduce
            pl_module.log_dict(self._values(pl_module), sync_dist=False)

    def _values(self, pl_module: LightningModule) -> dict[str, float]:
        """Metrics under their full names."""
        if not isinstance(pl_module, TextContrastive):
            raise RefusedRequest(
                f"RetrievalValidation needs a TextContrastive, not a {type(pl_module).__name__}"
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
        corpus, queries = self.collection.corpus, self.collection.queries
        with embedder_of(module, [*corpus, *queries], batch_size=self.batch_size) as embedder:
            corpus_ids, corpus_vectors = self._encode(embedder, corpus, "document")
            query_ids, query_vectors = self._encode(embedder, queries, "query")
        # One rank ranks for all: others would do the same again, and compile ranx's kernels into one cache.
        values: list[dict[str, dict[str, float]]] = [{}]
        if rank() == 0:
            values = [self._ranked(query_vectors, query_ids, corpus_vectors, corpus_ids)]
        if ranks() > 1:
            dist.broadcast_object_list(values)
        return values[0]

    def _ranked(
        self, query_vectors: Vectors, query_ids: list[str], corpus_vectors: Vectors, corpus_ids: list[str]
    ) -> dict[str, dict[str, float]]:
        report = evaluate_vectors(
            query_vectors,
            query_ids,
            corpus_vectors,
            corpus_ids,
            self.collection.qrels[self.split],
            metrics=self.metrics,
            pool=self.pool,
            unreachable="keep",  # an item that cannot be embedded is a positive that nobody finds
            chance=False,
            intervals=False,
        )
        return {
            direction: {
                name: metric.value for name, metric in side.metrics.items() if metric.value is not None
            }
            for direction, side in (("forward", report.forward), ("reverse", report.reverse))
        }

    def _encode(self, embedder: Embedder, items: Sequence[Item], role: Role) -> tuple[list[str], Vectors]:
        """Ids and vectors ``(items, dim)`` in the order of the items; each rank encodes its share."""
        vectors: dict[str, np.ndarray] = {}
        failures: list[Failure] = []
        share = items[rank() :: ranks()]
        for start in range(0, len(share), self.batch_size):
            made, ids, failed = encode_batch(share[start : start + self.batch_size], embedder, role=role)
            vectors |= dict(zip(ids, made, strict=True))
            failures += failed
        if ranks() > 1:
            # by id, so that no gather can reorder, pad or count twice
            everyone: list[tuple[dict[str, np.ndarray], list[Failure]]] = [({}, [])] * ranks()
            dist.all_gather_object(everyone, (vectors, failures))
            vectors = {name: vector for found, _ in everyone for name, vector in found.items()}
            failures = [failure for _, found in everyone for failure in found]
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
        save_embedder(saved, model=module.tower, card=module.card(name))
        embedder: Embedder | None = load_saved(saved)
        try:
            yield embedder  # type: ignore[misc]  # not None before the release below
        finally:
            embedder = None
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
