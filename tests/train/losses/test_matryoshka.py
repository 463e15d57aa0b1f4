"""The same loss on shorter vectors."""

from __future__ import annotations

import pytest
import torch
from encoded_pairs import random_pairs
from torch.nn.functional import normalize

from vidvec_msg.train.losses import DualSoftmax, EncodedPairs, InfoNCE, Matryoshka


def test_it_is_the_weighted_mean_over_lengths_normalised_again() -> None:
    _, own = random_pairs(5, negatives=1)
    inner = InfoNCE(0.1)
    found = Matryoshka([2, 4], inner, weights=[0.5, 2.0])(own, own, 0)

    def short(dim: int) -> EncodedPairs:
        parts = (own.anchors, own.positives, own.negatives)
        return EncodedPairs(*(normalize(part[..., :dim], dim=-1) for part in parts), keys=own.keys)

    whole, two, four = (inner(pairs, pairs, 0) for pairs in (own, short(2), short(4)))
    torch.testing.assert_close(found.rows, (whole.rows + 0.5 * two.rows + 2 * four.rows) / 3.5)
    assert torch.equal(found.correct, whole.correct)
    assert found.negatives == whole.negatives


def test_it_wraps_any_loss_and_hands_on_its_guide() -> None:
    _, own = random_pairs(5)
    assert not torch.allclose(
        Matryoshka([3], DualSoftmax(0.1, 0.5))(own, own, 0).rows,
        Matryoshka([3], InfoNCE(0.1))(own, own, 0).rows,
    )
    assert Matryoshka([3]).guide is None


@pytest.mark.parametrize(
    ("dims", "weights", "reason"),
    [
        ([], None, r"dims is \[\]; give one or more different lengths"),
        ([2, 2], None, "different lengths"),
        ([0], None, "at least 1"),
        ([2, 4], [1.0], "give one number above 0 for each of the 2 dims"),
        ([2], [0.0], "above 0"),
    ],
)
def test_values_are_checked(dims: list[int], weights: list[float] | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Matryoshka(dims, weights=weights)


def test_a_length_that_the_vectors_do_not_have() -> None:
    _, own = random_pairs(3)
    with pytest.raises(ValueError, match=r"dims is \[4\]; each must be below the vectors' 3 dimensions"):
        Matryoshka([3], Matryoshka([4])).check_width(6)
    with pytest.raises(ValueError, match=r"dims is \[6\]; each must be below the vectors' 6 dimensions"):
        Matryoshka([6])(own, own, 0)
