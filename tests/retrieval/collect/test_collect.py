"""The verb `collect`, on real files; what it makes is opened as every other collection is."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from media.clips import grey_frames, write_clip, write_sound
from PIL import Image

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection, load_side, write_collection
from vidvec_msg.formats.write_back import write_fields
from vidvec_msg.retrieval.collect import probing
from vidvec_msg.retrieval.collect.candidates import Candidate
from vidvec_msg.retrieval.collect.row_files import _place
from vidvec_msg.retrieval.collect.verb import collect
from vidvec_msg.runs import digest_of


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clips, a long one, a sound, subtitles, a note, and things that are no use."""
    root = tmp_path_factory.mktemp("sources") / "clips"
    (root / "sport" / "day 1").mkdir(parents=True)
    (root / "news").mkdir()
    clip = write_clip(root / "sport" / "b.mp4", grey_frames(8))
    shutil.copy(clip, root / "sport" / "day 1" / "goal ä.mp4")
    write_clip(root / "sport" / "b.webm", grey_frames(8), codec="libvpx-vp9")
    write_clip(root / "news" / "long.mp4", grey_frames(20) * 10, fps=2)  # 100 s
    write_sound(root / "news" / "talk.m4a")
    (root / "news" / "long.en.srt").write_text(
        "1\n00:00:01,000 --> 00:00:02,000\nearly\n\n2\n00:01:31,000 --> 00:01:33,000\nlate\n"
    )
    (root / "news" / "note.txt").write_text("only a note\n")
    (root / "x.docx").write_bytes(b"z")
    (root / ".DS_Store").write_bytes(b"z")
    (root / "._b.mp4").write_bytes(b"z")
    return root


def name_of(text: str) -> str:
    """The id of a query that a table's texts ask."""
    return f"q{digest_of(text)[:16]}"


def run(source: Path | list[Path], out: Path, **options: Any) -> Path:
    sources = source if isinstance(source, list) else [source]
    return collect(sources, out, decode_timeout=0, workers=1, **options)  # in this process: faster


def test_a_folder_becomes_a_collection(clips: Path, tmp_path: Path) -> None:
    out = run(clips, tmp_path / "C", groups=["topic", "day"])
    items = {item.id: item for item in load_side(out, "corpus")}
    assert list(items) == [
        "news/long", "news/note", "news/talk", "sport/b.mp4", "sport/b.webm", "sport/day 1/goal ä"
    ]  # fmt: skip
    video = items["sport/day 1/goal ä"].video
    assert isinstance(video, Path)
    assert video.samefile(clips / "sport" / "day 1" / "goal ä.mp4")
    assert items["sport/day 1/goal ä"].groups == {"topic": "sport", "day": "day 1"}
    assert items["news/long"].transcript == "early late"
    assert items["news/note"].text == "only a note"
    assert items["news/talk"].modality == "audio"
    assert [row["reason"] for row in rows(out / "left_out.jsonl")] == [
        "no medium or text has the suffix '.docx'"
    ]
    probes = {row["path"]: row["facts"] for row in rows(out / "probes.jsonl")}
    assert len(probes) == 5
    facts = next(facts for path, facts in probes.items() if path.endswith("long.mp4"))
    assert (facts["duration"], facts["frames"]) == (100.0, 200)


def test_paths_hold_when_both_folders_move(clips: Path, tmp_path: Path) -> None:
    shutil.copytree(clips, tmp_path / "here" / "clips")
    run(tmp_path / "here" / "clips", tmp_path / "here" / "C", patterns=["sport/*.mp4"])
    (tmp_path / "here").rename(tmp_path / "there")
    for item in load_side(tmp_path / "there" / "C", "corpus"):
        assert isinstance(item.video, Path)
        assert item.video.is_file()


def test_long_clips_become_windows_with_their_own_words(clips: Path, tmp_path: Path) -> None:
    out = run(clips, tmp_path / "C", patterns=["*.mp4"], window=30, overlap=5)
    found = {row["_id"]: row for row in rows(out / "corpus.jsonl") if row["_id"].startswith("news")}
    assert list(found) == [f"news/long#t={span}" for span in ("0,30", "25,55", "50,80", "70,100")]
    assert [row.get("transcript") for row in found.values()] == ["early", None, None, "late"]
    assert found["news/long#t=25,55"]["start"] == 25
    load_side(out, "corpus")


