"""Score distributions: the AUC equals the one counted pair by pair."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.evaluation import separation
from vidvec_msg.retrieval.evaluation.directions import evaluate_vectors
from vidvec_msg.retrieval.evaluation.ranking import Gold
from vidvec_msg.retrieval.evaluation.separation import ScoreCounts


def counted(scores: np.ndarray, gold: Gold, blocks: int = 1) -> ScoreCounts:
    counts = ScoreCounts()
    for rows in np.array_split(np.arange(len(scores)), blocks):
        if len(rows):
            first, last = gold.starts[rows[0]], gold.starts[rows[-1] + 1]
            part = Gold(
                gold.starts[rows[0] : rows[-1] + 2] - first, gold.columns[first:last], gold.grades[first:last]
            )
            counts.add(slice(int(rows[0]), int(rows[-1]) + 1), scores[rows], part)
    return counts


def one_each(columns: list[int]) -> Gold:
    return Gold(np.arange(len(columns) + 1), np.asarray(columns), np.ones(len(columns), dtype=np.int64))


@given(st.integers(0, 10_000), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_auc_is_that_of_all_pairs(seed: int, blocks: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.uniform(-1, 1, size=(7, 9)).astype(np.float32)
    columns = generator.integers(-1, 9, size=7).tolist()
    outcome = counted(scores, one_each(columns), blocks).separation()
    positive = [scores[row, column] for row, column in enumerate(columns) if column >= 0]
    if not positive:
        assert outcome is None
        return
    mask = np.ones_like(scores, dtype=bool)
    mask[[r for r, c in enumerate(columns) if c >= 0], [c for c in columns if c >= 0]] = False
    others = scores[mask]
    wins = np.mean([[(p > o) + (p == o) / 2 for o in others] for p in positive])
    assert outcome is not None
    assert outcome.auc == pytest.approx(wins, abs=outcome.error + 1e-9)
    assert outcome.error < 0.01
    assert (outcome.positives, outcome.mismatched) == (len(positive), len(others))
    for curve in (outcome.positive_below, outcome.mismatched_below):
        assert curve[-1] == pytest.approx(1)
        assert list(curve) == sorted(curve)


def test_by_hand() -> None:
    """Two positives at 0.9 and 0.1; of six mismatches four are below 0.1, one between, one tied with 0.9."""
    scores = np.array([[0.9, 0.9, 0.0, -0.5], [-1.0, 0.5, 0.1, 0.0]], dtype=np.float32)
    outcome = counted(scores, one_each([0, 2])).separation()
    assert outcome is not None
    assert outcome.auc == pytest.approx((5.5 + 4) / 12)
    assert outcome.error == pytest.approx(0.5 / 12 + 0, abs=1e-9)


def test_the_excluded_cell_does_not_count_and_the_blocks_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = np.array([[-np.inf, 0.2, 0.7], [0.3, -np.inf, 0.1]], dtype=np.float32)
    whole = counted(scores, one_each([2, 0])).separation()
    assert whole is not None
    assert (whole.positives, whole.mismatched, whole.auc) == (2, 2, 1.0)
    monkeypatch.setattr(separation, "_CELLS", 1)
    assert counted(scores, one_each([2, 0]), 2).separation() == whole


def test_details_are_asked_for_and_tell_gaps() -> None:
    from vidvec_msg.retrieval.evaluation.directions import Embedded, Options, score_forward

    queries = np.eye(3, dtype=np.float32)
    corpus = np.array([[1, 0, 0], [0, 0.8, 0.6], [0, 0.6, 0.8]], dtype=np.float32)
    qrels = {"a": {"x": 1}, "b": {"z": 1}, "c": {"z": 1, "gone": 1}}
    sides = Embedded(["a", "b", "c"], queries), Embedded(["x", "y", "z"], corpus)
    options = Options(["mrr"], unreachable="keep", details=True)
    direction = score_forward(*sides, qrels, options, pool="corpus", label="")
    assert direction.details is not None
    assert direction.details.gold_scores == pytest.approx([1, 0.6, 0.8, -np.inf])
    assert direction.details.best_wrong == pytest.approx([0, 0.8, 0.6])
    assert direction.details.gaps(direction.gold) == pytest.approx([1, -0.2, 0.2])
    assert direction.to_dict()["separation"]["positives"] == 3
    plain = evaluate_vectors(queries, ["a", "b", "c"], corpus, ["x", "y", "z"], {"a": {"x": 1}})
    assert plain.forward.details is None
    assert plain.forward.to_dict()["separation"] is None
