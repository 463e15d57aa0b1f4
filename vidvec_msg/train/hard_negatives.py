"""Which of a pair's hard negatives stand in a batch: a pure function of the batch, the seed and the epoch.

A hard negative is a candidate for every anchor of its batch, not for its own alone. One that is the message of
another pair of the batch, or of that pair's group, would push that pair from its own message; it is left out of
that batch. (Where it is that pair's positive it stands in the batch as a negative of the others anyway.)
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
        belonging: set[str] = set()
        for row in batch:
            pair = self.pairs[row]
            belonging |= self._of_anchor[pair.anchor]
            belonging |= self._of_group.get(pair.group, set())
        return [self._drawn(row, belonging, epoch) for row in rows]

    def _drawn(self, row: int, belonging: set[str], epoch: int) -> Pair:
        pair = self.pairs[row]
        left = tuple(text for text in pair.negatives if text not in belonging)
        if self.most is not None and len(left) > self.most:
            random = np.random.default_rng((self.seed, epoch, row, 3))
            left = tuple(left[place] for place in sorted(random.choice(len(left), self.most, replace=False)))
        return replace(pair, negatives=left)
