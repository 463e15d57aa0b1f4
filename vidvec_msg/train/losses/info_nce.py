"""InfoNCE over in-batch and hard negatives that never sets two true positives against each other.

    loss(i) = mean over p in P(i) of  −log( exp(s_ip/τ) / Σ_{j not ignored} exp(s_ij/τ) )

s is the cosine of unit vectors in float32, P(i) the positive candidates of anchor i. With one positive a
row this is the usual InfoNCE (van den Oord et al. 2018); with several it is L_out of Khosla et al. 2020
(eq. 2), the form that they found better than the sum inside the logarithm.

Relation to siblings: the dual softmax loss, GradCache, GIST and Matryoshka forms take the same two
arguments (own pairs, everyone's pairs), so that they can stand in this one's place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from vidvec_msg.train.losses.pairs import NO_KEY, EncodedPairs, PairKeys

Shared = Literal["positives", "masked"]


@dataclass(slots=True)
class Contrast:
    """What a loss says about this rank's pairs.

    Args:
        rows: ``(pairs,)`` one loss per own pair, with gradients.
        correct: ``(pairs,)`` bool: every candidate that is no positive scores below the best positive.
        masked: cells of the score matrix that hold a shared text or group and so are no negatives.
        negatives: negatives of this rank's anchors, summed over anchors.
    """

    rows: Tensor
    correct: Tensor
    masked: Tensor
    negatives: Tensor


@dataclass(frozen=True)  # no slots: jsonargparse reads defaults with vars()
class InfoNCE:
    """InfoNCE with in-batch negatives, as an option of a fit.

    Args:
        temperature: divides the cosines. 0.05 is LamRA's and E5-V's; LCO-Embedding takes 0.03, VLM2Vec 0.02.
            Lower separates harder and amplifies label noise.
        symmetric: also set each message against all storylines, and average the two directions. On, because
            both directions are evaluated and VidVec's own loss is symmetric.
        shared: candidates that share a text or a group with the pair: "positives" pulls the anchor to all of
            them; "masked" leaves them out. Synthetic data with few distinct messages makes them normal.
    """

    temperature: float = 0.05
    symmetric: bool = True
    shared: Shared = "positives"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(
                f"temperature is {self.temperature}; it must be a finite number above 0 "
                "(0.02 to 0.1 is usual)"
            )
        if self.shared not in get_args(Shared):
            raise ValueError(f"shared is {self.shared!r}; accepted: {', '.join(get_args(Shared))}")

    def __call__(self, own: EncodedPairs, everyone: EncodedPairs, offset: int) -> Contrast:
        """See :func:`info_nce`."""
        return info_nce(
            own, everyone, offset, temperature=self.temperature, symmetric=self.symmetric, shared=self.shared
        )


def info_nce(
    own: EncodedPairs,
    everyone: EncodedPairs | None = None,
    offset: int = 0,
    *,
    temperature: float,
    symmetric: bool = True,
    shared: Shared = "positives",
) -> Contrast:
    """InfoNCE of a rank's pairs against the candidates of all ranks.

    | candidates of an anchor | cells |
    | --- | --- |
    | its own positive | positive |
    | another pair's positive | negative, unless the pairs share anchor, positive or group |
    | a hard negative, its own or another pair's | negative, unless it is the anchor's or positive's text |

    In the other direction (``symmetric``) the candidates of a positive are all anchors; hard negatives take
    no part in it, as they are messages and not storylines.

    Args:
        own: this rank's pairs.
        everyone: the pairs of all ranks in rank order; ``own`` itself by default (one process).
        offset: row of ``everyone`` at which ``own`` begins.
        temperature: see :class:`InfoNCE`; so are the options.
        symmetric: average both directions.
        shared: what becomes of cells that share a text or a group.
    """
    everyone = own if everyone is None else everyone
    related = related_pairs(own.keys, everyone.keys)  # (own, everyone)
    texts = torch.stack((own.keys.anchor, own.keys.positive))[:, :, None]  # (2, own, 1)

    # forward: anchors against all positives, then all hard negatives, column by column
    hard_keys = everyone.keys.negatives.T.reshape(-1)  # (n · everyone,)
    hard = everyone.negatives.transpose(0, 1).reshape(-1, own.anchors.shape[1])  # (n · everyone, dim)
    candidates = torch.cat((everyone.positives, hard))  # (candidates, dim)
    candidate_keys = torch.cat((everyone.keys.positive, hard_keys))  # (candidates,)
    same = (texts == candidate_keys).any(0)  # (own, candidates)
    same[:, : len(everyone)] |= related
    absent = torch.cat((torch.zeros_like(everyone.keys.positive, dtype=torch.bool), hard_keys == NO_KEY))
    forward = _one_way(own.anchors, candidates, same, absent, offset, temperature, shared)
    if not symmetric:
        return forward

    # reverse: positives against all anchors
    same = related | (texts == everyone.keys.anchor).any(0)  # (own, everyone)
    nothing = torch.zeros_like(everyone.keys.anchor, dtype=torch.bool)
    reverse = _one_way(own.positives, everyone.anchors, same, nothing, offset, temperature, shared)
    return Contrast(
        rows=(forward.rows + reverse.rows) / 2,
        correct=forward.correct,
        masked=forward.masked + reverse.masked,
        negatives=forward.negatives,
    )


def related_pairs(own: PairKeys, everyone: PairKeys) -> Tensor:
    """bool ``(own, everyone)``: the pairs share their anchor, their positive or their group."""
    return (
        (own.anchor[:, None] == everyone.anchor)
        | (own.positive[:, None] == everyone.positive)
        | ((own.group[:, None] == everyone.group) & (own.group[:, None] != NO_KEY))
    )


def _one_way(
    anchors: Tensor,
    candidates: Tensor,
    same: Tensor,
    absent: Tensor,
    offset: int,
    temperature: float,
    shared: Shared,
) -> Contrast:
    """One direction.

    Args:
        anchors: ``(own, dim)``.
        candidates: ``(candidates, dim)``, all ranks' own counterparts first.
        same: bool ``(own, candidates)``: shares a text or a group with the row.
        absent: bool ``(candidates,)``: padding.
        offset: column of the first row's own counterpart.
        temperature: of the softmax.
        shared: what becomes of ``same`` cells other than the row's own.
    """
    rows = torch.arange(len(anchors), device=anchors.device)
    label = torch.zeros_like(same)
    label[rows, rows + offset] = True
    same = same & ~absent
    positive = (same | label) if shared == "positives" else label
    ignored = absent | (same & ~positive)

    # float32: bf16 scores tie (mteb PR 4933)
    scores = anchors.float() @ candidates.float().T / temperature  # (own, candidates)
    scores = scores.masked_fill(ignored, -torch.inf)
    surprise = torch.logsumexp(scores, 1, keepdim=True) - scores  # (own, candidates), inf where ignored
    losses = surprise.masked_fill(~positive, 0.0).sum(1) / positive.sum(1)  # (own,)

    negative = ~(positive | ignored)
    best = scores.detach().masked_fill(~positive, -torch.inf).amax(1)
    rival = scores.detach().masked_fill(~negative, -torch.inf).amax(1)
    return Contrast(rows=losses, correct=best > rival, masked=(same & ~label).sum(), negatives=negative.sum())
