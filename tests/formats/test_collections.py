"""Collections: what loads, what is refused and with which words."""

import json
import os
from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import (
    Collection,
    load_side,
    missing_media,
    write_collection,
)

HEADER = "query-id\tcorpus-id\tscore\n"


def make(root: Path, *, corpus: str | None, queries: str | None, **splits: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in (("corpus", corpus), ("queries", queries)):
        if text is not None:
            (root / f"{name}.jsonl").write_text(text, encoding="utf-8")
    for split, text in splits.items():
        (root / "qrels").mkdir(exist_ok=True)
        (root / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    return root


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CORPUS = lines(
    {"_id": "d1", "text": "one", "title": "T"}, {"_id": "d2", "video": "clips/a.mp4", "start": 1, "end": 2.5}
)
QUERIES = lines({"_id": "q1", "text": "first", "groups": {"topic": "x", "year": 2020, "none": None}})


def refusal(folder: Path, **options: str) -> str:
    with pytest.raises(RefusedRequest) as caught:
        Collection.load(folder, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_every_field_arrives(tmp_path: Path) -> None:
    folder = make(tmp_path, corpus=CORPUS, queries=QUERIES, test=HEADER + "q1\td1\t2\nq1\td2\t0\n")
    collection = Collection.load(folder)
    first, second = collection.corpus
    assert (first.id, first.full_text, first.modality) == ("d1", "T one", "text")
    assert second.video == tmp_path.resolve() / "clips/a.mp4"
    assert second.video.is_absolute()
    assert (second.start, second.end) == (1.0, 2.5)
    assert collection.queries[0].groups == {"topic": "x", "year": "2020"}
    assert collection.qrels == {"test": {"q1": {"d1": 2, "d2": 0}}}
    assert load_side(folder, "queries") == collection.queries
    with pytest.raises(RefusedRequest, match="side 'both' does not exist; it is 'corpus' or 'queries'"):
        load_side(folder, "both")  # type: ignore[arg-type]
    for load in (Collection.load, lambda folder: load_side(folder, "corpus")):
        with pytest.raises(RefusedRequest, match=r"nowhere does not exist; give a folder with corpus\.jsonl"):
            load(tmp_path / "nowhere")


def test_a_beir_folder_is_a_collection(tmp_path: Path) -> None:
    """BEIR's metadata, a byte-order mark, Windows line ends, blank lines, a blank document, integer ids."""
    corpus = '\ufeff{"_id": "d1", "title": "", "text": "", "metadata": {"url": "u"}}\r\n\r\n' + lines(
        {"_id": 7, "text": "x", "video": None, "year": 3}
    )
    queries = lines({"_id": "q1", "text": "x", "metadata": {}})
    folder = make(
        tmp_path, corpus=corpus, queries=queries, test="\ufeff" + HEADER + "q1\t7\t1\r\n\nq1\td1\t1.0\n"
    )
    collection = Collection.load(folder, split="test")
    assert [item.id for item in collection.corpus] == ["d1", "7"]
    assert collection.corpus[1].video is None
    assert collection.qrels["test"] == {"q1": {"7": 1, "d1": 1}}


def test_all_splits_or_one(tmp_path: Path) -> None:
    qrels = HEADER + "q1\td1\t1\n"
    folder = make(tmp_path, corpus=CORPUS, queries=QUERIES, test=qrels, dev=qrels)
    assert set(Collection.load(folder).qrels) == {"test", "dev"}
    assert set(Collection.load(folder, split="dev").qrels) == {"dev"}
    assert "split 'tset' does not exist; the splits here are: dev, test" in refusal(folder, split="tset")


def test_every_problem_in_one_message(tmp_path: Path) -> None:
    corpus = lines(
        {"_id": "d1", "text": "one"},
        {"text": "no id"},
        {"id": "d3", "text": "x"},
        {"_id": "d1", "text": "again"},
        {"_id": "d5"},
        {"_id": "d6", "texts": "typo"},
        {"_id": "a\tb", "text": "x"},
        {"_id": "d8", "video": "v", "start": 5, "end": 4},
        {"_id": "d9", "text": 3},
        {"_id": "d10", "text": "x", "start": -1},
        {"_id": "d11", "text": "x", "groups": ["a"]},
        ["a list"],
    )
    corpus += '{"_id": "d13", "text": \n'
    qrels = HEADER + "q1\td1\t0.9\nq1\tnowhere\t1\nq9\td1\t1\nq1 d1 1\nq1\td1\t1\nq1\td1\t2\n"
    message = refusal(make(tmp_path, corpus=corpus, queries=QUERIES, test=qrels))
    for expected in (
        "corpus.jsonl:2: no _id\n",
        "corpus.jsonl:3: no _id; it has an 'id', which must be called '_id'",
        "corpus.jsonl:4: _id 'd1' was already used in line 1",
        "corpus.jsonl:5: row 'd5' has no content; give one of text, title, transcript, ocr, video, image, ",
        "corpus.jsonl:6: unknown field 'texts' (did you mean 'text'?)",
        "corpus.jsonl:7: _id 'a\\tb' is empty, or has a space at an end, a tab or a control character",
        "corpus.jsonl:8: end 4.0 is not after start 5.0",
        "corpus.jsonl:9: text is a int; it must be a string",
        "corpus.jsonl:10: start is -1; it must be a number of seconds, 0 or more",
        "corpus.jsonl:11: groups is ['a']; it must be a flat map",
        "corpus.jsonl:12: a JSON list; each line must be an object with an _id",
        "corpus.jsonl:13: not a JSON object",
        "test.tsv:2: the score is '0.9'; it must be an integer",
        "test.tsv:3: document 'nowhere' is not in corpus.jsonl",
        "test.tsv:4: query 'q9' is not in queries.jsonl",
        "test.tsv:5: 1 columns; a line has three, separated by tabs",
        "test.tsv:7: query 'q1' and document 'd1' have the score 2 here and 1 above; keep one line",
    ):
        assert expected in message
    assert "17 problems" in message


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"_id": "d1", "text": "cut \ud83d"}, "text"),
        ({"_id": "d\udc00", "text": "x"}, "_id"),
        ({"_id": "d1", "text": "x", "groups": {"topic": "\ud83d"}}, "groups"),
        ({"_id": "d1", "video": "caf\udce9.mp4"}, "video"),
    ],
)
def test_half_of_a_surrogate_pair_is_refused(tmp_path: Path, row: dict[str, object], name: str) -> None:
    corpus = lines({"_id": "d0", "text": "\U0001f600", "groups": {"é": "ü"}}, row)
    message = refusal(make(tmp_path, corpus=corpus, queries=QUERIES, test=HEADER))
    assert f"corpus.jsonl:2: {name} holds half of a surrogate pair ('\\ud" in message
    assert "1 problem\n" in message


