"""Which pairs stand in which batch of an epoch: a pure function of the seed and the epoch.

Every rank computes the same plan and takes its own slice, so nothing is communicated; a resumed run computes
it again and continues at the batch where it stood.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from vidvec_msg.errors import RefusedRequest


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Batches of every epoch; their number never changes.

    With ``per_group`` k, the pairs of a group are cut into hands of k, anew each epoch, and a batch holds
    hands of different groups: k = 1 gives group-free batches, k = 2 or more gives each pair k - 1 positives
    beside its own.

    Args:
        groups: group per pair, None for a pair without one.
        batch_size: pairs of a batch over all ranks.
        ranks: processes that share a batch; a batch has at least one pair for each.
        seed: of the order.
        per_group: pairs of each of its groups in a batch; None: as the order brings them.
        drop_last: leave out the pairs that do not fill a last batch; always so with ``per_group``.

    Raises:
        RefusedRequest: not one batch can be filled, or ``per_group`` does not fit into it.
    """

    groups: Sequence[Hashable]
    batch_size: int
    ranks: int = 1
    seed: int = 0
    per_group: int | None = None
    drop_last: bool = True

    def __post_init__(self) -> None:
        if self.per_group is not None and self.batch_size % self.per_group:
            raise RefusedRequest(
                f"a batch of {self.batch_size} pairs over all ranks does not divide into groups of "
                f"{self.per_group}; make data.batch_size a multiple of data.per_group."
            )
        if len(self):
            return
        if self.per_group is not None:
            enough = sum(len(members) >= self.per_group for members in _members(self.groups))
            holding = f" of at least {self.per_group} pairs" if self.per_group > 1 else ""
            raise RefusedRequest(
                f"a batch of {self.batch_size} pairs over all ranks, {self.per_group} per group, needs "
                f"{self._hands} groups{holding}; the pairs have {enough}. Lower data.batch_size, "
                "or set data.per_group null."
            )
        raise RefusedRequest(
            f"{len(self.groups)} pairs do not fill one batch of {self.batch_size} over all ranks. "
            "Lower data.batch_size, or set data.drop_last false."
        )

    def __len__(self) -> int:
        """Batches an epoch."""
        if self.per_group is None:
            full, rest = divmod(len(self.groups), self.batch_size)
            # a last batch needs a pair for each rank, and two to have a negative
            return full + (not self.drop_last and rest >= max(self.ranks, 2))
        hands = [len(members) // self.per_group for members in _members(self.groups)]
        count = sum(hands) // self._hands
        # A group has at most one hand in a batch, so only min(hands, count) of its hands are of use.
        while count and sum(min(own, count) for own in hands) < count * self._hands:
            count -= 1
        return count

    @property
    def _hands(self) -> int:
        """Groups of a batch, with ``per_group``."""
        return self.batch_size // (self.per_group or 1)

    @property
    def used(self) -> int:
        """Pairs seen in an epoch; which of the others are left out changes from epoch to epoch."""
        return min(len(self) * self.batch_size, len(self.groups))

    @property
    def never_used(self) -> int:
        """Pairs that no epoch sees: those of groups with fewer than ``per_group``."""
        least = self.per_group or 1
        return sum(len(members) for members in _members(self.groups) if len(members) < least)

    def epoch(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: rows of the pairs, all ranks together."""
        random = np.random.default_rng((self.seed, epoch))
        count, size = len(self), self.per_group
        if size is None:
            order = random.permutation(len(self.groups)).tolist()
            return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(count)]

        members = _members(self.groups)
        chosen: list[list[int]] = []  # hands of rows: groups one after the other, in random order
        for group in random.permutation(len(members)):
            rows = random.permutation(members[group]).tolist()
            hands = [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]
            chosen += hands[:count]
        surplus = len(chosen) - count * self._hands
        left_out = set(random.permutation(len(chosen))[:surplus].tolist())
        kept = [hand for position, hand in enumerate(chosen) if position not in left_out]
        # Dealt like cards: a group's hands are neighbours and at most `count`, so each goes to another batch.
        dealt = [[row for hand in kept[start::count] for row in hand] for start in range(count)]
        batches = [random.permutation(batch).tolist() for batch in dealt]
        return [batches[i] for i in random.permutation(count)]

    def slice_of(self, batch: Sequence[int], rank: int) -> list[int]:
        """A rank's rows of a batch: consecutive, so that the ranks' slices in rank order are the batch."""
        first, last = (len(batch) * r // self.ranks for r in (rank, rank + 1))
        return list(batch[first:last])


def _members(groups: Sequence[Hashable]) -> list[list[int]]:
    """Rows per group; a pair without a group is a group of its own."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    alone: list[list[int]] = []
    for row, group in enumerate(groups):
        if group is None:
            alone.append([row])
        else:
            found[group].append(row)
    return [*found.values(), *alone]
