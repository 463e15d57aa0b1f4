"""Ranks: exact scores, the tie rule, blocks, and agreement with plain sorting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.evaluation.ranking import (
    Gold,
    join,
    rank_blocks,
    rank_scores,
    tie_order,
    top_columns,
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def plain_order(scores: np.ndarray, ids: list[str]) -> list[str]:
    """The rule in one line: score descending, then id descending."""
    return [identity for _, identity in sorted(zip(scores.tolist(), ids, strict=True), reverse=True)]


def test_ties_are_ordered_by_id_descending_whatever_the_order_of_the_file() -> None:
    queries, same = np.eye(2, 4, dtype=np.float32), np.tile(np.eye(1, 4, dtype=np.float32), (3, 1))
    for ids in (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]):
        gold = Gold.of({"q": {"a": 1}, "r": {"c": 1}}, ["q", "r"], ids)
        (block,) = rank_blocks(queries, same, ids, gold, depth=3)
        assert [[ids[column] for column in row] for row in block.top] == [["c", "b", "a"]] * 2
        assert block.gold.ranks.tolist() == [3, 1]
        assert block.gold.tied.tolist() == [True, True]
        assert block.gold.tied_at_top.tolist() == [True, True]


def test_ids_are_compared_as_trec_eval_sees_them() -> None:
    """Bytes in the file: upper case before lower, "10" before "9", a space as %20."""
    ids = ["9", "10", "a", "B", "a b", "a!b", "ü"]
    assert [ids[i] for i in tie_order(ids)] == ["ü", "a%20b".replace("%20", " "), "a!b", "a", "B", "9", "10"]


def test_ties_are_counted_at_the_top_and_around_positives() -> None:
    scores = np.array(
        [
            [0.9, 0.9, 0.1, 0.0],  # tie at rank 1, positive elsewhere
            [0.9, 0.5, 0.5, 0.0],  # the positive shares its score
            [0.9, 0.5, 0.1, 0.1],  # a tie that touches nothing
        ],
        dtype=np.float32,
    )
    gold = Gold(np.array([0, 1, 2, 3]), np.array([2, 2, 0]), np.ones(3, dtype=np.int64))
    ranks = rank_scores(scores, gold)
    assert ranks.tied_at_top.tolist() == [True, False, False]
    assert ranks.tied.tolist() == [True, True, False]
    assert ranks.ranks.tolist() == [3, 3, 1]


def test_equal_vectors_tie_exactly_and_scores_do_not_depend_on_the_block() -> None:
    """A float32 product gives equal columns unequal last bits at the edges of its blocks."""
    generator = np.random.default_rng(0)
    documents = unit(generator.normal(size=(101, 333)))
    documents[57] = documents[3]
    documents[100] = documents[3]
    queries = unit(generator.normal(size=(37, 333)))
    ids = [f"d{i:03d}" for i in range(101)]
    gold = Gold.of(
        {f"q{i}": {"d003": 1, "d057": 1, "d100": 1} for i in range(37)}, [f"q{i}" for i in range(37)], ids
    )
    whole = list(rank_blocks(queries, documents, ids, gold, depth=101))
    small = list(rank_blocks(queries, documents, ids, gold, depth=101, block=5))
    assert len(whole) == 1
    assert len(small) == 8
    assert np.array_equal(np.concatenate([b.top_scores for b in small]), whole[0].top_scores)
    assert np.array_equal(np.concatenate([b.top for b in small]), whole[0].top)
    merged = join([b.gold for b in small])
    assert np.array_equal(merged.ranks, whole[0].gold.ranks)
    assert np.array_equal(merged.starts, whole[0].gold.starts)
    assert merged.tied.all()
    by_query = merged.ranks.reshape(37, 3)  # d003, d057, d100, one after the other from the last id on
    assert (by_query[:, 0] == by_query[:, 1] + 1).all()
    assert (by_query[:, 1] == by_query[:, 2] + 1).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_and_lists_equal_plain_sorting(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    queries = data.draw(st.integers(1, 4))
    # few distinct scores, negative zero included: many ties
    cell = st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.25, 1.0])
    scores = np.array(
        data.draw(
            st.lists(st.lists(cell, min_size=count, max_size=count), min_size=queries, max_size=queries)
        ),
        dtype=np.float32,
    )
    ids = data.draw(st.permutations([f"d{i}" for i in range(count)]))
    order = tie_order(ids)
    positives = [data.draw(st.sets(st.integers(0, count - 1))) for _ in range(queries)]
    qrels = {f"q{i}": {ids[j]: 1 for j in chosen} for i, chosen in enumerate(positives)}
    in_order = [ids[i] for i in order]
    gold = Gold.of(qrels, list(qrels), in_order)
    depth = data.draw(st.integers(1, count))
    top, top_scores = top_columns(scores[:, order], depth)
    ranks = rank_scores(scores[:, order].copy(), gold)
    for i in range(queries):
        expected = plain_order(scores[i] + 0.0, ids)
        assert [in_order[column] for column in top[i]] == expected[:depth]
        assert np.array_equal(top_scores[i], np.sort(scores[i])[::-1][:depth])
        mine = ranks.ranks[gold.starts[i] : gold.starts[i + 1]]
        assert sorted(mine.tolist()) == sorted(expected.index(ids[j]) + 1 for j in positives[i])


def test_many_positives_take_the_other_path_to_the_same_ranks() -> None:
    scores = np.random.default_rng(1).integers(0, 6, size=(1, 60)).astype(np.float32)
    columns = np.arange(0, 60, 2)
    many = rank_scores(scores, Gold(np.array([0, 30]), columns, np.ones(30, dtype=np.int64)))
    each = [
        rank_scores(scores, Gold(np.array([0, 1]), columns[[j]], np.ones(1, dtype=np.int64)))
        for j in range(30)
    ]
    assert many.ranks.tolist() == [one.ranks[0] for one in each]


def test_a_query_may_be_excluded_from_its_own_list() -> None:
    vectors = unit(np.array([[1, 0], [1, 0.1], [0, 1]]))
    ids = ["a", "b", "c"]
    gold = Gold.of({"a": {"b": 1, "a": 1}}, ["a"], ids)
    (block,) = rank_blocks(vectors[:1], vectors, ids, gold, depth=3, own=np.array([0]))
    assert [ids[c] for c, s in zip(block.top[0], block.top_scores[0], strict=True) if np.isfinite(s)] == [
        "b",
        "c",
    ]
    assert block.gold.candidates.tolist() == [2]
    assert block.gold.ranks.tolist() == [1, 0]  # b is first; a is not a candidate of its own query
    assert block.gold.best.tolist() == [1]


def test_unreachable_positives_have_rank_0() -> None:
    gold = Gold.of({"q": {"gone": 1}, "r": {"gone": 3, "a": 1}}, ["q", "r"], ["a", "b"])
    assert gold.columns.tolist() == [-1, -1, 0]
    assert gold.grades.tolist() == [1, 3, 1]
    (block,) = rank_blocks(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), ["a", "b"], gold)
    assert block.gold.ranks.tolist() == [0, 0, 2]
    assert block.gold.best.tolist() == [0, 2]
    assert block.top.shape == (2, 0)


def test_nothing_to_rank() -> None:
    gold = Gold.of({"q": {"a": 1}}, ["q"], [])
    (block,) = rank_blocks(np.ones((1, 2), np.float32), np.zeros((0, 2), np.float32), [], gold, depth=5)
    assert block.gold.ranks.tolist() == [0]
    assert block.top.shape == (1, 0)
    assert len(join([])) == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_stored_types(dtype: type) -> None:
    vectors = unit(np.random.default_rng(2).normal(size=(9, 5))).astype(dtype)
    ids = [str(i) for i in range(9)]
    gold = Gold.of({i: {i: 1} for i in ids}, ids, ids)
    (block,) = rank_blocks(vectors, vectors, ids, gold, depth=1)
    assert block.top[:, 0].tolist() == list(range(9))
    assert block.top_scores.dtype == np.float32


def test_a_vector_that_is_a_little_too_long_has_no_advantage() -> None:
    """Half precision leaves norms off by up to 1e-3; search normalises, and so must the evaluation."""
    queries = np.array([[1, 0]], dtype=np.float32)
    documents = np.array([[0.8, 0.6], [0.7996, 0.6005]], dtype=np.float32)
    documents[1] *= np.float32(1.001)
    gold = Gold.of({"q": {"a": 1}}, ["q"], ["a", "b"])
    (block,) = rank_blocks(queries, documents, ["a", "b"], gold, depth=2)
    assert block.gold.ranks.tolist() == [1]
    assert block.top_scores[0] == pytest.approx([0.8, 0.7996], abs=5e-5)


def test_cosines_of_exactly_zero_tie() -> None:
    """Sparse vectors: products that cancel must leave 0 and not 1e-17, or the order is chance."""
    signs = np.array([[x, y, z] for x in (1, -1) for y in (1, -1) for z in (1, -1)])
    ids = [f"d{i}" for i in range(8)]
    queries = unit(np.array([[1, 1, 0], [0, 1, 1], [1, 0, -1]]))
    gold = Gold.of({}, ["a", "b", "c"], ids)
    (block,) = rank_blocks(queries, unit(signs), ids, gold, depth=8)
    assert np.array_equal(np.count_nonzero(block.top_scores == 0, axis=1), [4, 4, 4])
