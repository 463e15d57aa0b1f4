"""The build: all options checked before it begins, shards verified once, and what was made is told."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pytest
from vectors_folder import write_vectors

from vidvec_msg.checksums import checksum
from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.index import index
from vidvec_msg.retrieval.indexes import build as index_build
from vidvec_msg.retrieval.indexes.build import build_index, fill
from vidvec_msg.retrieval.indexes.factories import plan_index
from vidvec_msg.retrieval.indexes.unit_shards import shortened, unit_shards

DIM = 16


def clusters(count: int, dim: int = DIM, seed: int = 0) -> Vectors:
    centres = np.random.default_rng(0).standard_normal((30, dim))
    random = np.random.default_rng(seed)
    rows = centres[random.integers(0, 30, count)] + 0.6 * random.standard_normal((count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def vectors_of(path: Path, rows: Vectors, rows_per_shard: int = 400) -> Path:
    card = EmbedderCard(name="table", dim=rows.shape[1], weights="table").to_dict()
    return write_vectors(path, [f"d{i}" for i in range(len(rows))], rows, card, rows_per_shard=rows_per_shard)


@pytest.fixture(scope="module")
def rows() -> Vectors:
    return clusters(1500)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory, rows: Vectors) -> Path:
    return vectors_of(tmp_path_factory.mktemp("vectors") / "v", rows)


def manifest_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "index.json").read_text())
    return found


def test_the_manifest_holds_segment_recall_and_estimate(tmp_path: Path, vectors: Path) -> None:
    out = build_index(vectors, tmp_path / "i", factory="IVF16,Flat", recall=0.9)
    manifest = manifest_of(out)
    assert manifest["segments"] == [
        {"index": "index.faiss", "ids": "ids.parquet", "count": 1500, "factory": "IVF16,Flat",
         "search_parameters": manifest["search_parameters"], "truncate_dim": None, "vectors": None,
         "oversample": None}
    ]  # fmt: skip
    assert manifest["format"] == 2
    assert manifest["engine"] == "faiss"
    assert manifest["deleted"] is None
    recall = manifest["recall"]
    assert recall["k"] == 10
    assert recall["queries"] == 100
    assert recall["target"] == 0.9 <= recall["recall"]
    assert recall["search_parameters"] == manifest["search_parameters"]
    assert faiss.read_index(str(out / "index.faiss")).nprobe == int(recall["search_parameters"][7:])
    assert manifest["estimate"]["index"] == pytest.approx((out / "index.faiss").stat().st_size, rel=0.01)
    for name, expected in manifest["checksums"].items():
        assert checksum(out / name) == expected
        assert manifest["sizes"][name] == (out / name).stat().st_size


def test_an_exact_index_needs_no_measurement(tmp_path: Path, vectors: Path) -> None:
    assert manifest_of(build_index(vectors, tmp_path / "i"))["recall"] is None
    one = vectors_of(tmp_path / "one", clusters(1))
    assert manifest_of(build_index(one, tmp_path / "j", factory="HNSW8,Flat"))["recall"] is None
    two = vectors_of(tmp_path / "two", clusters(2))
    recall = manifest_of(build_index(two, tmp_path / "k", factory="HNSW8,Flat"))["recall"]
    assert (recall["recall"], recall["queries"]) == (1.0, 2)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_full_vectors_are_kept_row_by_row_beside_shortened_codes(
    tmp_path: Path, vectors: Path, rows: Vectors, dtype: str
) -> None:
    out = build_index(
        vectors, tmp_path / "i", factory="IVF8,SQ8", truncate_dim=8, rescore=dtype, oversample=6
    )
    manifest = manifest_of(out)
    kept = np.load(out / "vectors.npy", mmap_mode="r", allow_pickle=False)
    assert kept.dtype == np.dtype(dtype)
    assert manifest["estimate"]["vectors"] == (out / "vectors.npy").stat().st_size
    np.testing.assert_allclose(kept, rows, atol=1e-3 if dtype == "float16" else 1e-6)
    assert faiss.read_index(str(out / "index.faiss")).d == 8
    segment = manifest["segments"][0]
    assert (segment["truncate_dim"], segment["vectors"], segment["oversample"]) == (8, "vectors.npy", 6)
    assert manifest["scores"] == "cosine"  # they are computed from the full vectors
    assert manifest["dim"] == DIM


def test_rescoring_recovers_what_short_vectors_lose(tmp_path: Path, vectors: Path) -> None:
    found = {}
    for name, options in {
        "short": {"truncate_dim": 4},
        "rescored": {"truncate_dim": 4, "rescore": "float16", "oversample": 60},
    }.items():
        manifest = manifest_of(build_index(vectors, tmp_path / name, recall=0.99, **options))
        assert manifest["scores"] == {"short": "approximate", "rescored": "cosine"}[name]
        found[name] = manifest["recall"]["recall"]
    assert found["short"] < 0.7 < 0.9 < found["rescored"]


def test_pca_is_not_called_cosine(tmp_path: Path, vectors: Path) -> None:
    plain = manifest_of(build_index(vectors, tmp_path / "p", factory="PCA8,Flat", recall=0.1))
    assert (plain["metric"], plain["scores"]) == ("inner product of transformed vectors", "transformed")
    kept = manifest_of(build_index(vectors, tmp_path / "q", factory="PCA8,Flat", rescore="float32"))
    assert (kept["metric"], kept["scores"]) == ("cosine", "cosine")


def test_queries_of_the_users_own_are_the_sample(tmp_path: Path, vectors: Path) -> None:
    queries = vectors_of(tmp_path / "q", clusters(20, seed=3))
    recall = manifest_of(build_index(vectors, tmp_path / "i", factory="IVF16,Flat", recall_queries=queries))[
        "recall"
    ]
    assert recall["queries"] == 20
    assert recall["how"] == f"recall@10 against exact search, 20 queries of {queries}"


def test_the_plan_the_estimate_and_the_recall_are_told(
    tmp_path: Path, vectors: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        build_index(vectors, tmp_path / "i", factory="IVF16,Flat")
    told = [message.split(" (")[0] for message in caplog.messages]
    assert told[:3] == [
        "index: IVF16,Flat",
        "estimate: 409.2 kB on disk, 109.2 kB of memory when opened, 193.2 kB while building",
        "training IVF16,Flat on 1500 vectors",
    ]
    assert told[3].startswith("recall@10 0.9")


def test_each_shard_is_verified_once(tmp_path: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, verified = VectorsFolder.read, []

    def counted(folder: VectorsFolder, shard: Any, *, verify: bool = True) -> Any:
        verified.append((shard.file, verify))
        return read(folder, shard, verify=verify)

    monkeypatch.setattr(VectorsFolder, "read", counted)
    # lists take two passes: which list each vector goes to, then the vectors
    for factory, passes in {"IVF16,Flat": [True, False], "HNSW8,Flat": [True], "Flat": [True]}.items():
        verified.clear()
        build_index(vectors, tmp_path / factory, factory=factory)
        shards = [(f"shard-0000{number}.npy", verify) for verify in passes for number in range(4)]
        assert verified[:4] == shards[:4]
        assert sorted(verified[4:]) == shards[4:]  # two are read at once


def test_fill_gives_every_shard_to_whoever_watches(vectors: Path, rows: Vectors) -> None:
    folder, seen = VectorsFolder.open(vectors), []
    filled = fill(
        plan_index("IVF16,Flat", 1500, DIM), folder, watches=[lambda part: seen.append(part.copy())]
    )
    assert filled.ntotal == 1500
    assert filled.nprobe == 1  # the plan's; a measurement sets another
    np.testing.assert_allclose(np.concatenate(seen), rows, atol=1e-6)


def test_shards_come_in_order_and_normalised(tmp_path: Path) -> None:
    rows = clusters(50)
    folder = VectorsFolder.open(vectors_of(tmp_path / "v", rows * np.float32(1.005), rows_per_shard=7))
    parts = list(unit_shards(folder))
    assert [len(part) for part in parts] == [7] * 7 + [1]
    np.testing.assert_allclose(np.concatenate(parts), rows, atol=1e-6)


def test_short_vectors_are_normalised_anew_and_empty_ones_refused() -> None:
    rows = clusters(5)
    short = shortened(rows, 4)
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert shortened(rows, DIM) is rows
    rows[2] = np.eye(DIM, dtype=np.float32)[-1]
    with pytest.raises(RefusedRequest, match=r"--truncate_dim 4: a vector is zero in its first 4 dimensions"):
        shortened(rows, 4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recall": 0.0}, r"--recall 0: give a share above 0 and at most 1, such as 0\.95"),
        ({"recall": 1.5}, r"--recall 1\.5: give a share"),
        ({"recall": float("nan")}, r"--recall nan: give a share"),
        ({"memory": "8"}, r"--memory '8' is not an amount of memory; give one such as 8GB or 512MB"),
        (
            {"truncate_dim": 16},
            r"--truncate_dim 16: the vectors have 16 dimensions; give a number from 1 to 15",
        ),
        ({"truncate_dim": -1}, r"--truncate_dim -1: the vectors have 16 dimensions"),
        ({"rescore": "int8"}, r"--rescore int8: give one of none, float16, float32"),
        ({"oversample": 4}, r"--oversample 4: without effect unless --rescore keeps vectors"),
        ({"oversample": -1, "rescore": "float16"}, r"--oversample -1: give the candidates per wanted result"),
        (
            {"factory": "Flat", "rescore": "float16"},
            r"--rescore float16: without effect on Flat, whose scores",
        ),
        ({"factory": "Flat", "recall_queries": Path("q")}, r"--recall_queries: without effect on Flat"),
        (
            {"factory": "SQ8", "memory": "1kB"},
            r"--memory 1kB: an opened index of factory 'SQ8' takes about 24\.",
        ),
        (
            {"memory": "1kB"},
            r"no index of 1,500 vectors of 16 dimensions fits into --memory 1kB: the smallest",
        ),
        ({"factory": "IVF16,PQ5"}, r"FAISS does not take factory 'IVF16,PQ5' for 16 dimensions"),
        ({"factory": "PQ8", "truncate_dim": 6}, r"FAISS does not take factory 'PQ8' for 6 dimensions"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    tmp_path: Path, vectors: Path, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RefusedRequest, match=text):
        build_index(vectors, tmp_path / "i", **options)
    assert not any(tmp_path.iterdir())


def test_the_verb_hands_every_option_on(tmp_path: Path, vectors: Path) -> None:
    queries = vectors_of(tmp_path / "q", clusters(20, seed=3))
    out = index(
        tmp_path / "i", vectors=vectors, factory="IVF8,SQ8", memory="1MB", recall=0.5, recall_queries=queries,
        truncate_dim=8, rescore="float32", oversample=3,
    )  # fmt: skip
    manifest = manifest_of(out)
    segment = manifest["segments"][0]
    assert (segment["factory"], segment["truncate_dim"], segment["oversample"]) == ("IVF8,SQ8", 8, 3)
    assert (manifest["recall"]["target"], manifest["recall"]["queries"]) == (0.5, 20)
    assert np.load(out / "vectors.npy", mmap_mode="r").dtype == np.float32
    with pytest.raises(RefusedRequest, match="--memory 9kB: an opened index of factory"):
        index(tmp_path / "j", vectors=vectors, factory="IVF8,SQ8", memory="9kB")


def test_all_that_is_wrong_comes_in_one_message(tmp_path: Path, vectors: Path) -> None:
    with pytest.raises(RefusedRequest, match="index: 3 problems") as caught:
        build_index(vectors, tmp_path / "i", recall=2, memory="much", oversample=3)
    assert str(caught.value).count("\n  - ") == 3


def test_the_same_options_before_anything_is_embedded(tmp_path: Path) -> None:
    collection = tmp_path / "c"
    collection.mkdir()
    (collection / "corpus.jsonl").write_text('{"_id": "d0", "text": "apple"}\n')
    with pytest.raises(RefusedRequest, match="--truncate_dim 500"):
        index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder", truncate_dim=500)
    assert not (tmp_path / "i").exists()


def test_auto_goes_by_the_memory_named(tmp_path: Path, vectors: Path) -> None:
    manifest = manifest_of(build_index(vectors, tmp_path / "i", memory="50kB", recall=0.5))
    assert manifest["factory"] == "SQ8"
    assert manifest["factory_reason"] == (
        "1,500 vectors of 16 dimensions: few enough to compare all, in codes, since longer ones exceed "
        "--memory 50kB (these take 24.0 kB)"
    )


def test_other_options_are_another_index(tmp_path: Path, vectors: Path) -> None:
    out = build_index(vectors, tmp_path / "i", factory="SQ8")
    assert build_index(vectors, out, factory="SQ8") == out
    for options in ({"recall": 0.5}, {"rescore": "float16"}, {"truncate_dim": 8}):
        with pytest.raises(RefusedRequest, match="holds an index of other vectors or of another factory"):
            build_index(vectors, out, factory="SQ8", **options)


def test_a_disk_without_room_is_refused_at_the_start(
    tmp_path: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    with pytest.raises(
        RefusedRequest, match=r"the index needs about 396\.0 kB .* and the disk has 100\.0 kB free"
    ):
        build_index(vectors, tmp_path / "i")
    assert not any(tmp_path.iterdir())


def test_a_disk_that_fills_up_on_the_way_leaves_the_vectors_and_says_what_to_do(
    tmp_path: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(index_build, "write_index", full)
        expected = r"--out .*i: No space left on device while the index was written .* the same command again"
        with pytest.raises(JobFailed, match=expected):
            build_index(vectors, tmp_path / "i", factory="SQ8", rescore="float16")
    assert not any(tmp_path.iterdir())
    assert (build_index(vectors, tmp_path / "i", factory="SQ8", rescore="float16") / "index.json").is_file()


def test_a_second_build_is_refused_naming_the_first_and_a_killed_one_is_swept(
    tmp_path: Path, vectors: Path
) -> None:
    stuck = (
        "import sys, time; from pathlib import Path; from vidvec_msg.retrieval.indexes import build;"
        "build.write_index = lambda *_: time.sleep(100);"
        "build.build_index(Path(sys.argv[1]), Path(sys.argv[2]), factory='SQ8', rescore='float32')"
    )
    with subprocess.Popen([sys.executable, "-c", stuck, str(vectors), str(tmp_path / "i")]) as first:
        while not list(tmp_path.glob(".i.*.partial/vectors.npy")):
            assert first.poll() is None
            time.sleep(0.05)
        expected = (
            rf"another process is writing into --out .*i; wait until it ends, or give another folder\. "
            rf"It is `-c .*` \(process {first.pid} on "
        )
        with pytest.raises(RefusedRequest, match=expected):
            build_index(vectors, tmp_path / "i", factory="SQ8")
        first.kill()
    assert list(tmp_path.glob(".i.*.partial"))
    build_index(vectors, tmp_path / "i", factory="SQ8")
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


@pytest.mark.parametrize("factory", ["HNSW8,Flat", "IVF16,Flat"])
def test_a_bad_vector_among_those_that_measure_or_train_is_named(tmp_path: Path, factory: str) -> None:
    rows = clusters(900)
    rows[777] = np.nan
    vectors = vectors_of(tmp_path / "v", rows)
    with pytest.raises(RefusedRequest, match="the vector of 'd777' has values that are not finite"):
        build_index(vectors, tmp_path / "i", factory=factory)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]
