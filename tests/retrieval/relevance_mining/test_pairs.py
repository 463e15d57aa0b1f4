"""Which pairs are found, whatever the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.relevance_mining import pairs as module
from vidvec_msg.retrieval.relevance_mining.judgements import Added, follows, with_added
from vidvec_msg.retrieval.relevance_mining.pairs import Pair, neighbours, with_duplicates


def unit(*rows) -> np.ndarray:
    vectors = np.asarray(rows, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def names(found) -> set[tuple[str, str]]:
    return {tuple(sorted((pair.first, pair.second))) for pair in found}


def test_pairs_above_the_threshold_without_oneself_and_each_once():
    vectors = unit([1, 0], [1, 0.2], [0, 1], [0.1, 1])
    found = neighbours(["a", "b", "c", "d"], vectors, k=3, threshold=0.7)
    assert [(pair.first, pair.second) for pair in found] == [("a", "b"), ("c", "d")]
    assert found[0].score == pytest.approx(float(vectors[0] @ vectors[1]))


def test_the_threshold_itself_is_not_above_it():
    vectors = np.eye(2, dtype=np.float32)
    assert neighbours(["a", "b"], vectors, k=1, threshold=0.0) == []
    assert len(neighbours(["a", "b"], vectors, k=1, threshold=-0.1)) == 1


def test_a_pair_counts_when_it_is_near_from_either_side():
    # c's nearest is b, but b's nearest is a: the pair b, c is found from c alone
    vectors = unit([1, 0], [1, 0.1], [1, 0.4])
    found = neighbours(["a", "b", "c"], vectors, k=1, threshold=0.5)
    assert names(found) == {("a", "b"), ("b", "c")}


def test_of_equal_cosines_the_later_id_is_nearer_wherever_it_stands():
    for ids in (["x", "a", "z", "m"], ["x", "z", "m", "a"]):
        found = neighbours(ids, np.tile(unit([1.0, 0.0]), (4, 1)), k=1, threshold=0.5)
        assert names(found) == {("x", "z"), ("a", "z"), ("m", "z")}


def test_fewer_items_than_neighbours_are_no_trouble():
    assert neighbours([], np.zeros((0, 2), np.float32), k=5, threshold=0.1) == []
    assert neighbours(["a"], unit([1, 0]), k=5, threshold=0.1) == []
    assert names(neighbours(["a", "b"], unit([1, 0], [1, 0]), k=5, threshold=0.1)) == {("a", "b")}


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 10**6), st.sampled_from((1, 5, 1 << 24)))
def test_blocks_and_plain_comparison_find_the_same(count, k, seed, cells):
    generator = np.random.default_rng(seed)
    vectors = unit(*generator.integers(-2, 3, (count, 3)) + 0.25)
    ids = [f"id{number:02d}" for number in generator.permutation(count)]
    plain = set()
    for row in range(count):
        others = [other for other in range(count) if other != row and vectors[row] @ vectors[other] > 0.3]
        others.sort(key=lambda other: (float(vectors[row] @ vectors[other]), ids[other]), reverse=True)
        plain |= {tuple(sorted((ids[row], ids[other]))) for other in others[:k]}
    held, module._CELLS = module._CELLS, cells
    try:
        found = names(neighbours(ids, vectors, k=k, threshold=0.3))
    finally:
        module._CELLS = held
    # products of blocks may differ in the last bit, and with it the order of cosines that are all but equal
    near_ties = len({round(float(vectors[a] @ vectors[b]), 5) for a in range(count) for b in range(a)})
    if near_ties == count * (count - 1) // 2 or k >= count:
        assert found == plain


def test_duplicates_are_named_and_found_without_a_vector_too():
    words = "a long enough sentence about a quiet river in the early morning light of spring"
    items = [Item("a", text=words), Item("b", text=words.upper() + "!"), Item("c", text=f"{words} today"),
             Item("d", text="something else altogether, with other words")]  # fmt: skip
    found = {(pair.first, pair.second): pair for pair in with_duplicates([Pair("a", "d", 0.8)], items)}
    assert found["a", "b"].kind == "exact"
    assert found["a", "b"].score is None
    assert found["a", "c"].kind == "near"
    assert found["a", "d"] == Pair("a", "d", 0.8, "similar")


def test_the_most_alike_come_first():
    items = [Item(name, text=f"{name} text of its own number {name}") for name in "abcd"]
    found = with_duplicates([Pair("a", "b", 0.71), Pair("c", "d", 0.9), Pair("a", "c", 0.9)], items)
    assert [(pair.first, pair.second) for pair in found] == [("a", "c"), ("c", "d"), ("a", "b")]


# --- what follows from a pair -----------------------------------------------------------------------------

QRELS = {"q1": {"d1": 1}, "q2": {"d2": 2, "d3": 0}, "q3": {"d1": 1, "d2": 1}}


def test_two_queries_of_one_meaning_share_their_documents_both_ways():
    assert follows(("q1", "q2"), QRELS, "queries") == [
        Added("q2", "d1", 1, "q1", "q2"), Added("q1", "d2", 2, "q1", "q2"),
    ]  # fmt: skip


def test_two_documents_of_one_meaning_share_their_queries():
    # q1 and q3 have d1, q2 and q3 have d2
    added = follows(("d1", "d2"), QRELS, "corpus")
    assert {(one.query, one.document, one.grade) for one in added} == {("q1", "d2", 1), ("q2", "d1", 2)}


def test_a_judged_zero_is_a_persons_word_and_stays():
    qrels = {"q1": {"d3": 1}, "q2": {"d2": 1, "d3": 0}}
    added = follows(("q1", "q2"), qrels, "queries")
    assert [(one.query, one.document) for one in added] == [("q1", "d2")]
    assert with_added(qrels, added)["q2"]["d3"] == 0


def test_nothing_follows_from_what_is_there_already():
    assert follows(("q1", "q3"), {"q1": {"d1": 1}, "q3": {"d1": 1}}, "queries") == []


def test_adding_changes_nothing_that_was_there_and_nothing_in_place():
    made = with_added(QRELS, follows(("q1", "q2"), QRELS, "queries"))
    assert made == {"q1": {"d1": 1, "d2": 2}, "q2": {"d2": 2, "d3": 0, "d1": 1}, "q3": QRELS["q3"]}
    assert QRELS["q1"] == {"d1": 1}