def test_copied_media_make_the_folder_whole(clips: Path, tmp_path: Path) -> None:
    out = run(clips, tmp_path / "C", patterns=["*.mp4"], media="copy")
    out.rename(tmp_path / "moved")
    for item in load_side(tmp_path / "moved", "corpus"):
        assert isinstance(item.video, Path)
        assert item.video.is_relative_to(tmp_path / "moved")
        assert item.video.is_file()


def test_captions_of_a_table_become_queries(clips: Path, tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [
                ["video_id", "path", "caption", "kind"],
                ["v1", "sport/b.mp4", "a ball", "s"],
                ["v1", "sport/b.mp4", "a goal, at last", "s"],
                ["v2", "news/long.mp4", "a ball", "n"],
            ]
        )
    out = run(
        table,
        tmp_path / "C",
        columns={"id": "video_id", "video": "path"},
        groups=["kind"],
        queries="caption",
        media_root=clips,
    )
    collection = Collection.load(out)
    assert [item.id for item in collection.corpus] == ["v1", "v2"]
    assert [item.text for item in collection.queries] == ["a ball", "a goal, at last"]
    assert [item.id for item in collection.queries] == [name_of("a ball"), name_of("a goal, at last")]
    assert collection.qrels == {
        "test": {name_of("a ball"): {"v1": 1, "v2": 1}, name_of("a goal, at last"): {"v1": 1}}
    }
    assert collection.corpus[0].groups == {"kind": "s"}


