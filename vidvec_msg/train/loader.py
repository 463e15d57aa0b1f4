"""A loader that knows how many batches it gave out, and can go on from there in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch
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
    ) -> None:
        self.pairs = pairs
        self.plan = plan
        self.collate = collate
        self.rank = rank
        self.workers = workers
        self.always_first_epoch = always_first_epoch
        self.given = 0  # batches since training began

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[PairBatch]:
        if self.always_first_epoch:
            self.given = 0
        epoch, done = divmod(self.given, len(self.plan))
        batches = self.plan.epoch(epoch)[done:]
        loader: DataLoader[Any] = DataLoader(
            _Rows(self.pairs),
            batch_sampler=[self.plan.slice_of(batch, self.rank) for batch in batches],
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

    def state_dict(self) -> dict[str, int]:
        """The position, for a checkpoint."""
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from a position; the plan must be the one that made it."""
        self.given = state["given"]


class _Rows(Dataset[tuple[int, Pair]]):
    """Pairs with their row, as a map-style data set."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, row: int) -> tuple[int, Pair]:
        return row, self.pairs[row]


class NoPairs:
    """One empty step: `validate` without validation pairs still has its callbacks to run."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[None]:
        return iter([None])
