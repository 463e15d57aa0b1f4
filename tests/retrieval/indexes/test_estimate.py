"""Estimates equal files that were really written; what does not fit is refused before it is begun."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes import estimate as index_estimate
from vidvec_msg.retrieval.indexes.estimate import (
    Estimate,
    estimate_build,
    free_memory,
    index_bytes,
    machine_memory,
    memory_for_index,
    parse_memory,
    refuse_without_room,
)
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index, train

DIM = 32


@pytest.mark.parametrize(
    ("factory", "off"),
    [("Flat", 0.001), ("SQ8", 0.01), ("SQfp16", 0.01), ("IVF16,Flat", 0.01), ("IVF16,SQ8", 0.01),
     ("IVF16,PQ8x4", 0.02), ("PQ8x4", 0.02), ("HNSW32,Flat", 0.02), ("HNSW16,SQ8", 0.02),
     ("IVF16_HNSW32,Flat", 0.02), ("RR32,IVF16,RaBitQ4", 0.02), ("RaBitQ", 0.03),
     ("IVF16,PQ8x4fs,RFlat", 0.05), ("L2norm,Flat", 0.01), ("SQ4,Refine(SQ8)", 0.01)],
)  # fmt: skip
def test_the_estimate_is_the_size_of_the_file(tmp_path: Path, factory: str, off: float) -> None:
    count = 3000
    rows = np.random.default_rng(0).standard_normal((count, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = empty_index(factory, DIM)
    estimated = index_bytes(index, count)
    train(index, rows)
    index.add(rows)
    faiss.write_index(index, str(tmp_path / "index"))
    assert estimated == pytest.approx((tmp_path / "index").stat().st_size, rel=off)


def test_an_estimate_counts_the_whole_folder_and_the_peak() -> None:
    options = {"full_dim": 64, "sample": 0, "shard_rows": 100}
    plain = estimate_build("Flat", 1000, 64, rescore="none", **options)
    assert plain.index == 1000 * 64 * 4
    assert plain.vectors == 0
    assert plain.disk == plain.index + plain.ids
    assert plain.building == plain.index + 2 * 100 * 64 * 4
    kept = estimate_build("Flat", 1000, 16, rescore="float16", **options)
    assert kept.index == 1000 * 16 * 4
    assert kept.vectors == 1000 * 64 * 2 + 128
    trained = estimate_build("IVF4,Flat", 1000, 64, rescore="none", **{**options, "sample": 100_000})
    assert trained.building > 2 * 100_000 * 64 * 4
    assert plain.to_dict() == {
        "index": 256_000, "vectors": 0, "ids": 200_000, "building": 307_200, "disk": 456_000
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8_000_000_000), ("512MB", 512_000_000), ("1.5 tb", 1_500_000_000_000), ("2GiB", 2 << 30),
     ("100B", 100), ("7 kb", 7000)],
)  # fmt: skip
def test_amounts_of_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["8", "8 gigs", "GB", "-1GB", "0GB", "8XB", "nan"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(
        RefusedRequest, match=f"--memory '{text}' is not an amount of memory; give one such as 8GB"
    ):
        parse_memory(text)


def test_without_a_number_half_of_the_machine_is_taken() -> None:
    size, where = memory_for_index("")
    assert size == machine_memory() // 2
    assert where.startswith("half of this machine's memory, ")
    assert memory_for_index("2GB") == (2_000_000_000, "--memory 2GB")
    assert 0 < free_memory() <= machine_memory()


def test_a_disk_without_room_is_refused_with_what_is_needed_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    needed = Estimate(index=4_000_000, vectors=2_000_000, ids=300_000, building=0)
    expected = (
        r"--out .*new: the index needs about 6\.3 MB \(index\.faiss 4\.0 MB, ids\.parquet 300\.0 kB, "
        r"vectors\.npy 2\.0 MB\), and the disk has 5\.0 MB free; make room"
    )
    with pytest.raises(RefusedRequest, match=expected):
        refuse_without_room(tmp_path / "new", needed)
    refuse_without_room(tmp_path / "new", Estimate(index=4_000_000, vectors=0, ids=300_000, building=0))
    assert not (tmp_path / "new").exists()


def test_too_little_memory_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_estimate, "free_memory", lambda: 1000)
    with caplog.at_level(logging.WARNING):
        refuse_without_room(tmp_path, Estimate(index=0, vectors=0, ids=0, building=2000))
    assert caplog.messages == [
        "building will take about 2.0 kB of memory and 1.0 kB is available: the system may swap or end it"
    ]
