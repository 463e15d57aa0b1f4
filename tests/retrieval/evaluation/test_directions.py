"""Both directions from vectors: who takes part, what is refused, and that collapse does not pay."""

from typing import Any

import numpy as np
import pytest

from vidvec_msg.errors import Failure, RefusedRequest
from vidvec_msg.retrieval.evaluate import evaluate_vectors
from vidvec_msg.retrieval.evaluation.directions import (
    Embedded,
    Options,
    score_forward,
    score_reverse,
)
from vidvec_msg.retrieval.evaluation.groups import add_groups, groups_of_queries

# two messages, three clips: m1 has c1 and c2, m2 has c3; vectors in two dimensions, degrees from the x axis
QUERIES = {"m1": 0, "m2": 90}
CLIPS = {"c1": 10, "c2": 60, "c3": 80}
QRELS = {"m1": {"c1": 1, "c2": 1}, "m2": {"c3": 1}}


def at(degrees: list[float]) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def run(qrels: dict[str, dict[str, int]] = QRELS, **options: Any) -> Any:
    return evaluate_vectors(
        at(list(QUERIES.values())), list(QUERIES), at(list(CLIPS.values())), list(CLIPS), qrels, **options
    )


def value(direction: Any, name: str) -> float:
    return direction.metrics[name].value


def test_both_directions_by_hand() -> None:
    """m1 sees c1 c2 c3, m2 sees c3 c2 c1; c1 is nearest to m1, c2 (60 degrees) and c3 to m2."""
    evaluation = run(labels=("text", "video"))
    forward, backward = evaluation.forward, evaluation.reverse
    assert forward.label == "text → video"
    assert backward.label == "video → text"
    assert (len(forward.query_ids), len(forward.candidate_ids)) == (2, 3)
    assert (len(backward.query_ids), len(backward.candidate_ids)) == (3, 2)
    assert value(forward, "recall@1") == pytest.approx((1 / 2 + 1) / 2)
    assert value(forward, "hit_rate@1") == 1
    assert value(forward, "map") == 1
    assert value(backward, "recall@1") == pytest.approx(2 / 3)  # c2 is nearer to m2
    assert value(backward, "mrr") == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert forward.metrics["recall@1"].chance == pytest.approx(1 / 3)
    assert backward.metrics["recall@1"].chance == pytest.approx(1 / 2)
    assert [forward.candidate_ids[c] for c in forward.top[0]] == ["c1", "c2", "c3"]


def test_the_reverse_equals_the_forward_of_the_transposed_problem() -> None:
    backward = run().reverse
    turned = evaluate_vectors(
        at(list(CLIPS.values())), list(CLIPS), at(list(QUERIES.values())), list(QUERIES),
        {"c1": {"m1": 1}, "c2": {"m1": 1}, "c3": {"m2": 1}},
    ).forward  # fmt: skip
    assert backward.metrics == turned.metrics


def test_cheap_mode_computes_means_alone() -> None:
    full, cheap = run(), run(intervals=False, chance=False)
    for name, score in cheap.forward.metrics.items():
        assert (score.low, score.high, score.chance) == (None, None, None)
        assert score.value == full.forward.metrics[name].value
    assert full.forward.metrics["map"].low is not None


def collapsed(documents: int, spread: float = 0.0) -> Any:
    """Every item in the same place, positives listed first in the file."""
    generator = np.random.default_rng(0)

    def rows(count: int) -> np.ndarray:
        wobble = np.ones((count, 8)) + spread * generator.normal(size=(count, 8))
        return (wobble / np.linalg.norm(wobble, axis=1, keepdims=True)).astype(np.float32)

    queries = [f"q{i:03d}" for i in range(40)]
    # random names: an order by id is then an order at random
    names = [f"{n:06d}" for n in generator.permutation(10**6)[:documents]]
    qrels = {query: {names[i]: 1} for i, query in enumerate(queries)}
    return evaluate_vectors(rows(40), queries, rows(documents), names, qrels)


