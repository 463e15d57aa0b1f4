"""The index: flat FAISS = matrix product, a defined order, and everything foreign or damaged is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import KEYWORDS, KeywordEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.checksums import checksum
from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import VectorIndex, build_index, index
from vidvec_msg.retrieval.indexes import build as indexing
from vidvec_msg.runs import digest_of, file_digest

DIM = 16


class Table:
    """An embedder that looks vectors up by id: any matrix becomes a vectors folder."""

    def __init__(self, vectors: dict[str, Vectors]) -> None:
        self.vectors = vectors
        self.card = EmbedderCard(name="table", dim=len(next(iter(vectors.values()))), weights="table")

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        rows = [self.vectors[item.id] for item in items]
        return np.array(rows, dtype=np.float32).reshape(-1, self.card.dim)


def units(count: int, dim: int = DIM, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def folder_of(out: Path, rows: Vectors, ids: Sequence[str] | None = None, **options: Any) -> Path:
    ids = ids or [f"d{i}" for i in range(len(rows))]
    items = [Item(name, text=f"text of {name}") for name in ids]
    table = Table(dict(zip(ids, rows, strict=True)))
    embed_items(items, table, role="document", out=out, progress=False, **options)
    return out


def expected_order(queries: Vectors, rows: Vectors, ids: Sequence[str], k: int) -> list[list[str]]:
    scores = queries @ rows.T
    return [[name for _, name in sorted(zip(row, ids, strict=True), reverse=True)[:k]] for row in scores]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return build_index(folder_of(tmp_path / "v", units(40), shard_size=15), tmp_path / "i")


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 60), dim=st.integers(1, 24), queries=st.integers(0, 30), k=st.integers(1, 80),
    shard_size=st.integers(1, 70), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_flat_index_is_the_matrix_product(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    dim: int,
    queries: int,
    k: int,
    shard_size: int,
    seed: int,
) -> None:
    tmp_path = tmp_path_factory.mktemp("i")
    # whole numbers: products are exact, so that ties are ties in any order of summation
    rows = np.random.default_rng(seed).integers(-1, 2, (count + queries, dim)).astype(np.float32)
    rows[~rows.any(axis=1), 0] = 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows, asked = rows[:count], rows[count:]
    opened = VectorIndex.open(
        build_index(folder_of(tmp_path / "v", rows, shard_size=shard_size), tmp_path / "i")
    )
    scores, ids = opened.search(asked, k)
    product = np.sort(asked @ rows.T, axis=1)[:, ::-1][:, :k]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, product, atol=1e-5)
    by_id = {f"d{i}": row for i, row in enumerate(rows)}
    for query, row_scores, row_ids in zip(asked, scores, ids, strict=True):
        assert len(row_ids) == len(set(row_ids)) == min(k, count)
        own = [float(query @ by_id[name]) for name in row_ids]
        np.testing.assert_allclose(own, row_scores, atol=1e-5)
        pairs = list(zip(row_scores.tolist(), row_ids, strict=True))
        assert pairs == sorted(pairs, reverse=True)


@pytest.mark.parametrize("queries", [1, 30])  # FAISS multiplies blocks of 20 and more in another way
@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_equal_scores_go_by_id_descending_also_at_the_cut(tmp_path: Path, queries: int, k: int) -> None:
    rows = np.repeat(np.eye(4, dtype=np.float32), [30, 1, 30, 1], axis=0)  # (62, 4)
    ids = [f"d{i:02}" for i in np.random.default_rng(0).permutation(62)]
    opened = VectorIndex.open(build_index(folder_of(tmp_path / "v", rows, ids), tmp_path / "i"))
    asked = np.tile(np.array([[0.6, 0.0, 0.8, 0.0]], np.float32), (queries, 1))
    _, found = opened.search(asked, k)
    assert found == expected_order(asked, rows, ids, k)


def test_plain_faiss_opens_the_index_and_rows_are_positions(made: Path, tmp_path: Path) -> None:
    plain = faiss.read_index(str(made / "index.faiss"))
    assert plain.metric_type == faiss.METRIC_INNER_PRODUCT
    ids = pq.read_table(made / "ids.parquet")["id"].to_pylist()
    _, positions = plain.search(units(40), 1)
    assert [ids[position] for position in positions[:, 0]] == [f"d{i}" for i in range(40)]


def test_the_manifest_tells_what_the_index_is(made: Path) -> None:
    manifest = json.loads((made / "index.json").read_text())
    expected = {
        "factory": "Flat", "factory_asked": "auto", "metric": "cosine", "count": 40, "dim": DIM,
        "role": "document", "embedder": None,
        "factory_reason": "40 vectors of 16 dimensions: exact search is fast enough", "recall": None,
        "format": 2, "generation": 1, "scores": "cosine",
    }  # fmt: skip
    assert {name: manifest[name] for name in expected} == expected
    assert (
        manifest["fingerprint"] == manifest["card"]["fingerprint"] == VectorIndex.open(made).card.fingerprint
    )
    assert sorted(path.name for path in made.iterdir()) == ["ids.parquet", "index.faiss", "index.json"]
    assert not list(made.parent.glob(".*partial"))


@pytest.mark.parametrize(
    "factory", ["Flat", "HNSW16,Flat", "IVF4,Flat", "SQ8", "PCA8,IVF4,Flat", "IVF4,PQ8x4"]
)
def test_every_kind_of_index_gives_metadata_and_more_like_this(tmp_path: Path, factory: str) -> None:
    rows = units(700)
    opened = VectorIndex.open(build_index(folder_of(tmp_path / "v", rows), tmp_path / "i", factory=factory))
    assert opened.manifest["factory"] == factory
    assert opened.metadata("d7")["text"] == "text of d7"
    vector = opened.vector("d7")
    assert vector.shape == (DIM,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert vector @ rows[7] > (0.99 if "P" not in factory else 0.5)
    scores, ids = opened.search(vector[None], 5)
    assert scores.shape == (1, 5)
    assert "d7" in ids[0]


def test_the_number_of_probed_lists_is_measured_kept_and_can_be_set(tmp_path: Path) -> None:
    rows = units(2000)
    made = build_index(folder_of(tmp_path / "v", rows, shard_size=300), tmp_path / "i", factory="IVF32,Flat")
    kept = json.loads((made / "index.json").read_text())["search_parameters"]
    assert kept == f"nprobe={faiss.read_index(str(made / 'index.faiss')).nprobe}"
    exact = expected_order(rows[:50], rows, [f"d{i}" for i in range(2000)], 10)
    _, all_lists = VectorIndex.open(made, search_parameters="nprobe=32").search(rows[:50], 10)
    assert all_lists == exact
    _, one_list = VectorIndex.open(made, search_parameters="nprobe=1").search(rows[:50], 10)
    assert one_list != exact
    with pytest.raises(
        RefusedRequest, match=r"does not take search_parameters 'probes=3'.*nprobe=N, graphs efSearch=N"
    ):
        VectorIndex.open(made, search_parameters="probes=3")


def test_what_an_approximate_index_does_not_find_is_no_result(tmp_path: Path) -> None:
    rows = units(400)
    made = build_index(folder_of(tmp_path / "v", rows), tmp_path / "i", factory="IVF8,Flat")
    scores, ids = VectorIndex.open(made, search_parameters="nprobe=1").search(rows[:3], 400)
    assert scores.shape == (3, 400)
    for row, names in zip(scores, ids, strict=True):
        assert 0 < len(names) < 400
        assert len(set(names)) == len(names)
        assert np.isfinite(row[: len(names)]).all()
        assert (row[len(names) :] == -np.inf).all()


def test_too_few_vectors_for_inverted_lists_give_exact_search_and_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = folder_of(tmp_path / "v", units(40))
    reason = "IVF64,Flat wants 2496 vectors to be trained and there are 40: exact search instead"
    with caplog.at_level("INFO"):
        manifest = VectorIndex.open(build_index(vectors, tmp_path / "i", factory="IVF64,Flat")).manifest
    assert (manifest["factory"], manifest["factory_asked"], manifest["factory_reason"]) == (
        "Flat",
        "IVF64,Flat",
        reason,
    )
    assert f"index: Flat ({reason})" in caplog.messages


@pytest.mark.parametrize("factory", ["Flatt", "PQ5", "LSH", ""])
def test_a_factory_string_that_faiss_does_not_take_is_refused(tmp_path: Path, factory: str) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    expected = rf"FAISS does not take factory '{factory}' for 16 dimensions and cosine \(.+\); give auto, or"
    with pytest.raises(RefusedRequest, match=expected):
        build_index(vectors, tmp_path / "i", factory=factory)
    assert not (tmp_path / "i").exists()


def test_half_precision_vectors_are_normalised_again(tmp_path: Path) -> None:
    rows = units(30)
    opened = VectorIndex.open(build_index(folder_of(tmp_path / "v", rows, dtype="float16"), tmp_path / "i"))
    scores, _ = opened.search(rows, 1)
    np.testing.assert_allclose(scores[:, 0], 1, atol=1e-6)
    assert np.linalg.norm(opened.vector("d3")) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.nan, "values that are not finite"),
        (np.inf, "values that are not finite"),
        (0.0, "norm 0"),
        (3.0, "norm 12"),
    ],
)
@pytest.mark.parametrize("factory", ["Flat", "IVF2,Flat"])
def test_a_bad_vector_is_refused_and_named(tmp_path: Path, value: float, text: str, factory: str) -> None:
    vectors = folder_of(tmp_path / "v", units(100), shard_size=30)
    shard = np.load(vectors / "shard-00001.npy")
    shard[4] = value
    replace_shard(vectors, 1, shard)
    with pytest.raises(
        RefusedRequest, match=f"the vector of 'd34' has {text}; cosine search takes finite vectors"
    ):
        build_index(vectors, tmp_path / "i", factory=factory)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def replace_shard(vectors: Path, number: int, rows: Vectors) -> None:
    """Puts other rows in the place of a shard and a matching checksum in the manifest."""
    path = vectors / f"shard-{number:05d}.npy"
    np.save(path, rows)
    manifest = json.loads((vectors / "manifest.json").read_text())
    manifest["shards"][number]["checksum"] = checksum(path)
    (vectors / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            np.full((2, DIM), np.nan, np.float32),
            r"the vector of query 0 has values that are not finite \(and 1 more are bad\)",
        ),
        (np.concatenate([units(1), np.zeros((1, DIM), np.float32)]), "the vector of query 1 has norm 0;"),
        (units(1, DIM + 1), r"vectors have the shape \(1, 17\); the index takes \(rows, 16\)"),
        (units(1)[0], r"vectors have the shape \(16,\); the index takes \(rows, 16\)"),
    ],
)
def test_a_bad_query_is_refused(made: Path, asked: Vectors, text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        VectorIndex.open(made).search(asked, 3)


@pytest.mark.parametrize("k", [0, -1])
def test_k_below_one_is_refused(made: Path, k: int) -> None:
    with pytest.raises(RefusedRequest, match=f"k is {k}; it must be at least 1"):
        VectorIndex.open(made).search(units(1), k)


def test_no_queries_give_no_results(made: Path) -> None:
    scores, ids = VectorIndex.open(made).search(np.zeros((0, DIM), np.float32), 3)
    assert scores.shape == (0, 3)
    assert ids == []


def test_ids_of_any_script_come_back_as_they_were(tmp_path: Path) -> None:
    names = ["ключ", "鍵 1", "a/b\tc", "🔑", "", "0"]
    opened = VectorIndex.open(build_index(folder_of(tmp_path / "v", units(6), names), tmp_path / "i"))
    assert opened.search(units(6), 1)[1] == [[name] for name in names]
    assert opened.metadata("🔑")["text"] == "text of 🔑"


def test_an_unknown_item_is_refused(made: Path) -> None:
    for ask in (VectorIndex.open(made).metadata, VectorIndex.open(made).vector):
        with pytest.raises(
            RefusedRequest, match=r"index .*i has no item 'x'; its 40 ids are in ids\.parquet"
        ):
            ask("x")


def test_an_interrupted_index_is_refused(made: Path) -> None:
    (made / "index.json").unlink()
    expected = r"index .*i is incomplete or was interrupted: index\.json is missing\. Run `vidvec-msg index`"
    with pytest.raises(RefusedRequest, match=expected):
        VectorIndex.open(made)
    with pytest.raises(RefusedRequest, match="does not exist"):
        VectorIndex.open(made / "nowhere")


@pytest.mark.parametrize("name", ["index.faiss", "ids.parquet"])
def test_a_cut_or_missing_file_is_refused(made: Path, name: str) -> None:
    whole = (made / name).read_bytes()
    (made / name).write_bytes(whole[:-1])
    expected = rf"{name} is damaged: found {len(whole) - 1} bytes, expected {len(whole)}\. Copy it again, or "
    with pytest.raises(RefusedRequest, match=expected):
        VectorIndex.open(made)
    manifest = json.loads((made / "index.json").read_text())
    del manifest["sizes"]  # as another tool may write it
    (made / "index.json").write_text(json.dumps(manifest))
    expected = (
        rf"{name} is damaged: found xxh3_128:\w{{32}}, expected xxh3_128:\w{{32}}\. Copy it again, or make it"
    )
    with pytest.raises(RefusedRequest, match=expected):
        VectorIndex.open(made)
    (made / name).unlink()
    with pytest.raises(RefusedRequest, match=f"{name} is damaged: found no file, expected"):
        VectorIndex.open(made, verify=False)


def test_files_of_two_indexes_are_refused(made: Path, tmp_path: Path) -> None:
    other = build_index(folder_of(tmp_path / "w", units(41)), tmp_path / "j")
    shutil.copyfile(other / "ids.parquet", made / "ids.parquet")
    manifest = json.loads((made / "index.json").read_text())
    del manifest["sizes"]  # as another tool may write it: they would tell already
    (made / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(
        RefusedRequest, match=r"index\.faiss holds 40 vectors, ids\.parquet 41 ids and .* says 40"
    ):
        VectorIndex.open(made, verify=False)


def test_a_foreign_embedder_is_refused(made: Path) -> None:
    own = VectorIndex.open(made).card
    assert len(VectorIndex.open(made, embedder_card=own)) == 40
    foreign = [
        EmbedderCard(name="other", dim=DIM, weights="x"),
        EmbedderCard(name="table", dim=8, weights="table"),
    ]
    for card in foreign:
        expected = (
            rf"was made with another embedder: found table \(16 dimensions, fingerprint {own.fingerprint}\), "
            rf"but queries come from {card.name} \({card.dim} dimensions, fingerprint {card.fingerprint}\)\. "
            r"Give the index's own embedder, or build an index with yours: `vidvec-msg index`"
        )
        with pytest.raises(RefusedRequest, match=expected):
            VectorIndex.open(made, embedder_card=card)


def test_interrupted_vectors_are_refused(tmp_path: Path) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    (vectors / "manifest.json").unlink()
    with pytest.raises(RefusedRequest, match=r"manifest\.json is missing"):
        build_index(vectors, tmp_path / "i")


def test_a_cut_shard_of_the_vectors_is_refused(tmp_path: Path) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    shard = vectors / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(RefusedRequest, match=r"shard-00000\.npy was changed or damaged"):
        build_index(vectors, tmp_path / "i")
    assert not (tmp_path / "i").exists()


def test_the_same_index_is_not_built_twice_and_another_one_not_over_it(made: Path, tmp_path: Path) -> None:
    before = (made / "index.faiss").stat().st_mtime_ns
    assert build_index(tmp_path / "v", made) == made
    assert (made / "index.faiss").stat().st_mtime_ns == before
    with pytest.raises(
        RefusedRequest, match=r"holds an index of other vectors or of another factory \(found 'auto', 40"
    ):
        build_index(tmp_path / "v", made, factory="Flat")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    with pytest.raises(RefusedRequest, match="already holds files"):
        build_index(tmp_path / "v", tmp_path / "full")


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    monkeypatch.setattr(
        indexing, "write_json", lambda path, content: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        build_index(vectors, tmp_path / "i")
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_an_index_that_another_process_finished_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, fill = folder_of(tmp_path / "v", units(5)), indexing.fill

    elsewhere = build_index(vectors, tmp_path / "j", factory="SQ8")

    def fill_while_another_builds(*given: Any, **named: Any) -> Any:
        elsewhere.rename(tmp_path / "i")
        return fill(*given, **named)

    monkeypatch.setattr(indexing, "fill", fill_while_another_builds)
    with pytest.raises(
        RefusedRequest, match=r"--out .*i: another process finished an index there; give another"
    ):
        build_index(vectors, tmp_path / "i", factory="Flat")
    assert VectorIndex.open(tmp_path / "i").manifest["factory"] == "SQ8"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i", "v"]


def test_a_kill_while_the_files_come_into_place_leaves_an_index_that_is_refused_and_resumed(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target == tmp_path / "i" / "index.json":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    assert (tmp_path / "i" / "index.faiss").exists()
    with pytest.raises(RefusedRequest, match=r"index\.json is missing"):
        VectorIndex.open(tmp_path / "i")
    out = index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    assert len(VectorIndex.open(out)) == 6


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "c"
    folder.mkdir()
    rows = [{"_id": f"d{i}", "text": " ".join(KEYWORDS[: i + 1])} for i in range(6)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_verb_embeds_a_collection_and_indexes_it(tmp_path: Path, collection: Path) -> None:
    out = index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    assert sorted(path.name for path in out.iterdir()) == [
        "ids.parquet",
        "index.faiss",
        "index.json",
        "vectors",
    ]
    opened = VectorIndex.open(out, embedder_card=KeywordEmbedder().card)
    assert opened.manifest["embedder"] == "fakes:KeywordEmbedder"
    query = KeywordEmbedder().encode([Item("q", text="apple")], role="query")
    assert opened.search(query, 2)[1] == [["d0", "d1"]]
    assert index(tmp_path / "j", vectors=out / "vectors") == tmp_path / "j"


def test_vectors_inside_the_index_folder_may_be_named_in_any_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors = folder_of(tmp_path / "i" / "vectors", units(5))
    assert len(VectorIndex.open(index(Path("i"), vectors=vectors))) == 5


@pytest.mark.parametrize(
    "options", [{"batch_size": 8}, {"shard_size": 8}, {"dtype": "float16"}, {"max_failures": 1}]
)
def test_options_without_effect_on_given_vectors_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    with pytest.raises(RefusedRequest, match=f"--{next(iter(options))}: without effect on --vectors"):
        index(tmp_path / "i", vectors=vectors, **options)
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("factory", ["PCA8,Flat", "NSG32,Flat", "IDMap,Flat"])
def test_what_faiss_cannot_fill_is_refused_in_its_words(tmp_path: Path, factory: str) -> None:
    vectors = folder_of(tmp_path / "v", units(5))
    expected = rf"cannot fill an index of factory '{factory}' with 5 vectors \(.+\); give auto, or another"
    with pytest.raises(RefusedRequest, match=expected) as caught:
        build_index(vectors, tmp_path / "i", factory=factory)
    assert ".cpp" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_equal_scores_are_in_the_order_of_the_trec_files(tmp_path: Path) -> None:
    """A space is %20 there, which comes after an exclamation mark: search and evaluate must agree."""
    rows = np.repeat(units(1), 3, axis=0)
    opened = VectorIndex.open(
        build_index(folder_of(tmp_path / "v", rows, ["a b", "a!b", "a"]), tmp_path / "i")
    )
    assert opened.search(units(1), 3)[1] == [["a b", "a!b", "a"]]


def test_an_interrupted_index_of_a_collection_goes_on(
    tmp_path: Path, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "vidvec_msg.retrieval.index.build_index", lambda *a, **b: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")

    def encode(self: KeywordEmbedder, items: Sequence[Item], *, role: Role) -> Vectors:
        pytest.fail("embedded again")

    monkeypatch.setattr(KeywordEmbedder, "encode", encode)
    out = index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    assert len(VectorIndex.open(out)) == 6


def test_too_many_failures_keep_the_vectors_and_build_no_index(tmp_path: Path, collection: Path) -> None:
    with (collection / "corpus.jsonl").open("a") as stream:
        stream.write('{"_id": "bad", "text": "nothing"}\n')
    with pytest.raises(TooManyFailures, match="1 of 7 items failed and 0 may"):
        index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    with pytest.raises(RefusedRequest, match=r"index\.json is missing"):
        VectorIndex.open(tmp_path / "i")
    out = index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder", max_failures=1)
    assert len(VectorIndex.open(out)) == 6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {},
            "given: neither; an index is built from --vectors V, or from --collection C with --embedder SPEC",
        ),
        ({"vectors": Path("v"), "collection": Path("c")}, "given: --vectors and --collection;"),
        ({"vectors": Path("v"), "embedder": "e"}, "given: --vectors and --embedder;"),
        ({"collection": Path("c")}, "given: --collection;"),
    ],
)
def test_the_verb_takes_exactly_one_of_its_two_ways(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RefusedRequest, match=text):
        index(tmp_path / "i", **options)


def test_a_bad_factory_is_refused_before_anything_is_embedded(tmp_path: Path, collection: Path) -> None:
    with pytest.raises(RefusedRequest, match="does not take factory 'Flatt'"):
        index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder", factory="Flatt")
    assert not (tmp_path / "i").exists()


def test_an_empty_corpus_is_refused(tmp_path: Path, collection: Path) -> None:
    (collection / "corpus.jsonl").write_text("")
    with pytest.raises(RefusedRequest, match="corpus"):
        index(tmp_path / "i", collection=collection, embedder="fakes:KeywordEmbedder")
    assert not (tmp_path / "i").exists()


def test_an_empty_vectors_folder_is_refused(tmp_path: Path) -> None:
    vectors = folder_of(tmp_path / "v", units(1))
    replace_shard(vectors, 0, units(0))
    manifest = json.loads((vectors / "manifest.json").read_text())
    manifest["count"] = manifest["shards"][0]["rows"] = 0
    (vectors / "manifest.json").write_text(json.dumps(manifest))
    pq.write_table(pq.read_table(vectors / "ids.parquet").slice(0, 0), vectors / "ids.parquet")
    with pytest.raises(RefusedRequest, match="it holds no vectors; embed a collection that is not empty"):
        build_index(vectors, tmp_path / "i")


def test_vectors_of_another_tool_are_indexed_if_they_keep_the_format(tmp_path: Path) -> None:
    vectors = tmp_path / "v"
    vectors.mkdir()
    np.save(vectors / "shard-00000.npy", units(3))
    pq.write_table(pa.table({"id": [7, 8, 9]}), vectors / "ids.parquet")  # whole numbers, no metadata

    def write(card: dict[str, Any]) -> None:
        shards = [{"file": "shard-00000.npy", "rows": 3}]
        manifest = {"card": card, "count": 3, "dim": DIM, "shards": shards}
        (vectors / "manifest.json").write_text(json.dumps(manifest))

    write({"name": "theirs", "dim": DIM})
    opened = VectorIndex.open(build_index(vectors, tmp_path / "i"))
    assert opened.search(units(3), 1)[1] == [["7"], ["8"], ["9"]]
    assert opened.metadata("8")["groups"] == {}
    manifest = json.loads((tmp_path / "i" / "index.json").read_text())
    shards, ids = ([file_digest(vectors / name)] for name in ("shard-00000.npy", "ids.parquet"))
    # what earlier versions identified it by: their index of it is still complete
    assert manifest["key"] == digest_of([shards, *ids, {"name": "theirs", "dim": DIM}, "auto"])
    np.save(vectors / "shard-00000.npy", units(3, seed=1))  # without a checksum it is noticed all the same
    with pytest.raises(RefusedRequest, match="holds an index of other vectors"):
        build_index(vectors, tmp_path / "i")
    write({"name": "theirs", "dims": DIM})
    with pytest.raises(RefusedRequest, match=r"vectors folder .*v: not an embedder card: .*dims"):
        build_index(vectors, tmp_path / "j")
    write({"name": "theirs", "dim": 8})
    pq.write_table(pa.table({"id": ["a", "b", "a"]}), vectors / "ids.parquet")
    expected = (
        "2 problems\n  - id 'a' stands 2 times; .*\n  - its card says 8 dimensions, its vectors have 16"
    )
    with pytest.raises(RefusedRequest, match=expected):
        build_index(vectors, tmp_path / "j")
