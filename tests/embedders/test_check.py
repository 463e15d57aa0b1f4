import warnings

import numpy as np
import pytest

from vidvec_msg.embedders.check import CollapsedSpaceWarning, check_vectors, unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import ItemError
from vidvec_msg.formats.items import Item

CARD = EmbedderCard(name="two", dim=2)
ITEMS = [Item("a"), Item("b")]
GOOD = np.array([[1, 0], [0.6, 0.8]], np.float32)


def test_good_vectors_pass_unchanged():
    assert check_vectors(GOOD, ITEMS, CARD) is GOOD
    assert check_vectors(np.zeros((0, 2), np.float32), [], CARD).shape == (0, 2)


@pytest.mark.parametrize(
    ("vectors", "error", "reason"),
    [
        ([[1.0, 0.0]], TypeError, "embedder 'two' returned list, not a numpy array"),
        (GOOD.astype(np.float64), TypeError, "returned float64 vectors; the contract says float32"),
        (GOOD[:1], ValueError, r"returned shape \(1, 2\) for 2 items; its card says \(items, 2\)"),
        (GOOD[:, :1], ValueError, r"returned shape \(2, 1\)"),
        (GOOD * [[1], [np.float32(2)]], ItemError, "item 'b': embedder 'two' gave a vector of norm 2, not 1"),
        (GOOD * [[np.float32(0)], [1]], ItemError, "item 'a': embedder 'two' gave a vector of norm 0, not 1"),
        (
            GOOD * [[1], [np.float32(np.nan)]],
            ItemError,
            "item 'b': embedder 'two' gave a vector that is not finite",
        ),
    ],
)
def test_vectors_that_break_the_contract(vectors, error, reason):
    if isinstance(vectors, np.ndarray) and error is ItemError:
        vectors = vectors.astype(np.float32)
    with pytest.raises(error, match=reason):
        check_vectors(vectors, ITEMS, CARD)


def test_unit_vectors():
    np.testing.assert_allclose(
        unit_vectors(np.array([[3, 4], [0, 1e-6]]), ITEMS), [[0.6, 0.8], [0, 1]], atol=1e-7
    )
    assert unit_vectors(np.ones((2, 2), np.float16), ITEMS).dtype == np.float32
    with pytest.raises(ItemError, match="item 'a': the model gave a zero vector"):
        unit_vectors(np.array([[0, 0], [1, 0]]), ITEMS)
    with pytest.raises(
        ItemError, match="item 'b': the model gave a vector that is not finite in float16; try dtype=float32"
    ):
        unit_vectors(np.array([[1, 0], [np.inf, 0]]), ITEMS, dtype="float16")


def test_large_states_do_not_overflow():
    np.testing.assert_allclose(
        unit_vectors(np.array([[3e30, 4e30], [1, 0]]), ITEMS)[0], [0.6, 0.8], atol=1e-6
    )


@pytest.mark.parametrize(("spread", "warns"), [(0.01, True), (1.0, False)])
def test_collapse(spread, warns):
    states = np.array([10.0, 0, 0]) + spread * np.random.default_rng(0).normal(size=(12, 3)) * 4
    items = [Item(str(number)) for number in range(12)]
    vectors = unit_vectors(states, items)
    mean = (vectors @ vectors.T)[~np.eye(12, dtype=bool)].mean()
    assert (mean > 0.98) == warns
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert warn_if_collapsed(vectors, items, name="x")
    assert [warning.category for warning in caught] == [CollapsedSpaceWarning] * warns
    if warns:
        assert f"is {mean:.3f}" in str(caught[0].message)