def test_windows_keep_their_clips_judgements(clips: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "v", "video": "news/long.mp4", "caption": ["one", "two"]}\n')
    out = run(tmp_path / "t.jsonl", tmp_path / "C", queries="caption", media_root=clips, window=50)
    judged = Collection.load(out).qrels["test"]
    assert judged == {query: {"v#t=0,50": 1, "v#t=50,100": 1} for query in map(name_of, ("one", "two"))}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_every_table_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    content = [{"id": f"a{n}", "text": f"text, {n}", "start": 1.5, "end": 3.0} for n in range(3)]
    path = tmp_path / f"t.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(content), path)
    else:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(content[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(content)
    out = run(path, tmp_path / "C")
    assert rows(out / "corpus.jsonl") == [
        {"_id": row["id"], "text": row["text"], "start": 1.5, "end": 3.0} for row in content
    ]


def test_a_hugging_face_data_set_on_disk_gives_up_its_files(clips: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    content = (clips / "sport" / "b.mp4").read_bytes()
    made = datasets.Dataset.from_dict(
        {"id": ["a", "../b"], "video": [{"bytes": content, "path": "x.mp4"}] * 2, "label": [1, 2]}
    ).cast_column("video", datasets.Video(decode=False))
    datasets.DatasetDict(train=made, test=made.select([0])).save_to_disk(str(tmp_path / "hf"))
    with pytest.raises(RefusedRequest, match="splits train, test; choose: --split"):
        run(tmp_path / "hf", tmp_path / "C")
    out = run(tmp_path / "hf", tmp_path / "C", split="train", groups=["label"])
    items = load_side(out, "corpus")
    assert [(item.id, dict(item.groups)) for item in items] == [
        ("a", {"label": "1"}),
        ("../b", {"label": "2"}),
    ]
    for item in items:
        assert isinstance(item.video, Path)
        assert item.video.read_bytes() == content
        assert item.video.is_relative_to(out)


def test_a_beir_folder_keeps_both_sides_and_joins_others(clips: Path, tmp_path: Path) -> None:
    write_collection(
        tmp_path / "beir",
        corpus=[{"_id": "d1", "text": "one", "metadata": {"x": 1}}, {"_id": "d2", "text": "two"}],
        queries=[{"_id": "q1", "text": "ask"}],
        qrels={"dev": {"q1": {"d2": 2}}},
    )
    out = run([tmp_path / "beir", clips], tmp_path / "C", prefix=True, patterns=["news/*.mp4"])
    collection = Collection.load(out)
    assert [item.id for item in collection.corpus] == ["beir/d1", "beir/d2", "clips/news/long"]
    assert collection.qrels == {"dev": {"beir/q1": {"beir/d2": 2}}}
    assert rows(out / "corpus.jsonl")[0]["metadata"] == {"x": 1}


def test_what_a_file_holds_counts_and_not_its_suffix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "clips").mkdir()
    write_sound(tmp_path / "clips" / "song.mp4")
    write_clip(tmp_path / "clips" / "clip.mp4", grey_frames(8))
    write_clip(tmp_path / "clips" / "old.avi", grey_frames(8), codec="mpeg4")
    caplog.set_level("INFO", "vidvec_msg")
    out = run(tmp_path / "clips", tmp_path / "C", max_failures=1)
    assert [item.id for item in load_side(out, "corpus")] == ["clip", "old"]
    (left,) = rows(out / "left_out.jsonl")
    assert left["reason"] == "it holds sound and no pictures, whatever its suffix '.mp4' says"
    assert [row["facts"]["reader"] for row in rows(out / "probes.jsonl")] == ["decord", "pyav", ""]
    assert "1 that PyAV reads and decord cannot" in caplog.text


def test_broken_files_are_left_out_and_counted(clips: Path, tmp_path: Path) -> None:
    source = tmp_path / "some"
    source.mkdir()
    shutil.copy(clips / "sport" / "b.mp4", source / "good.mp4")
    (source / "empty.mp4").write_bytes(b"")
    (source / "page.mp4").write_bytes(b"<html></html>")
    with pytest.raises(TooManyFailures, match="2 files or rows are broken and 0 may be") as told:
        run(source, tmp_path / "C")
    assert "page.mp4: no media file" in str(told.value)
    assert [item.id for item in load_side(tmp_path / "C", "corpus")] == ["good"]
    run(source, tmp_path / "D", max_failures=2)
    assert sum(row["broken"] for row in rows(tmp_path / "D" / "left_out.jsonl")) == 2


def test_odd_files_of_a_folder_are_told_and_end_nothing(tmp_path: Path) -> None:
    source = tmp_path / "some"
    source.mkdir()
    (source / "good.txt").write_text("a text")
    (source / "blank.txt").write_text(" \n")
    (source / "empty.txt").write_text("")
    (source / "latin.txt").write_bytes("Bäume".encode("latin-1"))
    (source / "gone.txt").symlink_to("nowhere")
    Image.new("RGB", (9, 9)).save(source / "photo.png")
    broken = 4
    if os.name == "posix":
        os.mkfifo(source / "pipe.txt")
        os.mkfifo(source / "photo.srt")  # the words of the photo
        broken += 1
    out = run(source, tmp_path / "C", max_failures=broken)
    assert [row["_id"] for row in rows(out / "corpus.jsonl")] == ["good", "photo"]
    told = {Path(row["where"]).name: row["reason"] for row in rows(out / "left_out.jsonl")}
    reasons = {
        "blank.txt": "it is empty",
        "empty.txt": f"empty file: {source / 'empty.txt'}",
        "latin.txt": "it is not UTF-8 (invalid continuation byte at byte 1)",
        "gone.txt": f"no such file: {source / 'gone.txt'} (a link to nowhere, which is not there)",
    }
    pipes = [source / name for name in ("photo.srt", "pipe.txt") if (source / name).exists()]
    reasons |= {path.name: f"neither a file nor a folder, but a pipe or device: {path}" for path in pipes}
    assert told == reasons


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_name_that_is_no_utf_8_is_left_out(tmp_path: Path) -> None:
    source = Path(os.fsdecode(os.fsencode(tmp_path / "some")))
    folder = source / os.fsdecode(b"caf\xe9")
    folder.mkdir(parents=True)
    (source / "good.txt").write_text("a text")
    (folder / "note.txt").write_text("a text")
    (source / os.fsdecode(b"b\xff.png")).write_bytes(b"")
    (source / os.fsdecode(b"c\xff.docx")).write_bytes(b"")
    out = run(source, tmp_path / "C", groups=["topic"], max_failures=2)
    assert [row["_id"] for row in rows(out / "corpus.jsonl")] == ["good"]
    told = {row["where"]: (row["reason"], row["broken"]) for row in rows(out / "left_out.jsonl")}
    reason = "its name, or a folder's on the way, is not UTF-8; rename it"
    names = {r"b\xff.png": True, r"c\xff.docx": False, r"caf\xe9/note.txt": True}
    assert told == {f"{source}/{name}": (reason, broken) for name, broken in names.items()}


def test_texts_of_one_name_keep_their_suffixes(tmp_path: Path) -> None:
    """As media do; a Markdown file beside a medium is neither a row nor its words."""
    source = tmp_path / "some"
    source.mkdir()
    for name in ("both.md", "both.txt", "one.md", "photo.md"):
        (source / name).write_text(name)
    Image.new("RGB", (9, 9)).save(source / "photo.png")
    out = run(source, tmp_path / "C")
    assert [row["_id"] for row in rows(out / "corpus.jsonl")] == ["both.md", "both.txt", "one", "photo"]
    (left,) = rows(out / "left_out.jsonl")
    assert left["where"].endswith("photo.md")
    assert left["reason"].startswith("it lies beside a medium of its name, whose words may be in .srt, .vtt")
    assert not left["broken"]


def test_a_file_of_two_sources_is_taken_once(clips: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "mine", "video": str(clips / "sport" / "b.mp4")}))
    out = run([tmp_path / "t.jsonl", clips], tmp_path / "C", patterns=["sport/b.mp4"])
    assert [row["_id"] for row in rows(out / "corpus.jsonl")] == ["mine"]
    assert "taken once" in rows(out / "left_out.jsonl")[0]["reason"]


