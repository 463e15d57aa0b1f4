"""Retrieval in both directions on a collection, while the adapter trains and in ``validate``."""

from __future__ import annotations

from typing import Literal

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.train.measurement import Measurement, Sides

METRICS = ("hit_rate@1", "hit_rate@10", "recall@10", "map")


class RetrievalValidation(Measurement):
    """Measures retrieval on a collection; each metric is logged under its own name and direction, for example
    ``val/forward/hit_rate@1`` (queries → corpus) and ``val/reverse/map``. The two are never averaged.

    A collection of texts is embedded by the language model as it stands. Clips and images need the full
    model: the adapter is saved to a temporary folder, opened on the full model, and both are released after.

    Args:
        collection: folder.
        split: of its qrels.
        metrics: names; hit_rate counts queries with at least one positive found, recall the share of all.
        every_n_steps: optimizer steps between two measurements; none measures at the ends alone.
        at_start: measure before the first step too; a number after training means little without it.
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
        at_start: bool = True,
        batch_size: int = 16,
        pool: Literal["corpus", "split"] = "corpus",
        prefix: str = "val",
    ) -> None:
        problems = Problems(f"RetrievalValidation of {collection}")
        try:
            self.collection = Collection.load(collection, split=split)  # now, not after an hour of training
        except RefusedRequest as error:
            problems.add(str(error))
        self.split = split
        super().__init__(metrics or METRICS, every_n_steps, at_start, batch_size, pool, prefix, problems)

    def sides(self) -> Sides:
        """The split's queries and the corpus."""
        loaded = self.collection
        return Sides(loaded.queries, loaded.corpus, loaded.qrels[self.split])
