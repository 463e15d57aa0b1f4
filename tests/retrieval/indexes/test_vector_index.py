"""An opened index: filters, mapped files, formats, threads, and everything damaged is refused by name."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_histories import best, found, signs, vectors_folder

from vidvec_msg.checksums import checksum
from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes import folder as index_folder
from vidvec_msg.retrieval.indexes import items as index_items
from vidvec_msg.retrieval.indexes import segment as index_segment
from vidvec_msg.retrieval.indexes import vector_index as opening
from vidvec_msg.retrieval.indexes.add import add_vectors
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.delete import delete_items
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index
from vidvec_msg.retrieval.indexes.items import ItemTable, first_with_id, write_items
from vidvec_msg.retrieval.indexes.selection import is_exhaustive, search_among, search_among_nearly_all
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

KINDS = ["Flat", "HNSW16,Flat", "IVF8,Flat", "SQ8", "PQ8x4", "IVF8,PQ8x4", "PCA8,IVF8,Flat", "NSG16,Flat",
         "PQ8x4fs", "IVF8,PQ8x4fs", "PQ8x4,RFlat", "RaBitQ"]  # fmt: skip


def units(count: int, dim: int = 16, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"d{number}" for number in range(first, first + count)]


def topics(names: list[str], *values: str) -> dict[str, list[str]]:
    return {"groups": [json.dumps({"topic": values[place % len(values)]}) for place in range(len(names))]}


@cache
def filled(factory: str) -> Any:
    """A FAISS index of ``units(200)``; not to be changed."""
    index = empty_index(factory, 16)
    index.train(units(200))
    index.add(units(200))
    return index


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, a deleted item; not to be changed."""
    folder = tmp_path_factory.mktemp("i")
    index = build_index(vectors_folder(folder / "v", signs(40), numbered(40)), folder / "i")
    add_vectors(index, vectors_folder(folder / "w", signs(10, 1), numbered(10, 40)))
    return delete_items(index, ["d3"])


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "i"))


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=3), values=st.integers(1, 9),
    k=st.integers(1, 70), gone=st.integers(0, 20), seed=st.integers(0, 999),
)  # fmt: skip
def test_a_filter_is_the_matrix_product_with_what_it_lets_through(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], values: int, k: int, gone: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("i")
    rows, ids = signs(sum(counts), seed), numbered(sum(counts))
    groups = topics(ids, *(f"t{value}" for value in range(values)))
    for part, count in enumerate(counts):
        first = sum(counts[:part])
        here = slice(first, first + count)
        vectors = vectors_folder(
            folder / f"v{part}", rows[here], ids[here], columns={"groups": groups["groups"][here]}
        )
        if part:
            add_vectors(folder / "i", vectors)
        else:
            build_index(vectors, folder / "i")
    deleted = np.random.default_rng(seed).permutation(ids)[: min(gone, len(ids) - 1)].tolist()
    if deleted:
        delete_items(folder / "i", deleted)
    kept = [place for place, name in enumerate(ids) if place % values == 0 and name not in deleted]
    queries = signs(4, seed + 1)
    for mmap in (False, True):
        opened = VectorIndex.open(folder / "i", mmap=mmap)
        where = {"topic": frozenset({"t0"})}
        scores, names = opened.search(queries, k, where=where)
        assert scores.shape == (4, min(k, len(kept)))
        expected = best(queries, rows[kept], [ids[place] for place in kept], k)
        assert names == [[name for _, name in row] for row in expected]
        assert scores.tolist() == [[score for score, _ in row] for row in expected]


