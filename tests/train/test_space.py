"""Numbers of a batch's vectors, against worked-out values and the papers' formulas written as loops."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses.pairs import EncodedPairs, PairKeys
from vidvec_msg.train.space import space_numbers, space_sums

X, Y = (1.0, 0.0), (0.0, 1.0)


def encoded(pairs: list[Pair], anchors: Tensor, positives: Tensor, **more: Tensor) -> EncodedPairs:
    keys = PairKeys.of(pairs)
    empty = torch.zeros(len(pairs), keys.negatives.shape[1], anchors.shape[1])
    return EncodedPairs(anchors, positives, more.get("negatives", empty), keys, norms=more.get("norms"))


def numbers(own: EncodedPairs) -> dict[str, float]:
    return space_numbers({name: float(value) for name, value in space_sums(own).items()})


def test_values_worked_out_by_hand() -> None:
    pairs = [Pair("a", "p", ("n",)), Pair("b", "q")]
    own = encoded(
        pairs,
        torch.tensor([X, Y]),
        torch.tensor([X, X]),
        negatives=torch.tensor([[Y], [Y]]),  # the second pair has none: its place is padding
        norms=torch.tensor([3.0, 5.0]),
    )
    found = numbers(own)
    # anchors: right angle, distance² 2, log exp(−4); positives: one place, log 1
    expected = {
        "cosine_positives": 0.5,
        "cosine_negatives": 0.5,
        "cosine_hard_negatives": 0.0,
        "alignment": 1.0,
        "uniformity": -2.0,
        "embedding_norm": 4.0,
        "embedding_norm_std": 1.0,
    }
    assert found == pytest.approx(expected, abs=1e-6)


def test_shared_texts_and_groups_are_no_negatives_and_no_pairs_of_different_texts() -> None:
    pairs = [Pair("a", "same"), Pair("b", "same"), Pair("c", "r", group="g"), Pair("d", "s", group="g")]
    generator = torch.Generator().manual_seed(0)
    anchors = normalize(torch.randn(4, 5, generator=generator), dim=-1)
    positives = normalize(torch.randn(4, 5, generator=generator), dim=-1)
    positives[1] = positives[0]
    found = numbers(encoded(pairs, anchors, positives))

    related = {(0, 1), (1, 0), (2, 3), (3, 2)}
    negatives = [
        float(anchors[i] @ positives[j])
        for i in range(4)
        for j in range(4)
        if i != j and (i, j) not in related
    ]
    assert found["cosine_negatives"] == pytest.approx(sum(negatives) / len(negatives), abs=1e-6)

    def uniformity(vectors: Tensor, rows: list[int]) -> float:
        terms = [
            math.exp(-2 * float((vectors[i] - vectors[j]).square().sum())) for i, j in combinations(rows, 2)
        ]
        return math.log(sum(terms) / len(terms))

    # pairs (i, j) of positives without (0, 1), which is one text
    terms = [
        math.exp(-2 * float((positives[i] - positives[j]).square().sum()))
        for i, j in combinations(range(4), 2)
        if (i, j) != (0, 1)
    ]
    of_positives = math.log(sum(terms) / len(terms))
    assert found["uniformity"] == pytest.approx(
        (uniformity(anchors, [0, 1, 2, 3]) + of_positives) / 2, abs=1e-5
    )
    assert found["alignment"] == pytest.approx(float((anchors - positives).square().sum(1).mean()), abs=1e-6)


def test_sums_of_ranks_add_up() -> None:
    """Two ranks with three pairs and one give the means over all four rows."""
    pairs = [Pair(f"a{i}", f"p{i}") for i in range(4)]
    generator = torch.Generator().manual_seed(1)
    anchors, positives = (normalize(torch.randn(4, 6, generator=generator), dim=-1) for _ in range(2))
    norms = torch.tensor([1.0, 2.0, 3.0, 6.0])
    whole = numbers(encoded(pairs, anchors, positives, norms=norms))
    shares = [
        space_sums(encoded(pairs[rows], anchors[rows], positives[rows], norms=norms[rows]))
        for rows in (slice(0, 3), slice(3, 4))
    ]
    added = space_numbers({name: sum(float(share[name]) for share in shares) for name in shares[0]})
    for name in ("cosine_positives", "alignment", "embedding_norm", "embedding_norm_std"):
        assert added[name] == pytest.approx(whole[name], abs=1e-6)
    assert added["embedding_norm"] == 3.0
    assert added["uniformity"] == pytest.approx(
        numbers(encoded(pairs[:3], anchors[:3], positives[:3]))["uniformity"], abs=1e-6
    )  # the lone pair of the second rank has no other text beside it


def test_what_cannot_be_computed_is_left_out() -> None:
    pairs = [Pair("a", "p", group="g"), Pair("b", "q", group="g")]
    found = numbers(encoded(pairs, torch.tensor([X, Y]), torch.tensor([X, Y])))
    assert found.keys() == {"cosine_positives", "alignment", "uniformity"}


def test_autocast_does_not_round_the_cosines() -> None:
    pairs = [Pair("a", "p"), Pair("b", "q")]
    anchors = normalize(torch.tensor([[1.0, 0.0013], [0.3, 1.0]]), dim=-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = numbers(encoded(pairs, anchors, anchors))
    assert found == pytest.approx(numbers(encoded(pairs, anchors, anchors)), abs=1e-7)
