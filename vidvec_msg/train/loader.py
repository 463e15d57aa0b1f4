"""A loader that knows how many batches it gave out, and can go on from there in the middle of an epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch
from vidvec_msg.train.hard_negatives import HardNegatives
from vidvec_msg.train.plan import BatchPlan


class PairLoader:
    """Batches of one rank.

    Not a DataLoader itself: Lightning would take one apart to put its own sampler in. It counts what it hands
    out, not what its workers have read ahead, and Lightning stores that count in checkpoints.

    Args:
        pairs: all of them, on every rank.
        plan: which of them stand in which batch.
        collate: pairs → arrays.
        rank: of this process.
        workers: processes that prepare batches; 0 prepares them in the training process.
        always_first_epoch: give the same batches on every pass (validation).
        negatives: hard negatives per pair at most, drawn by the plan's seed; None: all.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        plan: BatchPlan,
        collate: Collate,
        *,
        rank: int = 0,
        workers: int = 0,
        always_first_epoch: bool = False,
        negatives: int | None = None,
    ) -> None:
        self.pairs = pairs
        self.plan = plan
        self.collate = collate
        self.rank = rank
        self.workers = workers
        self.always_first_epoch = always_first_epoch
        self.hard = HardNegatives(pairs, negatives, plan.seed)
        self.given = 0  # batches since training began

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[PairBatch]:
        if self.always_first_epoch:
            self.given = 0
        epoch, done = divmod(self.given, len(self.plan))
        batches = self.plan.epoch(epoch)[done:]
        loader: DataLoader[Any] = DataLoader(
            _AsGiven(),
            batch_sampler=(self.share(batch, epoch) for batch in batches),
            collate_fn=self.collate,
            num_workers=self.workers,
        )
        for batch in loader:
            batch.number = self.given
            batch.noise_seed = int(
                np.random.SeedSequence((self.plan.seed, self.given, self.rank)).generate_state(1)[0]
            )
            self.given += 1  # before the yield: a checkpoint taken during this batch counts it
            yield batch

    def share(self, batch: Sequence[int], epoch: int) -> list[tuple[int, Pair]]:
        """This rank's pairs of a batch as this epoch shows them, with their rows."""
        rows = self.plan.slice_of(batch, self.rank)
        return list(zip(rows, self.hard.chosen(batch, rows, epoch), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The position, for a checkpoint, and the order that it is a position in."""
        return {"given": self.given, "order": dict(self._order)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a position.

        Raises:
            RefusedRequest: it is one in another order of the pairs; the message names what differs.
        """
        found = state.get("order", self._order)  # checkpoints of before hold the position alone
        differing = [name for name, own in self._order.items() if found.get(name) != own]
        if differing:
            told = ", ".join(
                f"{name} {found.get(name)} in it and {self._order[name]} here" for name in differing
            )
            raise RefusedRequest(
                f"the checkpoint stands in another order of the pairs ({told}): going on would repeat some "
                "of them and skip others. Continue it with the data and as many ranks as it was trained with "
                "(its run's config.yaml; --trainer.devices, --trainer.num_nodes), or begin another run"
            )
        self.given = state["given"]

    @cached_property
    def _order(self) -> dict[str, Any]:
        """What decides which pairs a batch holds, under the names that a refusal tells."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            digest.update(repr((pair.anchor, pair.positive, pair.group)).encode())
        return {
            "pairs": f"{len(self.pairs):,} ({digest.hexdigest()[:8]})",
            "ranks": self.plan.ranks,
            "pairs of a batch over all ranks": self.plan.batch_size,
            "data.seed": self.plan.seed,
            "data.per_group": self.plan.per_group,
            "data.drop_last": self.plan.drop_last,
        }


class _AsGiven(Dataset[tuple[int, Pair]]):
    """What the sampler chose is what a batch is made of: its rows are pairs already."""

    def __getitem__(self, chosen: tuple[int, Pair]) -> tuple[int, Pair]:
        return chosen


class NoPairs:
    """One empty step: `validate` without validation pairs still has its callbacks to run."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[None]:
        return iter([None])
