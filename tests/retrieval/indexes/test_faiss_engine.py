"""FAISS behind our own calls: the same index whoever assigns, the same bytes whoever writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pytest

from vidvec_msg.checksums import checksum
from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.retrieval.indexes import faiss_engine
from vidvec_msg.retrieval.indexes.faiss_engine import (
    add,
    centroids_on_gpu,
    empty_index,
    nearest_among,
    nearest_lists,
    on_gpu,
    reserve,
    reserve_lists,
    scores_of,
    search_parameter,
    takes_lists,
    train,
    write_index,
)

DIM = 16


def units(count: int, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def built(factory: str, rows: Vectors) -> Any:
    index = empty_index(factory, DIM)
    train(index, rows)
    parts = [rows[first : first + 300] for first in range(0, len(rows), 300)]
    if takes_lists(index):
        centroids = centroids_on_gpu(index)
        lists = [nearest_lists(index, part, centroids) for part in parts]
        reserve_lists(index, np.bincount(np.concatenate(lists)))
        for part, found in zip(parts, lists, strict=True):
            add(index, part, found)
        return index
    for part in parts:
        add(index, part)
    return index


@pytest.mark.parametrize(
    "factory",
    ["IVF8,Flat", "IVF8,SQ8", "IVF8,PQ4x4", "PCA8,IVF8,Flat", "RR16,L2norm,IVF8,PQ4x4", "IVF8_HNSW8,Flat"],
)
def test_lists_filled_in_two_passes_are_those_of_plain_faiss(tmp_path: Path, factory: str) -> None:
    rows = units(900)
    plain = empty_index(factory, DIM)
    train(plain, rows)
    assert takes_lists(plain)
    for first in range(0, 900, 300):
        plain.add(rows[first : first + 300])
    assert write_index(built(factory, rows), tmp_path / "ours") == write_index(plain, tmp_path / "plain")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """GPUs that are none: copies on the CPU, and a note of what was asked for."""
    seen = SimpleNamespace(count=2, copied=[], options=None)

    def to_all(index: Any, options: Any = None) -> Any:
        seen.copied.append(type(index).__name__)
        seen.options = options
        return faiss.clone_index(index)

    def to_one(resources: Any, device: int, index: Any, options: Any) -> Any:
        seen.copied.append((resources, device))
        return to_all(index, options)

    options = {"useFloat16": True, "useFloat16CoarseQuantizer": True}
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: seen.count)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", to_all)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", to_one, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: "resources", raising=False)
    monkeypatch.setattr(faiss, "GpuClonerOptions", lambda: SimpleNamespace(**options), raising=False)
    monkeypatch.setattr(
        faiss, "GpuMultipleClonerOptions", lambda: SimpleNamespace(**options, shard=False), raising=False
    )
    return seen


@pytest.mark.parametrize(
    "factory",
    ["IVF8,Flat", "IVF8,SQ8", "IVF8,PQ4x4", "PCA8,IVF8,Flat", "IVF8_HNSW8,Flat", "RR16,IVF8,SQ8",
     "IVF8,RaBitQ", "IVF8,PQ8x4fs", "SQ8", "HNSW8,Flat"],
)  # fmt: skip
def test_an_index_trained_and_assigned_on_gpus_is_the_index_of_the_cpu(
    tmp_path: Path, gpus: SimpleNamespace, factory: str
) -> None:
    rows = units(900)
    gpus.count = 0
    plain = built(factory, rows)
    assert not gpus.copied
    gpus.count = 2
    index = built(factory, rows)
    assert index.ntotal == 900
    assert write_index(index, tmp_path / "gpu") == write_index(plain, tmp_path / "cpu")
    if "IVF" in factory:
        assert set(gpus.copied) == {"IndexFlat"}
        assert len(gpus.copied) == (1 if "RaBitQ" in factory or "fs" in factory else 2)  # k-means, assignment
    else:
        assert not gpus.copied


def test_one_gpu_holds_the_index_and_several_divide_it_in_full_precision(gpus: SimpleNamespace) -> None:
    index = built("IVF8,Flat", units(400))
    gpus.copied.clear()
    gpus.count = 1
    assert on_gpu(index).ntotal == 400
    assert gpus.copied == [("resources", 0), "IndexIVFFlat"]
    assert gpus.options == SimpleNamespace(useFloat16=False, useFloat16CoarseQuantizer=False)
    gpus.count = 3
    assert on_gpu(index).ntotal == 400
    assert gpus.options == SimpleNamespace(useFloat16=False, useFloat16CoarseQuantizer=False, shard=True)


@pytest.mark.parametrize(
    ("factory", "moves"),
    [("Flat", True), ("IVF8,Flat", True), ("IVF8,SQ8", True), ("IVF8,PQ4x4", True), ("PCA8,IVF8,Flat", True),
     ("HNSW8,Flat", False), ("IVF8,RaBitQ", False), ("IVF8,PQ8x4fs", False), ("IVF8,SQ4,RFlat", False)],
)  # fmt: skip
def test_kinds_without_a_gpu_form_stay_on_the_cpu(gpus: SimpleNamespace, factory: str, moves: bool) -> None:
    index = empty_index(factory, DIM)
    assert (on_gpu(index) is not None) == moves
    gpus.count = 0
    assert on_gpu(index) is None


def test_what_a_gpu_cannot_take_stays_on_the_cpu_and_says_so(
    gpus: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("Error in void x() at /src/x.cpp:7: Error: 'ok' failed: out of memory")

    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", fail)
    assert on_gpu(faiss.IndexFlatIP(4)) is None
    assert caplog.messages == ["the index stays on the CPU: 'ok' failed: out of memory"]
    lists = empty_index("IVF4096,Flat", DIM)
    lists.nprobe = 2049  # more than FAISS's kernels take
    assert on_gpu(lists) is None
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("factory", "scores"),
    [("Flat", "cosine"), ("HNSW8,Flat", "cosine"), ("IVF8,Flat", "cosine"), ("RR16,IVF8,Flat", "cosine"),
     ("L2norm,Flat", "cosine"), ("IVF8,SQ4,RFlat", "cosine"), ("OPQ4,IVF8,Flat", "cosine"),
     ("SQ8", "approximate"), ("OPQ4_8,IVF8,Flat", "approximate"), ("IVF8,PQ4x4", "approximate"),
     ("OPQ4,IVF8,PQ4x4", "approximate"), ("IVF8,SQ4,Refine(SQ8)", "approximate"), ("RaBitQ", "approximate"),
     ("PCA8,Flat", "transformed"), ("PCAR16,SQ8", "transformed"), ("PCA8,IVF8,Flat", "transformed")],
)  # fmt: skip
def test_scores_are_called_what_they_are(factory: str, scores: str) -> None:
    index = empty_index(factory, DIM)
    assert scores_of(index) == scores
    if "OPQ" in factory:  # minutes of training tell nothing more
        return
    # vectors with a mean, as those of a narrow model: PCA takes it away
    rows = units(700) + 1.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    train(index, rows)
    index.add(rows)
    faiss.ParameterSpace().set_index_parameters(index, "nprobe=8") if "IVF" in factory else None
    found, places = index.search(rows[:50], 5)
    off = np.abs(found - np.einsum("qd,qkd->qk", rows[:50], rows[places])).max()
    assert off < {"cosine": 1e-5, "approximate": 0.1, "transformed": np.inf}[scores]
    assert off > {"cosine": -1, "approximate": 1e-5, "transformed": 0.1}[scores]


@pytest.mark.parametrize(
    ("factory", "knob"),
    [("Flat", None), ("SQ8", None), ("IVF8,SQ8", ("nprobe", 8)), ("PCA8,IVF4,Flat", ("nprobe", 4)),
     ("IVF8,SQ4,RFlat", ("nprobe", 8)), ("HNSW8,Flat", ("efSearch", 0)),
     ("PCA8,HNSW8,Flat", ("efSearch", 0))],
)  # fmt: skip
def test_what_can_be_set_of_an_index(factory: str, knob: tuple[str, int] | None) -> None:
    assert search_parameter(empty_index(factory, DIM)) == knob


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "HNSW8,Flat", "IVF8,PQ4x4"])
def test_the_file_is_faiss_own_and_its_checksum_right(tmp_path: Path, factory: str) -> None:
    index = built(factory, units(3000))
    found = write_index(index, tmp_path / "ours")
    faiss.write_index(index, str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert found == checksum(tmp_path / "theirs")


def test_a_disk_that_fills_up_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        write_index(built("Flat", units(5000)), Path("/dev/full"))


@pytest.mark.parametrize("factory", ["Flat", "SQ8", "HNSW8,Flat", "PCA8,Flat", "IVF8,Flat", "IVF8,SQ4,RFlat"])
def test_room_made_at_once_changes_nothing(tmp_path: Path, factory: str) -> None:
    rows = units(600)
    roomy = empty_index(factory, DIM)
    train(roomy, rows)
    reserve(roomy, len(rows))
    roomy.add(rows)
    reserve(roomy, 10)  # not on what is filled
    assert write_index(roomy, tmp_path / "a") == write_index(built(factory, rows[:]), tmp_path / "b") or (
        "HNSW" in factory  # its levels depend on how many come at once
    )
    assert roomy.ntotal == 600


@pytest.mark.parametrize("queries", [1, 19, 20, 150])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_nearest_among_rows_are_those_of_the_matrix_product(queries: int, k: int) -> None:
    asked, rows = units(queries, seed=1), units(7)
    scores, places = nearest_among(asked, rows, k)
    product = asked @ rows.T
    np.testing.assert_allclose(scores, -np.sort(-product, axis=1)[:, :k], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(product, places, axis=1), scores, atol=1e-6)


def test_gpus_are_asked_for_by_number() -> None:
    """A GPU build on a machine without a GPU has every function: the number decides."""
    assert faiss_engine._gpus() == faiss.get_num_gpus()
