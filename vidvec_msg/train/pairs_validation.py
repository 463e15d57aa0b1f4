"""Retrieval among the validation pairs: text to text, with the pairs that were kept aside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pytorch_lightning import LightningModule, Trainer

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.measurement import Measurement, Sides

METRICS = ("hit_rate@1", "map", "mrr")


class PairsValidation(Measurement):
    """Measures retrieval among the validation pairs. In ``val/pairs/forward/map`` the anchors ask for the
    positives, as in the loss's first direction; in ``val/pairs/reverse/map`` the positives for the anchors.

    Every distinct text stands once. What shares a pair, a text or a group with another is a positive of it,
    as in the loss; hard negatives take no part. A fit with validation pairs (data.validation,
    data.validation_fraction) has this callback without being asked; one among ``trainer.callbacks`` takes its
    place.

    Args:
        metrics: names; hit_rate@1, map and mrr by default.
        every_n_steps: optimizer steps between two measurements; none measures at the ends alone.
        at_start: measure before the first step too; a number after training means little without it.
        batch_size: texts encoded together.
        prefix: of the logged names.
    """

    def __init__(
        self,
        metrics: list[str] | None = None,
        every_n_steps: int | None = None,
        at_start: bool = True,
        batch_size: int = 32,
        prefix: str = "val/pairs",
    ) -> None:
        problems = Problems("PairsValidation")
        super().__init__(metrics or METRICS, every_n_steps, at_start, batch_size, "corpus", prefix, problems)
        self._pairs: Sequence[Pair] = ()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Takes the pairs from the data."""
        data = trainer.datamodule  # type: ignore[attr-defined]  # Lightning sets it in a connector
        self._pairs = data.validation if isinstance(data, PairsData) else ()
        if not self._pairs:
            raise RefusedRequest(
                "PairsValidation has no validation pairs to measure: give some "
                "(--data.validation, --data.validation_fraction), or leave the callback out"
            )

    def sides(self) -> Sides:
        """Distinct anchors, distinct positives, and who belongs to whom."""
        return sides_of(self._pairs)


def sides_of(pairs: Sequence[Pair]) -> Sides:
    """The distinct texts of pairs as two sides; relevance is what the loss takes for positives.

    Args:
        pairs: anchors are the queries, positives the corpus.
    """
    anchors = {text: f"a{row}" for row, text in enumerate(dict.fromkeys(pair.anchor for pair in pairs))}
    positives = {text: f"p{row}" for row, text in enumerate(dict.fromkeys(pair.positive for pair in pairs))}
    of_group: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        if pair.group is not None:
            of_group[pair.group].add(pair.positive)
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    for pair in pairs:
        shared = set() if pair.group is None else of_group[pair.group]
        for text in {pair.positive, *shared}:
            qrels[anchors[pair.anchor]][positives[text]] = 1
    return Sides(
        [Item(name, text=text) for text, name in anchors.items()],
        [Item(name, text=text) for text, name in positives.items()],
        dict(qrels),
    )
