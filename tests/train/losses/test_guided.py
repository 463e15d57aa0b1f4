"""A guide takes false negatives out, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from encoded_pairs import E, encoded

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.losses import GuidedInfoNCE, InfoNCE

PAIRS = [Pair(f"a{i}", f"p{i}") for i in range(3)]


def test_what_the_guide_finds_nearer_than_the_positive_is_no_negative() -> None:
    own = encoded(PAIRS, E[:3], E[:3])
    # the guide's view: anchor 0 is nearer to pair 1's positive (1) than to its own (0)
    own.guide = encoded(PAIRS, E[:3], E[[3, 0, 2]])
    found = GuidedInfoNCE("any", temperature=1.0, symmetric=False)(own, own, 0)
    e = math.e
    assert found.rows[0] == pytest.approx(-math.log(e / (e + 1)))  # pair 2 is left
    assert found.rows[1] == pytest.approx(-math.log(e / (e + 2)))
    assert (found.masked, found.negatives) == (1, 5)


def test_a_guide_that_agrees_changes_nothing() -> None:
    own = encoded(PAIRS, E[:3], E[:3])
    own.guide = encoded(PAIRS, E[:3], E[:3])
    found, plain = GuidedInfoNCE("any")(own, own, 0), InfoNCE()(own, own, 0)
    torch.testing.assert_close(found.rows, plain.rows)


def test_the_margin_lets_near_ones_stay() -> None:
    own = encoded(PAIRS, E[:3], E[:3])
    own.guide = encoded(PAIRS, E[:3], torch.tensor([[0.6, 0, 0, 0.8], [0.8, 0.6, 0, 0], [0, 0, 1.0, 0]]))
    loss = {margin: GuidedInfoNCE("any", margin, symmetric=False)(own, own, 0) for margin in (0.1, 0.3)}
    assert (loss[0.1].masked, loss[0.3].masked) == (1, 0)


def test_without_the_guides_vectors_it_says_so() -> None:
    own = encoded(PAIRS, E[:3], E[:3])
    with pytest.raises(ValueError, match="needs the guide's vectors of the batch"):
        GuidedInfoNCE("any")(own, own, 0)
    with pytest.raises(ValueError, match="margin is nan; it must be a finite cosine"):
        GuidedInfoNCE("any", margin=math.nan)
