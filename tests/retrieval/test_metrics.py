"""Metrics: tables worked out by hand, and random cases against pytrec_eval."""

import math
import time

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval import metrics as module
from vidvec_msg.retrieval.evaluation.ranking import Gold, GoldRanks, rank_scores, tie_order
from vidvec_msg.retrieval.metrics import (
    DEFAULT_METRICS,
    KINDS,
    lower_is_better,
    means,
    parse_metrics,
    per_query,
)


def ranked(*queries: dict[int, int], candidates: int = 10) -> GoldRanks:
    """Ranks of positives and their grades, best grade first; rank 0 or negative: not among the candidates."""
    ordered = [sorted(query.items(), key=lambda pair: -pair[1]) for query in queries]
    starts = np.cumsum([0, *(len(query) for query in ordered)])
    flat = [pair for query in ordered for pair in query]
    no = np.zeros(len(queries), dtype=bool)
    return GoldRanks(
        starts,
        np.array([max(rank, 0) for rank, _ in flat], dtype=np.int64),
        np.array([grade for _, grade in flat], dtype=np.int64),
        np.full(len(queries), candidates),
        no,
        no,
    )


def log2(x: float) -> float:
    return math.log2(x)


# one row a fact: metric, positives as {rank: grade}, value
TABLE = [
    # hit_rate is not recall: with 8 positives recall@1 is at most 1/8
    ("recall@1", {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}, 1 / 8),
    ("hit_rate@1", {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}, 1),
    ("recall@10", {1: 1, 9: 1}, 1),
    ("recall@5", {1: 1, 9: 1}, 1 / 2),
    ("recall", {1: 1, 9: 1}, 1),
    ("hits@5", {1: 1, 5: 1, 6: 1}, 2),
    ("precision@5", {1: 1, 5: 1, 6: 1}, 2 / 5),
    ("precision@20", {1: 1}, 1 / 20),  # k beyond the candidates still divides by k, as trec_eval does
    ("hit_rate@3", {4: 1}, 0),
    ("mrr", {4: 1, 6: 1}, 1 / 4),
    ("mrr@3", {4: 1, 6: 1}, 0),
    ("map", {1: 1, 4: 1}, (1 / 1 + 2 / 4) / 2),
    ("map@3", {1: 1, 4: 1}, 1 / 2),
    ("map", {2: 1, 0: 1}, (1 / 2) / 2),  # a positive that nobody can find still counts in the denominator
    ("recall@10", {2: 1, 0: 1}, 1 / 2),
    ("r-precision", {1: 1, 3: 1, 5: 1}, 2 / 3),
    ("f1@2", {1: 1, 3: 1}, 1 / 2),
    ("f1@2", {5: 1}, 0),
    ("dcg@3", {1: 1, 3: 2}, 1 + 2 / log2(4)),
    ("ndcg@3", {1: 1, 3: 2}, (1 + 2 / 2) / (2 + 1 / log2(3))),
    ("ndcg@1", {1: 1, 3: 2}, 1 / 2),
    ("ndcg", {1: 2, 2: 1}, 1),
    ("ndcg_burges@1", {1: 1, 3: 2}, 1 / 3),
    ("dcg_burges@1", {1: 2}, 3),
    ("ndcg@10", {0: 1, 1: 1}, 1 / (1 + 1 / log2(3))),
    ("recall@10-l2", {1: 1, 2: 2}, 1),  # only grade 2 counts
    ("recall@1-l2", {1: 1, 2: 2}, 0),
    ("recall@10-l3", {1: 1}, 0),
    ("rbp.50", {1: 1, 3: 1}, 0.5 * (1 + 0.25)),
    ("ndcg_binary@3", {1: 1, 3: 2}, (1 + 1 / 2) / (1 + 1 / log2(3))),  # every positive is worth 1
    ("ndcg_binary@3-l2", {1: 1, 3: 2}, 1 / 2),
    ("mean_rank", {7: 1, 3: 1}, 3),
    ("median_rank", {0: 1, 3: 2}, 3),
    ("mean_rank", {0: 1}, 11),  # not among the 10 candidates: one past the last
]


@pytest.mark.parametrize(("metric", "positives", "value"), TABLE)
def test_by_hand(metric: str, positives: dict[int, int], value: float) -> None:
    assert per_query(ranked(positives), [metric], depth=1000)[metric] == pytest.approx([value], abs=1e-12)


def test_each_query_keeps_its_place_however_many_positives_it_has() -> None:
    gold = ranked({1: 1, 2: 1, 3: 1}, {2: 1}, {1: 1, 7: 1}, {5: 1})
    assert per_query(gold, ["mrr"], depth=10)["mrr"].tolist() == [1, 1 / 2, 1, 1 / 5]


def test_depth_cuts_the_list() -> None:
    values = per_query(ranked({1: 1, 6: 1}), ["recall", "map", "mrr", "ndcg"], depth=5)
    assert values["recall"].tolist() == [0.5]
    assert values["map"].tolist() == [0.5]
    assert per_query(ranked({6: 1}), ["mrr"], depth=5)["mrr"].tolist() == [0]


def test_grouping_by_number_of_positives_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    queries = [
        {
            int(r): int(generator.integers(1, 4))
            for r in generator.permutation(40)[: generator.integers(1, 30)] + 1
        }
        for _ in range(50)
    ]
    gold = ranked(*queries, candidates=40)
    whole = per_query(gold, DEFAULT_METRICS, depth=1000)
    monkeypatch.setattr("vidvec_msg.retrieval.metrics._CELLS", 7)
    split = per_query(gold, DEFAULT_METRICS, depth=1000)
    for name in DEFAULT_METRICS:
        assert np.array_equal(whole[name], split[name])