@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_every_kind_finds_only_what_may_be_found_and_enough_of_it(
    tmp_path: Path, factory: str, share: float
) -> None:
    rows, ids = units(700), numbered(700)
    every = round(1 / share)
    columns = topics(ids, "yes", *["no"] * (every - 1))
    index = build_index(
        vectors_folder(tmp_path / "v", rows, ids, columns=columns, shard_size=700), tmp_path / "i",
        factory=factory,
    )  # fmt: skip
    opened, where = VectorIndex.open(index), {"topic": frozenset({"yes"})}
    allowed = numbered(700)[::every]
    _, names = opened.search(rows[:60], 5, where=where)
    exact = best(rows[:60], rows[::every], allowed, 5)
    hits = [len({name for _, name in e} & set(row)) / 5 for e, row in zip(exact, names, strict=True)]
    _, unfiltered = opened.search(rows[:60], 5)
    plain = best(rows[:60], rows, ids, 5)
    usual = [len({name for _, name in e} & set(row)) / 5 for e, row in zip(plain, unfiltered, strict=True)]
    assert {name for row in names for name in row} <= set(allowed)
    assert {len(row) for row in names} == {5}
    assert np.mean(hits) > np.mean(usual) - 0.15  # a filter costs no recall worth speaking of
    _, everything = opened.search(rows[:3], 1000, where=where)
    assert {len(row) for row in everything} == {len(allowed)}


def test_a_selective_filter_on_a_graph_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ids = units(1500), numbered(1500)
    columns = topics(ids, "yes", *["no"] * 99)
    index = build_index(
        vectors_folder(tmp_path / "v", rows, ids, columns=columns, shard_size=900), tmp_path / "i",
        factory="HNSW8,Flat",
    )  # fmt: skip
    opened, where = VectorIndex.open(index, search_parameters="efSearch=4"), {"topic": frozenset({"yes"})}
    exact = best(rows[:50], rows[::100], ids[::100], 5)
    _, names = opened.search(rows[:50], 5, where=where)
    assert names == [[name for _, name in row] for row in exact]
    found_by_graph = search_among(opened.segments[0].faiss_index, rows[:50], 5, np.arange(1500) % 100 == 0)
    assert (found_by_graph[1] < 0).any()  # which is why
    monkeypatch.setattr(index_segment, "COMPARED", 0)
    _, names = opened.search(rows[:50], 5, where=where)
    hits = [len({name for _, name in e} & set(row)) / 5 for e, row in zip(exact, names, strict=True)]
    assert np.mean(hits) > 0.9  # by the graph, which looks 100 times harder


@pytest.mark.parametrize("factory", KINDS)
@given(gone=st.sets(st.integers(0, 199), max_size=19), k=st.integers(1, 200))
@settings(max_examples=15, deadline=None)
def test_a_plain_search_for_a_few_more_finds_what_a_selector_finds(
    factory: str, gone: set[int], k: int
) -> None:
    rows, allowed = units(200), ~np.isin(np.arange(200), list(gone))
    index = filled(factory)
    found = search_among_nearly_all(index, rows[:9], k, allowed, most=200)
    if found is None:  # the nearest of some query are among those that are gone
        assert len(gone) > k // 4 + 8
        return
    scores, positions = found
    assert scores.shape == positions.shape == (9, k)
    assert not set(positions[positions >= 0].tolist()) & gone
    selected = search_among(index, rows[:9], k, allowed)
    if is_exhaustive(index) and not factory.endswith("RFlat"):  # which finds more when it is asked for more
        there = positions >= 0
        assert (there == (selected[1] >= 0)).all()
        np.testing.assert_allclose(scores[there], selected[0][there], atol=2e-6)
    every, _ = index.search(rows[:9], 200)
    assert ((positions >= 0).sum(axis=1) >= np.minimum(k, (every > -1e30).sum(axis=1) - len(gone))).all()


