"""The Dual-Softmax Loss against its formula, written out plainly, and against InfoNCE."""

from __future__ import annotations

import math

import pytest
import torch
from encoded_pairs import E, encoded, random_pairs
from torch import Tensor
from torch.nn.functional import log_softmax, softmax

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import DualSoftmax, EncodedPairs, InfoNCE, PairKeys


def plainly(cosines: Tensor, temperature: float, prior_temperature: float) -> Tensor:
    """Losses (rows,) of one direction, as the paper's text has it."""
    scores = cosines / temperature
    weighted = scores * softmax(scores / prior_temperature, dim=0) * len(scores)
    return -log_softmax(weighted, dim=1).diagonal()


@pytest.mark.parametrize("prior_temperature", [0.5, 1.0, 1000.0])
def test_without_shared_texts_it_is_the_formula_both_ways(prior_temperature: float) -> None:
    _, own = random_pairs(6)
    cosines = own.anchors @ own.positives.T
    expected = (plainly(cosines, 0.1, prior_temperature) + plainly(cosines.T, 0.1, prior_temperature)) / 2
    found = DualSoftmax(0.1, prior_temperature)(own, own, 0)
    torch.testing.assert_close(found.rows, expected)
    assert found.negatives == 6 * 5


def test_by_hand() -> None:
    """Two pairs, cosines 1 on the diagonal and 0 beside it, both temperatures 1."""
    own = encoded([Pair("a0", "p0"), Pair("a1", "p1")], E[:2], E[:2])
    e = math.e
    prior = e / (e + 1)  # of a diagonal cell: softmax over the column (1, 0)
    score = 1 * prior * 2  # times n; the other cell's cosine is 0, whatever its prior
    expected = -math.log(math.exp(score) / (math.exp(score) + 1))
    torch.testing.assert_close(DualSoftmax(1.0, 1.0)(own, own, 0).rows, torch.tensor([expected] * 2))


@pytest.mark.parametrize("negatives", [0, 2])
def test_a_weak_prior_leaves_info_nce(negatives: int) -> None:
    _, own = random_pairs(5, negatives=negatives)
    found = DualSoftmax(0.1, prior_temperature=1e7)(own, own, 0)
    expected = InfoNCE(0.1)(own, own, 0)
    torch.testing.assert_close(found.rows, expected.rows, rtol=1e-4, atol=1e-5)
    assert (found.masked, found.negatives) == (expected.masked, expected.negatives)


def test_a_hub_counts_less() -> None:
    """A candidate near to every anchor is a weaker rival than one that is near to this anchor alone."""
    hub = encoded(
        [Pair(f"a{i}", f"p{i}") for i in range(3)],
        E[:3],
        torch.tensor([[0.6, 0, 0, 0.8], [0, 0.6, 0, 0.8], [0.5, 0.5, 0.5, 0.5]]),
    )
    plain, dual = InfoNCE(0.2)(hub, hub, 0), DualSoftmax(0.2, 1.0)(hub, hub, 0)
    assert dual.rows[:2].sum() < plain.rows[:2].sum()


def test_rows_of_a_rank_count_from_its_offset_with_the_priors_of_all() -> None:
    pairs, everyone = random_pairs(6, negatives=1)
    whole = DualSoftmax(0.1, 1.0)(everyone, everyone, 0)
    own = EncodedPairs(
        everyone.anchors[2:5], everyone.positives[2:5], everyone.negatives[2:5], PairKeys.of(pairs[2:5])
    )
    torch.testing.assert_close(DualSoftmax(0.1, 1.0)(own, everyone, 2).rows, whole.rows[2:5])


def test_padding_and_masked_cells_take_no_part_and_gradients_are_finite() -> None:
    torch.manual_seed(0)
    pairs = [Pair("a0", "p", ("n0", "n1")), Pair("a1", "p"), Pair("a2", "p2")]
    vectors = torch.nn.functional.normalize(torch.randn(6, 4), dim=-1).requires_grad_()
    hard = torch.nn.functional.normalize(torch.randn(3, 2, 4), dim=-1)
    rows = []
    for filler in (0.0, 1.0):  # whatever stands in the rows of pairs without negatives
        padded = hard.clone()
        padded[1:] = filler
        own = encoded(pairs, vectors[:3], vectors[3:], padded)
        result = DualSoftmax(0.1, 1.0, shared="masked")(own, own, 0)
        rows.append(result.rows)
        assert result.masked == 4  # the shared message, in both directions
    torch.testing.assert_close(rows[0], rows[1])
    rows[0].sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prior_temperature": 0.0}, "prior_temperature is 0.0; it must be a finite number above 0"),
        ({"prior_temperature": math.nan}, "prior_temperature is nan"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"shared": "ignore"}, "shared is 'ignore'; accepted: positives, masked"),
    ],
    ids=str,
)
def test_values_are_checked(options: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DualSoftmax(**options)
