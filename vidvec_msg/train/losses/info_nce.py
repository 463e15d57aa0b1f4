"""InfoNCE over in-batch and hard negatives that never sets two true positives against each other.

s is the cosine of unit vectors in float32 divided by the temperature; see
:func:`vidvec_msg.train.losses.cells.contrast` for the formula. With one positive a row this is the usual
InfoNCE (van den Oord et al. 2018), one way as in LamRA, E5-V, CaRe and LCO-Embedding, or both ways as in
CLIP.

Relation to siblings: :mod:`.dual_softmax` reweights the scores before the same cross-entropy;
:mod:`.guided` leaves out what another embedder takes for a false negative; :mod:`.matryoshka` applies any of
them to the first dimensions of the vectors too.
"""

from __future__ import annotations

import math
from typing import get_args

from vidvec_msg.train.losses.cells import Contrast, Shared, above_positive, contrast, directions
from vidvec_msg.train.losses.pairs import EncodedPairs, PairLoss
from vidvec_msg.train.losses.temperature import Temperature


class InfoNCE(PairLoss):
    """InfoNCE with in-batch negatives.

    Args:
        temperature: divides the cosines. 0.05 is LamRA's and E5-V's; LCO-Embedding takes 0.03, VLM2Vec 0.02.
            Lower separates harder and amplifies label noise.
        learn_temperature: train the temperature too, beginning there.
        symmetric: also set each message against all storylines, and average the two directions. On, because
            both directions are evaluated and VidVec's own loss is symmetric.
        shared: candidates that share a text or a group with the pair: "positives" pulls the anchor to all of
            them; "masked" leaves them out. Synthetic data with few distinct messages makes them normal.
        false_negative_margin: leave out negatives whose cosine is above the positive's by more than this;
            none by default. 0.1 is a careful value: at 0 the hardest true negatives go too.
    """

    def __init__(
        self,
        temperature: float = 0.05,
        learn_temperature: bool = False,
        symmetric: bool = True,
        shared: Shared = "positives",
        false_negative_margin: float | None = None,
    ) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learned=learn_temperature)
        self.symmetric = symmetric
        self.shared: Shared = checked_shared(shared)
        if false_negative_margin is not None and not math.isfinite(false_negative_margin):
            raise ValueError(
                f"false_negative_margin is {false_negative_margin}; it must be a finite cosine, or none"
            )
        self.false_negative_margin = false_negative_margin

    def forward(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """See :class:`~vidvec_msg.train.losses.pairs.PairLoss`."""
        cells = directions(own, everyone, offset, shared=self.shared, symmetric=self.symmetric)
        if (margin := self.false_negative_margin) is not None:
            cells = [cell.without(above_positive(cell.cosines, cell.label, margin)) for cell in cells]
        return contrast(cells, [cell.cosines / self.temperature() for cell in cells])


def checked_shared(shared: Shared) -> Shared:
    """The option, or ValueError."""
    if shared not in get_args(Shared):
        raise ValueError(f"shared is {shared!r}; accepted: {', '.join(get_args(Shared))}")
    return shared
