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

    Args:
        groups: group per pair, None for a pair without one.
        batch_size: pairs of a batch over all ranks.
        ranks: processes that share a batch; a batch has at least one pair for each.
        seed: of the order.
        one_per_group: no two pairs of a group in a batch.
        drop_last: leave out the pairs that do not fill a last batch.

    Raises:
        RefusedRequest: not one batch can be filled.
    """

    groups: Sequence[Hashable]
    batch_size: int
    ranks: int = 1
    seed: int = 0
    one_per_group: bool = False
    drop_last: bool = True

    def __post_init__(self) -> None:
        if len(self):
            return
        if self.one_per_group:
            distinct = len(_members(self.groups))
            raise RefusedRequest(
                f"a batch of {self.batch_size} pairs over all ranks, one per group, needs "
                f"{self.batch_size} groups; the pairs have {distinct}. Lower data.batch_size, "
                "or set data.one_per_group false."
            )
        raise RefusedRequest(
            f"{len(self.groups)} pairs do not fill one batch of {self.batch_size} over all ranks. "
            "Lower data.batch_size, or set data.drop_last false."
        )

    def __len__(self) -> int:
        """Batches an epoch."""
        total = len(self.groups)
        if not self.one_per_group:
            full, rest = divmod(total, self.batch_size)
            # a last batch needs a pair for each rank, and two to have a negative
            return full + (not self.drop_last and rest >= max(self.ranks, 2))
        sizes = [len(members) for members in _members(self.groups)]
        count = total // self.batch_size
        # A group has at most one pair per batch, so only min(size, count) of its pairs are of use.
        while count and sum(min(size, count) for size in sizes) < count * self.batch_size:
            count -= 1
        return count

    @property
    def used(self) -> int:
        """Pairs seen in an epoch; which of the others are left out changes from epoch to epoch."""
        return min(len(self) * self.batch_size, len(self.groups))

    def epoch(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch: rows of the pairs, all ranks together."""
        random = np.random.default_rng((self.seed, epoch))
        count = len(self)
        if not self.one_per_group:
            order = random.permutation(len(self.groups)).tolist()
            return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(count)]

        members = _members(self.groups)
        chosen = []  # rows, group after group, groups and their rows in random order
        for group in random.permutation(len(members)):
            chosen += random.permutation(members[group])[:count].tolist()
        surplus = len(chosen) - count * self.batch_size
        left_out = set(random.permutation(len(chosen))[:surplus].tolist())
        kept = [row for position, row in enumerate(chosen) if position not in left_out]
        # Dealt like cards: a group's rows are neighbours and at most `count`, so each goes to another batch.
        dealt = [kept[start::count] for start in range(count)]
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
