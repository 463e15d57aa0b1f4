"""What a call that failed on some items has computed of the others, for the call that follows without the bad
ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vidvec_msg.embedders.check import unit_vectors
from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item


class KeptStates:
    """States of the good items of the last call, if it failed; of one embedder."""

    def __init__(self) -> None:
        # by role and identity: an item may hold arrays, and the caller gives the same objects again
        self._kept: dict[tuple[Role, int], tuple[Item, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, items: Sequence[Item], role: Role, states: np.ndarray) -> list[int]:
        """Fills in what was kept of these very items, and forgets everything.

        Args:
            items: of the call.
            role: of the call.
            states: (items, dim), filled in place.

        Returns:
            the rows that were not filled.
        """
        kept, self._kept = self._kept, {}
        missing = []
        for row, item in enumerate(items):
            if (role, id(item)) in kept:
                states[row] = kept[role, id(item)][1]
            else:
                missing.append(row)
        return missing

    def unit_vectors(
        self, items: Sequence[Item], role: Role, states: np.ndarray, failures: list[Failure], *, dtype: str
    ) -> Vectors:
        """Unit vectors, if every item has one; the states of the good ones are kept if not.

        Args:
            items: of the call.
            role: of the call.
            states: (items, dim); rows of failed items hold anything.
            failures: so far.
            dtype: as of :func:`~vidvec_msg.embedders.check.unit_vectors`.

        Raises:
            ItemError: all bad items, in their order.
        """
        bad = {failure.item for failure in failures}
        good = [row for row, item in enumerate(items) if item.id not in bad]
        try:
            vectors = unit_vectors(states[good], [items[row] for row in good], dtype=dtype)
        except ItemError as error:
            failures = [*failures, *error.failures]
        if not failures:
            return vectors
        named = {failure.item: failure for failure in failures}
        self._kept = {
            (role, id(items[row])): (items[row], states[row]) for row in good if items[row].id not in named
        }
        raise ItemError(named[item.id] for item in items if item.id in named)
