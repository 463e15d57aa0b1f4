from __future__ import annotations

import json
from pathlib import Path

import pytest

from vidvec_msg.formats.collections import Collection, load_side, write_collection
from vidvec_msg.formats.write_back import side_rows, write_fields

ROWS = [
    {"_id": "a", "video": "clips/a.mp4", "metadata": {"views": 1.50, "tags": ["é", 3]}},
    {"_id": "b", "text": "words", "transcript": "said"},
    {"_id": "7", "video": "/elsewhere/b.mp4", "ocr": None},
]  # fmt: skip


@pytest.fixture
def collection(tmp_path) -> Path:
    root = tmp_path / "c"
    write_collection(
        root, corpus=ROWS, queries=[{"_id": "q", "image": "pictures/q.png"}], qrels={"test": {"q": {"a": 1}}}
    )
    (root / "corpus.jsonl").write_bytes(
        b'\xef\xbb\xbf{"_id":"a",  "video":"clips/a.mp4","metadata":{"views":1.50,"tags":["\xc3\xa9",3]}}\n'
        b"\n"
        b'{"_id":"b", "text":"words","transcript":"said"}\r\n'
        b'{"_id":7,"video":"/elsewhere/b.mp4","ocr":null,"note":"\\ud83d"}'
    )
    return root


def test_new_fields_are_added_and_all_else_stays(collection):
    before = (collection / "corpus.jsonl").read_bytes()
    queries = (collection / "queries.jsonl").read_bytes()
    assert (
        write_fields(collection, "corpus", {"7": {"ocr": "drôle", "ocr_info": {"frames": 4}}}) == collection
    )
    after = (collection / "corpus.jsonl").read_bytes()
    lines = after.split(b"\n")
    assert b"\n".join(lines[:3]) == b"\n".join(before.split(b"\n")[:3]).removeprefix(b"\xef\xbb\xbf")
    assert json.loads(lines[3]) == {
        "_id": 7,
        "video": "/elsewhere/b.mp4",
        "ocr": "drôle",
        "note": "\ud83d",
        "ocr_info": {"frames": 4},
    }
    assert (collection / "queries.jsonl").read_bytes() == queries
    assert [item.ocr for item in load_side(collection, "corpus")] == [None, None, "drôle"]


def test_no_new_fields_no_change(collection):
    write_fields(collection, "corpus", {"b": {"ocr": "x"}})
    before = (collection / "corpus.jsonl").read_bytes()
    write_fields(collection, "corpus", {})
    assert (collection / "corpus.jsonl").read_bytes() == before


def test_given_fields_go_before_those_of_the_row(collection):
    write_fields(collection, "corpus", {"b": {"transcript": "heard"}})
    assert [row.get("transcript") for row in side_rows(collection, "corpus")] == [None, "heard", None]


def test_a_copy_leads_to_the_same_media(collection, tmp_path):
    before = (collection / "corpus.jsonl").read_bytes()
    out = tmp_path / "deep" / "copy"
    assert write_fields(collection, "corpus", {"a": {"ocr": "x"}}, out=out) == out
    assert (collection / "corpus.jsonl").read_bytes() == before
    copy = Collection.load(out)
    original = Collection.load(collection)
    assert [item.ocr for item in copy.corpus] == ["x", None, None]
    for name in ("corpus", "queries"):
        for one, other in zip(getattr(copy, name), getattr(original, name), strict=True):
            for medium in ("video", "image"):
                paths = [getattr(item, medium) for item in (one, other)]
                assert paths == [None, None] or paths[0].resolve() == paths[1].resolve()
    row = next(iter(side_rows(out, "corpus")))
    assert row["video"] == "../../c/clips/a.mp4"
    assert row["metadata"] == {"views": 1.5, "tags": ["é", 3]}
    assert copy.qrels == original.qrels


def test_a_copy_of_a_side_alone(collection, tmp_path):
    (collection / "queries.jsonl").unlink()
    write_fields(collection, "corpus", {"a": {"ocr": "x"}}, out=tmp_path / "copy")
    assert [item.ocr for item in load_side(tmp_path / "copy", "corpus")] == ["x", None, None]
    assert not (tmp_path / "copy" / "queries.jsonl").exists()