@pytest.mark.parametrize("name", ["stars", "video_id", "context", "source", "metadata", "id"])
def test_other_fields_are_ignored(tmp_path: Path, name: str) -> None:
    corpus = lines({"_id": "d1", "text": "x", name: "anything"})
    folder = make(tmp_path, corpus=corpus, queries=QUERIES, test=HEADER + "q1\td1\t1\n")
    assert Collection.load(folder).corpus[0].text == "x"


def test_missing_files_are_named_together(tmp_path: Path) -> None:
    message = refusal(make(tmp_path, corpus=None, queries=None))
    assert "corpus.jsonl is missing" in message
    assert "queries.jsonl is missing" in message
    assert "qrels/*.tsv is missing" in message
    assert "does not exist; give a folder with corpus.jsonl" in refusal(tmp_path / "nowhere")


def test_wrong_header(tmp_path: Path) -> None:
    message = refusal(make(tmp_path, corpus=CORPUS, queries=QUERIES, test="q1\td1\t1\n"))
    assert "test.tsv:1: the header is 'q1\\td1\\t1'; it must be query-id<tab>corpus-id<tab>score" in message


def test_empty_file(tmp_path: Path) -> None:
    message = refusal(make(tmp_path, corpus="\n", queries=QUERIES, test=HEADER))
    assert "corpus.jsonl holds no row" in message


def test_positives_outside_the_corpus_are_refused_or_kept_on_request(tmp_path: Path) -> None:
    folder = make(tmp_path, corpus=CORPUS, queries=QUERIES, test=HEADER + "q1\tgone\t1\nq1\td1\t1\n")
    assert "document 'gone' is not in corpus.jsonl" in refusal(folder)
    assert Collection.load(folder, unreachable="keep").qrels["test"]["q1"] == {"gone": 1, "d1": 1}
    assert "unreachable 'drop' is not accepted; it is 'refuse' or 'keep'" in refusal(
        folder, unreachable="drop"
    )


