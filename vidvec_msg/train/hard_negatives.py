"""Which of a pair's hard negatives stand in a batch: a pure function of the batch, the seed and the epoch.

A hard negative is a candidate for every anchor of its batch, not for its own alone. One that is a message of
another pair's anchor or group would push that pair from a message of its own; it is left out of that batch.
(Where it is the other pair's positive, it is among the candidates of the batch anyway.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vidvec_msg.formats.pairs import Pair


class HardNegatives:
    """The hard negatives of training pairs, batch by batch.

    Args:
        pairs: all of them.
        most: per pair and batch, drawn anew each epoch; None for all.
        seed: of the draw.
    """

    def __init__(self, pairs: Sequence[Pair], most: int | None = None, seed: int = 0) -> None:
        self.pairs = pairs
        self.most = most
        self.seed = seed
        self.any = most != 0 and any(pair.negatives for pair in pairs)
        self._of_anchor: dict[str, set[str]] = defaultdict(set)
        self._of_group: dict[str | None, set[str]] = defaultdict(set)
        for pair in pairs if self.any else ():
            self._of_anchor[pair.anchor].add(pair.positive)
            if pair.group is not None:
                self._of_group[pair.group].add(pair.positive)

    def chosen(self, batch: Sequence[int], rows: Sequence[int], epoch: int) -> list[Pair]:
        """Some pairs of a batch, each with the hard negatives that it has there, in their order.

        Args:
            batch: rows of the batch, all ranks together.
            rows: those that are wanted, for example a rank's.
            epoch: of the draw.
        """
        if not self.any:
            return [replace(self.pairs[row], negatives=()) for row in rows]
        belonging = self._belonging(batch)
        return [self._drawn(row, belonging, epoch) for row in rows]

    def left_out(self, batch: Sequence[int]) -> int:
        """Hard negatives of a batch's pairs that belong to one of them, and are left out of it."""
        if not self.any:
            return 0
        belonging = self._belonging(batch)
        return sum(text in belonging for row in batch for text in self.pairs[row].negatives)

    def _belonging(self, batch: Sequence[int]) -> set[str]:
        """Messages of the batch's anchors and groups, wherever in the pairs they stand."""
        found: set[str] = set()
        for row in batch:
            pair = self.pairs[row]
            found |= self._of_anchor[pair.anchor]
            found |= self._of_group.get(pair.group, set())
        return found

    def _drawn(self, row: int, belonging: set[str], epoch: int) -> Pair:
        pair = self.pairs[row]
        left = tuple(text for text in pair.negatives if text not in belonging)
        if self.most is not None and len(left) > self.most:
            random = np.random.default_rng((self.seed, epoch, row, 3))
            left = tuple(left[place] for place in sorted(random.choice(len(left), self.most, replace=False)))
        return replace(pair, negatives=left)