def test_ids_that_collide_are_refused_with_a_cure(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "a", "text": name}))
    sources = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    with pytest.raises(
        RefusedRequest, match=r"1 ids are used twice: 'a' is one\.jsonl, row 1 and two"
    ) as told:
        run(sources, tmp_path / "C")
    assert "--prefix" in str(told.value)
    assert not (tmp_path / "C").exists()
    out = run(sources, tmp_path / "C", prefix=True)
    assert [row["_id"] for row in rows(out / "corpus.jsonl")] == ["one/a", "two/a"]


def test_rows_of_one_id_that_differ_collide(tmp_path: Path) -> None:
    table = [{"id": "a", "text": "x", "q": "1"}, {"id": "a", "text": "y", "q": "2"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    with pytest.raises(RefusedRequest, match="used twice"):
        run(tmp_path / "t.jsonl", tmp_path / "C", queries="q")


def test_nothing_is_looked_into_twice(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run(clips, tmp_path / "C", patterns=["sport/*"])
    before = {path.name: path.read_bytes() for path in out.glob("*.jsonl")}
    looked: list[Path] = []
    real = probing._probe
    monkeypatch.setattr(probing, "_probe", lambda path, *rest: (looked.append(path), real(path, *rest))[1])
    with pytest.raises(RefusedRequest, match="already holds files"):
        run(clips, out, patterns=["sport/*"])
    run(clips, out, patterns=["sport/*"], update=True)
    assert looked == []
    assert {path.name: path.read_bytes() for path in out.glob("*.jsonl")} == before
    run(clips, out, patterns=["*.mp4"], update=True)
    assert looked == [clips / "news" / "long.mp4"]


def test_a_run_that_was_killed_goes_on(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(clips, tmp_path / "whole")
    out = tmp_path / "C"
    real, looked = probing._probe, []

    def dies(path: Path, *rest: Any) -> Any:
        looked.append(path)
        if len(looked) == 3:
            raise KeyboardInterrupt
        return real(path, *rest)

    monkeypatch.setattr(probing, "_probe", dies)
    with pytest.raises(KeyboardInterrupt):
        run(clips, out)
    assert not (out / "collect.json").exists()
    with (out / "probes.jsonl").open("a") as stream:
        stream.write('{"path": "cut sho')
    (out / ".collect.lock").touch()  # what a kill leaves behind
    run(clips, out)
    for name in ("corpus.jsonl", "left_out.jsonl", "probes.jsonl"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    for path in looked[:2]:  # done before it died
        assert looked.count(path) == 1


def test_captions_of_one_clip_need_no_id(clips: Path, tmp_path: Path) -> None:
    table = [{"video": "sport/b.mp4", "q": "one"}, {"video": "sport/b.mp4", "q": "two"}]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    out = run(tmp_path / "t.jsonl", tmp_path / "C", queries="q", media_root=clips)
    assert Collection.load(out).qrels == {"test": {name_of("one"): {"1": 1}, name_of("two"): {"1": 1}}}


def test_queries_of_several_sources_keep_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_collection(
            tmp_path / name,
            corpus=[{"_id": f"{name}-d", "text": name}],
            queries=[{"_id": "q1", "text": f"ask {name}"}],
            qrels={"test": {"q1": {f"{name}-d": 1}}},
        )
    with pytest.raises(RefusedRequest, match="'q1' is 2 queries"):
        run([tmp_path / "one", tmp_path / "two"], tmp_path / "C")
    (tmp_path / "t.jsonl").write_text('{"id": "x", "text": "t", "q": "more"}\n')
    out = tmp_path / "D"
    collect([tmp_path / "one"], out, decode_timeout=0, workers=1)
    both = run([tmp_path / "t.jsonl"], tmp_path / "E", queries="q")
    joined = Collection.load(run([out, both], tmp_path / "F", prefix=True))
    assert [item.id for item in joined.queries] == ["D/q1", f"E/{name_of('more')}"]


def test_a_text_that_a_source_asks_already_is_one_query(tmp_path: Path) -> None:
    """A collection that collect made, and a table: equal texts are one query, a reworded one is another."""
    (tmp_path / "a.jsonl").write_text('{"id": "x", "text": "t", "q": "ask"}\n')
    (tmp_path / "b.jsonl").write_text('{"id": "y", "text": "u", "q": "ask"}\n')
    first = run(tmp_path / "a.jsonl", tmp_path / "A", queries="q")
    both = Collection.load(run([first, tmp_path / "b.jsonl"], tmp_path / "B", queries="q"))
    assert both.qrels == {"test": {name_of("ask"): {"x": 1, "y": 1}}}
    asked = first / "queries.jsonl"
    asked.write_text(asked.read_text().replace('"ask"', '"beg"'))
    both = Collection.load(run([first, tmp_path / "b.jsonl"], tmp_path / "C", queries="q"))
    assert {item.id: item.text for item in both.queries} == {
        name_of("ask"): "beg", f"{name_of('ask')}-2": "ask",
    }  # fmt: skip
    assert both.qrels == {"test": {name_of("ask"): {"x": 1}, f"{name_of('ask')}-2": {"y": 1}}}


def test_judgements_follow_a_file_that_is_taken_once(clips: Path, tmp_path: Path) -> None:
    row = {"text": "t", "video": str(clips / "sport" / "b.mp4")}
    write_collection(
        tmp_path / "beir",
        corpus=[{"_id": "theirs", **row}],
        queries=[{"_id": "q", "text": "ask"}],
        qrels={"test": {"q": {"theirs": 2}}},
    )
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "mine", **row}))
    out = run([tmp_path / "t.jsonl", tmp_path / "beir"], tmp_path / "C")
    assert Collection.load(out).qrels == {"test": {"q": {"mine": 2}}}


def test_an_update_takes_away_what_an_earlier_run_took_from_its_sources(clips: Path, tmp_path: Path) -> None:
    source = tmp_path / "clip"
    source.mkdir()
    (tmp_path / "t.jsonl").write_text('{"id": "x", "text": "t", "q": "ask"}\n')
    out = run(tmp_path / "t.jsonl", tmp_path / "C", queries="q")
    run(tmp_path / "t.jsonl", out, update=True)
    assert not (out / "queries.jsonl").exists()
    assert not list((out / "qrels").glob("*"))
    (source / "a.png").write_bytes(png(1))
    out = run(source, tmp_path / "D", media="copy")
    (source / "a.png").write_bytes(png(2))
    assert len(png(1)) == len(png(2))
    run(source, out, media="copy", update=True)
    assert (out / "media" / "a.png").read_bytes() == png(2)


def test_an_update_leaves_what_others_added(clips: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(clips, tmp_path / "clips"))
    (source / "news" / "long.en.srt").unlink()  # what a source says goes first
    out = run(source, tmp_path / "C", patterns=["*.mp4"])
    names = [row["_id"] for row in rows(out / "corpus.jsonl")]
    assert len(names) >= 2
    heard = {name: {"transcript": f"words of {name}", "transcript_info": {"silent": False}} for name in names}
    write_fields(out, "corpus", heard)
    (out / "queries.jsonl").write_text('{"_id": "q", "text": "ask"}\n')
    (out / "qrels").mkdir()
    (out / "qrels" / "mine.tsv").write_text(f"query-id\tcorpus-id\tscore\nq\t{names[0]}\t1\n")
    mine = {name: (out / name).read_bytes() for name in ("queries.jsonl", "qrels/mine.tsv")}
    changed = Collection.load(out).corpus[1]
    os.utime(changed.video, ns=(1, 1))
    run(source, out, patterns=["*.mp4"], update=True)
    assert {name: (out / name).read_bytes() for name in mine} == mine
    now = {row["_id"]: row for row in rows(out / "corpus.jsonl")}
    assert {name: row["transcript"] for name, row in now.items() if "transcript" in row} == {
        name: f"words of {name}" for name in names if name != changed.id
    }
    told = json.loads((out / "collect.json").read_text())["account"]
    assert told[-2:] == [
        f"kept what annotate recognised for {len(names) - 1} rows",
        "1 rows have other files than when they were annotated: annotate again",
    ]
    assert not (out / "collect.before.json").exists()


def test_an_update_never_overwrites_queries_that_somebody_wrote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "x", "text": "t", "q": "ask"}\n')
    out = run(tmp_path / "t.jsonl", tmp_path / "C")
    mine = '{"_id": "q", "text": "mine"}\n', "query-id\tcorpus-id\tscore\nq\tx\t1\n"
    (out / "queries.jsonl").write_text(mine[0])
    (out / "qrels").mkdir()
    (out / "qrels" / "test.tsv").write_text(mine[1])
    run(tmp_path / "t.jsonl", out, queries="q", update=True)
    assert Collection.load(out).qrels == {"test": {name_of("ask"): {"x": 1}}}
    assert (out / "queries_1.jsonl.kept").read_text() == mine[0]
    assert (out / "qrels" / "test_1.tsv.kept").read_text() == mine[1]
    assert "queries.jsonl was not written by collect: it is now" in caplog.text
    run(tmp_path / "t.jsonl", out, queries="q", update=True)  # now they are ours
    assert not (out / "queries_2.jsonl.kept").exists()


def test_an_update_keeps_queries_and_judgements_that_were_added_to_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t.jsonl"

    def asks(*texts: str) -> None:
        table.write_text("".join(f'{{"id": "d{text}", "text": "t", "q": "{text}"}}\n' for text in texts))

    def judged() -> dict[str, dict[str, int]]:
        loaded = Collection.load(out, unreachable="keep")
        words = {item.id: item.text for item in loaded.queries}
        return {words[query]: dict(grades) for query, grades in loaded.qrels["test"].items()}

    asks("one", "two")
    out = run(table, tmp_path / "C", queries="q")
    with (out / "queries.jsonl").open("a") as stream:
        stream.write('{"_id": "mine", "text": "my own \u2028 words"}')  # no line break at its end
    with (out / "qrels" / "test.tsv").open("a", newline="") as stream:
        stream.write(f"mine\tdone\t2\r\n{name_of('one')}\tdtwo\t1\r\n")  # for a query of the source, too
    mine = {"my own \u2028 words": {"done": 2}}
    asks("one", "three")
    with monkeypatch.context() as patched:  # killed when half of the files are written
        patched.setattr("vidvec_msg.retrieval.collect.row_files.write_lines", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(table, out, queries="q", update=True)
    asks("one", "four")
    for _ in range(2):
        run(table, out, queries="q", update=True)
        assert judged() == {"one": {"done": 1, "dtwo": 1}, "four": {"dfour": 1}, **mine}
        assert [item.id for item in Collection.load(out, unreachable="keep").queries] == [
            name_of("one"), name_of("four"), "mine",
        ]  # fmt: skip
    told = json.loads((out / "collect.json").read_text())["account"]
    assert "kept 3 queries and judgements that were added by hand" in told
    assert not list(out.rglob("*.kept"))
    changed = (out / "queries.jsonl").read_text().replace('"text": "four"', '"text": "4"')
    (out / "queries.jsonl").write_text(changed)
    run(table, out, queries="q", update=True)  # a text of the source's: nothing of either is lost
    assert judged() == {"one": {"done": 1, "dtwo": 1}, "four": {"dfour": 1}, **mine}
    assert (out / "queries_1.jsonl.kept").read_text() == changed
    assert "has lines that contradict the sources" in caplog.text
    caplog.clear()
    run(table, out, update=True)  # the source asks no more: what a person asks is left
    assert judged() == mine
    assert not caplog.text
    told = json.loads((out / "collect.json").read_text())["account"]
    waits = "judgements added by hand wait: the sources do not have their queries now, or say otherwise"
    assert f"1 {waits}" in told
    run(table, out, queries="q", update=True)  # and again: all is as it was
    assert judged() == {"one": {"done": 1, "dtwo": 1}, "four": {"dfour": 1}, **mine}
    assert not list((out / "qrels").glob("*.kept"))
    assert not (out / ".collect.waiting.json").exists()


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.booleans(), st.booleans(), st.sampled_from(["query", "of mine", "of theirs", "nothing"])
        ),
        min_size=1,
        max_size=5,
    )
)
def test_sources_may_lose_their_queries_and_have_them_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, bool, str]]
) -> None:
    """Runs with captions and without, killed ones between them, and lines that a person adds in any state:
    none is lost, doubled or set aside, and with the captions all is as if they had never been away."""
    folder = tmp_path_factory.mktemp("c")
    table, out, undisturbed = folder / "t.jsonl", folder / "C", folder / "D"
    table.write_text("".join(f'{{"id": "d{n}", "text": "t", "q": "words {n}"}}\n' for n in range(3)))
    for each in (out, undisturbed):
        run(table, each, queries="q")
    added: list[str] = []
    asks = True
    for number, (captions, killed, what) in enumerate(steps):
        mine = json.dumps({"_id": f"mine{number}", "text": f"mine {number}"})
        lines = {"query": [("queries.jsonl", mine)], "nothing": []}.get(what)
        if lines is None and what == "of mine":
            lines = [("queries.jsonl", mine), ("qrels/test.tsv", f"mine{number}\td{number}\t1")]
        elif lines is None:  # nobody judges a query that is not there
            lines = [("qrels/test.tsv", f"{name_of('words 0')}\tx{number}\t2")] if asks else []
        for name, line in lines:
            append(out / name, line)
            append(undisturbed / name, line)
            added.append(line)
        queries = "q" if captions else None
        if killed:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("vidvec_msg.retrieval.collect.row_files.write_lines", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    run(table, out, queries=queries, update=True)
        run(table, out, queries=queries, update=True)
        asks = captions
        everywhere = "\n".join(path.read_text() for path in sorted(out.rglob("*")) if path.is_file())
        assert [everywhere.replace("\\t", "\t").count(line) for line in added] == [1] * len(added)
    for each in (out, undisturbed):
        run(table, each, queries="q", update=True)
    for name in ("queries.jsonl", "qrels/test.tsv"):
        assert sorted((out / name).read_text().splitlines()) == sorted(
            (undisturbed / name).read_text().splitlines()
        )
    assert not list(folder.rglob("*.kept"))
    assert not (out / ".collect.waiting.json").exists()


def test_a_judgement_that_a_killed_run_brought_back_does_not_wait_on(tmp_path: Path) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text('{"id": "d0", "text": "t", "q": "words"}\n')
    out = run(table, tmp_path / "C", queries="q")
    append(out / "qrels/test.tsv", f"{name_of('words')}\tx\t2")
    run(table, out, update=True)
    waiting = (out / ".collect.waiting.json").read_text()
    run(table, out, queries="q", update=True)
    (out / ".collect.waiting.json").write_text(waiting)  # as of a kill after the judgements were written
    run(table, out, queries="q", update=True)
    assert (out / "qrels/test.tsv").read_text().count("\tx\t2\n") == 1
    assert not (out / ".collect.waiting.json").exists()


def append(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    first = "query-id\tcorpus-id\tscore\n" if path.suffix == ".tsv" and not path.exists() else ""
    with path.open("a") as stream:
        stream.write(f"{first}{line}\n")


def test_a_judgement_that_was_added_stays_where_rows_come_and_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "t.jsonl"
    lines = [f'{{"id": "d{text}", "text": "t", "q": "{text}"}}\n' for text in ("one", "two")]
    table.write_text("".join(lines))
    out = run(table, tmp_path / "C", queries="q")
    with (out / "qrels" / "test.tsv").open("a") as stream:
        stream.write(f"{name_of('one')}\tdtwo\t2\n")
    table.write_text('{"id": "dzero", "text": "t", "q": "zero"}\n' + "".join(reversed(lines)))
    run(table, out, queries="q", update=True)
    assert Collection.load(out).qrels["test"] == {
        name_of("zero"): {"dzero": 1}, name_of("one"): {"done": 1, "dtwo": 2}, name_of("two"): {"dtwo": 1},
    }  # fmt: skip
    assert not list(out.rglob("*.kept"))
    assert "contradict" not in caplog.text


def test_an_update_of_a_collection_with_ids_by_place_keeps_what_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As earlier versions gave them: judgements that were added go to the id that their query has now."""
    places = itertools.count(1)
    table = tmp_path / "t.jsonl"
    lines = [f'{{"id": "d{text}", "text": "t", "q": "{text}"}}\n' for text in ("one", "two", "three")]
    table.write_text("".join(lines))
    with monkeypatch.context() as patched:
        patched.setattr(
            "vidvec_msg.retrieval.collect.joining.digest_of", lambda _: f"{next(places)}"
        )  # q1, q2, q3
        out = run(table, tmp_path / "C", queries="q")
    assert [item.id for item in Collection.load(out).queries] == ["q1", "q2", "q3"]
    with (out / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tdtwo\t2\nq3\tdone\t1\n")
    table.write_text('{"id": "dzero", "text": "t", "q": "zero"}\n' + "".join(lines[:2]))
    run(table, out, queries="q", update=True)
    loaded = Collection.load(out)
    assert {item.id for item in loaded.queries} == {name_of("zero"), name_of("one"), name_of("two")}
    assert loaded.qrels["test"][name_of("one")] == {"done": 1, "dtwo": 2}
    table.write_text("".join(lines))
    run(table, out, queries="q", update=True)  # "three" is asked for again, by another id
    assert Collection.load(out).qrels["test"][name_of("three")] == {"dthree": 1, "done": 1}
    assert not list(out.rglob("*.kept"))
    assert not caplog.text


def test_an_update_of_words_that_a_person_took_out(clips: Path, tmp_path: Path) -> None:
    """A transcript that was made of silence is deleted by hand, and where it came from is left."""
    out = run(clips, tmp_path / "C", patterns=["*.mp4"])
    name = next(row["_id"] for row in rows(out / "corpus.jsonl") if "transcript" not in row)
    write_fields(out, "corpus", {name: {"transcript_info": {"silent": True}}})
    run(clips, out, patterns=["*.mp4"], update=True)
    row = next(row for row in rows(out / "corpus.jsonl") if row["_id"] == name)
    assert (row.get("transcript"), row["transcript_info"]) == (None, {"silent": True})


def test_a_killed_update_still_knows_whose_queries_they_are(
    clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "x", "text": "t", "q": "ask"}\n')
    out = run(tmp_path / "t.jsonl", tmp_path / "C", queries="q")
    with monkeypatch.context() as patched:
        patched.setattr("vidvec_msg.retrieval.collect.verb.unpack", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(tmp_path / "t.jsonl", out, update=True)
    assert not (out / "collect.json").exists()
    run(tmp_path / "t.jsonl", out)
    assert not (out / "queries.jsonl").exists()


def png(level: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), level, np.uint8)).save(stream, "bmp")
    return stream.getvalue()


def test_every_id_has_a_place_of_its_own(tmp_path: Path) -> None:
    ids = ["a/../b", "a/_/b", "a/./b", "a//b", "a/%2E/b", "a/%/b", "../b", "b"]
    places = {_place(tmp_path, Candidate(one, ""), "image", ".png") for one in ids}
    assert len(places) == len(ids)
    for place in places:
        assert place.resolve().is_relative_to(tmp_path / "media")


def test_two_writers_do_not_meet(clips: Path, tmp_path: Path) -> None:
    out = tmp_path / "C"
    out.mkdir()
    with FileLock(out / ".collect.lock"), pytest.raises(RefusedRequest, match="another process is writing"):
        run(clips, out)


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        ('{"path": "a.mp4"}', {}, "none of its columns is content .* it has: path"),
        ('{"text": "a"}', {"columns": {"txt": "a"}}, r"unknown role 'txt' \(did you mean 'text'"),
        ('{"text": "a"}', {"columns": {"id": "nam"}}, "no column 'nam'"),
        ('{"text": "a", "topic": 1}', {"groups": ["topics"]}, r"no column 'topics' \(did you mean 'topic'"),
        ("", {}, "holds no row"),
        ("[]", {}, "line 1: holds a list"),
        ("{", {}, "line 1: not JSON"),
        ('{"id": 1, "text": 5}', {}, "1 × text is a int; it must be text"),
        ('{"video": "https://a.b/c.mp4"}', {}, "is an address"),
        ('{"text": ""}', {}, "1 × nothing in it"),
        ('{"text": "a", "start": "x"}', {}, "start is 'x'; it must be seconds"),
        ('{"text": "a"}', {"split": "train"}, "chooses a part of a data set"),
    ],
)
def test_bad_tables_are_refused(content: str, options: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(RefusedRequest, match=told):
        run(tmp_path / "t.jsonl", tmp_path / "C", **options)
    assert not (tmp_path / "C").exists()


def test_everything_wrong_with_a_request_comes_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").touch()
    with pytest.raises(RefusedRequest) as told:
        collect(
            [tmp_path / "gone", tmp_path / "t.xlsx"],
            tmp_path / "C",
            window=5,
            overlap=5,
            probe="none",
            workers=0,
        )
    for part in ("does not exist", "'.xlsx'", "overlap is 5", "--probe none", "workers is 0"):
        assert part in str(told.value)


def test_an_empty_folder_names_the_pattern(clips: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"no file below it matches '\*.avi'"):
        run(clips, tmp_path / "C", patterns=["*.avi"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedRequest, match="there is no file in it"):
        run(tmp_path / "empty", tmp_path / "C")


def test_the_command_tells_what_it_found(
    clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["collect", "--source", str(clips), "--out", str(tmp_path / "C"), "--groups", "topic"]
    assert main([*words, "--workers", "1"]) == 0
    told = capsys.readouterr().err
    assert "found 4 video, 1 text, 1 audio → 6 rows, 1 with a transcript" in told
    assert "group topic: news 3, sport 3" in told
    assert "1 × no medium or text has the suffix '.docx'" in told
