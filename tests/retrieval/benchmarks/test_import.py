"""The verb around the readers: clips that are missing, sizes that differ, requests that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from retrieval.benchmarks.fixtures import MAKE, clips

from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection
from vidvec_msg.retrieval.benchmarks.clip_files import ClipFiles, clip_id, file_names
from vidvec_msg.retrieval.benchmarks.verb import import_benchmark


@pytest.fixture
def source(tmp_path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    MAKE["msrvtt"](folder)
    return folder


def test_missing_clips_are_listed_and_left_out_with_their_judgements(source, tmp_path, capsys):
    (source / "videos" / "video9771.mp4").unlink()
    with pytest.raises(TooManyFailures, match=r"1 clips have no file and 0 may.*video9771: no file called"):
        import_benchmark("msrvtt", source, tmp_path / "C")
    collection = Collection.load(tmp_path / "C")
    assert [item.id for item in collection.corpus] == ["video9770", "video7020"]
    assert collection.qrels["test"].keys() == {"ret0", "ret2"}
    assert len(collection.queries) == 3  # evaluate lists the one without a clip
    (lost,) = (json.loads(line) for line in (tmp_path / "C" / "left_out.jsonl").read_text().splitlines())
    assert lost["item"] == "video9771"
    told = capsys.readouterr().out
    assert "1 clips have no file: video9771" in told
    assert "1 texts have no clip left" in told


def test_as_many_may_be_missing_as_the_user_says(source, tmp_path):
    (source / "videos" / "video9771.mp4").unlink()
    assert import_benchmark("msrvtt", source, tmp_path / "C", max_failures=1).is_dir()


def test_missing_clips_can_be_kept_for_vectors_from_elsewhere(source, tmp_path):
    clips(tmp_path / "nothing", "unrelated.mp4")
    out = import_benchmark(
        "msrvtt", source, tmp_path / "C", clips=tmp_path / "nothing", missing="keep", max_failures=3
    )
    assert len(Collection.load(out).corpus) == 3
    assert json.loads((out / "benchmark.json").read_text())["clips_missing"] == 3


def test_a_folder_without_any_of_the_clips_is_refused(source, tmp_path):
    clips(tmp_path / "nothing", "unrelated.mp4")
    with pytest.raises(RefusedRequest, match=r"none of the 3 clips has a file.*\(1 media files there\)"):
        import_benchmark("msrvtt", source, tmp_path / "C", clips=tmp_path / "nothing")
    assert not (tmp_path / "C").exists()


def test_other_sizes_than_published_are_told(source, tmp_path, capsys):
    import_benchmark("msrvtt", source, tmp_path / "C")
    told = capsys.readouterr().out
    assert "DIFFERS: published are 1,000" in told
    assert "not comparable with published ones" in told


def test_the_published_sizes_are_recognised(tmp_path, capsys):
    source = tmp_path / "source"
    source.mkdir()
    rows = [f"ret{n},msr{n},video{n},sentence {n}" for n in range(1000)]
    (source / "MSRVTT_JSFUSION_test.csv").write_text("\n".join(["key,vid_key,video_id,sentence", *rows]))
    clips(source, *(f"video{n}.mp4" for n in range(1000)))
    out = import_benchmark("msrvtt", source, tmp_path / "C")
    assert json.loads((out / "benchmark.json").read_text())["as_published"] is True
    assert "1,000 (as published)" in capsys.readouterr().out


def test_what_is_wrong_with_a_request_comes_at_once(source, tmp_path):
    (tmp_path / "C").mkdir()
    (tmp_path / "C" / "something").write_text("")
    with pytest.raises(RefusedRequest) as refusal:
        import_benchmark("msrvtt", tmp_path / "no", tmp_path / "C", part="1kA", max_failures=0.5, missing="x")
    for words in ("no is no folder", "already holds files", "did you mean '1k-A'?", "missing is 'x'"):
        assert words in str(refusal.value)


def test_an_unknown_benchmark_is_refused_with_all_names(tmp_path):
    with pytest.raises(RefusedRequest, match=r"did you mean 'msrvtt'\?.*vidmsg, drivelhub"):
        import_benchmark("msr-vtt", tmp_path, tmp_path / "C")


def test_a_name_that_two_files_have_finds_neither(tmp_path):
    clips(tmp_path, "a/1.mp4", "b/1.mp4", "c/2.mp4", ".hidden/3.mp4", "4.txt")
    files = ClipFiles(tmp_path)
    assert len(files) == 3
    assert files.find(["1"])[0] is None
    assert "2 files are called '1': a/1.mp4, b/1.mp4" in files.find(["1"])[1]
    assert files.find(["b/1"])[0] == tmp_path / "b" / "1.mp4"
    assert files.find(["nothing", "2"])[0] == tmp_path / "c" / "2.mp4"
    assert files.find(["3"])[0] is None


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("https://www.youtube.com/watch?v=-_aAbBcCdD1", "-_aAbBcCdD1"),
        ("https://www.youtube.com/watch?list=x&v=abcdefghijk&t=2", "abcdefghijk"),
        ("https://youtu.be/abcdefghijk?t=2", "abcdefghijk"),
        ("https://www.bilibili.com/video/BV1xx/", "BV1xx"),
        ("folder/a.b.mp4", "folder/a.b"),
        ("v_1.5", "v_1.5"),
    ],
)
def test_the_id_of_a_clip_that_has_no_other(text, identity):
    assert clip_id(text) == identity
    assert identity in file_names(text)