def test_deletions_leave_a_search_where_it_is_unless_they_are_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, ids = units(700), numbered(700)
    index = build_index(vectors_folder(tmp_path / "v", rows, ids, shard_size=700), tmp_path / "i")
    nearest = np.argsort(-rows @ rows[0])[:40]
    delete_items(index, [ids[place] for place in nearest[:3]])
    selectors: list[int] = []
    used = index_segment.search_among
    monkeypatch.setattr(
        index_segment, "search_among", lambda *a, **b: selectors.append(len(a[1])) or used(*a, **b)
    )
    for gone in (3, 40):  # three more are asked for; forty would be too many
        delete_items(index, [ids[place] for place in nearest[:gone]], missing="skip")
        kept = np.delete(np.arange(700), nearest[:gone])
        exact = best(rows[:8], rows[kept], [ids[place] for place in kept], 5)
        opened = VectorIndex.open(index)
        opened.segments[0]._on_gpu = opened.segments[0].faiss_index  # which has no selectors
        _, names = opened.search(rows[:8], 5)
        assert names == [[name for _, name in row] for row in exact]
        assert selectors == ([] if gone == 3 else [8])


def test_scores_are_the_same_by_lists_and_by_comparing_all(tmp_path: Path) -> None:
    rows, ids = units(700), numbered(700)
    for factory in ("IVF4,Flat", "IVF4,SQ8", "IVF4,PQ8x4", "PCA8,IVF4,Flat", "RR16,IVF4,PQ8x4"):
        vectors = vectors_folder(tmp_path / factory / "v", rows, ids, shard_size=400)
        index = build_index(vectors, tmp_path / factory / "i", factory=factory)
        segment = VectorIndex.open(index, search_parameters="nprobe=4").segments[0]
        few = np.arange(700) % 100 == 7  # less than EXACT_SHARE
        compared = segment.search(rows[:5], 7, few)
        searched = search_among(segment.faiss_index, rows[:5], 7, few)
        assert (compared[1] == searched[1]).all()
        np.testing.assert_allclose(compared[0], searched[0], atol=2e-6)


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "HNSW16,Flat", "SQ8", "IVF8,PQ8x4", "IVF8,PQ8x4fs"])
def test_mapped_files_give_the_same_as_files_in_memory(tmp_path: Path, factory: str) -> None:
    rows, ids = units(700), numbered(700)
    index = build_index(
        vectors_folder(tmp_path / "v", rows, ids, shard_size=400), tmp_path / "i", factory=factory
    )
    delete_items(index, ["d5"])
    plain, mapped = VectorIndex.open(index), VectorIndex.open(index, mmap=True)
    for where in (None, {"topic": frozenset({"even"})}):
        assert found(mapped, rows[:20], 9, where=where) == found(plain, rows[:20], 9, where=where)
    if factory.endswith("fs"):  # FAISS would crash
        with pytest.raises(
            RefusedRequest, match=r"fs cannot give vectors back \(its lists hold codes in blo"
        ):
            mapped.vector("d8")
    else:
        assert (mapped.vector("d8") == plain.vector("d8")).all()
    assert mapped.metadata("d8") == plain.metadata("d8")


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    "name", ["index.faiss", "index.g2.faiss", "ids.parquet", "ids.g2.parquet", "deleted.g3.npy"]
)
def test_a_file_that_is_cut_short_is_refused_by_name(copied: Path, name: str, mmap: bool) -> None:
    whole = (copied / name).read_bytes()
    (copied / name).write_bytes(whole[:-1])
    told = rf"index .*i: {name} is damaged: found .*, expected .*Copy it again, or make it again"
    with pytest.raises(RefusedRequest, match=told):
        VectorIndex.open(copied, mmap=mmap)
    with pytest.raises(RefusedRequest, match=rf"{name} is damaged: found {len(whole) - 1} bytes, expected"):
        VectorIndex.open(copied, verify=False, mmap=mmap)
    (copied / name).unlink()
    plain = name.replace(".g2", "").replace(".g3", "")
    if plain == name or name.startswith("deleted"):
        with pytest.raises(RefusedRequest, match=rf"{plain} is damaged: found no file"):
            VectorIndex.open(copied, mmap=mmap)


