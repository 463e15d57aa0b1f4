"""Slices of a job, joined, are the job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import KEYWORDS, KeywordEmbedder
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval import embed as module
from vidvec_msg.retrieval.embed import embed
from vidvec_msg.retrieval.embedding import slices
from vidvec_msg.retrieval.embedding.slices import bounds, parse_slice
from vidvec_msg.runs import file_digest


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """23 documents, two of which cannot be embedded."""
    folder = tmp_path / "collection"
    texts = ["nothing" if n in (4, 21) else " ".join(KEYWORDS[: 1 + n % len(KEYWORDS)]) for n in range(23)]
    write_collection(
        folder,
        corpus=[{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)],
        queries=[{"_id": "q", "text": KEYWORDS[0]}],
        qrels={"test": {"q": {"d0": 1}}},
    )
    return folder


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> KeywordEmbedder:
    made = KeywordEmbedder()
    monkeypatch.setattr(module, "load_embedder", lambda spec: made)
    return made


def run(collection: Path, out: Path, shard: str | None = None, *, shard_size: int = 5) -> Path:
    return embed(collection, "keywords", out, shard=shard, shard_size=shard_size, max_failures=2)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_slices_joined_have_the_bytes_of_one_job(collection: Path, tmp_path: Path, count: int) -> None:
    whole = content(run(collection, tmp_path / "whole"))
    for number in reversed(range(1, count + 1)):
        run(collection, tmp_path / "out", f"{number}/{count}")
    assert content(run(collection, tmp_path / "out")) == whole


def test_joining_embeds_nothing(
    collection: Path, tmp_path: Path, embedder: KeywordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        run(collection, tmp_path / "out", f"{number}/2")

    def encode(items: Sequence[object], *, role: str) -> None:
        raise AssertionError("nothing is left to embed")

    monkeypatch.setattr(embedder, "encode", encode)
    run(collection, tmp_path / "out")


@pytest.mark.parametrize("kind", ["sha256", "none"])
def test_a_slice_of_an_earlier_version_is_joined(
    collection: Path, tmp_path: Path, embedder: KeywordEmbedder, kind: str
) -> None:
    """Also one without checksums: nothing says that its shards are damaged."""
    whole = content(run(collection, tmp_path / "whole"))
    for number in (1, 2):
        run(collection, tmp_path / "out", f"{number}/2")
    first = tmp_path / "out" / "slices" / "00001-of-00002"
    manifest = json.loads((first / "manifest.json").read_text())
    for entry in manifest["shards"]:
        del entry["checksum"]
        entry |= {"sha256": file_digest(first / entry["file"])} if kind == "sha256" else {}
    (first / "manifest.json").write_text(json.dumps(manifest))
    embedder.encoded.clear()
    joined = content(run(collection, tmp_path / "out"))
    assert embedder.encoded == []
    kinds = [one["checksum"].split(":")[0] for one in json.loads(joined["manifest.json"])["shards"]]
    assert kinds == ["sha256" if kind == "sha256" else "xxh3_128"] * 2 + ["xxh3_128"] * 3
    assert {**joined, "manifest.json": b""} == {**whole, "manifest.json": b""}
    assert len(VectorsFolder.open(tmp_path / "out").matrix()) == 21


@given(items=st.integers(1, 200), size=st.integers(1, 50), count=st.integers(1, 20))
def test_slices_are_whole_shards_and_leave_nothing_out(items: int, size: int, count: int) -> None:
    if -(-items // size) < count:
        with pytest.raises(RefusedRequest, match="too few for"):
            bounds(1, count, items=items, shard_size=size)
        return
    cut = [bounds(number, count, items=items, shard_size=size) for number in range(1, count + 1)]
    assert [first for first, _ in cut] == [0, *(last for _, last in cut[:-1])]
    assert cut[-1][1] == items
    assert all(first < last and first % size == 0 for first, last in cut)
    sizes = [last - first for first, last in cut[:-1]]
    assert not sizes or max(sizes) - min(sizes) <= size


def test_what_is_missing_is_named_with_its_command(collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2, 4):
        run(collection, out, f"{number}/4")
    (out / "slices" / "00002-of-00004" / "manifest.json").unlink()
    before = content(out)
    with pytest.raises(RefusedRequest) as told:
        run(collection, out)
    assert "slice 2/4 was begun and is not complete: the same command with --shard 2/4" in str(told.value)
    assert "slice 3/4 is missing" in str(told.value)
    assert content(out) == before


def test_a_slice_of_another_request_is_refused(collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        run(collection, out, f"{number}/2")
    path = collection / "corpus.jsonl"
    path.write_text(path.read_text().replace('"d7", "text": "', '"d7", "text": "changed '))
    with pytest.raises(RefusedRequest, match="digest of the items"):
        run(collection, out)


def test_slices_of_two_jobs_are_not_mixed(collection: Path, tmp_path: Path) -> None:
    run(collection, tmp_path / "out", "1/2")
    run(collection, tmp_path / "out", "1/3")
    with pytest.raises(RefusedRequest, match="jobs of 2, 3 slices"):
        run(collection, tmp_path / "out")


def test_a_join_that_was_killed_is_done_again(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(run(collection, tmp_path / "whole"))
    out = tmp_path / "out"
    for number in (1, 2):
        run(collection, out, f"{number}/2")
    real, taken = slices.Record.write, []

    def dies(record: slices.Record, work: Path) -> None:
        taken.append(record)
        if len(taken) == 2:
            raise KeyboardInterrupt
        real(record, work)

    with monkeypatch.context() as patched:
        patched.setattr(slices.Record, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            run(collection, out)
    assert content(run(collection, out)) == whole


def test_files_are_copied_where_they_cannot_be_linked(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = content(run(collection, tmp_path / "whole"))
    for number in (1, 2):
        run(collection, tmp_path / "out", f"{number}/2")

    def link(source: Path, target: Path) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(slices.os, "link", link)
    assert content(run(collection, tmp_path / "out")) == whole


def test_a_slice_has_an_allowance_of_failures_of_its_own(collection: Path, tmp_path: Path) -> None:
    embed(collection, "keywords", tmp_path / "out", shard="2/3", shard_size=5)  # holds no bad item
    with pytest.raises(TooManyFailures):
        embed(collection, "keywords", tmp_path / "out", shard="1/3", shard_size=5)


def test_a_complete_folder_has_no_slices_left(collection: Path, tmp_path: Path) -> None:
    out = run(collection, tmp_path / "out")
    with pytest.raises(RefusedRequest, match="there is no slice 1/2 left"):
        run(collection, out, "1/2")
    shutil.copytree(out, out / "slices" / "00001-of-00001")  # a kill before the tidying up
    run(collection, out)
    assert not (out / "slices").exists()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/", "-1/2"])
def test_other_words_for_a_slice_are_refused(text: str) -> None:
    with pytest.raises(RefusedRequest, match="NUMBER/COUNT"):
        parse_slice(text)
