"""A FAISS file is read once, and no bit of it can be another one unnoticed."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import faiss
import numpy as np
import pytest

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes import checked_index
from vidvec_msg.retrieval.indexes.checked_index import bounded_by, read_checked

KINDS = ["Flat", "HNSW16,Flat", "IVF8,Flat", "SQ8", "PQ8x4", "IVF8,PQ8x4fs", "IVF8,PQ8x4", "PCA8,IVF8,Flat",
         "PQ8x4,RFlat"]  # fmt: skip


def written(folder: Path, factory: str) -> Path:
    rows = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)
    index = faiss.index_factory(16, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(rows)
    index.add(rows)
    faiss.write_index(index, str(folder / "index.faiss"))
    return folder / "index.faiss"


@pytest.mark.parametrize("factory", KINDS)
def test_it_is_the_index_that_was_written(tmp_path: Path, factory: str) -> None:
    path = written(tmp_path, factory)
    found = read_checked(path, expected=checksum(path))
    assert (faiss.serialize_index(found) == np.fromfile(path, np.uint8)).all()


@pytest.mark.parametrize("factory", KINDS)
def test_no_bit_is_another_one_unnoticed(
    tmp_path: Path, factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_index, "_TABLES", 1 << 20)  # else the test may take 2 GB itself
    path = written(tmp_path, factory)
    content, expected = path.read_bytes(), checksum(path)
    drawn = np.random.default_rng(1).integers(0, 8 * len(content), 40).tolist()
    for bit in [*range(8 * 4, 8 * 140, 13), *drawn]:  # also in each number of the header: sizes, kinds
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(
            RefusedRequest, match=rf"index\.faiss is damaged: found xxh3_128:\w{{32}}, .* {expected}"
        ):
            read_checked(path, expected=expected)


def test_the_bound_leaves_room_for_what_faiss_makes_of_a_file() -> None:
    assert faiss.cvar.precomputed_table_max_bytes <= checked_index._TABLES
    assert faiss.get_deserialization_vector_byte_limit() == checked_index._UNBOUNDED


def test_a_file_that_faiss_cannot_read_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "index.faiss"
    path.write_bytes(b"nothing of FAISS")
    for expected in ("", checksum(path)):
        with pytest.raises(RefusedRequest, match=r"FAISS cannot read index\.faiss \(.*\)\. Copy it again"):
            read_checked(path, expected=expected)


def test_threads_do_not_bound_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_index, "_TABLES", 0)
    small, large = tmp_path / "small", written(tmp_path, "Flat")
    small.write_bytes(b"x")
    usual = faiss.get_deserialization_vector_byte_limit()
    failed: list[BaseException] = []

    def read() -> None:
        try:
            assert read_checked(large, expected=checksum(large)).ntotal == 200
        except BaseException as error:
            failed.append(error)

    with bounded_by(small):
        thread = Thread(target=read)
        thread.start()
        thread.join()
        assert faiss.get_deserialization_vector_byte_limit() == 1
    assert not failed
    assert faiss.get_deserialization_vector_byte_limit() == usual
