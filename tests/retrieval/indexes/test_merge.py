"""Merged indexes equal one built of everything; what does not belong together is refused with all reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_histories import (
    DIM,
    State,
    as_of_an_earlier_version,
    carry_out,
    folder_of_state,
    found,
    holds,
    signs,
    vectors_folder,
)

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.compact import index_compact
from vidvec_msg.retrieval.indexes.delete import delete_items
from vidvec_msg.retrieval.indexes.merge import index_merge
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex


def index_of(folder: Path, state: State) -> Path:
    return build_index(folder_of_state(folder / "first", state), folder / "index")


def numbered(first: int, last: int, version: int = 0) -> State:
    return {f"d{number}": version for number in range(first, last)}


@settings(max_examples=5, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=2, max_size=4), step=st.sampled_from([0, 2, 4, 6, 8]))
def test_merged_is_built_of_all(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], step: int
) -> None:
    folder = tmp_path_factory.mktemp("i")
    states = [numbered(100 * part, 100 * part + size + 4) for part, size in enumerate(sizes)]
    indexes = [index_of(folder / str(part), state) for part, state in enumerate(states)]
    states[-1] = carry_out(folder / str(len(sizes) - 1), states[-1], step)
    everything = {name: version for state in states for name, version in state.items()}
    merged = index_merge(indexes, folder / "merged")
    holds(merged, everything)
    anew = build_index(folder_of_state(folder / "v", everything), folder / "anew")
    queries = signs(9, 5)
    assert found(VectorIndex.open(merged), queries, 7) == found(VectorIndex.open(anew), queries, 7)
    index_compact(merged)
    holds(merged, everything, mmap=True)
    for index, state in zip(indexes, states, strict=True):
        holds(index, state)  # as they were


def test_indexes_of_several_kinds_are_merged_as_they_are(tmp_path: Path) -> None:
    rows, ids = signs(400), [f"d{i}" for i in range(400)]
    graph = build_index(vectors_folder(tmp_path / "v", rows[:200], ids[:200]), tmp_path / "i", factory="SQ8")
    flat = build_index(vectors_folder(tmp_path / "w", rows[200:], ids[200:]), tmp_path / "j")
    merged = index_merge([graph, flat], tmp_path / "m")
    opened = VectorIndex.open(merged)
    assert [segment.entry.factory for segment in opened.segments] == ["SQ8", "Flat"]
    assert opened.manifest["merged_from"] == [str(graph.resolve()), str(flat.resolve())]
    assert sorted(path.name for path in merged.iterdir()) == [
        "ids.parquet", "ids.s2.parquet", "index.faiss", "index.json", "index.s2.faiss",
    ]  # fmt: skip
    with pytest.raises(RefusedRequest, match=r"index\.faiss \(SQ8\) holds 200 vectors as lossy codes"):
        index_compact(merged)
    # the same kind, but other training: codes do not mean the same
    rows = np.random.default_rng(0).standard_normal((1400, DIM)).astype(np.float32)
    rows, ids = rows / np.linalg.norm(rows, axis=1, keepdims=True), [f"d{i}" for i in range(1400)]
    other, third = (
        build_index(
            vectors_folder(tmp_path / name, rows[part::2], ids[part::2], shard_size=700),
            tmp_path / f"i{name}",
            factory="PQ4x4",
        )
        for part, name in enumerate("xy")
    )
    both = index_merge([other, third], tmp_path / "n")
    with pytest.raises(RefusedRequest, match="which cannot become PQ4x4 with other training"):
        index_compact(both)


def test_ids_that_collide_are_refused_or_decided(tmp_path: Path) -> None:
    first = index_of(tmp_path / "a", numbered(0, 6))
    last = index_of(tmp_path / "b", numbered(4, 9, version=1))
    delete_items(first, ["d5"])
    told = (
        r"indexes cannot be merged \(--existing first or last decides\): 1 problem\n"
        rf"  - {first} and {last} have an item 'd4'"
    )
    with pytest.raises(RefusedRequest, match=told):
        index_merge([first, last], tmp_path / "m")
    assert not (tmp_path / "m").exists()
    own = {name: 0 for name in numbered(0, 6) if name != "d5"}
    holds(index_merge([first, last], tmp_path / "m", existing="first"), {**numbered(4, 9, 1), **own})
    holds(index_merge([first, last], tmp_path / "n", existing="last"), {**own, **numbered(4, 9, 1)})
    index_compact(tmp_path / "n")
    holds(tmp_path / "n", {**own, **numbered(4, 9, 1)})


def test_an_id_of_three_indexes_is_told_of_each_and_decided_once(tmp_path: Path) -> None:
    parts = [index_of(tmp_path / str(n), {"d0": n, f"d{n + 1}": n}) for n in range(3)]
    told = (
        rf"2 problems\n  - {parts[0]} and {parts[1]} have an item 'd0'"
        rf"\n  - {parts[0]} and {parts[2]} have an item 'd0'$"
    )
    with pytest.raises(RefusedRequest, match=told):
        index_merge(parts, tmp_path / "m")
    others = {"d1": 0, "d2": 1, "d3": 2}
    holds(index_merge(parts, tmp_path / "m", existing="first"), {"d0": 0, **others})
    holds(index_merge(parts, tmp_path / "n", existing="last"), {"d0": 2, **others})


def test_indexes_that_do_not_belong_together_are_refused_with_all_reasons(tmp_path: Path) -> None:
    first = index_of(tmp_path / "a", numbered(0, 3))
    card = EmbedderCard(name="other", dim=8, weights="w")
    vectors = vectors_folder(tmp_path / "v", signs(3, dim=8), ["x", "y", "z"], card=card, role="query")
    other = build_index(vectors, tmp_path / "i")
    told = (
        rf"indexes cannot be merged: 4 problems\n  - {first} is named 2 times\n"
        rf"  - {other} has 8 dimensions, {first} has {DIM}\n"
        rf"  - {other} was made with other \(fingerprint \w+\), {first} with table \(fingerprint \w+\)\n"
        rf"  - {other} was embedded in role 'query', {first} in 'document'"
    )
    with pytest.raises(RefusedRequest, match=told):
        index_merge([first, other, first], tmp_path / "m")
    with pytest.raises(RefusedRequest, match="--indexes names 1 index; a merge takes two or more"):
        index_merge([first], tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_scores_that_do_not_compare_are_not_merged(tmp_path: Path) -> None:
    first = index_of(tmp_path / "a", numbered(0, 30))
    vectors = folder_of_state(tmp_path / "v", numbered(50, 90))
    pca = build_index(vectors, tmp_path / "b", factory="PCA8,Flat")
    told = rf"1 problem\n  - {pca} \(PCA8,Flat\) scores by transformed vectors, which compare with no other"
    with pytest.raises(RefusedRequest, match=told):
        index_merge([first, pca], tmp_path / "m")
    exact = build_index(vectors, tmp_path / "c", factory="PCA8,Flat", rescore="float32", oversample=40)
    assert VectorIndex.open(index_merge([first, exact], tmp_path / "m")).manifest["scores"] == "cosine"
    holds(tmp_path / "m", {**numbered(0, 30), **numbered(50, 90)})


def test_an_index_of_an_earlier_version_is_merged(tmp_path: Path) -> None:
    first, second = index_of(tmp_path / "a", numbered(0, 3)), index_of(tmp_path / "b", numbered(5, 9))
    merged = index_merge([first, as_of_an_earlier_version(second)], tmp_path / "m")
    kinds = {
        checksum.partition(":")[0] for checksum in VectorIndex.open(merged).manifest["checksums"].values()
    }
    assert kinds == {"xxh3_128", "sha256"}
    holds(merged, {**numbered(0, 3), **numbered(5, 9)})


@pytest.mark.parametrize("version", [Path, as_of_an_earlier_version])
def test_a_damaged_index_is_not_merged(tmp_path: Path, version: Callable[[Path], Path]) -> None:
    first, second = index_of(tmp_path / "a", numbered(0, 3)), index_of(tmp_path / "b", numbered(5, 9))
    version(second)
    content = bytearray((second / "index.faiss").read_bytes())
    content[-3] ^= 1
    (second / "index.faiss").write_bytes(content)
    told = rf"indexes cannot be merged: 1 problem\n  - {second}: index\.faiss is damaged, or was changed"
    with pytest.raises(RefusedRequest, match=told):
        index_merge([first, second], tmp_path / "m")
    assert not (tmp_path / "m").exists()
    assert not list(tmp_path.glob(".m.*"))


def test_the_verb_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = index_of(tmp_path / "a", numbered(0, 3)), index_of(tmp_path / "b", numbered(5, 9))
    out = tmp_path / "m"
    assert main(["index-merge", "--indexes", str(first), str(second), "--out", str(out)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"index {out}: 7 items in 2 segments, 0 deleted"
    assert json.loads((out / "index.json").read_text())["count"] == 7
    assert main(["index-merge", "--indexes", str(first), str(second), "--out", str(out)]) == 2
    assert "already holds files" in capsys.readouterr().err
