"""The score matrix of a contrast: which cells are positives, which negatives, which neither.

Every loss of this package is a function of these cells; what a shared text or group means is decided here,
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

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
        masked: cells that are no negatives although they look like ones: shared texts and groups, and false
            negatives that the loss left out.
        negatives: negatives of this rank's anchors, summed over anchors.
    """

    rows: Tensor
    correct: Tensor
    masked: Tensor
    negatives: Tensor


@dataclass(slots=True)
class Cells:
    """One direction: rows ask, columns are candidates.

    Args:
        cosines: ``(rows, candidates)`` float32, with gradients.
        label: bool, the row's own counterpart.
        positive: bool, what the row is pulled to; ``label`` among them.
        ignored: bool, no part of the loss: padding, and shared texts that are masked.
        masked: bool, shares a text or a group with the row, or was found to be a false negative; the label
            is not among them.
    """

    cosines: Tensor
    label: Tensor
    positive: Tensor
    ignored: Tensor
    masked: Tensor

    @property
    def negative(self) -> Tensor:
        """bool: what the row is pushed from."""
        return ~(self.positive | self.ignored)

    def without(self, found: Tensor) -> Cells:
        """The cells with some negatives left out of the loss, bool ``(rows, candidates)``."""
        found = found & self.negative
        return replace(self, ignored=self.ignored | found, masked=self.masked | found)

    def at(self, rows: slice) -> Cells:
        """Some of the rows."""
        return Cells(*(getattr(self, entry.name)[rows] for entry in fields(self)))


def directions(
    own: EncodedPairs, everyone: EncodedPairs, offset: int, *, shared: Shared, symmetric: bool
) -> list[Cells]:
    """The cells of this rank's rows against the candidates of all ranks, one entry per direction.

    | candidates of an anchor | cells |
    | --- | --- |
    | its own positive | positive |
    | another pair's positive | negative, unless the pairs share anchor, positive or group |
    | a hard negative, its own or another pair's | negative, unless it is the anchor's or positive's text |

    In the other direction (``symmetric``) the candidates of a positive are all anchors; hard negatives take
    no part in it, as they are messages and not storylines.

    Args:
        own: this rank's pairs.
        everyone: the pairs of all ranks in rank order.
        offset: row of ``everyone`` at which ``own`` begins.
        shared: what becomes of cells that share a text or a group: positives too, or left out.
        symmetric: both directions, or the first alone.
    """
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
    forward = _cells(own.anchors, candidates, same, absent, offset, shared)
    if not symmetric:
        return [forward]

    # reverse: positives against all anchors
    same = related | (texts == everyone.keys.anchor).any(0)  # (own, everyone)
    nothing = torch.zeros_like(everyone.keys.anchor, dtype=torch.bool)
    return [forward, _cells(own.positives, everyone.anchors, same, nothing, offset, shared)]


def related_pairs(own: PairKeys, everyone: PairKeys) -> Tensor:
    """bool ``(own, everyone)``: the pairs share their anchor, their positive or their group."""
    return (
        (own.anchor[:, None] == everyone.anchor)
        | (own.positive[:, None] == everyone.positive)
        | ((own.group[:, None] == everyone.group) & (own.group[:, None] != NO_KEY))
    )


def above_positive(cosines: Tensor, label: Tensor, margin: float) -> Tensor:
    """bool ``(rows, candidates)``: nearer to the row than its own counterpart by more than the margin.

    Synthetic pairs often fit each other as well as their own counterpart; a "negative" that stands above the
    positive is more often a second positive than a mistake of the model.
    """
    own = cosines.detach().masked_fill(~label, 0.0).sum(1, keepdim=True)  # (rows, 1)
    return cosines.detach() > own + margin


def contrast(cells: Sequence[Cells], scores: Sequence[Tensor]) -> Contrast:
    """Softmax cross-entropy of each direction's scores, averaged over directions.

        loss(i) = mean over p in P(i) of  −log( exp(s_ip) / Σ_{j not ignored} exp(s_ij) )

    With one positive a row this is cross-entropy of the label; with several it is L_out of Khosla et al.
    2020 (eq. 2), the form that they found better than the sum inside the logarithm.

    Args:
        cells: per direction.
        scores: per direction ``(rows, candidates)`` float32, divided by the temperature already.
    """
    losses = []
    for cell, score in zip(cells, scores, strict=True):
        kept = score.masked_fill(cell.ignored, -torch.inf)
        surprise = torch.logsumexp(kept, 1, keepdim=True) - kept  # (rows, candidates), inf where ignored
        losses.append(surprise.masked_fill(~cell.positive, 0.0).sum(1) / cell.positive.sum(1))  # (rows,)
    forward, score = cells[0], scores[0].detach()
    best = score.masked_fill(~forward.positive, -torch.inf).amax(1)
    rival = score.masked_fill(~forward.negative, -torch.inf).amax(1)
    return Contrast(
        rows=torch.stack(losses).mean(0),
        correct=best > rival,
        masked=torch.stack([cell.masked.sum() for cell in cells]).sum(),
        negatives=forward.negative.sum(),
    )


def _cells(
    rows: Tensor, candidates: Tensor, same: Tensor, absent: Tensor, offset: int, shared: Shared
) -> Cells:
    """One direction.

    Args:
        rows: ``(own, dim)``.
        candidates: ``(candidates, dim)``, all ranks' own counterparts first.
        same: bool ``(own, candidates)``: shares a text or a group with the row.
        absent: bool ``(candidates,)``: padding.
        offset: column of the first row's own counterpart.
        shared: what becomes of ``same`` cells other than the row's own.
    """
    numbers = torch.arange(len(rows), device=rows.device)
    label = torch.zeros_like(same)
    label[numbers, numbers + offset] = True
    same = same & ~absent
    positive = (same | label) if shared == "positives" else label
    return Cells(
        # float32: bf16 scores tie (mteb PR 4933)
        cosines=rows.float() @ candidates.float().T,  # (own, candidates)
        label=label,
        positive=positive,
        ignored=absent | (same & ~positive),
        masked=same & ~label,
    )