def test_nothing_is_nothing() -> None:
    assert per_query(ranked(), ["mrr"], depth=10)["mrr"].shape == (0,)
    assert per_query(ranked({0: 1}, candidates=0), ["mrr"], depth=10)["mrr"].tolist() == [0]
    assert math.isnan(means(per_query(ranked(), ["mrr"], depth=10))["mrr"])


def test_names() -> None:
    metric = parse_metrics(["ndcg@10-l2"])[0]
    assert (metric.kind, metric.k, metric.level) == ("ndcg", 10, 2)
    assert parse_metrics(["rbp.95"])[0].persistence == 0.95
    assert {m.kind for m in parse_metrics([f"{k}.9" if k == "rbp" else k for k in KINDS])} == set(KINDS)
    with pytest.raises(RefusedRequest) as caught:
        parse_metrics(["recal@10", "NDCG@10", "ndcg@0", "bpref", "rbp", "R@1", "map@"])
    message = str(caught.value)
    assert "'recal@10' is not a metric (did you mean 'recall'?)" in message
    assert "'NDCG@10' is not a metric (did you mean 'ndcg'?)" in message
    for name in ("ndcg@0", "bpref", "rbp", "R@1", "map@"):
        assert f"'{name}' is not a metric" in message
    for name in ("mean_rank@10", "median_rank-l2"):
        with pytest.raises(
            RefusedRequest, match="of the best positive wherever it stands, without @k and -lN"
        ):
            parse_metrics([name])
    assert "accepted: hits, hit_rate, precision, recall, f1, r-precision, mrr, map, dcg" in message
    with pytest.raises(RefusedRequest, match="none was given"):
        parse_metrics([])


def test_ranks_have_no_depth_and_the_lower_the_better() -> None:
    gold = ranked({6: 1}, {1: 1}, {2: 1}, {9: 1})
    values = per_query(gold, ["median_rank", "mean_rank", "mrr"], depth=5)
    assert values["median_rank"].tolist() == values["mean_rank"].tolist() == [6, 1, 2, 9]
    assert means(values) == {"median_rank": 4.0, "mean_rank": 4.5, "mrr": pytest.approx(1.5 / 4)}
    assert [lower_is_better(name) for name in ("median_rank", "mean_rank", "mrr")] == [True, True, False]
    assert per_query(ranked({0: 1}, candidates=0), ["mean_rank"], depth=5)["mean_rank"].tolist() == [1]


PEER = {
    "recall@3": "recall_3", "hit_rate@1": "success_1", "hit_rate@3": "success_3", "precision@3": "P_3",
    "mrr": "recip_rank", "map": "map", "map@3": "map_cut_3", "ndcg": "ndcg", "ndcg@3": "ndcg_cut_3",
    "r-precision": "Rprec",
}  # fmt: skip
ASKED = {"recall.3", "success.1,3", "P.3", "recip_rank", "map", "map_cut.3", "ndcg", "ndcg_cut.3", "Rprec"}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_equal_to_pytrec_eval(data: st.DataObject) -> None:
    """Ties, several positives, grades, judged non-relevant, positives nobody retrieved."""
    count = data.draw(st.integers(1, 12))
    ids = data.draw(st.permutations([f"d{i}" for i in range(count)]))
    queries = [f"q{i}" for i in range(data.draw(st.integers(1, 4)))]
    cell = st.sampled_from([-0.5, 0.0, 0.1, 0.1000001, 0.9])
    scores = np.array(
        [data.draw(st.lists(cell, min_size=count, max_size=count)) for _ in queries], dtype=np.float32
    )
    grades = st.dictionaries(st.sampled_from([*ids, "gone1", "gone2"]), st.integers(-1, 3), min_size=1)
    qrels = {query: data.draw(grades) for query in queries}
    qrels = {query: judged for query, judged in qrels.items() if max(judged.values()) > 0}
    if not qrels:
        return
    rows = [queries.index(query) for query in qrels]
    order = tie_order(ids)
    gold = Gold.of(qrels, list(qrels), [ids[i] for i in order])
    ours = per_query(
        rank_scores(scores[rows][:, order], gold), [*PEER, "ndcg_binary", "ndcg_binary@3"], depth=1000
    )
    run = {q: dict(zip(ids, scores[r].tolist(), strict=True)) for q, r in zip(qrels, rows, strict=True)}
    # trec_eval's linear gain would subtract for negative grades; to us they are not relevant
    peer = pytrec_eval.RelevanceEvaluator(
        {q: {d: max(g, 0) for d, g in judged.items()} for q, judged in qrels.items()}, ASKED
    ).evaluate(run)
    for name, theirs in PEER.items():
        assert ours[name] == pytest.approx([peer[query][theirs] for query in qrels], abs=1e-12), name
    flat = {q: {d: int(g > 0) for d, g in judged.items()} for q, judged in qrels.items()}
    peer = pytrec_eval.RelevanceEvaluator(flat, ASKED).evaluate(run)
    for name, theirs in (("ndcg_binary", "ndcg"), ("ndcg_binary@3", "ndcg_cut_3")):
        assert ours[name] == pytest.approx([peer[query][theirs] for query in qrels], abs=1e-12), name


@pytest.mark.parametrize(("variable", "told"), [("", True), ("RANK", False), ("LOCAL_RANK", False)])
def test_one_process_of_a_job_says_that_metrics_are_prepared(
    variable: str, told: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(module, "_SLOW", 0.001)
    with module._explained_if_slow("preparing"):
        time.sleep(0.2)
    assert ("preparing …" in capfd.readouterr().err) is told