def test_exact_vectors_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    vectors = vectors_folder(tmp_path / "v", units(300), numbered(300))
    index = build_index(vectors, tmp_path / "i", factory="SQ8", rescore="float16")
    whole = (index / "vectors.npy").read_bytes()
    (index / "vectors.npy").write_bytes(whole[:-32])
    with pytest.raises(RefusedRequest, match=r"vectors\.npy is damaged: found \d+ bytes, expected"):
        VectorIndex.open(index, mmap=True)
    manifest = json.loads((index / "index.json").read_text())
    del manifest["sizes"]  # by another writer
    (index / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(RefusedRequest, match=r"vectors\.npy cannot be read \(mmap length"):
        VectorIndex.open(index, verify=False)
    np.save(index / "vectors.npy", units(299))
    told = r"holds float32 \(299, 16\), expected float16 or float32 \(300, 16\)"
    with pytest.raises(RefusedRequest, match=told):
        VectorIndex.open(index, verify=False)


def test_a_mapped_index_is_not_read_whole_to_be_checked(copied: Path) -> None:
    content = bytearray((copied / "index.faiss").read_bytes())
    content[-5] ^= 1
    (copied / "index.faiss").write_bytes(content)
    assert len(VectorIndex.open(copied, mmap=True)) == 49
    with pytest.raises(
        RefusedRequest, match=r"index\.faiss is damaged: found xxh3_128:\w{32}, expected xxh3_128:\w{32}\."
    ):
        VectorIndex.open(copied)


def test_faiss_files_are_not_read_once_more_for_their_checksums(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []

    def noted(path: Path, *, like: str = "") -> str:
        hashed.append(path.name)
        return checksum(path, like=like)

    monkeypatch.setattr(index_folder, "checksum", noted)
    VectorIndex.open(copied)
    assert sorted(hashed) == ["deleted.g3.npy", "ids.g2.parquet", "ids.parquet"]


def edited(index: Path, **changes: Any) -> Path:
    manifest = json.loads((index / "index.json").read_text()) | changes
    (index / "index.json").write_text(json.dumps({k: v for k, v in manifest.items() if v is not ...}))
    return index


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"format": 3},
            r"index .*i is of format 3; this version of vidvec-msg knows up to 2\. Update vidvec",
        ),
        ({"format": "x"}, "is of format x; this version"),
        ({"engine": "milvus"}, "is kept by milvus, not in FAISS files"),
        ({"segments": ..., "card": ...}, r"index\.json lacks card, segments\. Make the index again"),
        (
            {"segments": [{"index": "index.faiss", "count": 50}]},
            "lacks ids of a segment, factory of a segment",
        ),
        (
            {"deleted": {"file": "../v/deleted.npy", "count": 1}},
            r"names '\.\./v/deleted\.npy'; the files of an index lie in its folder",
        ),
        ({"count": 48}, r"its files hold 49 items that are not deleted and index\.json says 48"),
        ({"deleted": {"file": "deleted.g3.npy", "count": 2}}, "does not hold 2 different positions below 50"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(copied: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        VectorIndex.open(edited(copied, **changes))


def test_a_manifest_without_checksums_is_refused_for_every_file(copied: Path) -> None:
    manifest = json.loads((copied / "index.json").read_text())
    name, *others = manifest["checksums"]
    without = "".join(rf".*- no checksum of {re.escape(one)}\. Make the index again" for one in others)
    (copied / "index.json").write_text(json.dumps({**manifest, "checksums": {name: "md5:00"}}))
    first = (
        rf"(?s)index .*i: index\.json: {len(others) + 1} problems.*{re.escape(name)}: the checksum 'md5:00'"
    )
    for mmap in (False, True):
        with pytest.raises(RefusedRequest, match=first):
            VectorIndex.open(copied, mmap=mmap)
        with pytest.raises(RefusedRequest, match="(?s)" + without):
            VectorIndex.open(copied, mmap=mmap)
    (copied / "index.json").write_text(json.dumps({**manifest, "checksums": None}))
    with pytest.raises(RefusedRequest, match=rf"(?s)no checksum of {re.escape(name)}{without}"):
        VectorIndex.open(copied)


@pytest.mark.parametrize("positions", [[-1], [50], [3, 3], [[3]], [3, 4]])
def test_deleted_positions_that_cannot_be_are_refused(copied: Path, positions: list[int]) -> None:
    np.save(copied / "deleted.g3.npy", np.array(positions))
    manifest = json.loads((copied / "index.json").read_text())
    edited(copied, sizes={**manifest["sizes"], "deleted.g3.npy": (copied / "deleted.g3.npy").stat().st_size})
    with pytest.raises(
        RefusedRequest, match=r"deleted\.g3\.npy does not hold 1 different positions below 50"
    ):
        VectorIndex.open(copied, verify=False)


def test_a_folder_that_changes_without_end_is_given_up(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generations = iter(range(10_000))
    plain = opening.read_manifest
    monkeypatch.setattr(
        opening, "read_manifest", lambda folder: {**plain(folder), "generation": next(generations)}
    )
    with pytest.raises(RefusedRequest, match="was changed 100 times while it was being opened"):
        VectorIndex.open(made)


def test_threads_share_an_index(made: Path) -> None:
    opened, queries = VectorIndex.open(made), signs(12, 7)
    jobs = [(query, where) for query in queries for where in ("even", "odd", "") for _ in range(4)]

    def ask(job: tuple[Vectors, str]) -> Any:
        where = {"topic": frozenset({job[1]})} if job[1] else None
        names = opened.search(job[0][None], 5, where=where)[1][0]
        return names, opened.metadata_of(names), opened.vector(names[0]).tolist()

    alone = [ask(job) for job in jobs]
    again = VectorIndex.open(made)
    opened = again
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, jobs)) == alone


def test_metadata_of_results_needs_no_search_for_their_ids(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million ids are sorted in six seconds, which a single question must not wait for."""
    opened = VectorIndex.open(copied)
    _, names = opened.search(signs(3), 7)
    with monkeypatch.context() as patched:
        patched.setattr(ItemTable, "candidates", lambda *_: pytest.fail("looked for"))
        rows = opened.metadata_of([name for row in names for name in row])
    assert [row["id"] for row in rows] == [name for row in names for name in row]
    assert opened.metadata("d7")["id"] == "d7"  # whether it was found or not
    monkeypatch.setattr(opening, "_REMEMBERED", 20)
    again = VectorIndex.open(copied)
    again.search(signs(3), 7)
    assert [again.metadata(name) for name in names[0]] == rows[:7]


@pytest.mark.parametrize("kept_rows", [0, 5, 10_000])
def test_metadata_of_any_row_group_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_rows: int
) -> None:
    monkeypatch.setattr(index_items, "_KEPT_ROWS", kept_rows)
    monkeypatch.setattr(index_items, "ROW_GROUP", 3)
    vectors = vectors_folder(tmp_path / "v", signs(20), numbered(20))
    items = ItemTable([vectors / "ids.parquet", vectors / "ids.parquet"])
    kept = np.arange(40) % 4 != 1
    write_items(tmp_path / "ids.parquet", items, kept)
    assert pq.ParquetFile(tmp_path / "ids.parquet").metadata.num_row_groups == 10
    written = ItemTable([tmp_path / "ids.parquet"])
    expected = [name for name, keep in zip(numbered(20) * 2, kept, strict=True) if keep]
    assert written.ids.to_pylist() == expected
    random = np.random.default_rng(0)
    for _ in range(5):
        positions = random.integers(0, len(expected), 12).tolist()
        rows = written.rows(positions)
        assert [row["text"] for row in rows] == [f"text of {expected[place]}" for place in positions]
        assert written.rows(positions, ["id"]) == [{"id": expected[place]} for place in positions]


@pytest.mark.parametrize(("largest", "groups"), [(20, 1), (19, 7)])
def test_large_row_groups_of_another_tool_are_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: int, groups: int
) -> None:
    monkeypatch.setattr(index_items, "_LARGEST_KEPT", largest)
    monkeypatch.setattr(index_items, "ROW_GROUP", 3)
    index = build_index(vectors_folder(tmp_path / "v", signs(20), numbered(20)), tmp_path / "i")
    written = pq.ParquetFile(index / "ids.parquet")
    assert written.metadata.num_row_groups == groups
    assert written.read()["id"].to_pylist() == numbered(20)
    assert VectorIndex.open(index).metadata("d7")["text"] == "text of d7"


@settings(max_examples=40, deadline=None)
@given(names=st.lists(st.text(max_size=3), min_size=1, max_size=30))
def test_an_id_is_found_wherever_it_stands(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    vectors = vectors_folder(tmp_path_factory.mktemp("i") / "v", signs(len(names)), names)
    items = ItemTable([vectors / "ids.parquet"])
    for name in [*names, "absent"]:
        places = [place for place, other in enumerate(names) if other == name]
        assert list(items.candidates(name)) == places
        assert np.flatnonzero(items.among([name])).tolist() == places


@settings(max_examples=40, deadline=None)
@given(
    tables=st.lists(st.lists(st.sampled_from("abcdé"), max_size=6), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_the_first_row_with_an_id_is_found_through_all_tables(
    tmp_path_factory: pytest.TempPathFactory, tables: list[list[str]], order: Any
) -> None:
    folder = tmp_path_factory.mktemp("i")
    for number, names in enumerate(tables):
        pq.write_table(pa.table({"id": pa.array(names, pa.string())}), folder / f"{number}.parquet")
    opened = [ItemTable([folder / f"{number}.parquet"]) for number in range(len(tables))]
    every = [name for names in tables for name in names]
    rows = [row for row in range(len(every)) if order.random() < 0.8]
    order.shuffle(rows)
    found = first_with_id(opened, np.array(rows, dtype=np.int64))
    assert found.tolist() == [next(one for one in rows if every[one] == every[row]) for row in rows]


def test_search_parameters_go_to_the_segments_that_take_them(tmp_path: Path) -> None:
    rows, ids = units(700), numbered(700)
    index = build_index(vectors_folder(tmp_path / "v", rows, ids), tmp_path / "i", factory="IVF8,Flat")
    add_vectors(index, vectors_folder(tmp_path / "w", rows[:9], numbered(9, 900)))
    opened = VectorIndex.open(index, search_parameters="nprobe=5")
    assert [segment.faiss_index.nprobe for segment in opened.segments] == [5, 5]
    with pytest.raises(RefusedRequest, match="does not take search_parameters 'efSearch=5'"):
        VectorIndex.open(index, search_parameters="efSearch=5")


def test_a_filter_that_matches_nothing_finds_nothing_or_is_refused(made: Path) -> None:
    opened = VectorIndex.open(made)
    where = {"id": frozenset({"d3"})}  # deleted
    scores, names = opened.search(signs(2), 5, where=where)
    assert (scores.shape, names) == ((2, 0), [[], []])
    with pytest.raises(RefusedRequest, match="no item matches id=d3"):
        opened.refuse_no_match(where)
    opened.refuse_no_match({"id": frozenset({"d4"})})
    assert opened.search(signs(2), 5, where={"id": frozenset({"d4"})})[1] == [["d4"], ["d4"]]


def test_ties_beyond_those_that_are_sorted_for_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.repeat(signs(2), 30, axis=0)
    ids = [f"d{i}" for i in np.random.default_rng(0).permutation(60)]
    index = build_index(vectors_folder(tmp_path / "v", rows, ids), tmp_path / "i")
    expected = best(rows[:1], rows, ids, 7)
    for few in (1, 4096):
        monkeypatch.setattr(opening, "_FEW", few)
        assert found(VectorIndex.open(index), rows[:1], 7) == expected


def test_plain_faiss_opens_every_segment(made: Path) -> None:
    assert faiss.read_index(str(made / "index.faiss")).ntotal == 40
    assert faiss.read_index(str(made / "index.g2.faiss")).ntotal == 10
