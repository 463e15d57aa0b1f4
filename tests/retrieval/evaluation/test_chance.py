"""Chance: exact expectations against simulated permutations and against closed forms."""

import numpy as np
import pytest

from vidvec_msg.retrieval.evaluation.chance import SIMULATED, best_rank_within, expected
from vidvec_msg.retrieval.evaluation.ranking import GoldRanks, join
from vidvec_msg.retrieval.metrics import KINDS, means, per_query

METRICS = [
    "hits", "hits@3", "hit_rate@1", "hit_rate@3", "hit_rate", "precision@3", "precision@40", "precision",
    "recall@3", "recall", "f1@3", "r-precision", "mrr", "mrr@3", "map", "map@3", "dcg@3", "ndcg", "ndcg@3",
    "ndcg_burges@3", "dcg_burges", "rbp.80", "recall@3-l2", "map-l2", "ndcg@3-l2", "hit_rate@3-l3",
    "ndcg_binary@3", "ndcg_binary@3-l2", "mean_rank",
]  # fmt: skip


def random_ranking(generator: np.random.Generator, pool: int, grades: list[int], lost: int) -> GoldRanks:
    """One query whose positives take random places; the last ``lost`` ones are not among the candidates."""
    among = len(grades) - lost
    ranks = np.zeros(len(grades), dtype=np.int64)
    ranks[:among] = generator.permutation(pool)[:among] + 1
    one = np.zeros(1, dtype=bool)
    return GoldRanks(np.array([0, len(grades)]), ranks, np.array(grades), np.array([pool]), one, one)


@pytest.mark.parametrize(
    ("pool", "grades", "lost", "depth"),
    [
        (12, [1], 0, 1000),
        (9, [3, 2, 2, 1], 0, 1000),
        (15, [2, 1, 1], 1, 6),
        (5, [1] * 5, 0, 1000),
        (1, [1], 0, 1000),
    ],
)
def test_exact_equals_simulated(pool: int, grades: list[int], lost: int, depth: int) -> None:
    generator = np.random.default_rng(0)
    drawn = join([random_ranking(generator, pool, grades, lost) for _ in range(6000)])
    simulated = per_query(drawn, METRICS, depth=depth)
    exact = expected(random_ranking(generator, pool, grades, lost), METRICS, depth=depth)
    for name, values in simulated.items():
        error = values.std() / np.sqrt(len(values))
        assert exact[name] == pytest.approx(values.mean(), abs=4.5 * error + 1e-9), name


def test_expectation_over_unlike_queries_is_the_mean_of_theirs() -> None:
    generator = np.random.default_rng(1)
    parts = [random_ranking(generator, 10, [1, 1], 0), random_ranking(generator, 10, [3, 1, 1], 1)]
    both = expected(join(parts), METRICS, depth=1000)
    single = [expected(part, METRICS, depth=1000) for part in parts]
    for name in METRICS:
        assert both[name] == pytest.approx((single[0][name] + single[1][name]) / 2)


def test_known_values() -> None:
    """One positive among N: recall@k is k / N and mrr is the harmonic number over N."""
    one = random_ranking(np.random.default_rng(0), 400, [1], 0)
    exact = expected(one, ["recall@10", "hit_rate@10", "mrr", "map"], depth=1000)
    assert exact["recall@10"] == pytest.approx(10 / 400)
    assert exact["hit_rate@10"] == pytest.approx(10 / 400)
    assert exact["mrr"] == pytest.approx(sum(1 / r for r in range(1, 401)) / 400)
    assert exact["map"] == pytest.approx(exact["mrr"])


def test_best_rank() -> None:
    generator = np.random.default_rng(3)
    drawn = join([random_ranking(generator, 20, [1, 1, 1], 0) for _ in range(4000)])
    within = best_rank_within(drawn, [1, 5, 20])
    assert within == pytest.approx([np.count_nonzero(drawn.best <= edge) for edge in (1, 5, 20)], rel=0.08)
    assert within[2] == pytest.approx(4000)


def test_every_kind_of_metric_has_a_level_of_chance() -> None:
    one = random_ranking(np.random.default_rng(0), 12, [2, 1], 0)
    names = [f"{kind}.5" if kind == "rbp" else kind for kind in KINDS]
    assert all(np.isfinite(value) for value in expected(one, names, depth=1000).values())


def test_the_median_rank_is_simulated_and_says_so() -> None:
    generator = np.random.default_rng(0)

    def queries() -> GoldRanks:
        kinds = ((40, [1], 0), (40, [1, 1, 1], 0), (25, [1, 1], 1), (25, [1], 1))
        return join([random_ranking(generator, *kind) for kind in kinds for _ in range(3)])

    assert SIMULATED == ("median_rank",)
    medians = [means(per_query(queries(), ["median_rank"], depth=9))["median_rank"] for _ in range(600)]
    gold = queries()
    value = expected(gold, ["median_rank"], depth=9)["median_rank"]
    assert value == pytest.approx(np.mean(medians), rel=0.05)
    assert value == expected(gold, ["median_rank"], depth=9)["median_rank"]  # seeded


def test_without_queries_there_is_no_number() -> None:
    assert np.isnan(expected(join([]), ["mrr"], depth=10)["mrr"])
    assert np.isnan(means({"mrr": np.zeros(0)})["mrr"])
