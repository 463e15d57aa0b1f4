"""Recall as it is measured equals recall by the matrix product; the cheapest way to the target is taken."""

from __future__ import annotations

import logging
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors_folder import write_vectors

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index, train
from vidvec_msg.retrieval.indexes.tuning import (
    QUERIES,
    K,
    Measurement,
    Neighbours,
    Sample,
    given_sample,
    open_queries,
    own_sample,
    stored_rows,
    tell_recall,
    tune,
)

DIM = 16


def clusters(count: int, dim: int = DIM, seed: int = 0) -> Vectors:
    """Vectors with structure: what neighbours are is not chance, as it is among random directions."""
    centres = np.random.default_rng(0).standard_normal((30, dim))
    random = np.random.default_rng(seed)
    rows = centres[random.integers(0, 30, count)] + 0.6 * random.standard_normal((count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def folder_of(path: Path, rows: Vectors, **options: int) -> VectorsFolder:
    card = EmbedderCard(name="table", dim=rows.shape[1], weights="table").to_dict()
    return VectorsFolder.open(write_vectors(path, [f"d{i}" for i in range(len(rows))], rows, card, **options))


def measurement(factory: str, rows: Vectors, sample: Sample, oversample: int = 1) -> Measurement:
    index = empty_index(factory, rows.shape[1])
    train(index, rows)
    index.add(rows)
    neighbours = Neighbours(sample)
    for first in range(0, len(rows), 700):
        neighbours.add(rows[first : first + 700])
    return Measurement(
        index, sample, neighbours.found(), oversample, lambda queries: queries, lambda places: rows[places]
    )


def own(rows: Vectors, places: list[int]) -> Sample:
    return Sample(rows[places], np.array(places), "vectors of the index, each without itself")


@settings(max_examples=30, deadline=None)
@given(count=st.integers(2, 60), block=st.integers(1, 70), seed=st.integers(0, 1000), inside=st.booleans())
def test_neighbours_are_those_of_the_matrix_product(count: int, block: int, seed: int, inside: bool) -> None:
    rows = clusters(count, seed=seed)
    places = np.random.default_rng(seed).choice(count, min(count, 7), replace=False)
    queries = rows[places] if inside else clusters(7, seed=seed + 1)
    neighbours = Neighbours(Sample(queries, places if inside else None, ""))
    for first in range(0, count, block):
        neighbours.add(rows[first : first + block])
    scores, positions = neighbours.found()
    product = queries @ rows.T
    if inside:
        product[np.arange(len(places)), places] = -np.inf
    wanted = min(K + 1, count - inside)
    assert positions.shape == (len(queries), wanted)
    np.testing.assert_allclose(scores, -np.sort(-product, axis=1)[:, :wanted], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(product, positions, axis=1), scores, atol=1e-5)


def test_recall_is_the_share_of_true_neighbours_without_the_query_itself() -> None:
    rows = clusters(2000)
    sample = own(rows, list(range(0, 2000, 20)))
    measured = measurement("IVF32,Flat", rows, sample)
    product = sample.queries @ rows.T
    product[np.arange(100), sample.own] = -np.inf
    truth = np.argsort(-product, axis=1)[:, :K]
    for nprobe in (1, 3, 32):
        measured.faiss_index.nprobe = nprobe
        _, found = measured.faiss_index.search(sample.queries, K + 1)
        shares = []
        for row in range(100):
            results = [place for place in found[row] if place != sample.own[row]][:K]
            shares.append(len(set(results) & set(truth[row])) / K)
        recall, error = measured.recall()
        assert recall == pytest.approx(np.mean(shares), abs=1e-9)
        assert error == pytest.approx(np.std(shares) / 10, abs=1e-9)
    assert recall == 1


def test_what_ties_with_the_last_neighbour_is_as_good_as_it() -> None:
    """40 copies of one vector: any 10 of the other 39 are right."""
    rows = np.concatenate([np.repeat(clusters(1), 40, axis=0), clusters(500, seed=5)])
    measured = measurement("SQ8", rows, own(rows, [3, 17]))
    assert measured.recall() == (1.0, 0.0)


def test_the_target_is_reached_at_the_least_cost_and_the_setting_kept() -> None:
    rows = np.random.default_rng(0).standard_normal((4000, DIM)).astype(np.float32)  # many lists are needed
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    measured = measurement("IVF64,Flat", rows, own(rows, list(range(0, 4000, 20))))
    recall = tune(measured, 0.95)
    chosen = measured.faiss_index.nprobe
    assert recall["search_parameters"] == f"nprobe={chosen}"
    assert recall["recall"] >= 0.95
    assert recall["advice"] is None
    curve = {entry["nprobe"]: entry["recall"] for entry in recall["curve"]}
    assert list(curve) == sorted(curve)
    assert curve[chosen] == recall["recall"]
    assert all(value < 0.95 for nprobe, value in curve.items() if nprobe < chosen)
    # nothing far below would have done: the step is a quarter of an octave
    assert chosen > 8
    measured.faiss_index.nprobe = int(chosen / 1.25)
    assert measured.recall()[0] < 0.95


@pytest.mark.parametrize("factory", ["IVF64,Flat", "RR16,IVF64,Flat"])
def test_where_neighbours_lie_tells_the_recall_of_every_number_of_lists(factory: str) -> None:
    """With exact vectors the lists that hold the neighbours are all there is to recall."""
    rows = np.random.default_rng(0).standard_normal((4000, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    measured = measurement(factory, rows, own(rows, list(range(0, 4000, 20))))
    lists = faiss.extract_index_ivf(measured.faiss_index)
    for target in (0.3, 0.8, 0.97, 1.0):
        least = measured.least_lists(target)
        assert least is not None
        lists.nprobe = least
        assert measured.recall()[0] >= target
        lists.nprobe = max(least - 1, 1)
        assert measured.recall()[0] < target or least == 1
    assert len(tune(measured, 0.97)["curve"]) == 1


def test_lists_that_a_graph_finds_are_measured_by_searching() -> None:
    rows = clusters(4000)
    measured = measurement("IVF64_HNSW8,Flat", rows, own(rows, list(range(0, 4000, 20))))
    assert measured.least_lists(0.9) is None
    assert tune(measured, 0.9)["recall"] >= 0.9


def test_a_higher_target_probes_more() -> None:
    rows = clusters(4000)
    sample = own(rows, list(range(0, 4000, 20)))
    chosen = []
    for target in (0.5, 0.9, 0.99, 1.0):
        measured = measurement("IVF64,Flat", rows, sample)
        tune(measured, target)
        chosen.append(measured.faiss_index.nprobe)
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_a_graph_is_tuned_by_what_it_visits() -> None:
    rows = clusters(3000)
    measured = measurement("HNSW4,Flat", rows, own(rows, list(range(0, 3000, 15))))
    recall = tune(measured, 0.97)
    assert recall["search_parameters"] == f"efSearch={measured.faiss_index.hnsw.efSearch}"
    assert recall["recall"] >= 0.97


def test_a_target_out_of_reach_says_what_would_reach_it(caplog: pytest.LogCaptureFixture) -> None:
    rows = clusters(3000)
    measured = measurement("IVF16,PQ4x4", rows, own(rows, list(range(0, 3000, 15))))
    recall = tune(measured, 0.95)
    best = max(entry["recall"] for entry in recall["curve"])
    assert recall["recall"] < 0.95
    assert recall["recall"] >= best - 0.002
    # the cheapest of the plateau: every list brings no more
    assert measured.faiss_index.nprobe < 16
    assert recall["advice"].startswith("add --rescore float16, or take longer codes")
    with caplog.at_level(logging.INFO):
        tell_recall(recall)
    assert caplog.messages[0].startswith(f"recall@10 {recall['recall']:.3f} ± ")
    assert caplog.messages[1].startswith("the recall wanted, 0.95, was not reached: add --rescore float16")


def test_candidates_that_are_rescored_count_as_found() -> None:
    rows = clusters(3000)
    sample = own(rows, list(range(0, 3000, 15)))
    recalls = [
        tune(measurement("IVF4,PQ4x4", rows, sample, oversample=times), 1.0)["recall"] for times in (1, 4, 16)
    ]
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[-1] - 0.3


def test_an_index_without_a_setting_is_measured_all_the_same() -> None:
    rows = clusters(2000)
    recall = tune(measurement("SQ4", rows, own(rows, list(range(0, 2000, 20)))), 0.5)
    assert recall["search_parameters"] == ""
    assert recall["curve"] == [{"recall": recall["recall"]}]
    assert 0.5 < recall["recall"] < 1


def test_what_a_factory_refines_stays_set() -> None:
    rows = clusters(2000)
    measured = measurement("IVF16,PQ8x4fs,RFlat", rows, own(rows, list(range(0, 2000, 20))))
    measured.parameters = "nprobe=1,k_factor_rf=4"
    recall = tune(measured, 0.6)
    assert recall["search_parameters"].startswith("k_factor_rf=4,nprobe=")
    faiss.ParameterSpace().set_index_parameters(measured.faiss_index, recall["search_parameters"])


def test_the_sample_is_the_same_each_time_and_knows_its_places(tmp_path: Path) -> None:
    rows = clusters(500)
    folder = folder_of(tmp_path / "v", rows, rows_per_shard=60)
    sample = own_sample(folder)
    assert len(sample.queries) == QUERIES
    np.testing.assert_allclose(sample.queries, rows[sample.own], atol=1e-6)
    np.testing.assert_array_equal(sample.own, own_sample(folder).own)
    assert len(own_sample(folder_of(tmp_path / "w", rows[:5])).queries) == 5


@given(places=st.lists(st.integers(0, 99), max_size=30))
@settings(max_examples=20, deadline=None)
def test_stored_rows_are_those_asked_for_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, places: list[int]
) -> None:
    rows = clusters(100)
    folder = folder_of(tmp_path_factory.mktemp("v"), rows, rows_per_shard=30)
    np.testing.assert_array_equal(stored_rows(folder, np.array(places, dtype=np.int64)), rows[places])


def test_queries_of_ones_own_must_be_of_the_same_embedder(tmp_path: Path) -> None:
    corpus = folder_of(tmp_path / "v", clusters(50))
    queries = clusters(5, seed=9)
    made_with = EmbedderCard.from_dict(corpus.card)
    sample = given_sample(open_queries(folder_of(tmp_path / "q", queries).path, made_with))
    assert sample.own is None
    np.testing.assert_allclose(sample.queries, queries, atol=1e-6)
    card = EmbedderCard(name="other", dim=DIM, weights="other").to_dict()
    other = write_vectors(tmp_path / "o", ["q"], queries[:1], card)
    expected = r"--recall_queries .*o: vectors of another embedder \(16 dimensions, fingerprint \w+\) than"
    with pytest.raises(RefusedRequest, match=expected):
        open_queries(other, made_with)
    with pytest.raises(RefusedRequest, match=r"--recall_queries .*e: it holds no vectors"):
        open_queries(folder_of(tmp_path / "e", queries[:0]).path, made_with)


def test_a_cut_shard_is_refused_by_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "v", clusters(50))
    shard = folder.path / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(RefusedRequest, match=r"shard-00000\.npy was changed or damaged"):
        own_sample(folder)