def test_a_collapsed_embedder_scores_at_chance() -> None:
    """Insertion order would give 100% here; elsewhere it did."""
    evaluation = collapsed(200)
    for direction in (evaluation.forward, evaluation.reverse):
        assert direction.tied_at_top == direction.tied_queries == 40
        assert "40 of 40 queries (100%) tie at rank 1" in direction.warnings[0]
        for name in ("recall@1", "recall@10", "mrr"):
            score = direction.metrics[name]
            assert score.value == pytest.approx(score.chance, abs=0.06)


def test_no_warning_without_ties() -> None:
    assert run().forward.warnings == []
    assert run().forward.tied_queries == 0


def test_queries_without_positives_are_left_out_counted_and_listed() -> None:
    forward = run({"m1": QRELS["m1"], "m2": {"c3": 0}}).forward
    assert forward.query_ids == ("m1",)
    assert forward.skipped == (Failure("m2", "no positive in the judgements"),)
    assert value(forward, "recall@1") == 0.5  # ranx would have averaged in a zero
    assert forward.to_dict()["skipped"] == [{"id": "m2", "reason": "no positive in the judgements"}]


def test_a_document_that_is_judged_but_never_relevant_is_no_query_of_the_reverse() -> None:
    backward = run({"m1": {"c1": 1, "c2": 0}, "m2": {"c3": 1}}).reverse
    assert backward.query_ids == ("c1", "c3")
    assert backward.skipped == ()


def test_pools() -> None:
    """Another split's clip is a candidate by BEIR's rule, and not with pool="split"."""
    vectors, names = at([*CLIPS.values(), 1]), [*CLIPS, "other"]
    arguments = (at(list(QUERIES.values())), list(QUERIES), vectors, names, QRELS)
    whole = evaluate_vectors(*arguments).forward
    split = evaluate_vectors(*arguments, pool="split").forward
    assert (len(whole.candidate_ids), len(split.candidate_ids)) == (4, 3)
    assert value(whole, "hit_rate@1") == 0.5
    assert value(split, "hit_rate@1") == 1
    with pytest.raises(RefusedRequest, match=r"pool is 'all'; it is 'corpus' or 'split'"):
        evaluate_vectors(*arguments, pool="all")  # type: ignore[arg-type]


def test_the_reverse_ranks_only_queries_of_the_split() -> None:
    queries, names = at([0, 90, 12]), ["m1", "m2", "of another split"]
    backward = evaluate_vectors(queries, names, at(list(CLIPS.values())), list(CLIPS), QRELS).reverse
    assert backward.candidate_ids == ("m1", "m2")


def test_exclude_self_changes_the_list() -> None:
    """A duplicate-questions task: both sides are the same items, and each is nearest to itself."""
    vectors, names = at([0, 5, 90]), ["a", "b", "c"]
    qrels = {"a": {"b": 1}, "b": {"a": 1}}
    plain = evaluate_vectors(vectors, names, vectors, names, qrels).forward
    without = evaluate_vectors(vectors, names, vectors, names, qrels, exclude_self=True).forward
    assert value(plain, "recall@1") == 0
    assert value(without, "recall@1") == 1
    assert without.metrics["recall@1"].chance == pytest.approx(1 / 2)


def test_depth_changes_the_numbers() -> None:
    assert value(run(depth=1).forward, "map") == pytest.approx((1 / 2 + 1) / 2)
    with pytest.raises(RefusedRequest, match="depth is 0; it must be at least 1 rank"):
        run(depth=0)


def test_seed_changes_the_interval_alone() -> None:
    one, other = run(seed=0).reverse.metrics["mrr"], run(seed=5).reverse.metrics["mrr"]
    assert one.value == other.value
    assert run(seed=0).reverse.metrics["mrr"] == one