def test_one_side_needs_nothing_else(tmp_path: Path) -> None:
    make(tmp_path, corpus=CORPUS, queries=None)
    assert [item.id for item in load_side(tmp_path, "corpus")] == ["d1", "d2"]
    with pytest.raises(RefusedRequest, match=r"queries.jsonl is missing"):
        load_side(tmp_path, "queries")
    with pytest.raises(RefusedRequest, match="side 'videos' does not exist"):
        load_side(tmp_path, "videos")  # type: ignore[arg-type]


def test_missing_media_is_found_without_decoding(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "good.mp4").write_bytes(b"x")
    path = tmp_path / "corpus.jsonl"
    rows = [{"_id": name, "video": f"{name}.mp4"} for name in ("good", "empty", "none")]
    rows[2]["audio"] = "none.wav"  # one item, one failure
    path.write_text(lines(*rows), encoding="utf-8")
    failures = missing_media(load_side(tmp_path, "corpus"))
    assert [failure.item for failure in failures] == ["empty", "none"]
    assert failures[0].reason.startswith("file is empty")
    assert failures[1].reason.startswith("file not found")


def test_media_that_may_not_be_read_is_a_failure_of_its_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may read everything."""
    for name in ("good.mp4", "locked.mp4"):
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path))
    files = ["good.mp4", "locked.mp4", "x" * 300, "zero\0byte.mp4", "good.mp4/inside.mp4", "."]
    rows = [{"_id": str(number), "video": name} for number, name in enumerate(files)]
    (tmp_path / "corpus.jsonl").write_text(lines(*rows), encoding="utf-8")
    failures = missing_media(load_side(tmp_path, "corpus"))
    assert [(failure.item, failure.reason.partition(": /")[0]) for failure in failures] == [
        ("1", "file cannot be read (Permission denied)"),
        ("2", "file cannot be read (File name too long)"),
        ("3", "file not found"),
        ("4", "file not found"),
        ("5", "file not found"),
    ]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    corpus = [{"_id": "d 1", "video": Path("a/b.mp4"), "text": None}, {"_id": "d2", "text": "zwei ü\u2028x"}]
    qrels = {"test": {"q": {"d 1": 2, "d2": 1}}, "dev": {"q": {"d2": 1}}}
    write_collection(tmp_path / "c", corpus=corpus, queries=[{"_id": "q", "text": "?"}], qrels=qrels)
    collection = Collection.load(tmp_path / "c")
    assert collection.qrels == qrels
    assert collection.corpus[0].video == (tmp_path / "c/a/b.mp4").resolve()
    assert collection.corpus[1].text == "zwei ü\u2028x"


def test_a_faulty_collection_leaves_the_old_one_in_place(tmp_path: Path) -> None:
    rows = [{"_id": "a", "text": "x"}]
    write_collection(tmp_path, corpus=rows, queries=rows, qrels={"test": {"a": {"a": 1}}})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RefusedRequest) as caught:
        write_collection(
            tmp_path, corpus=[*rows, *rows, {"_id": "b"}], queries=rows, qrels={"test": {"z": {"a": 1}}}
        )
    message = str(caught.value)
    assert "corpus.jsonl:2: _id 'a' was already used" in message
    assert "corpus.jsonl:3: row 'b' has no content" in message
    assert "split 'test': query 'z' is not in queries.jsonl" in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_split_of_an_earlier_collection_is_not_left_behind(tmp_path: Path) -> None:
    """Ids such as d1 are in both, so its judgements would be read as those of the new one."""
    rows = [{"_id": "d1", "text": "x"}]
    judged = {"d1": {"d1": 1}}
    write_collection(tmp_path, corpus=rows, queries=rows, qrels={"test": judged, "dev": judged})
    with pytest.raises(
        RefusedRequest, match=r"qrels/dev\.tsv is of an earlier collection; remove it, or give"
    ):
        write_collection(tmp_path, corpus=rows, queries=rows, qrels={"test": judged})
