"""Calibration: fitted temperatures come back, and the measures are those worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.reranking.calibration import fit, reliability
from vidvec_msg.retrieval.reranking.scores import Calibration


def drawn(temperature: float, bias: float = 0.0, pairs: int = 20_000):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 4, pairs)
    right = rng.random(pairs) < 1 / (1 + np.exp(-(logits / temperature + bias)))
    return logits.tolist(), right.tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_temperature_that_made_the_outcomes_is_found(temperature):
    logits, right = drawn(temperature)
    assert fit(logits, right, "temperature").temperature == pytest.approx(temperature, rel=0.05)


def test_platt_finds_the_bias_too():
    logits, right = drawn(2.0, -1.5)
    found = fit(logits, right, "platt")
    assert found.temperature == pytest.approx(2.0, rel=0.05)
    assert found.bias == pytest.approx(-1.5, abs=0.1)
    assert (
        reliability(logits, right, found).log_loss
        < reliability(logits, right, fit(logits, right, "temperature")).log_loss
    )


def test_logits_that_say_nothing_get_the_highest_temperature():
    rng = np.random.default_rng(1)
    assert fit(rng.normal(0, 3, 5000), rng.random(5000) < 0.5, "temperature").temperature > 20


def test_measures_by_hand():
    """Probabilities 0.25, 0.25, 0.75, 0.75 with one of each pair right."""
    logit = float(np.log(3))
    found = reliability([-logit, -logit, logit, logit], [True, False, True, False], Calibration())
    assert found.ece == pytest.approx(0.25)
    assert found.brier == pytest.approx((0.75**2 + 0.25**2 + 0.25**2 + 0.75**2) / 4)
    assert found.log_loss == pytest.approx(-(np.log(0.25) + np.log(0.75)) / 2)
    assert [(one.pairs, one.positive) for one in found.bins] == [(2, 0.5), (2, 0.5)]
    assert found.bins[0].probability == pytest.approx(0.25)


def test_no_pairs_have_no_reliability():
    assert reliability([], [], Calibration()) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(-50, 50), st.booleans()), min_size=1, max_size=60))
def test_measures_stay_in_their_ranges(pairs):
    logits, right = zip(*pairs, strict=True)
    found = reliability(logits, right, Calibration())
    assert 0 <= found.ece <= 1
    assert 0 <= found.brier <= 1
    assert found.log_loss >= 0
    assert sum(one.pairs for one in found.bins) == len(pairs)
    fitted = reliability(logits, right, fit(logits, right, "temperature"))
    assert fitted.log_loss <= found.log_loss + 1e-3
