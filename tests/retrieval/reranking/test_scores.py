"""From judgements to numbers, by hand; and the order that comes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.reranking.contract import Judgement
from vidvec_msg.retrieval.reranking.scores import (
    Fusion,
    _reordered,
    logit_of,
    logits_of,
    probability,
    value_of,
)

ONE = Judgement("c", "t", math.log(0.4), math.log(0.1))


def test_what_is_read_of_an_answer():
    assert value_of(logit_of(ONE, "full"), "full") == pytest.approx(0.4)
    assert value_of(logit_of(ONE, "two-way"), "two-way") == pytest.approx(0.8)
    assert value_of(logit_of(ONE, "log-odds"), "log-odds") == pytest.approx(math.log(4))


def test_a_sure_pair_has_a_finite_logit_above_a_less_sure_one():
    sure, less = (logit_of(Judgement("c", "t", yes, -30.0), "full") for yes in (0.0, -1e-6))
    assert math.isfinite(sure)
    assert sure > less
    assert probability(-1000.0) == 0.0
    assert probability(1000.0) == 1.0


def test_priors_are_taken_off_by_hand():
    judged = {
        ("c", "t"): Judgement("c", "t", -1.0, -3.0),  # log-odds 2
        ("", "t"): Judgement("", "t", -1.0, -1.5),  # 0.5
        ("c", ""): Judgement("c", "", -2.0, -1.0),  # -1
        ("d", "t"): Judgement("d", "t", -1.0, -1.0),
    }
    assert logits_of(judged, "two-way", "none") == {("c", "t"): 2.0, ("d", "t"): 0.0}
    assert logits_of(judged, "two-way", "query") == {("c", "t"): 1.5, ("d", "t"): -0.5}
    assert logits_of(judged, "two-way", "clip") == {("c", "t"): 3.0}  # the other clip's prior is missing
    assert logits_of(judged, "two-way", "both") == {("c", "t"): 2.5}


def test_a_fusion_is_a_weighted_sum_of_scores_of_one_spread():
    fusion = Fusion(0.25, 0.1, 2.0)
    assert fusion.of(0.5, 3.0) == pytest.approx(0.75 * 5 + 0.25 * 1.5)
    assert Fusion(0.0, 1.0, 1.0).of(0.5, 99.0) == 0.5


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.one_of(st.none(), st.floats(-60, 60, width=32)), min_size=0, max_size=12),
    st.integers(0, 2000),
)
def test_a_list_keeps_its_documents_and_its_order_below(new, rest):
    columns = np.arange(len(new) + rest)[::-1].copy()
    values = np.asarray([math.nan if one is None else one for one in new], dtype=np.float64)
    order, scores = _reordered(columns, values)
    assert sorted(order.tolist()) == sorted(columns.tolist())
    judged = int((~np.isnan(values)).sum())
    assert order[judged:].tolist() == [
        *columns[: len(new)][np.isnan(values)].tolist(),
        *columns[len(new) :].tolist(),
    ]
    written = scores.astype(np.float32)
    assert (np.diff(written[judged - 1 if judged else 0 :]) < 0).all()  # strictly, where order alone counts
    assert (np.diff(written) <= 0).all()
