"""Encoded pairs whose losses a reader can work out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import EncodedPairs, PairKeys

E = torch.eye(4)  # unit vectors: cosines are 0 and 1


def encoded(
    pairs: list[Pair], anchors: Tensor, positives: Tensor, negatives: Tensor | None = None
) -> EncodedPairs:
    if negatives is None:
        negatives = anchors.new_zeros(len(pairs), 0, anchors.shape[1])
    return EncodedPairs(anchors, positives, negatives, PairKeys.of(pairs))


def random_pairs(count: int, negatives: int = 0, dim: int = 6) -> tuple[list[Pair], EncodedPairs]:
    torch.manual_seed(count)
    pairs = [Pair(f"a{i}", f"p{i}", tuple(f"n{i}.{k}" for k in range(negatives))) for i in range(count)]
    draw = [normalize(torch.randn(count, dim), dim=-1) for _ in range(2)]
    hard = normalize(torch.randn(count, negatives, dim), dim=-1)
    return pairs, encoded(pairs, *draw, hard)
