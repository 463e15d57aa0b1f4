"""What a loss sees of a batch: vectors, and keys that tell which texts and groups are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vidvec_msg.formats.pairs import Pair

if TYPE_CHECKING:
    from vidvec_msg.train.losses.cells import Contrast

NO_KEY = 0
"""Stands where there is nothing: no group, no further negative."""


@dataclass(slots=True)
class PairKeys:
    """Identity of a batch's texts and groups, comparable across ranks: equal texts have equal keys.

    Args:
        anchor: int64 ``(pairs,)``.
        positive: int64 ``(pairs,)``.
        group: int64 ``(pairs,)``, NO_KEY for a pair without a group.
        negatives: int64 ``(pairs, n)``, NO_KEY where a pair has fewer than n.
    """

    anchor: Tensor
    positive: Tensor
    group: Tensor
    negatives: Tensor

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> PairKeys:
        """Keys of pairs; negatives fill their rows from the left."""
        width = max((len(pair.negatives) for pair in pairs), default=0)
        negatives = torch.full((len(pairs), width), NO_KEY, dtype=torch.int64)  # (pairs, n)
        for row, pair in enumerate(pairs):
            for column, text in enumerate(pair.negatives):
                negatives[row, column] = key_of(text)
        return cls(
            anchor=torch.tensor([key_of(pair.anchor) for pair in pairs], dtype=torch.int64),
            positive=torch.tensor([key_of(pair.positive) for pair in pairs], dtype=torch.int64),
            group=torch.tensor(
                [NO_KEY if pair.group is None else key_of(pair.group) for pair in pairs], dtype=torch.int64
            ),
            negatives=negatives,
        )

    def to(self, device: torch.device | str) -> PairKeys:
        """The keys on another device."""
        return PairKeys(
            self.anchor.to(device), self.positive.to(device), self.group.to(device), self.negatives.to(device)
        )


@dataclass(slots=True)
class EncodedPairs:
    """Vectors of a batch, of this rank or of all.

    Args:
        anchors: ``(pairs, dim)``, rows of norm 1.
        positives: ``(pairs, dim)``, rows of norm 1.
        negatives: ``(pairs, n, dim)``; whatever stands where a pair has fewer is ignored.
        keys: which of them are the same text or group.
        guide: the same texts as another embedder sees them, without gradients, for losses that ask for it.
        norms: ``(texts,)`` of this rank's distinct texts before they were brought to norm 1; of no concern
            to a loss, and not gathered.
    """

    anchors: Tensor
    positives: Tensor
    negatives: Tensor
    keys: PairKeys
    guide: EncodedPairs | None = None
    norms: Tensor | None = None

    def __len__(self) -> int:
        return len(self.anchors)


class PairLoss(nn.Module):
    """A contrastive loss over encoded pairs; subclasses say how.

    A module, so that what a loss learns (a temperature) trains, is saved and resumes with the adapter.
    """

    def forward(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """Losses of this rank's pairs against the candidates of all ranks.

        Args:
            own: this rank's pairs.
            everyone: the pairs of all ranks in rank order, ``own`` among them.
            offset: row of ``everyone`` at which ``own`` begins.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    @property
    def guide(self) -> str | None:
        """Spec of an embedder whose view of the batch the loss needs; None for most."""
        return None

    def check_width(self, width: int) -> None:
        """Refuses vectors of a width that the loss cannot take; most take any.

        Args:
            width: dimensions of the vectors.

        Raises:
            ValueError: the message says what does not fit.
        """


def key_of(text: str) -> int:
    """63 bits of the text's hash, never NO_KEY; the same in every process, unlike ``hash``."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1
