"""Any loss, on the first dimensions of the vectors too (Kusupati et al. 2022, arXiv 2205.13147).

A vector trained this way may be cut to its first d dimensions and normalised again: a smaller index, for a
little quality. Wraps its siblings and adds nothing to them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import normalize

from vidvec_msg.train.losses.cells import Contrast, Shared
from vidvec_msg.train.losses.info_nce import InfoNCE
from vidvec_msg.train.losses.pairs import EncodedPairs, PairLoss


class Matryoshka(PairLoss):
    """A weighted mean of a loss over several lengths of the vectors.

    Args:
        dims: lengths, for example 1024, 512, 256, 128. The whole vector always takes part.
        loss: what is computed at each length.
        weights: one per entry of ``dims``, relative to the whole vector's 1; all 1 by default, as in the
            paper.
    """

    def __init__(
        self, dims: list[int], loss: PairLoss | None = None, weights: list[float] | None = None
    ) -> None:
        super().__init__()
        if not dims or min(dims) < 1 or len(set(dims)) != len(dims):
            raise ValueError(f"dims is {dims}; give one or more different lengths of at least 1")
        weights = [1.0] * len(dims) if weights is None else weights
        if len(weights) != len(dims) or not all(math.isfinite(w) and w > 0 for w in weights):
            raise ValueError(
                f"weights is {weights}; give one number above 0 for each of the {len(dims)} dims"
            )
        self.loss = InfoNCE() if loss is None else loss
        self.dims = dims
        self.weights = weights

    @property
    def guide(self) -> str | None:
        """The wrapped loss's."""
        return self.loss.guide

    @property
    def shared(self) -> Shared:
        """The wrapped loss's."""
        shared: Shared = getattr(self.loss, "shared", "positives")
        return shared

    def check_width(self, width: int) -> None:
        """Refuses a length that is not below the vector's own."""
        if max(self.dims) >= width:
            raise ValueError(f"dims is {self.dims}; each must be below the vectors' {width} dimensions")
        self.loss.check_width(min(self.dims))

    def forward(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """See :class:`~vidvec_msg.train.losses.pairs.PairLoss`; accuracy and counts are the whole vector's.

        Raises:
            ValueError: a length that is not below the vector's own.
        """
        self.check_width(own.anchors.shape[1])
        whole: Contrast = self.loss(own, everyone, offset)
        rows = whole.rows
        for dim, weight in zip(self.dims, self.weights, strict=True):
            shorter = shortened(everyone, dim)
            mine = shorter if own is everyone else shortened(own, dim)
            rows = rows + weight * self.loss(mine, shorter, offset).rows
        return replace(whole, rows=rows / (1 + sum(self.weights)))


def shortened(pairs: EncodedPairs, dim: int) -> EncodedPairs:
    """The first ``dim`` dimensions, normalised again; keys and the guide's view stay."""

    def cut(vectors: Tensor) -> Tensor:
        return normalize(vectors[..., :dim], dim=-1)

    return EncodedPairs(
        anchors=cut(pairs.anchors),
        positives=cut(pairs.positives),
        negatives=cut(pairs.negatives),
        keys=pairs.keys,
        guide=pairs.guide,
    )
