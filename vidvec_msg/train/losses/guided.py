"""InfoNCE whose negatives another embedder has looked through (GIST, Solatorio 2024, arXiv 2402.16829).

A guide that already knows the language sees that two pairs of a batch tell nearly the same; what it finds
nearer to a row than the row's own counterpart is left out of the negatives. The paper also adds
storyline–storyline and message–message negatives; here the candidates are those of the sibling
:class:`.info_nce.InfoNCE`, so that the two differ in the mask alone.
"""

from __future__ import annotations

import math

from vidvec_msg.train.losses.cells import Contrast, Shared, above_positive, contrast, directions
from vidvec_msg.train.losses.info_nce import InfoNCE
from vidvec_msg.train.losses.pairs import EncodedPairs


class GuidedInfoNCE(InfoNCE):
    """InfoNCE without the negatives that a guide takes for false ones.

    Args:
        guide: any embedder of texts, as ``--embedder`` takes them, such as ``st:org/name``.
        margin: how far, in the guide's cosine, a negative must stand above the positive to be left out.
        temperature: see InfoNCE, as the options below.
        learn_temperature: train the temperature too.
        symmetric: both directions.
        shared: candidates that share a text or a group: "positives" or "masked".
    """

    def __init__(
        self,
        guide: str,
        margin: float = 0.0,
        temperature: float = 0.05,
        learn_temperature: bool = False,
        symmetric: bool = True,
        shared: Shared = "positives",
    ) -> None:
        super().__init__(temperature, learn_temperature, symmetric, shared)
        if not math.isfinite(margin):
            raise ValueError(f"margin is {margin}; it must be a finite cosine")
        self._guide = guide
        self.margin = margin

    @property
    def guide(self) -> str:
        """Spec of the guide."""
        return self._guide

    def forward(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """See :class:`~vidvec_msg.train.losses.pairs.PairLoss`.

        Raises:
            ValueError: the pairs come without the guide's vectors.
        """
        if own.guide is None or everyone.guide is None:
            raise ValueError("GuidedInfoNCE needs the guide's vectors of the batch beside the model's own")
        cells = directions(own, everyone, offset, shared=self.shared, symmetric=self.symmetric)
        views = directions(own.guide, everyone.guide, offset, shared=self.shared, symmetric=self.symmetric)
        cells = [
            cell.without(above_positive(view.cosines, view.label, self.margin))
            for cell, view in zip(cells, views, strict=True)
        ]
        return contrast(cells, [cell.cosines / self.temperature() for cell in cells])
