"""Additions, replacements, deletions, compaction: each equals an index built anew of what is there."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from fakes import KEYWORDS, KeywordEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st
from index_histories import (
    CARD,
    DIM,
    State,
    as_of_an_earlier_version,
    beginning,
    best,
    carry_out,
    folder_of_state,
    found,
    holds,
    signs,
    vectors_folder,
)

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest, TooManyFailures
from vidvec_msg.formats import items as items_module
from vidvec_msg.retrieval import disk_space
from vidvec_msg.retrieval.indexes import add as adding
from vidvec_msg.retrieval.indexes import changes
from vidvec_msg.retrieval.indexes import estimate as index_estimate
from vidvec_msg.retrieval.indexes.add import add_vectors, index_add
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.changes import changing
from vidvec_msg.retrieval.indexes.compact import index_compact
from vidvec_msg.retrieval.indexes.delete import delete_items, index_delete
from vidvec_msg.retrieval.indexes.merge import index_merge
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

HIDDEN = {".writer.lock"}


def units(count: int, seed: int = 0, dim: int = DIM) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def names_in(index: Path) -> set[str]:
    return {path.name for path in index.iterdir()} - HIDDEN


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, State]:
    return tmp_path / "index", beginning(tmp_path)


@settings(max_examples=10, deadline=None)
@given(
    steps=st.lists(st.integers(0, 400), min_size=1, max_size=7, unique=True),
    earlier=st.integers(0, 7),
)
def test_any_history_of_changes_equals_an_index_built_anew(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], earlier: int
) -> None:
    """One of the states may have been written by an earlier version."""
    folder = tmp_path_factory.mktemp("i")
    state = beginning(folder)
    for number, step in enumerate(steps):
        if number == earlier:
            as_of_an_earlier_version(folder / "index")
        state = carry_out(folder, state, step)
        holds(folder / "index", state)
    anew = build_index(folder_of_state(folder / "anew", state), folder / "second")
    queries = signs(20, seed=5)
    index = folder / "index"
    for opened in (VectorIndex.open(index), VectorIndex.open(index, mmap=True)):
        assert found(opened, queries, 9) == found(VectorIndex.open(anew), queries, 9)


def test_the_folder_holds_what_the_manifest_names_and_nothing_else(made: tuple[Path, State]) -> None:
    index, state = made
    plain = {"index.faiss", "ids.parquet", "index.json"}
    assert names_in(index) == plain
    state = carry_out(index.parent, state, 0)
    assert names_in(index) == plain | {"index.g2.faiss", "ids.g2.parquet"}
    state = carry_out(index.parent, state, 2)
    assert names_in(index) == plain | {"index.g2.faiss", "ids.g2.parquet", "deleted.g3.npy"}
    state = carry_out(index.parent, state, 3)
    assert names_in(index) == plain
    assert faiss.read_index(str(index / "index.faiss")).ntotal == len(state)
    manifest = json.loads((index / "index.json").read_text())
    assert (manifest["generation"], manifest["format"], manifest["count"]) == (4, 2, len(state))
    assert set(manifest["checksums"]) == set(manifest["sizes"]) == plain - {"index.json"}


def test_an_item_may_be_deleted_and_added_again(made: tuple[Path, State]) -> None:
    index, state = made
    delete_items(index, ["d3"])
    with pytest.raises(RefusedRequest, match="has no item 'd3'; its 19 ids"):
        VectorIndex.open(index).vector("d3")
    add_vectors(index, folder_of_state(index.parent / "again", {"d3": 7}))
    holds(index, {**{name: 0 for name in state if name != "d3"}, "d3": 7})


def test_everything_may_be_deleted_and_the_index_filled_again(made: tuple[Path, State]) -> None:
    index, state = made
    delete_items(index, list(state))
    assert VectorIndex.open(index).search(signs(2), 5)[1] == [[], []]
    index_compact(index)
    assert VectorIndex.open(index).search(signs(2), 5)[1] == [[], []]
    add_vectors(index, folder_of_state(index.parent / "again", {"d1": 1, "d2": 0}))
    holds(index, {"d1": 1, "d2": 0})


def test_an_index_of_format_1_is_opened_and_changed(made: tuple[Path, State]) -> None:
    index, state = made
    manifest = json.loads((index / "index.json").read_text())
    kept = ("card", "fingerprint", "embedder", "role", "factory", "search_parameters", "count", "dim", "key",
            "checksums")  # fmt: skip
    (index / "index.json").write_text(json.dumps({"format": 1, **{name: manifest[name] for name in kept}}))
    holds(index, state)
    for step in range(4):
        state = carry_out(index.parent, state, step)
        holds(index, state)


LISTS = ["IVF4,Flat", "IVF4,SQ8", "IVF4,PQ8x4", "RR16,IVF4,PQ8x4", "IVF4,RaBitQ"]
CODES = ["SQ8", "PQ8x4", "RaBitQ", "SQ8,Refine(SQfp16)"]


@pytest.mark.parametrize("factory", LISTS + CODES)
def test_what_was_trained_stays_and_codes_are_not_rounded_again(tmp_path: Path, factory: str) -> None:
    rows = units(900)
    index = build_index(
        vectors_folder(tmp_path / "v", rows[:700], [f"d{i}" for i in range(700)], shard_size=300),
        tmp_path / "i", factory=factory,
    )  # fmt: skip
    # five vectors would train nothing
    for first, last in ((700, 705), (705, 900)):
        ids = [f"d{i}" for i in range(first, last)]
        add_vectors(index, vectors_folder(tmp_path / f"v{first}", rows[first:last], ids, shard_size=300))
    delete_items(index, [f"d{i}" for i in range(0, 900, 3)])
    probes = "nprobe=4" if "IVF" in factory else ""
    before = found(VectorIndex.open(index, search_parameters=probes), rows[:40], 8)
    assert not {name for row in before for _, name in row} & {f"d{i}" for i in range(0, 900, 3)}
    # the kind that it has already is no other one: codes are not decoded to be trained anew
    index_compact(index, factory="" if factory == "IVF4,Flat" else factory)
    after = found(VectorIndex.open(index, search_parameters=probes), rows[:40], 8)
    assert [[name for _, name in row] for row in after] == [[name for _, name in row] for row in before]
    np.testing.assert_allclose(
        [[score for score, _ in row] for row in after],
        [[score for score, _ in row] for row in before],
        atol=1e-6,
    )
    whole = build_index(
        vectors_folder(tmp_path / "w", rows[:700], [f"d{i}" for i in range(700)], shard_size=300),
        tmp_path / "j", factory=factory,
    )  # fmt: skip
    # the training of the first 700, and no other
    own, first = VectorIndex.open(index), VectorIndex.open(whole)
    np.testing.assert_allclose(own.vector("d7"), first.vector("d7"), atol=1e-6)


@pytest.mark.parametrize("factory", ["IVF4,PQ8x4fs", "HNSW16,SQ8", "PQ8x4fs"])
def test_every_kind_takes_additions_and_deletions(tmp_path: Path, factory: str) -> None:
    rows = units(700)
    ids = [f"d{i}" for i in range(700)]
    index = build_index(
        vectors_folder(tmp_path / "v", rows[:650], ids[:650], shard_size=300), tmp_path / "i", factory=factory
    )
    delete_items(index, ids[:100])
    add_vectors(index, vectors_folder(tmp_path / "w", rows[650:], ids[650:]))
    opened = VectorIndex.open(index)
    _, names = opened.search(rows, 5)
    assert not set(ids[:100]) & {name for row in names for name in row}
    assert {len(row) for row in names} == {5}
    own = sum(ids[place] in names[place] for place in range(100, 700))
    assert own > (580 if "PQ" not in factory else 450)


@pytest.mark.parametrize("factory", ["HNSW16,SQ8", "IVF4,PQ8x4fs"])
def test_codes_that_cannot_move_are_not_compacted(tmp_path: Path, factory: str) -> None:
    rows = units(700)
    index = build_index(
        vectors_folder(tmp_path / "v", rows, [f"d{i}" for i in range(700)]), tmp_path / "i", factory=factory
    )
    delete_items(index, ["d1"])
    before = names_in(index)
    expected = (
        rf"cannot be compacted: 2 problems\n  - index\.faiss \({factory}\) holds 700 vectors as lossy codes, "
    )
    expected += rf"which cannot become {factory} .*\n  - make the index again from its vectors folders"
    with pytest.raises(RefusedRequest, match=expected):
        index_compact(index)
    assert names_in(index) == before
    with pytest.raises(RefusedRequest, match="which cannot become Flat"):
        index_compact(index, factory="Flat")


def test_a_graph_is_built_anew_of_exact_vectors(tmp_path: Path) -> None:
    rows, ids = units(500), [f"d{i}" for i in range(500)]
    index = build_index(vectors_folder(tmp_path / "v", rows, ids), tmp_path / "i", factory="HNSW16,Flat")
    delete_items(index, ids[:250])
    index_compact(index)
    opened = VectorIndex.open(index)
    assert opened.segments[0].faiss_index.ntotal == 250
    assert opened.vector("d499") == pytest.approx(rows[499], abs=1e-6)
    assert [row[0] for row in opened.search(rows[250:], 1)[1]] == ids[250:]


def test_compacting_may_change_the_factory(tmp_path: Path) -> None:
    rows, ids = units(500), [f"d{i}" for i in range(500)]
    index = build_index(vectors_folder(tmp_path / "v", rows, ids), tmp_path / "i", factory="HNSW16,Flat")
    index_compact(index, factory="Flat")
    manifest = VectorIndex.open(index).manifest
    assert (manifest["factory"], manifest["factory_asked"], manifest["scores"]) == ("Flat", "Flat", "cosine")
    assert manifest["metric"] == "cosine"
    assert isinstance(faiss.read_index(str(index / "index.faiss")), faiss.IndexFlat)
    exact = best(rows[:9], rows, ids, 4)
    assert [[name for _, name in row] for row in found(VectorIndex.open(index), rows[:9], 4)] == [
        [name for _, name in row] for row in exact
    ]
    with pytest.raises(RefusedRequest, match="FAISS does not take factory 'Flatt'"):
        index_compact(index, factory="Flatt")


@pytest.mark.parametrize("rescore", ["float16", "float32"])
def test_shortening_and_rescoring_go_on_in_additions(tmp_path: Path, rescore: Any) -> None:
    rows, ids = units(300), [f"d{i}" for i in range(300)]
    index = build_index(
        vectors_folder(tmp_path / "v", rows[:200], ids[:200]), tmp_path / "i",
        factory="Flat", truncate_dim=8, rescore=rescore, oversample=50,
    )  # fmt: skip
    add_vectors(index, vectors_folder(tmp_path / "w", rows[200:], ids[200:]))
    delete_items(index, ids[:50])
    digits = 1e-6 if rescore == "float32" else 2e-3

    def check() -> None:
        opened = VectorIndex.open(index)
        for segment in opened.segments:
            assert segment.faiss_index.d == 8
            assert segment.stored is not None
            assert segment.stored.dtype == rescore
        scores, names = opened.search(rows[:20], 5)
        by_id = dict(zip(ids, rows, strict=True))
        for query, row, found_ids in zip(rows[:20], scores, names, strict=True):
            np.testing.assert_allclose([query @ by_id[name] for name in found_ids], row, atol=digits)
        exact = best(rows[:20], rows[50:], ids[50:], 5)
        hits = [len({name for _, name in e} & set(n)) for e, n in zip(exact, names, strict=True)]
        assert np.mean(hits) > 4.5
        np.testing.assert_allclose(opened.vector("d250"), rows[250], atol=digits)

    check()
    index_compact(index)
    assert names_in(index) == {"index.faiss", "ids.parquet", "vectors.npy", "index.json"}
    check()


def test_metadata_of_other_columns_stand_beside_each_other(made: tuple[Path, State]) -> None:
    index, state = made
    extra = {"video": ["a.mp4", None], "start": [1.5, None]}
    add_vectors(index, vectors_folder(index.parent / "w", signs(2, 3), ["d50", "d51"], columns=extra))

    def check() -> None:
        opened = VectorIndex.open(index)
        assert opened.metadata("d50")["start"] == 1.5
        assert opened.metadata("d50").get("text") is None
        assert opened.metadata("d50")["groups"] == {}
        assert opened.metadata("d3")["text"] == "text of d3"
        assert opened.metadata_of(["d51", "d2"], ["id", "video", "text"]) == [
            {"id": "d51", "video": None, "text": None},
            {"id": "d2", "video": None, "text": "text of d2"},
        ]

    check()
    delete_items(index, ["d0"])
    index_compact(index)
    check()
    assert len(VectorIndex.open(index)) == len(state) + 1


def test_whole_numbers_as_ids_are_ids_like_others(made: tuple[Path, State]) -> None:
    index, _ = made
    add_vectors(index, vectors_folder(index.parent / "w", signs(2, 3), [7, 8], columns={}))  # type: ignore[list-item]
    index_compact(index)
    opened = VectorIndex.open(index)
    assert opened.metadata("7")["id"] == "7"
    assert {"7", "8"} < set(opened.search(signs(1), 100)[1][0])


def test_ids_that_are_there_are_refused_skipped_or_replaced(
    made: tuple[Path, State], caplog: pytest.LogCaptureFixture
) -> None:
    index, state = made
    vectors = folder_of_state(index.parent / "v", {"d3": 5, "d19": 5, "d77": 5})
    expected = (
        r"has some of these items already \(--existing replace or skip goes on\): 2 problems\n"
        r"  - it has an item 'd3'\n  - it has an item 'd19'"
    )
    with pytest.raises(RefusedRequest, match=expected):
        add_vectors(index, vectors)
    holds(index, state)
    with caplog.at_level("INFO"):
        add_vectors(index, vectors, existing="skip")
    assert "added 1 items, 2 skipped" in caplog.messages
    holds(index, {**state, "d77": 5})
    caplog.clear()
    with caplog.at_level("INFO"):
        add_vectors(index, vectors, existing="skip")
        assert caplog.messages == [f"index {index} has all 3 items already: nothing to add"]
        add_vectors(index, vectors, existing="replace")
    assert "added 3 items, 3 in place of old ones" in caplog.messages
    holds(index, {**state, "d3": 5, "d19": 5, "d77": 5})


def test_vectors_that_are_not_comparable_are_refused_with_all_reasons(made: tuple[Path, State]) -> None:
    index, state = made
    other = EmbedderCard(name="other", dim=8, weights="other")
    vectors = vectors_folder(index.parent / "v", signs(2, dim=8), ["x", "y"], card=other, role="query")
    expected = (
        r"vectors .*v cannot join index .*index: 3 problems\n  - they have 8 dimensions, the index has 16\n"
        rf"  - they were made by other \(fingerprint {other.fingerprint}\), the index by table \(fingerprint "
        rf"{CARD.fingerprint}\); embed with the index's own embedder\n"
        r"  - they were embedded in role 'query', those of the index in role 'document'"
    )
    with pytest.raises(RefusedRequest, match=expected):
        add_vectors(index, vectors)
    holds(index, state)


@pytest.mark.parametrize(
    ("value", "text"), [(np.nan, "values that are not finite"), (0.0, "norm 0"), (3.0, "norm 12")]
)
def test_a_bad_vector_is_named_and_nothing_changes(made: tuple[Path, State], value: float, text: str) -> None:
    index, state = made
    rows = signs(9)
    rows[8] = value
    vectors = vectors_folder(index.parent / "v", rows, [f"d{i}" for i in range(9)])
    before = (index / "index.json").read_bytes()
    with pytest.raises(RefusedRequest, match=f"the vector of 'd8' has {text}"):
        add_vectors(index, vectors, existing="replace")
    assert (index / "index.json").read_bytes() == before
    holds(index, state)


def test_ids_that_stand_twice_are_refused(made: tuple[Path, State]) -> None:
    index, _ = made
    vectors = vectors_folder(index.parent / "v", signs(3), ["a", "b", "a"])
    with pytest.raises(RefusedRequest, match="id 'a' stands 2 times; ids must be unique"):
        add_vectors(index, vectors)


def test_a_failure_on_the_way_changes_nothing_and_is_swept(
    made: tuple[Path, State], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, state = made

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(adding, "write_items", full)
        with pytest.raises(
            JobFailed, match=r"index .*index: No space left on device while .* It is as it was\."
        ):
            carry_out(index.parent, state, 1)
    assert names_in(index) == {"index.faiss", "ids.parquet", "index.json"}
    holds(index, state)
    state = carry_out(index.parent, state, 2)
    assert names_in(index) == {"index.faiss", "ids.parquet", "index.json", "deleted.g2.npy"}
    holds(index, state)


def test_what_the_disk_has_no_room_for_is_refused(
    made: tuple[Path, State], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, state = made
    monkeypatch.setattr(disk_space, "free_bytes", lambda path: 100)
    expected = (
        r"index .*: 4 more vectors need about \d\.\d kB, and the disk has 100 bytes free; make room first"
    )
    with pytest.raises(RefusedRequest, match=expected):
        carry_out(index.parent, state, 0)
    holds(index, state)
    delete_items(index, ["d0"])
    other = build_index(vectors_folder(index.parent / "w", signs(2), ["x", "y"]), index.parent / "o")
    with pytest.raises(
        RefusedRequest, match=r"index: \d+ vectors, written anew beside the old ones, need about"
    ):
        index_compact(index)
    with pytest.raises(RefusedRequest, match=r"--out .*m: the copies of 2 indexes need about"):
        index_merge([index, other], index.parent / "m")


@pytest.mark.parametrize(
    ("factory", "options"), [("IVF8,Flat", {}), ("Flat", {"truncate_dim": 8, "rescore": "float16"})]
)
def test_what_an_addition_needs_is_known_whatever_the_first_segment_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: str, options: Any
) -> None:
    few = folder_of(tmp_path / "v", units(9, dim=256), 0)
    index = build_index(few, tmp_path / "i", factory=factory, **options)
    many = folder_of(tmp_path / "w", units(3000, seed=1, dim=256), 9)
    told = []
    monkeypatch.setattr(adding, "refuse_segment_without_room", lambda *given: told.append(given))
    before = sum(path.stat().st_size for path in index.iterdir())
    add_vectors(index, many)
    [(where, estimate, what)] = told
    assert (where, what) == (index, "3,000 more vectors")
    assert estimate.disk == pytest.approx(
        sum(path.stat().st_size for path in index.iterdir()) - before, rel=0.05
    )
    assert estimate.building > 2 * 3000 * 256 * 4  # two shards of the vectors as they are


def folder_of(path: Path, rows: Vectors, first: int) -> Path:
    card = EmbedderCard(name="wide", dim=rows.shape[1], weights="wide")
    return vectors_folder(
        path, rows, [f"d{first + number}" for number in range(len(rows))], card=card, shard_size=len(rows)
    )


def test_an_addition_that_memory_may_not_hold_is_warned_of(
    made: tuple[Path, State], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_estimate, "free_memory", lambda: 10)
    carry_out(made[0].parent, made[1], 0)
    assert any(line.startswith("building will take about") for line in caplog.messages)


def test_new_files_are_on_the_disk_before_the_manifest_names_them(
    made: tuple[Path, State], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, state = made
    plain, synced = changes.write_json, set[str]()
    monkeypatch.setattr(changes, "_sync", lambda path: synced.add(path.name))

    def write(path: Path, content: dict[str, Any]) -> None:
        assert {"index.g2.faiss", "ids.g2.parquet"} <= synced
        plain(path, content)

    monkeypatch.setattr(changes, "write_json", write)
    carry_out(index.parent, state, 1)
    assert synced


def test_unknown_ids_are_named_and_nothing_is_deleted(
    made: tuple[Path, State], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, state = made
    expected = r"index .*: to delete: 2 problems\n  - it has no item 'x'\n  - it has no item 'D1'"
    with pytest.raises(RefusedRequest, match=expected):
        index_delete(index, ids=["d1", "x", "D1"])
    holds(index, state)
    (tmp_path / "gone.txt").write_bytes(b"\xef\xbb\xbfd1\r\n\nx\nd2\nd1\n")
    with caplog.at_level("INFO"):
        index_delete(index, ids_file=tmp_path / "gone.txt", missing="skip")
    assert "1 of 3 ids are not in the index" in caplog.messages
    assert "deleted 2 items" in caplog.messages
    holds(index, {name: 0 for name in state if name not in ("d1", "d2")})
    before = (index / "index.json").read_bytes()
    index_delete(index, ids=["d1"], missing="skip")
    assert (index / "index.json").read_bytes() == before


def test_a_file_of_ids_has_an_id_a_line_whatever_its_letters(tmp_path: Path) -> None:
    names = ["a\u2028b", "a", "b", "c\x85d"]
    index = build_index(vectors_folder(tmp_path / "v", signs(4), names), tmp_path / "i")
    (tmp_path / "gone.txt").write_text("a\u2028b\nc\x85d\n", encoding="utf-8")
    index_delete(index, ids_file=tmp_path / "gone.txt")
    assert sorted(VectorIndex.open(index).search(signs(1), 4)[1][0]) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give what to delete: either --ids A B …, or --ids_file F"),
        ({"ids": ["a"], "ids_file": Path("f")}, "give what to delete: either"),
        ({"ids": []}, "--ids names no item"),
        ({"ids_file": Path("nowhere")}, "--ids_file nowhere cannot be read"),
    ],
)
def test_a_deletion_takes_exactly_one_of_its_two_ways(
    made: tuple[Path, State], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RefusedRequest, match=text):
        index_delete(made[0], **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "given: neither; items are added from --vectors V, or from --collection C"),
        ({"vectors": Path("v"), "collection": Path("c")}, "given: --vectors and --collection;"),
        ({"vectors": Path("v"), "embedder": "e"}, "given: --vectors and --embedder;"),
        ({"vectors": Path("v"), "batch_size": 3}, "--batch_size: without effect on --vectors"),
    ],
)
def test_an_addition_takes_exactly_one_of_its_two_ways(
    made: tuple[Path, State], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(RefusedRequest, match=text):
        index_add(made[0], **options)


def test_no_index_is_changed_where_there_is_none(tmp_path: Path) -> None:
    changes: list[Callable[[], object]] = [
        lambda: add_vectors(tmp_path / "i", folder_of_state(tmp_path / "v", {"d1": 0})),
        lambda: delete_items(tmp_path / "i", ["a"]),
        lambda: index_compact(tmp_path / "i"),
    ]
    for change in changes:
        with pytest.raises(RefusedRequest, match=r"index .*i does not exist: index\.json is missing"):
            change()
    assert not (tmp_path / "i").exists()


def test_many_segments_and_many_deleted_items_advise_compaction(
    made: tuple[Path, State], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, state = made
    advice = "makes one segment of them, without the deleted ones"
    monkeypatch.setattr("vidvec_msg.retrieval.indexes.changes.SEGMENTS", 3)
    with caplog.at_level("INFO"):
        state = carry_out(index.parent, state, 0)
        assert advice not in caplog.text
        state = carry_out(index.parent, state, 4)
        assert advice in caplog.text
        assert f"index {index}: 28 items in 3 segments, 0 deleted" in caplog.messages
        index_compact(index)
        caplog.clear()
        delete_items(index, ["d0"])
        assert advice not in caplog.text
        delete_items(index, [f"d{i}" for i in range(1, 9)])
        assert advice in caplog.text
    caplog.clear()
    with caplog.at_level("INFO"):
        index_compact(index)
        assert "compacted; 9 deleted items gone" in caplog.messages
        index_compact(index)
        assert caplog.messages[-1] == f"index {index} is one segment without deleted items already"


def test_a_collection_is_embedded_and_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "c" / "corpus.jsonl"
    corpus.parent.mkdir()

    def write(texts: dict[str, str]) -> None:
        corpus.write_text("".join(json.dumps({"_id": k, "text": v}) + "\n" for k, v in texts.items()))

    embedded: list[str] = []

    def encode(
        self: KeywordEmbedder, items: Any, *, role: Any, plain: Any = KeywordEmbedder.encode
    ) -> Vectors:
        embedded.extend(item.id for item in items)
        return plain(self, items, role=role)

    monkeypatch.setattr(KeywordEmbedder, "encode", encode)
    texts = {f"k{i}": word for i, word in enumerate(KEYWORDS[:5])}
    write(texts)
    index = tmp_path / "i"
    assert (
        main(
            [
                "index",
                "--collection",
                str(corpus.parent),
                "--embedder",
                "fakes:KeywordEmbedder",
                "--out",
                str(index),
            ]
        )
        == 0
    )
    embedded.clear()
    write({**texts, "k5": KEYWORDS[5], "k6": KEYWORDS[6]})
    add = ["index-add", "--index", str(index), "--collection", str(corpus.parent)]
    assert main(add) == 2  # refused before anything is embedded
    assert main([*add, "--existing", "skip"]) == 0
    assert embedded == ["k5", "k6"]
    opened = VectorIndex.open(index, embedder_card=KeywordEmbedder().card)
    assert len(opened) == 7
    assert opened.search(np.eye(8, dtype=np.float32)[6:7], 1)[1] == [["k6"]]
    write({"k0": KEYWORDS[7]})
    index_add(index, collection=corpus.parent, existing="replace")
    opened = VectorIndex.open(index)
    assert opened.search(np.eye(8, dtype=np.float32)[7:], 1)[1] == [["k0"]]
    assert opened.metadata("k0")["text"] == KEYWORDS[7]
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        index_add(
            index, collection=corpus.parent, embedder="fakes:KeywordEmbedder?bias=3", existing="replace"
        )
    before = (index / "index.json").read_bytes()
    write({"k0": KEYWORDS[1], "k9": "nothing"})
    with pytest.raises(TooManyFailures, match="1 of 2 items failed"):
        index_add(index, collection=corpus.parent, existing="replace")
    assert (index / "index.json").read_bytes() == before
    index_add(index, collection=corpus.parent, existing="replace", max_failures=1)
    assert VectorIndex.open(index).metadata("k0")["text"] == KEYWORDS[1]
    index_compact(index)
    assert (index / "vectors").is_dir()  # folders of vectors are the user's
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"frames")
    os.utime(clip, (1, 1))
    corpus.write_text(json.dumps({"_id": "k0", "text": KEYWORDS[1], "video": str(clip)}) + "\n")
    index_add(index, collection=corpus.parent, existing="replace")
    monkeypatch.setattr(
        items_module, "_hash_file_ends", None
    )  # a clip that has not changed is not read again
    index_add(index, collection=corpus.parent, existing="replace")


def test_the_verbs_from_the_shell(made: tuple[Path, State], capsys: pytest.CaptureFixture[str]) -> None:
    index, state = made
    vectors = folder_of_state(index.parent / "v", {"d50": 1, "d51": 1})
    assert main(["index-add", "--index", str(index), "--vectors", str(vectors)]) == 0
    assert main(["index-delete", "--index", str(index), "--ids", "d0", "d51"]) == 0
    assert main(["index-compact", "--index", str(index)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1] == f"index {index}: 20 items in 1 segment, 0 deleted"
    holds(index, {**{name: 0 for name in state if name != "d0"}, "d50": 1})
    assert main(["index-delete", "--index", str(index), "--ids", "nobody"]) == 2


HOLDER = """
import sys, time
from pathlib import Path
from vidvec_msg.retrieval.indexes.changes import changing
sys.argv[0] = "vidvec-msg"
with changing(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holding(index: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(index), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    return process


def test_the_second_writer_is_told_who_the_first_is_or_waits(
    made: tuple[Path, State], caplog: pytest.LogCaptureFixture
) -> None:
    index, state = made
    first = holding(index, 30)
    told = (
        rf"another process is writing into index {index}; wait until it ends, or give --wait SECONDS\. "
        rf"It is `vidvec-msg {index} 30` \(process {first.pid} on \S+, since \d{{4}}-\d\d-\d\dT[\d:]+\+00"
    )
    with pytest.raises(RefusedRequest, match=told):
        delete_items(index, ["d1"])
    holds(index, state)  # readers do not ask
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert (index / ".writer.json").exists()  # it says who was killed, and hinders nobody
    delete_items(index, ["d1"])
    assert not (index / ".writer.json").exists()
    second = holding(index, 0.4)
    with caplog.at_level(logging.INFO):
        delete_items(index, ["d2"], wait=20)
    assert f"waiting up to 20 s: another process is writing into index {index} It is" in caplog.text
    assert second.wait() == 0
    holds(index, {name: 0 for name in state if name not in ("d1", "d2")})


def test_a_writer_that_waits_sees_what_the_first_one_did(made: tuple[Path, State]) -> None:
    index, state = made
    with changing(index) as manifest:
        assert manifest["generation"] == 1
    carry_out(index.parent, state, 0)
    with changing(index) as manifest:
        assert manifest["generation"] == 2


def test_an_index_that_was_changed_is_not_taken_for_the_built_one(made: tuple[Path, State]) -> None:
    index, state = made
    build_index(index.parent / "first", index, factory="Flat")  # complete already
    carry_out(index.parent, state, 2)
    with pytest.raises(RefusedRequest, match=r"was changed since it was built \(16 vectors, generation 2\)"):
        build_index(index.parent / "first", index, factory="Flat")
