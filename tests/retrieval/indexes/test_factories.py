"""The written rule: for any number of vectors something that fits, can be trained, and says why."""

from __future__ import annotations

import math
import re

import faiss
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.estimate import index_bytes
from vidvec_msg.retrieval.indexes.factories import CODES, FLAT, HNSW, LIST_BYTES, plan_index, training_points
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index

GB = 1e9


@pytest.mark.parametrize(
    ("count", "dim", "memory", "factory"),
    [
        (1, 384, math.inf, "Flat"),
        (100_000, 384, math.inf, "Flat"),
        (100_001, 384, math.inf, "HNSW32,Flat"),
        (37_500, 1024, math.inf, "Flat"),  # wider vectors, fewer of them
        (37_501, 1024, math.inf, "HNSW32,Flat"),
        (1_000_000, 384, math.inf, "HNSW32,Flat"),
        (1_000_000, 384, 1.7 * GB, "IVF4096,Flat"),  # the graph is too much, the vectors are not
        (1_000_001, 384, math.inf, "IVF4096,Flat"),
        (1_000_000, 384, 0.5 * GB, "IVF4096,SQ8"),
        (10_000_000, 384, 16 * GB, "IVF65536_HNSW32,Flat"),
        (100_000_000, 384, 40 * GB, "IVF131072_HNSW32,SQ8"),
        (1_000_000_000, 384, 8000 * GB, "IVF524288_HNSW32,Flat"),
        (100_000_000, 384, 25 * GB, "IVF131072_HNSW32,PQ384x4fs"),
        (1_000_000_000, 384, 64 * GB, "IVF524288_HNSW32,PQ96x4fs"),
        (1_000_000_000, 99, 64 * GB, "IVF524288_HNSW32,PQ99x4fs"),  # 99 does not divide by 2
        (10_000, 384, 0.005 * GB, "SQ8"),  # few enough to compare all, in codes
    ],
)
def test_the_choice_goes_by_count_dimensions_and_memory(
    count: int, dim: int, memory: float, factory: str
) -> None:
    plan = plan_index("auto", count, dim, memory=memory)
    assert plan.factory == factory
    assert f"{count:,} vectors of {dim} dimensions" in plan.reason


@given(
    count=st.integers(1, 1_000_000_000),
    dim=st.sampled_from([16, 128, 384, 768, 1024, 4096]),
    memory=st.floats(1e6, 1e13),
)
def test_whatever_is_chosen_fits_and_can_be_trained(count: int, dim: int, memory: float) -> None:
    try:
        plan = plan_index("auto", count, dim, memory=memory)
    except RefusedRequest:
        assert count < 1000 or count * (CODES[-1].size(dim) + LIST_BYTES) > memory
        return
    lists = [int(number) for number in re.findall(r"IVF(\d+)", plan.factory)]
    assert count >= training_points(plan.factory)
    # the rule's own arithmetic leaves out what lists and codebooks take beside the vectors
    beside = 4 * dim * (1 + sum(lists)) * 1.3 + 1e6
    if sum(lists) < 10_000:  # FAISS makes larger ones slowly
        assert index_bytes(empty_index(plan.factory, dim), count) <= memory + beside


def test_more_memory_never_gives_shorter_codes() -> None:
    sizes = []
    for memory in range(1, 200):
        try:
            plan = plan_index("auto", 50_000_000, 384, memory=memory * GB)
        except RefusedRequest:
            sizes.append(0)
            continue
        code = next(code for code in CODES if plan.factory.endswith(f",{code.factory(384)}"))
        sizes.append(code.size(384))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(CODES) + 1


def test_codes_that_miss_the_recall_say_what_would_reach_it() -> None:
    short = plan_index("auto", 100_000_000, 384, memory=10 * GB, recall=0.95, allowed="--memory 10GB")
    assert "in codes, since longer ones exceed --memory 10GB" in short.reason
    assert re.search(r"such codes alone reach about 0\.\d+ of recall@10", short.reason)
    assert "--rescore float16 more" in short.reason
    assert "alone" not in plan_index("auto", 100_000_000, 384, memory=10 * GB, recall=0.3).reason
    assert "alone" not in plan_index("auto", 100_000_000, 384, memory=10 * GB, rescored=True).reason


def test_recall_1_is_exact_search() -> None:
    assert plan_index("auto", 5_000_000, 384, recall=1).factory == "Flat"
    with pytest.raises(RefusedRequest, match=r"--recall 1 is exact search, and Flat takes 7\.7 GB of memory"):
        plan_index("auto", 5_000_000, 384, recall=1, memory=GB)


def test_what_fits_nowhere_is_refused_with_the_ways_out() -> None:
    expected = (
        r"no index of 1,000,000,000 vectors of 384 dimensions fits into the memory allowed: .*--truncate_dim"
    )
    with pytest.raises(RefusedRequest, match=expected):
        plan_index("auto", 1_000_000_000, 384, memory=GB)


def test_too_few_points_give_exact_search_and_a_reason() -> None:
    plan = plan_index("IVF64,Flat", 40, 16)
    assert plan.factory == "Flat"
    assert plan.reason == "IVF64,Flat wants 2496 vectors to be trained and there are 40: exact search instead"


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [("Flat", ""), ("IVF32,Flat", "nprobe=2"), ("IVF8,SQ8", "nprobe=1"),
     ("IVF32,PQ8x4fs,RFlat", "nprobe=2,k_factor_rf=4"), ("SQ8,Refine(SQfp16)", "k_factor_rf=4")],
)  # fmt: skip
def test_an_asked_factory_is_taken_and_looks_into_more_lists_than_one(factory: str, parameters: str) -> None:
    plan = plan_index(factory, 2000, 16)
    assert (plan.factory, plan.search_parameters, plan.reason) == (factory, parameters, "as asked")
    if parameters:
        index = faiss.index_factory(16, factory, faiss.METRIC_INNER_PRODUCT)
        faiss.ParameterSpace().set_index_parameters(index, parameters)


@pytest.mark.parametrize(
    ("factory", "points"),
    [("Flat", 0), ("HNSW32,Flat", 0), ("SQ8", 0), ("IVF100,Flat", 3900), ("IVF65536_HNSW32", 39 * 65536),
     ("PQ16", 39 * 256), ("IVF16,PQ8x4fs", 39 * 16), ("OPQ16_64,IVF16,PQ16", 39 * 256),
     ("IMI2x6,Flat", 39 * 64)],
)  # fmt: skip
def test_training_points_of_a_factory_string(factory: str, points: int) -> None:
    assert training_points(factory) == points


def test_the_thresholds_are_numbers_compared() -> None:
    assert FLAT == 100_000 * 384 < HNSW
