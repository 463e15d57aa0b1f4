"""Milvus: the same answers as exact FAISS on the same vectors, from a file and from a server; filters that
nothing breaks out of; builds that go on after a kill; what is refused. It is the real pymilvus that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import KEYWORDS, KeywordEmbedder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vectors_folder import write_vectors

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.trec import read_run
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import build_index, index
from vidvec_msg.retrieval.indexes.add import add_vectors, index_add
from vidvec_msg.retrieval.indexes.conditions import Range, Where
from vidvec_msg.retrieval.indexes.delete import delete_items
from vidvec_msg.retrieval.indexes.searchable import open_index
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex
from vidvec_msg.retrieval.milvus import build as milvus_build
from vidvec_msg.retrieval.milvus import engine as milvus_engine
from vidvec_msg.retrieval.milvus.build import BEGUN, build_milvus_index
from vidvec_msg.retrieval.milvus.engine import Collection
from vidvec_msg.retrieval.milvus.filtering import expression, passes, quoted
from vidvec_msg.retrieval.milvus.index import MilvusIndex
from vidvec_msg.retrieval.search import Searcher, search

pytest.importorskip("pymilvus", reason="the extra milvus is not installed")
SPEC = "fakes:KeywordEmbedder"
CARD = EmbedderCard(name="plain", dim=6, weights="w").to_dict()

VALUES = [
    "news",
    "sport",
    "100%",
    "a_b",
    "axb",
    'x" or id != "',
    "back\\slash",
    "line\nbreak",
    "tab\there",
    "é\x01",
]
NAMES = ["topic", "to\"p'ic", "year", "a.b"]


def units(count: int, dim: int = 6, seed: int = 0) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    rows[count // 2 :: 7] = rows[:1]  # many that tie
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Table:
    """An embedder that looks vectors up by id."""

    def __init__(self, vectors: dict[str, Vectors]) -> None:
        self.vectors = vectors
        self.card = EmbedderCard(
            name="plain", dim=6, weights="w", modalities=("text", "video", "image", "audio")
        )

    def encode(self, items: Any, *, role: Any) -> Vectors:
        return np.array([self.vectors[item.id] for item in items], dtype=np.float32).reshape(-1, 6)


def items_of(folder: Path, count: int = 60) -> list[Item]:
    rng = np.random.default_rng(1)
    clip = folder / "clip_1.mp4"
    clip.write_bytes(b"frames")
    made = []
    for number in range(count):
        groups = {name: VALUES[rng.integers(len(VALUES))] for name in NAMES if rng.random() < 0.6}
        if "year" in groups:
            groups["year"] = str(rng.integers(1990, 2000)) if number % 5 else "unknown"
        content: dict[str, Any] = {"text": VALUES[number % len(VALUES)].replace("\x01", "")}
        if number % 3 == 0:
            start = None if number % 2 else float(number)
            content |= {"video": clip, "start": start, "end": None if number % 9 == 0 else number + 7.5}
        made.append(Item(f"d{number} {VALUES[number % 7]}", groups=groups, **content))
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VectorIndex, MilvusIndex]]:
    """The same 60 items in FAISS (Flat) and in a Milvus file."""
    folder = tmp_path_factory.mktemp("both")
    items = items_of(folder)
    table = Table(dict(zip([item.id for item in items], units(60), strict=True)))
    embed_items(items, table, role="document", out=folder / "v", shard_size=25)
    flat = VectorIndex.open(build_index(folder / "v", folder / "flat"))
    with MilvusIndex.open(build_milvus_index(folder / "v", folder / "milvus")) as kept:
        yield flat, kept


def assert_same(flat: Any, kept: Any) -> None:
    (scores, ids), (expected_scores, expected_ids) = kept, flat
    assert ids == expected_ids
    for row, expected, names in zip(scores, expected_scores, ids, strict=True):
        np.testing.assert_allclose(row[: len(names)], expected[: len(names)], atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(queries=st.integers(0, 5), k=st.integers(1, 80), seed=st.integers(0, 1000))
def test_answers_are_those_of_exact_faiss(
    both: tuple[VectorIndex, MilvusIndex], queries: int, k: int, seed: int
) -> None:
    flat, kept = both
    asked = units(queries, seed=seed) if seed % 2 else units(60)[:queries]  # the latter tie with eight others
    assert len(kept) == len(flat) == 60
    assert_same(flat.search(asked, k), kept.search(asked, k))


def test_vectors_and_metadata_come_back(both: tuple[VectorIndex, MilvusIndex]) -> None:
    flat, kept = both
    names = [hit for hits in flat.search(units(2, seed=5), 60)[1] for hit in hits]
    assert kept.metadata_of(names) == flat.metadata_of(names)
    assert kept.metadata_of(names[:3], ["video"]) == flat.metadata_of(names[:3], ["video"])
    assert kept.metadata(names[0]) == flat.metadata(names[0])
    for name in names[:5]:
        np.testing.assert_allclose(kept.vector(name), flat.vector(name), atol=1e-6)


patterns = st.sampled_from([*VALUES, "*", "a_*", "*%", "*s*", "li*k", "*\\*", 'x"*', "1*", "d3*", "*\x01"])
conditions = st.frozensets(patterns, min_size=1, max_size=3)
bounds = st.builds(
    Range, low=st.sampled_from([-np.inf, 3.0, 1993.0]), high=st.sampled_from([np.inf, 30.0, 1996.0]),
    above=st.booleans(), below=st.booleans(),
)  # fmt: skip
filters = st.dictionaries(
    st.sampled_from(["id", "text", "video", *NAMES]), conditions, max_size=2
) | st.dictionaries(st.sampled_from(["start", "end", "duration", "year"]), bounds, max_size=2)


@settings(max_examples=60, deadline=None)
@given(where=filters)
@example(where={"topic": frozenset({"a_*"})})
@example(where={"text": frozenset({"*\\*", "*0%"})})
def test_filters_let_through_the_same_items(both: tuple[VectorIndex, MilvusIndex], where: Where) -> None:
    flat, kept = both
    asked = units(60)[:2]
    for k in (60, 4):
        assert_same(flat.search(asked, k, where=where), kept.search(asked, k, where=where))
    empty = not any(flat.search(asked, 1, where=where)[1])
    if empty:
        with pytest.raises(RefusedRequest, match="no item matches"):
            kept.refuse_no_match(where)
    else:
        kept.refuse_no_match(where)


@pytest.mark.parametrize(
    "value", ['x" or id != "', '" or 1 == 1 or id == "', "\\", '\\" or id != "', '"] or ["']
)
def test_a_value_stays_a_value(both: tuple[VectorIndex, MilvusIndex], value: str) -> None:
    flat, kept = both
    for key in ("id", "text", "topic", "to\"p'ic"):
        for wanted in (value, f"{value}*"):
            where = {key: frozenset({wanted})}
            assert kept.search(units(1), 60, where=where)[1] == flat.search(units(1), 60, where=where)[1]
    with pytest.raises(RefusedRequest, match="has no item"):
        kept.metadata(value)
    with pytest.raises(RefusedRequest, match="no item has"):
        kept.search(units(1), 3, where={value: frozenset({"x"})})


@given(st.text())
def test_a_literal_has_no_end_before_its_own(text: str) -> None:
    literal = quoted(text)
    inside = literal[1:-1].replace("\\\\", "").replace('\\"', "")
    assert literal[0] == literal[-1] == '"'
    assert '"' not in inside
    assert "\n" not in inside


def test_what_milvus_cannot_say_is_marked() -> None:
    assert expression({"topic": frozenset({"a_b"})}).exact  # no pattern
    assert not expression({"topic": frozenset({"a_b*"})}).exact
    assert expression({"topic": frozenset({"ab*"})}).exact
    assert expression({"id": frozenset({"*"})}).text == ""
    assert (
        passes({"topic": frozenset({"a_*"})}, [{"groups": {"topic": "axb"}}, {"groups": {}}]).tolist()
        == [False] * 2
    )


# --- building -------------------------------------------------------------------------------------------


def test_an_interrupted_build_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"d{number}" for number in range(50)]
    vectors = write_vectors(tmp_path / "v", ids, units(50), CARD, rows_per_shard=20)
    monkeypatch.setattr(milvus_build, "_BATCH_ROWS", 7)
    monkeypatch.setattr(milvus_build, "_SAVE_EVERY", 1)
    put = Collection.upsert
    calls: list[int] = []

    def interrupted(self: Collection, rows: Any, metadata: Any) -> None:
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(len(metadata))
        put(self, rows, metadata)

    monkeypatch.setattr(Collection, "upsert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_milvus_index(vectors, tmp_path / "i")
    with pytest.raises(RefusedRequest, match=r"index\.json is missing"):
        open_index(tmp_path / "i")
    with pytest.raises(RefusedRequest, match="holds the beginning of an index of other vectors, of another"):
        build_milvus_index(vectors, tmp_path / "i", factory="HNSW")
    after: list[str] = []

    def counted(self: Collection, rows: Any, metadata: Any) -> None:
        after.extend(row["id"] for row in metadata)
        put(self, rows, metadata)

    monkeypatch.setattr(Collection, "upsert", counted)
    build_milvus_index(vectors, tmp_path / "i")
    assert calls == [7, 7, 6, 7]
    assert after == ids[27:]
    assert not (tmp_path / "i" / BEGUN).exists()
    flat = VectorIndex.open(build_index(vectors, tmp_path / "flat"))
    with open_index(tmp_path / "i") as kept:  # type: ignore[attr-defined]
        assert_same(flat.search(units(4, seed=2), 50), kept.search(units(4, seed=2), 50))
    build_milvus_index(vectors, tmp_path / "i")  # complete: nothing is put in again
    assert after == ids[27:]


DYING = """
import os, sys
from pathlib import Path
from vidvec_msg.retrieval.milvus import build as milvus_build
from vidvec_msg.retrieval.milvus.engine import Collection
milvus_build._BATCH_ROWS, milvus_build._SAVE_EVERY = 5, 3
put, calls = Collection.upsert, []
def dying(self, rows, metadata):
    put(self, rows, metadata)
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), 9)
Collection.upsert = dying
milvus_build.build_milvus_index(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_killed_build_goes_on_and_ends_in_the_whole_index(tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "v", [f"d{n}" for n in range(40)], units(40), CARD, rows_per_shard=17)
    words = [sys.executable, "-c", DYING, str(vectors), str(tmp_path / "i")]
    assert subprocess.run(words, capture_output=True).returncode == -9
    state = json.loads((tmp_path / "i" / BEGUN).read_text())
    assert 0 < state["done"] < 25  # rows that were put in after the last note are put in again
    build_milvus_index(vectors, tmp_path / "i")
    flat = VectorIndex.open(build_index(vectors, tmp_path / "flat"))
    with MilvusIndex.open(tmp_path / "i") as kept:
        assert len(kept) == 40
        assert_same(flat.search(units(3, seed=2), 40), kept.search(units(3, seed=2), 40))


def test_items_join_are_replaced_and_leave_as_in_faiss(tmp_path: Path) -> None:
    first = write_vectors(tmp_path / "a", [f"d{n}" for n in range(30)], units(30), CARD)
    more = write_vectors(tmp_path / "b", [f"d{n}" for n in range(25, 40)], units(15, seed=3), CARD)
    folders = build_index(first, tmp_path / "flat"), build_milvus_index(first, tmp_path / "m")
    for folder in folders:
        with pytest.raises(
            RefusedRequest, match=r"has some of these items already(.|\n)*it has an item 'd25'"
        ):
            add_vectors(folder, more)
        with pytest.raises(RefusedRequest, match="it has no item 'gone'"):
            delete_items(folder, ["d3", "gone"])
    steps: list[Any] = [
        lambda folder: delete_items(folder, ["d3", "d27", "gone"], missing="skip"),
        lambda folder: add_vectors(folder, more, existing="skip"),
        lambda folder: add_vectors(folder, more, existing="replace"),
        lambda folder: delete_items(folder, ["d30"]),
    ]
    for number, step in enumerate(steps, start=2):
        for folder in folders:
            step(folder)
        flat = VectorIndex.open(folders[0])
        with MilvusIndex.open(folders[1]) as kept:
            assert len(kept) == len(flat) == json.loads((folders[1] / "index.json").read_text())["count"]
            assert kept.manifest["generation"] == number
            assert_same(flat.search(units(5, seed=9), 40), kept.search(units(5, seed=9), 40))
    with pytest.raises(RefusedRequest, match=r"is kept by Milvus: embed the collection first"):
        index_add(folders[1], collection=tmp_path)
    foreign = EmbedderCard(name="other", dim=6, weights="x").to_dict()
    with pytest.raises(RefusedRequest, match="they were made by other"):
        add_vectors(folders[1], write_vectors(tmp_path / "c", ["n"], units(1), foreign))


DYING_CHANGE = (
    DYING.rpartition("milvus_build.build")[0].replace("== 5", "== 2")
    + """
from vidvec_msg.retrieval.milvus.changes import add_to_milvus
add_to_milvus(Path(sys.argv[1]), Path(sys.argv[2]))
"""
)


def killed_addition(folder: Path) -> tuple[Path, Path]:
    """An index of 30 items, and the 20 of a group of which two batches of five were put in before a kill."""
    first = write_vectors(folder / "a", [f"d{n}" for n in range(30)], units(30), CARD)
    index = build_milvus_index(first, folder / "m")
    ids = [f"e{n}" for n in range(20)]
    more = write_vectors(folder / "b", ids, units(20, seed=3), CARD)
    groups = ['{"topic": "news"}'] * 20
    pq.write_table(pa.table({"id": ids, "groups": groups}), more / "ids.parquet")
    words = [sys.executable, "-c", DYING_CHANGE, str(index), str(more)]
    assert subprocess.run(words, capture_output=True).returncode == -9
    return index, more


def told(index: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((index / "index.json").read_text())
    return found


def test_what_a_killed_addition_put_in_is_counted_and_found_by_its_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, more = killed_addition(tmp_path)
    with MilvusIndex.open(index) as kept:
        assert len(kept) == kept.manifest["count"] == 40
        where = {"topic": frozenset({"news"})}
        _, names = kept.search(units(1), 50, where=where)
        assert sorted(names[0]) == sorted(f"e{n}" for n in range(10))
    with caplog.at_level("INFO"), pytest.raises(RefusedRequest, match="it has an item 'e0'"):
        add_vectors(index, more)  # refused, and the count is put right all the same
    assert "holds 40 items and not 30: an earlier change was interrupted" in caplog.text
    assert (told(index)["count"], told(index)["generation"], told(index)["groups"]) == (40, 2, ["topic"])
    add_vectors(index, more, existing="skip")
    assert (told(index)["count"], told(index)["groups"]) == (50, ["topic"])


def test_a_deletion_after_a_killed_addition_leaves_a_true_count(tmp_path: Path) -> None:
    index, more = killed_addition(tmp_path)
    delete_items(index, ["d3", "e3"])
    assert told(index)["count"] == 38
    add_vectors(index, more, existing="replace")
    assert told(index)["count"] == 49


def test_an_approximate_index_type_takes_its_parameters(tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "v", [f"d{n}" for n in range(200)], units(200), CARD)
    made = build_milvus_index(vectors, tmp_path / "i", factory="HNSW,M=8,efConstruction=40")
    with MilvusIndex.open(made, search_parameters="ef=64") as kept:
        assert kept.manifest["factory"] == "HNSW,M=8,efConstruction=40"
        assert kept.search(units(200)[3:4], 1)[1] == [["d3"]]


# --- a server, the verbs, threads ---------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Milvus server on this machine: the one that milvus-lite brings."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    running, database, port = start_server_in_thread(
        data_dir=str(tmp_path / "server"), host="127.0.0.1", port=0
    )
    yield f"http://127.0.0.1:{port}"
    running.stop(grace=0)
    database.close()


def test_a_server_is_asked_by_its_address_and_its_token_is_not_written(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pymilvus

    tokens: list[str] = []
    real = pymilvus.MilvusClient

    def watched(*arguments: Any, **options: Any) -> Any:
        tokens.append(options["token"])
        return real(*arguments, **options)

    monkeypatch.setattr(pymilvus, "MilvusClient", watched)
    monkeypatch.setenv("MILVUS_TOKEN", "secret:word")
    vectors = write_vectors(tmp_path / "v", [f"d{n}" for n in range(30)], units(30), CARD)
    made = index(tmp_path / "i", vectors=vectors, engine="milvus", milvus_uri=server)
    flat = VectorIndex.open(build_index(vectors, tmp_path / "flat"))
    with MilvusIndex.open(made) as kept:
        assert kept.manifest["uri"] == server
        assert kept.manifest["factory"] == "AUTOINDEX"
        assert_same(flat.search(units(3, seed=4), 7), kept.search(units(3, seed=4), 7))
        monkeypatch.setattr(kept.collection, "most", 20)
        with pytest.raises(
            RefusedRequest, match="k is 21; a Milvus server gives at most 20 results per query"
        ):
            kept.search(units(1), 21)
        assert_same(flat.search(units(1, seed=4), 20), kept.search(units(1, seed=4), 20))
        kept.collection.drop()
    with pytest.raises(
        RefusedRequest, match=r"has no collection 'vidvec_\w+'\. It was removed, or the address"
    ):
        MilvusIndex.open(made)
    assert set(tokens) == {"secret:word"}
    assert sorted(path.name for path in made.iterdir() if not path.name.startswith(".")) == ["index.json"]
    assert "secret" not in "".join(path.read_text() for path in made.iterdir())


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of clips, embedded by keywords, as an index made by the verb."""
    folder = tmp_path_factory.mktemp("spoken")
    items = [
        {"_id": f"c{clip}#t={part}", "video": f"c{clip}.mp4", "start": part, "end": part + 5,
         "transcript": f"{KEYWORDS[clip]} {'dog ' * part}", "groups": {"half": str(clip % 2)}}
        for clip in range(6) for part in range(5)
    ]  # fmt: skip
    for clip in range(6):
        (folder / f"c{clip}.mp4").write_bytes(b"frames")
    (folder / "corpus.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    words = ["index", "--collection", str(folder), "--embedder", SPEC, "--out", str(folder / "i")]
    assert main([*words, "--engine", "milvus"]) == 0
    assert main([*words[:-1], str(folder / "flat")]) == 0
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"text": "dog apple"},
        {"text": "dog", "filter": ["half=1", "start>=2"], "k": 4},
        {"text": "dog candle", "dedupe": "video", "k": 9},
        {"id": ["c1#t=2", "c3#t=1"], "k": 5},
        {"text": "dog", "min_score": 0.9},
    ],
)
def test_search_prints_the_same_for_both_engines(
    spoken: Path, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for name in ("i", "flat"):
        search(spoken / name, json=True, **options)
        hits = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        told.append([hit | {"score": round(hit["score"], 5)} for hit in hits])
    assert told[0] == told[1]
    assert told[0]


def test_runs_are_the_same_for_both_engines(spoken: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("\n".join(KEYWORDS))
    for name in ("i", "flat"):
        search(spoken / name, queries=tmp_path / "q.txt", run=tmp_path / name, k=12)
    ours, flat = read_run(tmp_path / "i"), read_run(tmp_path / "flat")
    assert {query: list(found) for query, found in ours.items()} == {
        q: list(found) for q, found in flat.items()
    }


def test_a_closed_file_leaves_nothing_running(spoken: Path) -> None:
    from milvus_lite.server_manager import server_manager_instance

    path = str((spoken / "i" / "milvus.db").resolve())
    search(spoken / "i", id=["c1#t=2"])
    assert path not in server_manager_instance._servers
    one, two = MilvusIndex.open(spoken / "i"), MilvusIndex.open(spoken / "i")
    one.close()
    one.close()
    assert len(two.search(np.eye(8, dtype=np.float32)[:1], 3)[1][0]) == 3
    two.close()
    assert path not in server_manager_instance._servers


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"milvus_uri": "http://me:pw@host:1"}, "leave out the user and password of host; .* MILVUS_TOKEN"),
        ({"milvus_uri": "ftp://host"}, "--milvus_uri ftp://host: give http://HOST:PORT"),
        (
            {"factory": "Flat"},
            "--factory Flat: a Milvus file has no index type 'Flat'; give auto, or one of FLAT",
        ),
        ({"factory": "HNSW,M"}, "--factory HNSW,M: 'M' is no NAME=NUMBER, such as ef=64"),
        ({"memory": "8GB", "truncate_dim": 4}, "--memory, --truncate_dim: without effect on engine milvus"),
        (
            {"engine": "faiss", "milvus_uri": "x.db"},
            "--milvus_uri: without effect on FAISS files; give --engine",
        ),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    vectors = write_vectors(tmp_path / "v", ["a"], units(1), CARD)
    with pytest.raises(RefusedRequest, match=text):
        index(tmp_path / "i", vectors=vectors, **{"engine": "milvus", **options})
    assert not (tmp_path / "i").exists()


def test_what_a_server_does_not_take_leaves_nothing_behind(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = write_vectors(tmp_path / "v", ["a", "b"], units(2), CARD)
    load = Collection.load

    def refusing(self: Collection) -> None:
        raise JobFailed("Milvus says: invalid index type")

    monkeypatch.setattr(Collection, "load", refusing)  # milvus-lite's server takes any word
    with pytest.raises(
        RefusedRequest, match=r"invalid index type\. Give --factory auto, or an index type that"
    ):
        build_milvus_index(vectors, tmp_path / "i", uri=server, factory="PYRAMID")
    monkeypatch.setattr(Collection, "load", load)
    build_milvus_index(vectors, tmp_path / "i", uri=server, factory="IVF_FLAT,nlist=1")
    with MilvusIndex.open(tmp_path / "i") as kept:
        assert len(kept) == 2
        assert kept.collection._client.list_collections() == [kept.collection.name]


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_engine, "_TIMEOUT", 1.0)
    vectors = write_vectors(tmp_path / "v", ["a"], units(1), CARD)
    with pytest.raises(
        RefusedRequest, match=r"Milvus at http://127\.0\.0\.1:9 does not answer .*MILVUS_TOKEN set"
    ):
        build_milvus_index(vectors, tmp_path / "i", uri="http://127.0.0.1:9")
    assert not (tmp_path / "i").exists()


def test_what_cannot_be_opened_or_asked_is_refused(spoken: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        MilvusIndex.open(spoken / "i", embedder_card=KeywordEmbedder(bias=1).card)
    with pytest.raises(RefusedRequest, match="search_parameters: 'many' is no NAME=NUMBER"):
        MilvusIndex.open(spoken / "i", search_parameters="many")
    with pytest.raises(RefusedRequest, match="is kept by Milvus: mmap is for indexes in FAISS files"):
        open_index(spoken / "i", mmap=True)
    with pytest.raises(RefusedRequest, match="is kept in FAISS files, not by milvus"):
        MilvusIndex.open(spoken / "flat")
    with pytest.raises(RefusedRequest, match="is kept by milvus, not in FAISS files"):
        VectorIndex.open(spoken / "i")
    with MilvusIndex.open(spoken / "i") as kept:
        with pytest.raises(RefusedRequest, match="k is 0; it must be at least 1"):
            kept.search(np.eye(8, dtype=np.float32), 0)
        with pytest.raises(RefusedRequest, match="query 0 has norm 2"):
            kept.search(2 * np.eye(8, dtype=np.float32), 1)
        with pytest.raises(RefusedRequest, match="has no item 'gone'; it holds 30 items"):
            kept.vector("gone")
        with pytest.raises(RefusedRequest, match=r"no item has 'halb' \(did you mean 'half'\?\)"):
            Searcher(kept).search_vectors(np.eye(8, dtype=np.float32)[:1], where={"halb": "1"})
        with pytest.raises(RefusedRequest, match="no item matches half=3"):
            Searcher(kept).search_vectors(np.eye(8, dtype=np.float32)[:1], where={"half": "3"})


HOLDING = """
import sys
from pathlib import Path
from vidvec_msg.retrieval.milvus.index import MilvusIndex
MilvusIndex.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_missing_file_is_named_and_no_empty_one_made(tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "v", ["a", "b"], units(2), CARD)
    made = build_milvus_index(vectors, tmp_path / "i")
    (made / "milvus.db").rename(tmp_path / "elsewhere.db")
    more = write_vectors(tmp_path / "w", ["c"], units(1), CARD)
    for attempt in (lambda: MilvusIndex.open(made), lambda: add_vectors(made, more)):
        with pytest.raises(RefusedRequest, match=r"there is no Milvus file .*milvus\.db\. It was"):
            attempt()
    assert not (made / "milvus.db").exists()
    (tmp_path / "elsewhere.db").rename(made / "milvus.db")
    with MilvusIndex.open(made) as opened:
        assert len(opened) == 2


def test_a_file_that_another_process_has_open_is_named(
    spoken: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-c", HOLDING, str(spoken / "i")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(RefusedRequest, match=r"milvus\.db cannot be opened.*one process at a time"):
            MilvusIndex.open(spoken / "i")
        holder.communicate()
    assert holder.returncode == 0
    assert "Traceback" not in capfd.readouterr().err
    MilvusIndex.open(spoken / "i").close()


def test_threads_share_an_index(both: tuple[VectorIndex, MilvusIndex]) -> None:
    flat, kept = both
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda seed: kept.search(units(3, seed=seed), 9), range(24)))
    for seed, answer in enumerate(answers):
        assert_same(flat.search(units(3, seed=seed), 9), answer)


def test_lost_items_are_noticed_at_the_end_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = write_vectors(tmp_path / "v", ["a", "b"], units(2), CARD)
    put = Collection.upsert
    monkeypatch.setattr(Collection, "upsert", lambda self, rows, items: put(self, rows[:1], items[:1]))
    with pytest.raises(JobFailed, match="holds 1 items after 2 were put in"):
        build_milvus_index(vectors, tmp_path / "i")
    with pytest.raises(RefusedRequest, match="is missing"):
        open_index(tmp_path / "i")
