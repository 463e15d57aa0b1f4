"""What a batch's vectors say about the space they lie in: sums that add up over ranks, and what they mean.

Alignment and uniformity are those of Wang & Isola 2020 (eq. 4 and 5, with their α = 2 and t = 2), for unit
vectors x and y:

    alignment  = mean over pairs of ‖x − y‖²  =  2 − 2 · (mean cosine of positives)
    uniformity = log( mean over two different texts of exp(−2 ‖x − y‖²) )

Lower is better in both. Uniformity is 0 where all vectors are one, and about −4 where they are spread evenly
over a sphere of many dimensions. It is taken over the anchors and over the positives, and the two averaged,
as in the authors' code; two rows of the same text are no pair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from vidvec_msg.train.losses.cells import related_pairs
from vidvec_msg.train.losses.pairs import NO_KEY, EncodedPairs

T = 2.0  # Wang & Isola's temperature of the Gaussian potential


@torch.no_grad()
def space_sums(own: EncodedPairs) -> dict[str, Tensor]:
    """Sums and counts over one rank's pairs, each a scalar; add those of several ranks up by name.

    Pairs of texts lie within a rank: comparing across ranks would cost (pairs of all ranks)² on each of them
    and estimate the same means.
    """
    # autocast would round the cosines to bfloat16
    with torch.autocast(own.anchors.device.type, enabled=False):
        anchors, positives = own.anchors.float(), own.positives.float()  # (pairs, dim)
        across = anchors @ positives.T  # (pairs, pairs)
        negative = ~related_pairs(own.keys, own.keys)
        hard = torch.einsum("pd,pnd->pn", anchors, own.negatives.float())  # (pairs, n)
        exists = own.keys.negatives != NO_KEY
        sums = {
            "positives": across.diagonal().sum(),
            "positive_count": torch.tensor(float(len(own)), device=across.device),
            "negatives": _sum(across, negative),
            "negative_count": negative.sum(),
            "hard": _sum(hard, exists),
            "hard_count": exists.sum(),
        }
        for side, vectors, keys in (
            ("anchors", anchors, own.keys.anchor),
            ("positives", positives, own.keys.positive),
        ):
            different = keys[:, None] != keys
            distances = 2 - 2 * (vectors @ vectors.T)  # (pairs, pairs), squared
            sums[f"potential_of_{side}"] = _sum(torch.exp(-T * distances), different)
            sums[f"potential_count_of_{side}"] = different.sum()
        if own.norms is not None:
            norms = own.norms.double() if own.norms.device.type != "mps" else own.norms.float()
            sums["norms"] = norms.sum()
            sums["squared_norms"] = norms.square().sum()
            sums["norm_count"] = torch.tensor(float(len(norms)), device=norms.device)
    return sums


def _sum(values: Tensor, where: Tensor) -> Tensor:
    # not values[where]: how many there are, a GPU would have to be waited for
    return values.masked_fill(~where, 0.0).sum()


def space_numbers(sums: Mapping[str, float]) -> dict[str, float]:
    """The numbers that are logged; one that has nothing to be computed from is left out.

    Args:
        sums: of :func:`space_sums`, of one rank or added up over ranks.
    """
    found: dict[str, float] = {}
    for name, part in (("positives", "positive"), ("negatives", "negative"), ("hard", "hard")):
        if count := sums[f"{part}_count"]:
            shown = "hard_negatives" if name == "hard" else name
            found[f"cosine_{shown}"] = sums[name] / count
    if "cosine_positives" in found:
        found["alignment"] = 2 - 2 * found["cosine_positives"]
    sides = [
        math.log(sums[f"potential_of_{side}"] / sums[f"potential_count_of_{side}"])
        for side in ("anchors", "positives")
        if sums[f"potential_of_{side}"] > 0
    ]
    if sides:
        found["uniformity"] = sum(sides) / len(sides)
    if count := sums.get("norm_count", 0.0):
        mean = sums["norms"] / count
        found["embedding_norm"] = mean
        found["embedding_norm_std"] = math.sqrt(max(sums["squared_norms"] / count - mean**2, 0.0))
    return found
