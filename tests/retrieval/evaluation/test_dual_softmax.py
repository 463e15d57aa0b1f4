"""Dual softmax: the order of the formula written out, and temperatures from other queries alone."""

import numpy as np
import pytest

from vidvec_msg.retrieval.evaluation import dual_softmax
from vidvec_msg.retrieval.evaluation.directions import Embedded, Options
from vidvec_msg.retrieval.evaluation.dual_softmax import (
    TEMPERATURES,
    corrected,
    hub_offset,
    scores_by_temperature,
    task_of,
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def sides() -> tuple[np.ndarray, np.ndarray]:
    """Queries that all lie near one hub among the candidates."""
    generator = np.random.default_rng(0)
    candidates = unit(generator.normal(size=(12, 8)))
    hub = unit(candidates.mean(axis=0, keepdims=True) + 0.1)
    candidates[0] = hub[0]
    queries = unit(candidates + 1.3 * hub + 0.2 * generator.normal(size=(12, 8)))
    return queries, candidates


@pytest.mark.parametrize("temperature", [0.02, 0.1, 1.0])
def test_the_order_is_that_of_the_product_of_two_softmaxes(
    sides: tuple[np.ndarray, np.ndarray], temperature: float
) -> None:
    queries, candidates = sides
    similarity = queries.astype(np.float64) @ candidates.T.astype(np.float64)
    raised = np.exp(similarity / temperature)
    product = raised / raised.sum(axis=1, keepdims=True) * raised / raised.sum(axis=0, keepdims=True)
    shifted = similarity + hub_offset(queries, candidates, [temperature])[0]
    assert np.array_equal(np.argsort(-shifted, axis=1), np.argsort(-product, axis=1))


def test_blocks_and_small_temperatures(
    sides: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = hub_offset(*sides, TEMPERATURES)
    monkeypatch.setattr(dual_softmax, "_BYTES", 1)
    assert hub_offset(*sides, TEMPERATURES) == pytest.approx(whole)
    far = hub_offset(-sides[1][:1], sides[1][:1], [0.005])  # a cosine of -1: exp(-400)
    assert np.isfinite(far).all()


def test_a_hub_is_moved_back(sides: tuple[np.ndarray, np.ndarray]) -> None:
    queries, candidates = sides
    ids = [f"d{i}" for i in range(12)]
    qrels = {f"q{i}": {f"d{i}": 1} for i in range(1, 12)}  # the hub is nobody's
    task = task_of(Embedded([f"q{i}" for i in range(12)], queries), Embedded(ids, candidates), qrels)
    assert len(task.queries.ids) == 11
    tried = scores_by_temperature(task, Options(["map"]))
    assert tuple(tried) == TEMPERATURES
    raw = np.argsort(-(queries[1:] @ candidates.T), axis=1)[:, 0]
    assert (raw == 0).sum() >= 3
    part, values = corrected(task, task, Options(["hit_rate@1", "map"], intervals=False))
    assert part["metrics"]["hit_rate@1"]["value"] > np.mean(raw == np.arange(1, 12))
    assert part["temperature"] in TEMPERATURES
    assert part["metrics"]["map"]["value"] == pytest.approx(max(tried.values()))
    assert values["map"].shape == (11,)


def test_the_temperature_is_that_of_the_validation_queries(
    sides: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, candidates = sides
    qrels = {f"q{i}": {f"d{i}": 1} for i in range(12)}
    task = task_of(
        Embedded([f"q{i}" for i in range(12)], queries),
        Embedded([f"d{i}" for i in range(12)], candidates),
        qrels,
    )
    other = task_of(
        Embedded(["v0", "v1"], queries[:2]),
        Embedded(["d0", "d1"], candidates[:2]),
        {"v0": {"d0": 1}, "v1": {"d1": 1}},
    )
    monkeypatch.setattr(
        dual_softmax,
        "scores_by_temperature",
        lambda asked, _: dict.fromkeys(TEMPERATURES, 0.5) | {0.05: 0.9} if asked is other else {1.0: 1.0},
    )
    part, _ = corrected(task, other, Options(["map"]))
    assert part["temperature"] == 0.05
    assert part["validation_queries"] == 2
