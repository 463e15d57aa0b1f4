"""The Dual-Softmax Loss, VidVec's own: a candidate that many rows like counts less for each of them.

    s    = cosine / τ                             (rows, candidates)
    s'   = s · n · softmax over the rows of s/t   the prior: how much of a candidate's liking is this row's
    loss = cross-entropy of s', both directions averaged

After Cheng et al. 2021 (CAMoE, arXiv 2109.04290), where it is a prior for video–text retrieval: hubs, which
are near to everything, lose weight. As t grows the prior tends to 1/n and the loss to InfoNCE, its sibling,
which a test holds it to.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vidvec_msg.train.losses.cells import Contrast, Shared, contrast, directions
from vidvec_msg.train.losses.info_nce import checked_shared
from vidvec_msg.train.losses.pairs import EncodedPairs, PairLoss
from vidvec_msg.train.losses.temperature import Temperature


class DualSoftmax(PairLoss):
    """The Dual-Softmax Loss, symmetric.

    Args:
        temperature: divides the cosines (τ). VidVec does not publish it; 0.05 is LamRA's, whose recipe
            VidVec's follows elsewhere.
        prior_temperature: divides the scores in the prior (t). VidVec does not publish it; 1000 is the
            default of the loss's own code and hardly differs from InfoNCE, 1 is a strong prior.
        learn_temperature: train τ too.
        shared: candidates that share a text or a group with the pair: "positives" or "masked".
    """

    def __init__(
        self,
        temperature: float = 0.05,
        prior_temperature: float = 1000.0,
        learn_temperature: bool = False,
        shared: Shared = "positives",
    ) -> None:
        super().__init__()
        if not (math.isfinite(prior_temperature) and prior_temperature > 0):
            raise ValueError(f"prior_temperature is {prior_temperature}; it must be a finite number above 0")
        self.temperature = Temperature(temperature, learned=learn_temperature)
        self.prior_temperature = prior_temperature
        self.shared: Shared = checked_shared(shared)

    def forward(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """See :class:`~vidvec_msg.train.losses.pairs.PairLoss`.

        The prior of a candidate needs the rows of all ranks, so every rank computes the whole matrix and
        takes its own rows of it.
        """
        whole = directions(everyone, everyone, 0, shared=self.shared, symmetric=True)
        scores = [
            with_prior(cell.cosines / self.temperature(), cell.ignored, self.prior_temperature)
            for cell in whole
        ]
        rows = slice(offset, offset + len(own))
        return contrast([cell.at(rows) for cell in whole], [score[rows] for score in scores])


def with_prior(scores: Tensor, ignored: Tensor, prior_temperature: float) -> Tensor:
    """Scores times their prior, ``(rows, candidates)``.

    Args:
        scores: ``(rows, candidates)`` of all rows, cosines divided by the temperature.
        ignored: bool ``(rows, candidates)``, cells that take no part.
        prior_temperature: t.
    """
    # a column that every row ignores (padding) gets some prior or other; its cells stay ignored
    prior = torch.softmax((scores / prior_temperature).masked_fill(ignored, -1e30), dim=0)
    return scores * prior * (~ignored).sum(0, keepdim=True)
