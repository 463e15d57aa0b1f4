"""InfoNCE against sums worked out by hand, and against the plain loss where nothing is shared."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from encoded_pairs import E, encoded, random_pairs
from torch.nn.functional import cross_entropy, normalize

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import Contrast, EncodedPairs, InfoNCE, PairKeys


def info_nce(
    own: EncodedPairs, everyone: EncodedPairs | None = None, offset: int = 0, **options: Any
) -> Contrast:
    """One call of the loss; in one process, everyone is the own pairs."""
    result: Contrast = InfoNCE(**options)(own, everyone or own, offset)
    return result


@pytest.mark.parametrize("shared", ["positives", "masked"])
def test_without_shared_texts_it_is_cross_entropy_both_ways(shared: str) -> None:
    _, own = random_pairs(5)
    scores = own.anchors @ own.positives.T / 0.05
    plain = (cross_entropy(scores, torch.arange(5)) + cross_entropy(scores.T, torch.arange(5))) / 2
    result = info_nce(own, temperature=0.05, shared=shared)
    torch.testing.assert_close(result.rows.mean(), plain)
    assert result.masked == 0
    assert result.negatives == 5 * 4


def test_one_way_leaves_the_other_direction_out() -> None:
    _, own = random_pairs(5)
    scores = own.anchors @ own.positives.T / 0.1
    result = info_nce(own, temperature=0.1, symmetric=False)
    torch.testing.assert_close(result.rows, cross_entropy(scores, torch.arange(5), reduction="none"))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hard_negatives_are_further_columns(count: int) -> None:
    _, own = random_pairs(4, negatives=count)
    candidates = torch.cat((own.positives, own.negatives.reshape(-1, 6)))
    scores = own.anchors @ candidates.T / 0.1
    result = info_nce(own, temperature=0.1, symmetric=False)
    torch.testing.assert_close(result.rows, cross_entropy(scores, torch.arange(4), reduction="none"))
    assert result.negatives == 4 * (3 + 4 * count)


def test_a_pair_with_fewer_negatives_has_fewer_columns() -> None:
    pairs = [Pair("a0", "p0", ("n0", "n1")), Pair("a1", "p1")]
    hard = torch.stack((E[2:4], E[:2]))  # the second pair's rows are padding, however near they are
    own = encoded(pairs, E[:2], E[:2], hard)
    result = info_nce(own, temperature=1.0, symmetric=False)
    # each anchor: its positive (cosine 1), the other's positive and two hard negatives (cosine 0)
    expected = -math.log(math.e / (math.e + 3))
    torch.testing.assert_close(result.rows, torch.tensor([expected, expected]))
    assert result.negatives == 2 * 3


# ---- shared texts and groups: (pairs, masked cells of the two directions)
SHARED = {
    "same message": [Pair("a0", "p"), Pair("a1", "p"), Pair("a2", "p2")],
    "same storyline": [Pair("a", "p0"), Pair("a", "p1"), Pair("a2", "p2")],
    "same group": [Pair("a0", "p0", group="g"), Pair("a1", "p1", group="g"), Pair("a2", "p2", group="h")],
}


@pytest.mark.parametrize("pairs", SHARED.values(), ids=SHARED)
def test_pairs_that_share_are_masked_or_positives_and_counted(pairs: list[Pair]) -> None:
    own = encoded(pairs, E[:3], E[:3])
    e = math.e
    masked = info_nce(own, temperature=1.0, shared="masked")
    torch.testing.assert_close(
        masked.rows, torch.tensor([-math.log(e / (e + 1))] * 2 + [-math.log(e / (e + 2))])
    )
    both = info_nce(own, temperature=1.0, shared="positives")
    # two positives, cosines 1 and 0, of three candidates: the mean of their log probabilities
    of_two = -(math.log(e / (e + 2)) + math.log(1 / (e + 2))) / 2
    torch.testing.assert_close(both.rows, torch.tensor([of_two] * 2 + [-math.log(e / (e + 2))]))
    for result in (masked, both):
        assert result.masked == 2 * 2  # cells (0, 1) and (1, 0), in each direction
        assert result.negatives == 1 + 1 + 2


def test_pairs_without_a_group_do_not_share_it() -> None:
    assert info_nce(encoded([Pair("a0", "p0"), Pair("a1", "p1")], E[:2], E[:2]), temperature=1.0).masked == 0


def test_a_hard_negative_that_is_the_anchors_message_is_no_negative() -> None:
    pairs = [Pair("a0", "p0", ("p1",)), Pair("a1", "p1", ("n",))]
    own = encoded(pairs, E[:2], E[:2], E[2:4].reshape(2, 1, 4))
    result = info_nce(own, temperature=1.0, symmetric=False, shared="masked")
    # anchor 1: p1 is its positive, so pair 0's hard negative p1 is masked for it, but not for anchor 0
    e = math.e
    torch.testing.assert_close(result.rows, torch.tensor([-math.log(e / (e + 3)), -math.log(e / (e + 2))]))
    assert result.masked == 1


def test_a_message_equal_to_another_storyline_is_no_negative_of_it() -> None:
    pairs = [Pair("x", "p0"), Pair("a1", "x")]
    result = info_nce(encoded(pairs, E[:2], E[:2]), temperature=1.0, shared="masked")
    # forward (anchor x, candidate x) and reverse (positive x, candidate anchor x)
    assert result.masked == 2


def test_rows_of_a_rank_count_from_its_offset() -> None:
    pairs, everyone = random_pairs(6, negatives=2)
    whole = info_nce(everyone, temperature=0.1)
    own = EncodedPairs(
        everyone.anchors[2:5], everyone.positives[2:5], everyone.negatives[2:5], PairKeys.of(pairs[2:5])
    )
    part = info_nce(own, everyone, 2, temperature=0.1)
    torch.testing.assert_close(part.rows, whole.rows[2:5])
    assert torch.equal(part.correct, whole.correct[2:5])


def test_accuracy_is_the_share_of_anchors_whose_positive_beats_every_negative() -> None:
    pairs = [Pair(f"a{i}", f"p{i}") for i in range(3)]
    own = encoded(pairs, E[:3], E[[0, 2, 1]])
    assert info_nce(own, temperature=1.0).correct.tolist() == [True, False, False]


def test_a_collapsed_encoder_has_no_accuracy() -> None:
    pairs = [Pair(f"a{i}", f"p{i}") for i in range(3)]
    assert not info_nce(encoded(pairs, E[[0, 0, 0]], E[[0, 0, 0]]), temperature=1.0).correct.any()


def test_scores_are_float32_whatever_the_vectors_are() -> None:
    _, own = random_pairs(4)
    half = EncodedPairs(own.anchors.bfloat16(), own.positives.bfloat16(), own.negatives.bfloat16(), own.keys)
    assert info_nce(half, temperature=0.05).rows.dtype == torch.float32


def test_gradients_are_finite_where_cells_are_masked() -> None:
    pairs = [Pair("a0", "p", group="g"), Pair("a1", "p", ("n",), group="g")]
    vectors = normalize(torch.randn(4, 4), dim=-1).requires_grad_()
    own = encoded(pairs, vectors[:2], vectors[2:], torch.zeros(2, 1, 4))
    info_nce(own, temperature=0.05, shared="masked").rows.sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, -0.1, math.nan, math.inf])
def test_a_temperature_that_cannot_be_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {temperature}; it must be a finite number above 0"):
        InfoNCE(temperature=temperature)


def test_an_unknown_treatment_of_shared_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="shared is 'ignore'; accepted: positives, masked"):
        InfoNCE(shared="ignore")  # type: ignore[arg-type]


def test_negatives_far_above_the_positive_are_left_out_and_counted() -> None:
    pairs = [Pair(f"a{i}", f"p{i}") for i in range(3)]
    # anchor 0: its positive has cosine 0.6, pair 1's positive 0.8, pair 2's 0
    own = encoded(pairs, E[:3], torch.tensor([[0.6, 0, 0.8, 0], [0.8, 0.6, 0, 0], [0, 0, 1.0, 0]]))
    plain = info_nce(own, temperature=1.0, symmetric=False)
    masked = info_nce(own, temperature=1.0, symmetric=False, false_negative_margin=0.1)
    e = math.exp
    assert plain.rows[0] == pytest.approx(-math.log(e(0.6) / (e(0.6) + e(0.8) + 1)))
    assert masked.rows[0] == pytest.approx(-math.log(e(0.6) / (e(0.6) + 1)))
    torch.testing.assert_close(masked.rows[1:], plain.rows[1:])
    assert (plain.masked, masked.masked) == (0, 1)
    assert (plain.negatives, masked.negatives) == (6, 5)
    wide = info_nce(own, temperature=1.0, symmetric=False, false_negative_margin=0.3)
    torch.testing.assert_close(wide.rows, plain.rows)


def test_a_margin_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="false_negative_margin is nan; it must be a finite cosine, or none"):
        InfoNCE(false_negative_margin=math.nan)
