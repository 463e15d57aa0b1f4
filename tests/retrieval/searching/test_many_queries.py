"""Many queries at once: each gets what it gets alone; failures are recorded; runs read back."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import KEYWORDS, KeywordEmbedder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors_folder import write_vectors

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.trec import read_run
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.index import build_index
from vidvec_msg.retrieval.search import Searcher, search
from vidvec_msg.retrieval.searching import many_queries as search_queries

SPEC = "fakes:KeywordEmbedder"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("i")
    rng = np.random.default_rng(0)
    items = [
        Item(f"doc {number} 100%", text=" ".join(rng.choice(KEYWORDS, 6)), groups={"half": str(number % 2)})
        for number in range(60)
    ]
    embed_items(items, KeywordEmbedder(), role="document", out=folder / "v", spec=SPEC)
    return build_index(folder / "v", folder / "i")


def queries_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def scores_of(run: Path) -> dict[str, dict[str, float]]:
    """A run with its scores as the float32 numbers that were written."""
    return {
        query: {name: float(np.float32(score)) for name, score in found.items()}
        for query, found in read_run(run).items()
    }


TEXTS = {"q 1": "dog forest", "ünï": "apple", "50%": "guitar guitar candle", "d": "engine bridge"}


def alone(made: Path, texts: dict[str, str], k: int, **options: Any) -> dict[str, dict[str, float]]:
    searcher = Searcher.open(made)
    return {
        name: {hit.id: hit.score for hit in searcher.search([Item(name, text=text)], k, **options)[0]}
        for name, text in texts.items()
    }


def test_a_run_holds_what_each_query_alone_gets(made: Path, tmp_path: Path) -> None:
    file = queries_file(tmp_path / "q.jsonl", [{"_id": name, "text": text} for name, text in TEXTS.items()])
    search(made, queries=file, run=tmp_path / "out.trec", k=7, batch_size=3)
    run = scores_of(tmp_path / "out.trec")
    assert run == alone(made, TEXTS, 7)  # ids with spaces and percent signs, and scores to the last bit
    assert {query: list(documents) for query, documents in run.items()} == {
        query: list(documents) for query, documents in alone(made, TEXTS, 7).items()
    }
    assert (tmp_path / "out.trec").read_text().splitlines()[0].split()[5] == "keywords"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.trec", "q.jsonl"]


def test_filters_and_thresholds_hold_for_every_query(made: Path, tmp_path: Path) -> None:
    file = queries_file(tmp_path / "q.jsonl", [{"_id": name, "text": text} for name, text in TEXTS.items()])
    search(made, queries=file, run=tmp_path / "r", k=60, filter=["half=1"], min_score=0.3)
    run = scores_of(tmp_path / "r")
    assert run == alone(made, TEXTS, 60, where={"half": "1"}, min_score=0.3)
    assert all(int(name.split()[1]) % 2 for documents in run.values() for name in documents)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch_size=st.integers(0, 9), k=st.integers(1, 70))
def test_batches_change_nothing(
    made: Path, tmp_path_factory: pytest.TempPathFactory, batch_size: int, k: int
) -> None:
    folder = tmp_path_factory.mktemp("q")
    (folder / "q.txt").write_text("".join(f"{text}\n\n" for text in TEXTS.values()))
    search(made, queries=folder / "q.txt", run=folder / "r", k=k, batch_size=batch_size)
    numbered = {str(2 * number + 1): text for number, text in enumerate(TEXTS.values())}  # lines are counted
    assert scores_of(folder / "r") == alone(made, numbered, k)


def test_a_batch_is_answered_in_parts_if_results_are_many(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = queries_file(tmp_path / "q.jsonl", [{"_id": name, "text": text} for name, text in TEXTS.items()])
    monkeypatch.setattr(search_queries, "_RESULTS", 15)
    held: list[int] = []

    class Watching(Searcher):
        def nearest(self, vectors: Any, wanted: Any, **options: Any) -> Any:
            held.append(len(vectors) * wanted.k)
            return super().nearest(vectors, wanted, **options)

    monkeypatch.setattr("vidvec_msg.retrieval.search.Searcher", Watching)
    search(made, queries=file, run=tmp_path / "r", k=7)
    assert held == [14, 14]
    assert scores_of(tmp_path / "r") == alone(made, TEXTS, 7)


def test_without_a_run_there_is_a_json_line_a_result(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = queries_file(tmp_path / "q.jsonl", [{"_id": "a", "text": "dog"}, {"_id": "b", "text": "nothing"}])
    search(made, queries=file, k=2, max_failures=1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    hits = Searcher.open(made).search([Item("a", text="dog")], 2)[0]
    assert lines == [
        *({"query": "a", **hit.to_dict()} for hit in hits),
        {"query": "b", "failed": "no keyword in it"},
    ]


@pytest.mark.parametrize(
    "text", ["dog\nguitar apple\n", '{"_id": "1", "text": "dog"}\n{"_id": "2", "text": "guitar apple"}\n']
)
def test_stdin_is_read_as_lines_of_either_form(
    made: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert (
        main(["search", "--index", str(made), "--queries", "-", "--run", str(tmp_path / "r"), "--k", "3"])
        == 0
    )
    assert scores_of(tmp_path / "r") == alone(made, {"1": "dog", "2": "guitar apple"}, 3)


def test_queries_may_be_of_any_modality(made: Path, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"frames")
    rows = [{"_id": "c", "video": "clip.mp4", "transcript": "dog forest"}, {"_id": "t", "text": "dog forest"}]
    search(made, queries=queries_file(tmp_path / "q.jsonl", rows), run=tmp_path / "r", k=5)
    run = scores_of(tmp_path / "r")
    assert run["c"] == run["t"] == alone(made, {"q": "dog forest"}, 5)["q"]


# --- failures -------------------------------------------------------------------------------------------


FAULTY = [
    {"_id": "good", "text": "dog"},
    {"_id": "mute", "text": "nothing"},
    {"_id": "gone", "video": "gone.mp4"},
    {"_id": "photo", "image": "photo.png"},
]


def test_failed_queries_are_recorded_and_the_others_answered(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photo.png").write_bytes(b"pixels")
    file = queries_file(tmp_path / "q.jsonl", FAULTY)
    search(made, queries=file, run=tmp_path / "r.trec", k=3, max_failures=3)
    assert scores_of(tmp_path / "r.trec") == alone(made, {"good": "dog"}, 3)
    lines = (tmp_path / "r.trec.failures.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"item": "mute", "reason": "no keyword in it"},
        {"item": "gone", "reason": f"file not found: {tmp_path / 'gone.mp4'}"},
        {"item": "photo", "reason": "it is of modality 'image'; keywords takes text, video"},
    ]
    words = ["search", "--index", str(made), "--queries", str(file), "--run", str(tmp_path / "s.trec")]
    assert main([*words, "--max-failures", "2"]) == 1
    assert (
        "3 of 4 queries failed and 2 may (max_failures): mute: no keyword in it; gone: file not found: "
        in capsys.readouterr().err
    )
    assert scores_of(tmp_path / "s.trec").keys() == {"good"}


def test_what_can_be_seen_before_the_model_is_refused_before_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vidvec_msg.retrieval.searching.searcher.load_embedder", lambda spec: pytest.fail("loaded")
    )
    (tmp_path / "photo.png").write_bytes(b"pixels")
    with pytest.raises(
        RefusedRequest,
        match=r"2 of 4 queries cannot be asked and 0 may fail(.|\n)*gone: file not (.|\n)*photo: it is of",
    ):
        search(made, queries=queries_file(tmp_path / "q.jsonl", FAULTY), run=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_when_all_fail_no_run_is_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("nothing\n" * 300)
    with pytest.raises(
        TooManyFailures, match=r"all 300 queries failed: 1: no keyword in it; 2: .* and 297 more"
    ):
        search(made, queries=tmp_path / "q.txt", run=tmp_path / "r", max_failures=300)
    with pytest.raises(TooManyFailures, match="the first 256 queries failed: 1: no keyword"):
        search(made, queries=tmp_path / "q.txt", run=tmp_path / "r", max_failures=9, batch_size=64)
    assert [path.name for path in tmp_path.iterdir()] == ["q.txt"]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("q.jsonl", b"", "it holds no query"),
        ("q.txt", b"\n \n", "it holds no query"),
        ("q.txt", b"\xff\xfe", "line 1 is not UTF-8"),
        ("q.jsonl", b"dog\n", "not a JSON object"),
        (
            "q.jsonl",
            b'{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n',
            "_id 'a' was already used in line 1",
        ),
        ("q.jsonl", b'{"_id": "a"}\n', "row 'a' has no content"),
    ],
)
def test_files_that_hold_no_queries_are_refused(
    made: Path, tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedRequest, match=text):
        search(made, queries=tmp_path / name, run=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queries": Path("gone.txt")}, r"--queries gone\.txt does not exist; give a file"),
        ({"queries": Path(__file__).parent}, r"--queries .*searching is a folder; give a file"),
        (
            {"query_vectors": Path("gone")},
            "--query_vectors gone does not exist; give a vectors folder or a .npy",
        ),
        ({"queries": Path(__file__), "batch_size": -1}, "batch_size is -1; it must be at least 1"),
        ({"queries": Path(__file__), "max_failures": 1.5}, "max_failures is 1.5; it must be a count"),
        (
            {"queries": Path(__file__), "run": Path(__file__)},
            "exists already; give another name, or remove it",
        ),
        ({"queries": Path(__file__), "run": Path("r"), "json": True}, "--json: without effect on a run"),
        (
            {"query_vectors": Path(__file__), "max_failures": 1.0},
            "--max_failures: without effect on vectors, which are made already",
        ),
    ],
)
def test_requests_about_many_queries_are_refused(made: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedRequest, match=text):
        search(made, **options)


# --- vectors as queries ---------------------------------------------------------------------------------


def test_vectors_are_queries_too(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [Item(name, text=text) for name, text in TEXTS.items()]
    folder = embed_items(items, KeywordEmbedder(), role="query", out=tmp_path / "v", shard_size=3)
    expected = alone(made, TEXTS, 5)
    search(made, query_vectors=tmp_path / "v", run=tmp_path / "r", k=5, batch_size=2)
    assert scores_of(tmp_path / "r") == expected
    np.save(tmp_path / "q.npy", folder.matrix())
    search(made, query_vectors=tmp_path / "q.npy", run=tmp_path / "s", k=5, batch_size=3)
    assert list(scores_of(tmp_path / "s").items()) == [
        (str(n), run) for n, run in enumerate(expected.values())
    ]
    np.save(tmp_path / "one.npy", folder.matrix()[0])
    search(made, query_vectors=tmp_path / "one.npy", k=5)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["id"]: line["score"] for line in lines} == expected["q 1"]
    assert {line["query"] for line in lines} == {"0"}


def test_vectors_that_do_not_fit_are_refused(made: Path, tmp_path: Path) -> None:
    def ask(name: str) -> None:
        search(made, query_vectors=tmp_path / name, run=tmp_path / "r", batch_size=2)

    (tmp_path / "text.npy").write_text("dog")
    with pytest.raises(RefusedRequest, match=r"text\.npy is no .npy file"):
        ask("text.npy")
    np.save(tmp_path / "wide.npy", np.ones((3, 9), np.float32))
    with pytest.raises(RefusedRequest, match=r"has the shape \(3, 9\); the index takes \(queries, 8\)"):
        ask("wide.npy")
    np.save(tmp_path / "whole.npy", np.eye(8, dtype=np.int64))
    with pytest.raises(RefusedRequest, match="holds int64; give float32 or float16"):
        ask("whole.npy")
    np.save(tmp_path / "long.npy", np.diag([1.0, 1, 1, 3, 1, 1, 1, 1]))
    with pytest.raises(RefusedRequest, match="the vector of query 3 has norm 3; cosine search takes"):
        ask("long.npy")
    other = KeywordEmbedder(bias=1).card.to_dict()
    write_vectors(tmp_path / "foreign", ["a"], np.eye(8)[:1], other)
    with pytest.raises(RefusedRequest, match="was made with another embedder"):
        ask("foreign")
    assert not (tmp_path / "r").exists()
