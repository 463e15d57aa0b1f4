"""Providers of one's own clips: lists of links, folders, collections and indexes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vidvec_msg.data_synth.benchmark.providers.contract import Clip, Wanted
from vidvec_msg.data_synth.benchmark.providers.links import Links, read_links
from vidvec_msg.data_synth.benchmark.providers.local import Local, source_kind
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.errors import Problems
from vidvec_msg.retrieval.index import index
from vidvec_msg.tinyworld.collections import write_mp4

SPEC = "fakes:KeywordEmbedder"
LIST = """url,title,description,duration,message_id
https://youtu.be/aaaaaaaaaaa?t=9,An apple falls,,0:30,
https://www.youtube.com/shorts/bbbbbbbbbbb,A bridge,a dog on a bridge,PT1M,
https://example.org/c.mp4,Forest,apple apple,400,
https://example.org/d.mp4,Something else,,,m02
"""


def wanted(query: str, message: str = "m01", limit: int = 10) -> Wanted:
    return Wanted(query, message, limit, 180.0)


def links(tmp_path: Path, content: str = LIST, embedder: str | None = None) -> Links:
    path, problems = tmp_path / "links.csv", Problems("x")
    path.write_text(content, encoding="utf-8")
    rows = read_links(path, problems)
    assert not problems.found
    return Links(path, rows, MessageVectors(embedder))


def test_a_list_is_searched_by_words(tmp_path: Path) -> None:
    found = links(tmp_path).search(wanted("dogs near a bridge"))
    assert [clip.id for clip in found] == ["bbbbbbbbbbb"]
    assert found[0] == Clip(
        "bbbbbbbbbbb",
        "https://www.youtube.com/watch?v=bbbbbbbbbbb",
        "A bridge",
        "a dog on a bridge",
        60.0,
        None,
    )
    assert links(tmp_path).search(wanted("a candle")) == []


def test_a_list_is_searched_by_an_embedder(tmp_path: Path) -> None:
    found = links(tmp_path, embedder=SPEC).search(wanted("apple"))
    assert [clip.title for clip in found] == ["An apple falls", "Forest", "A bridge"]
    assert found[1].left_out == "too long: 400 s, not under 180 s"


def test_rows_that_were_found_for_a_message_are_its_candidates_whatever_is_asked(tmp_path: Path) -> None:
    found = links(tmp_path).search(wanted("apple", "m02"))
    assert [clip.title for clip in found] == ["Something else", "Forest", "An apple falls"][:1] + [
        clip.title for clip in links(tmp_path).search(wanted("apple", "m01"))
    ]


def test_the_limit_counts_clips_that_can_be_candidates(tmp_path: Path) -> None:
    found = links(tmp_path, embedder=SPEC).search(wanted("apple", limit=2))
    assert [bool(clip.left_out) for clip in found] == [False, True, False]


def test_a_list_may_hold_files(tmp_path: Path) -> None:
    (tmp_path / "a clip.mp4").write_bytes(b"x")
    found = links(tmp_path, "video,title\na clip.mp4,apple\nlost.mp4,apple\n").search(wanted("apple"))
    assert [(clip.video, clip.left_out.partition(":")[0]) for clip in found] == [
        (str(tmp_path.resolve() / "a clip.mp4"), ""),
        (str(tmp_path.resolve() / "lost.mp4"), "no file"),
    ]


def test_what_is_wrong_with_a_list(tmp_path: Path) -> None:
    path, problems = tmp_path / "l.csv", Problems("x")
    path.write_text(
        "url,clip_id,duration\n,a,\nhttps://x/y,b,long\nhttps://x/z,c,\nhttps://x/w,c,\nhttps://x/z,c,\n"
    )
    read_links(path, problems)
    told = "\n".join(problems.found)
    assert "row 1: no video, url, link; one of these columns holds the clip's address" in told
    assert "row 2: duration is 'long'; it must be seconds, 1:03 or PT1M3S" in told
    assert "clip_id 'c' has two videos: https://x/z and https://x/w" in told
    assert "clip 'c' stands there 3 times" in told
    problems.found.clear()
    path.write_text("url\n")
    read_links(path, problems)
    assert problems.found == [f"links {path}: it holds no row; each is a clip"]


# ---- clips on this machine


def collection(folder: Path) -> Path:
    rows = [
        {
            "_id": "a",
            "video": "a.mp4",
            "title": "One",
            "transcript": "apple apple dog",
            "start": 1.0,
            "end": 9.0,
        },
        {"_id": "b", "video": "b.mp4", "transcript": "apple bridge bridge"},
        {"_id": "c", "video": "c.mp4", "transcript": "apple", "start": 0.0, "end": 500.0},
        {"_id": "d", "text": "apple"},
    ]
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.mp4").write_bytes(b"x")
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def check_clips(found: dict[str, Clip], folder: Path, said: dict[str, str]) -> None:
    assert set(found) == set("abcd")
    assert found["a"].video == str((folder / "a.mp4").resolve())
    assert (found["a"].duration, found["a"].about) == (8.0, {"start": 1.0, "end": 9.0, **said})
    assert found["b"].duration is None
    assert found["b"].left_out == ""
    assert found["c"].left_out == "too long: 500 s, not under 180 s"
    assert (found["d"].video, found["d"].about, found["d"].left_out) == (None, {"text": "apple"}, "")


def test_a_collection_is_indexed_once_and_searched(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c")
    provider = Local(folder, "collection", MessageVectors(SPEC), tmp_path / "work")
    found = {clip.id: clip for clip in provider.search(wanted("apple"))}
    check_clips(found, folder, {"transcript": "apple apple dog"})
    assert (found["a"].title, found["a"].description) == ("One", "apple apple dog")
    (built,) = (tmp_path / "work").iterdir()
    before = (built / "index" / "index.json").stat().st_mtime_ns
    again = Local(folder, "collection", MessageVectors(SPEC), tmp_path / "work")
    assert [clip.id for clip in again.search(wanted("apple"))] == list(found)
    assert (built / "index" / "index.json").stat().st_mtime_ns == before
    assert again.settings == provider.settings
    (folder / "corpus.jsonl").write_text('{"_id": "z", "video": "a.mp4", "transcript": "dog"}\n')
    changed = Local(folder, "collection", MessageVectors(SPEC), tmp_path / "work")
    assert changed.settings != provider.settings
    assert [clip.id for clip in changed.search(wanted("apple"))] == ["z"]
    assert [path.name for path in (tmp_path / "work").iterdir()] != [built.name]  # the old one is gone


def test_an_index_knows_its_embedder(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c").resolve()
    index(tmp_path / "i", collection=folder, embedder=SPEC)
    assert source_kind(tmp_path / "i", Problems("x")) == "index"
    provider = Local(tmp_path / "i", "index", MessageVectors(None), tmp_path / "work")
    found = {clip.id: clip for clip in provider.search(wanted("apple"))}
    check_clips(found, folder, {})  # an index knows beginnings of texts alone
    assert found["b"].description == "apple bridge bridge"
    assert not (tmp_path / "work").exists()


def test_the_limit_is_of_clips_that_can_be_candidates(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "v.mp4").write_bytes(b"x")
    long = {"video": "v.mp4", "transcript": "apple", "end": 1000.0}
    rows = [{"_id": f"t{n}", "start": float(n), **long} for n in range(20)]
    rows.append({"_id": "v", "video": "v.mp4", "transcript": "apple dog dog", "start": 0.0, "end": 9.0})
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    provider = Local(folder, "collection", MessageVectors(SPEC), tmp_path / "work")
    assert [clip.id for clip in provider.search(wanted("apple", limit=1)) if not clip.left_out] == ["v"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: None, "no such folder; give an index, a collection, or a folder of clips"),
        (lambda folder: folder.mkdir(), "the folder is empty; it should hold clips"),
        (
            lambda folder: [folder.mkdir(), (folder / "corpus.jsonl").write_text("\n")],
            "the collection is empty",
        ),
    ],
)
def test_folders_in_which_nothing_can_be_found(tmp_path: Path, make: object, told: str) -> None:
    make(tmp_path / "f")  # type: ignore[operator]
    problems = Problems("x")
    assert source_kind(tmp_path / "f", problems) is None
    assert told in problems.found[0]


def test_a_folder_of_clips_is_collected_and_searched(tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for name, said in (("one", "apple apple dog"), ("two", "apple bridge bridge")):
        write_mp4(folder / f"{name}.mp4", np.zeros((16, 64, 64, 3), np.uint8), fps=8)
        (folder / f"{name}.txt").write_text(said)
    assert source_kind(folder, Problems("x")) == "files"
    provider = Local(folder, "files", MessageVectors(SPEC), tmp_path / "work")
    before = provider.settings
    found = provider.search(wanted("apple"))
    assert [(clip.id, clip.duration, clip.description) for clip in found] == [
        ("one", 2.0, "apple apple dog"),
        ("two", 2.0, "apple bridge bridge"),
    ]
    assert found[0].video == str(folder.resolve() / "one.mp4")
    assert Local(folder, "files", MessageVectors(SPEC), tmp_path / "work").settings == before
    (folder / "three.txt").write_text("more")
    assert Local(folder, "files", MessageVectors(SPEC), tmp_path / "work").settings != before