def test_unknown_ids_are_refused_or_kept_on_request() -> None:
    qrels = {**QRELS, "m1": {"c1": 1, "lost": 1}, "m9": {"c1": 1}}
    with pytest.raises(RefusedRequest, match=r"1 judged queries have no vector: 'm9'. Embed them, or ask"):
        run(qrels)
    del qrels["m9"]
    with pytest.raises(RefusedRequest, match="1 judged positives have no vector: 'lost'"):
        run(qrels)
    forward = run({**qrels, "m9": {"c1": 1}}, unreachable="keep").forward
    assert forward.unreachable == 1
    assert forward.skipped == (Failure("m9", "no vector"),)
    assert value(forward, "recall@10") == pytest.approx((1 / 2 + 1) / 2)  # the lost one still counts below
    assert "1 positives are not among the candidates" in forward.warnings[0]


def test_failed_items_are_skipped_as_queries_and_never_found_as_documents() -> None:
    queries = Embedded(["m1"], at([0]), [Failure("m2", "empty text")])
    corpus = Embedded(["c1", "c3"], at([10, 80]), [Failure("c2", "does not decode")])
    forward = score_forward(queries, corpus, QRELS, Options(), pool="corpus", label="f")
    backward = score_reverse(corpus, queries, QRELS, Options(), label="r")
    assert forward.skipped == (Failure("m2", "empty text"),)
    assert value(forward, "recall@10") == 0.5
    assert forward.unreachable == 1
    assert backward.skipped == (Failure("c2", "does not decode"),)
    assert backward.query_ids == ("c1", "c3")
    assert value(backward, "recall@10") == 0.5  # c3's message has no vector


def test_bad_vectors_are_named_all_at_once() -> None:
    queries, corpus = at([0, 90]), at([0, 1, 2])
    queries[1] = np.nan
    corpus[2] *= 3
    with pytest.raises(RefusedRequest) as caught:
        evaluate_vectors(queries, ["a", "b"], corpus, ["x", "y", "x"], {"a": {"x": 1}})
    message = str(caught.value)
    assert "query: 1 vectors are not finite or not of norm 1, the first is 'b' with norm nan" in message
    assert "corpus: ids must be unique; 'x' is there more than once" in message
    assert "corpus: 1 vectors are not finite or not of norm 1, the first is 'x' with norm 3" in message
    with pytest.raises(RefusedRequest, match="query: 1 ids and 2 vectors"):
        evaluate_vectors(at([0, 1]), ["a"], corpus[:1], ["x"], {"a": {"x": 1}})
    with pytest.raises(RefusedRequest, match="ids must be strings; 3 is not"):
        evaluate_vectors(at([0]), [3], corpus[:1], ["x"], {"a": {"x": 1}})  # type: ignore[list-item]
    with pytest.raises(RefusedRequest, match=r"both must be \(items, dim\) with the same dim"):
        evaluate_vectors(np.ones((1, 3), np.float32), ["a"], corpus[:1], ["x"], {"a": {"x": 1}})
    with pytest.raises(RefusedRequest, match="no judged query has a positive"):
        evaluate_vectors(at([0]), ["a"], at([0]), ["x"], {"a": {"x": 0}})


def test_half_precision_is_scored_like_single() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(50, 64))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    names = [str(i) for i in range(50)]
    arguments = (names, vectors, names, {n: {n: 1} for n in names})
    half = evaluate_vectors(vectors, *arguments).forward
    single = evaluate_vectors(
        vectors.astype(np.float32), names, vectors.astype(np.float32), *arguments[2:]
    ).forward
    assert half.metrics == single.metrics


def test_groups() -> None:
    forward = run().forward
    groups = groups_of_queries(
        forward,
        own={"m1": {"topic": "kindness"}},
        others={
            "c1": {"modality": "audio", "year": "1"},
            "c2": {"modality": "audio", "year": "2"},
            "c3": {"topic": "c"},
        },
        qrels=QRELS,
    )
    # own groups first; of the positives only what all of them share
    assert groups == {"m1": {"topic": "kindness", "modality": "audio"}, "m2": {"topic": "c"}}
    table = add_groups(forward, groups).groups
    assert table["topic"]["kindness"]["queries"] == 1
    assert table["topic"]["kindness"]["small"] is True
    assert table["topic"]["kindness"]["metrics"]["recall@1"] == 0.5
    assert list(table) == ["modality", "topic"]
