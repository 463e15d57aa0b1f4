"""Confusion matrices and diverging pairs, on cases that a reader can follow."""

import numpy as np

from vidvec_msg.formats.relevance import reverse
from vidvec_msg.retrieval.evaluation.confusion import (
    ELSEWHERE,
    Confusion,
    message_confusions,
    topic_confusion,
)
from vidvec_msg.retrieval.evaluation.directions import Evaluation, evaluate_vectors
from vidvec_msg.retrieval.evaluation.divergence import Diverging, most_diverging

# messages a, b (home) and c (work) with two clips each; b's first clip looks like a, c's second like b
QRELS = {"a": {"a1": 1, "a2": 1}, "b": {"b1": 1, "b2": 1}, "c": {"c1": 1, "c2": 1}}
BACK = reverse(QRELS)
TOPICS = {"a": {"topic": "home"}, "b": {"topic": "home"}, "c": {"topic": "work"}}
AXES = {"a": 0, "b": 1, "c": 2, "a1": 0, "a2": 0, "b1": 0, "b2": 1, "c1": 2, "c2": 1}


def vectors(ids: list[str]) -> np.ndarray:
    made = np.zeros((len(ids), 3), dtype=np.float32)
    made[np.arange(len(ids)), [AXES[name] for name in ids]] = 1
    return made


def evaluation() -> Evaluation:
    queries, clips = list(QRELS), list(BACK)
    return evaluate_vectors(vectors(queries), queries, vectors(clips), clips, QRELS, metrics=["mrr"])


def test_topics_of_clips_come_from_their_messages() -> None:
    found = topic_confusion(evaluation().reverse, "topic", {}, TOPICS, BACK, QRELS)
    assert found is not None
    assert found.rows == found.columns == ("home", "work")
    assert found.counts.tolist() == [[4, 0], [1, 1]]
    assert (found.right, found.total) == (5, 6)
    assert found.worst() == [("work", "home", 1)]
    assert found.to_dict()["cells"] == [[0, 0, 4], [1, 0, 1], [1, 1, 1]]


def test_topics_forward() -> None:
    """Ties of a's clips with b1 and of b's with c2 go to the higher id: b1 for a, c2 for b."""
    found = topic_confusion(evaluation().forward, "topic", TOPICS, {}, QRELS, BACK)
    assert found is not None
    assert found.counts.tolist() == [[1, 1], [0, 1]]


def test_messages_within_their_topic() -> None:
    both = evaluation()
    (home,) = message_confusions(both.reverse, "topic", {}, TOPICS, BACK, QRELS, messages_ask=False)
    assert (home.title, home.rows, home.columns) == ("home", ("a", "b"), ("a", "b", ELSEWHERE))
    assert home.counts.tolist() == [[2, 0, 0], [1, 1, 0]]
    (forward,) = message_confusions(both.forward, "topic", TOPICS, {}, QRELS, BACK, messages_ask=True)
    assert forward.counts.tolist() == [
        [0, 1, 0],
        [0, 0, 1],
    ]  # for b a clip of c, of another topic, came first


def test_without_the_group_there_is_no_matrix() -> None:
    both = evaluation()
    assert topic_confusion(both.forward, "colour", TOPICS, {}, QRELS, BACK) is None
    assert message_confusions(both.forward, "colour", TOPICS, {}, QRELS, BACK, messages_ask=True) == []
    one = {name: {"topic": "home"} for name in TOPICS}
    assert topic_confusion(both.forward, "topic", one, {}, QRELS, BACK) is None


def test_worst_leaves_out_what_is_right() -> None:
    matrix = Confusion("t", ("x", "y"), ("x", "y"), np.array([[9, 2], [3, 0]]))
    assert matrix.worst() == [("y", "x", 3), ("x", "y", 2)]


def test_pairs_that_one_direction_finds() -> None:
    """m1's clip is m2's nearest too: from the clip m1 is second of 2, from m1 the clip is first of 3."""
    queries = np.array([[1, 0], [0.9, 0.43589]], dtype=np.float32)
    clips = np.array([[0.9, 0.43589], [-1, 0], [0, -1]], dtype=np.float32)
    qrels = {"m1": {"v1": 1}, "m2": {"v2": 1, "gone": 1}}
    made = evaluate_vectors(
        queries, ["m1", "m2"], clips, ["v1", "v2", "v3"], qrels, metrics=["mrr"], unreachable="keep"
    )
    pairs = most_diverging(made, qrels, reverse(qrels))
    assert pairs[0] == Diverging("m1", "v1", 1, 3, 2, 2)
    assert pairs[0].gap == -1
    assert [pair.document for pair in pairs] == ["v1", "v2"]
    assert pairs[1].gap == 1  # m2 finds v2 last of three; from v2, m2 is the nearer of the two
    assert most_diverging(made, qrels, reverse(qrels), count=1) == pairs[:1]
    assert pairs[0].to_dict()["gap"] == -1
