from __future__ import annotations

import json
from pathlib import Path

import pytest

from vidvec_msg.retrieval.collect.sidecars import Cue, SidecarError, Words, read_words

SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Hello</i> &amp; welcome

2
00:01:00,000 --> 00:01:02,000
late
""".replace("\n", "\r\n")

VTT = """WEBVTT

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.500 align:start
<v Ann>Hello &amp; welcome

1:00.000 --> 01:02.000
late
"""


@pytest.mark.parametrize(("name", "content"), [("a.srt", SRT), ("a.vtt", VTT)])
def test_subtitles_become_words_with_times(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    words = read_words(tmp_path / name)
    assert words.text == "Hello & welcome late"
    assert words.cues == (Cue(1.0, 2.5, "Hello & welcome"), Cue(60.0, 62.0, "late"))
    assert words.between(0, 30) == "Hello & welcome"
    assert words.between(30, 90) == "late"
    assert words.between(2, 30) == ""


def test_lines_that_roll_on_are_kept_once() -> None:
    rolling = [Cue(0, 2, "one"), Cue(2, 4, "one\ntwo"), Cue(4, 6, "two\nthree"), Cue(9, 10, "three")]
    assert Words.of(rolling).text == "one two three three"


def test_every_word_is_in_one_of_the_windows() -> None:
    words = Words.of([Cue(n, n + 1, f"w{n}") for n in range(20)])
    told = [words.between(0, 7.5), words.between(7.5, 15), words.between(15, 22.5)]
    assert " ".join(text or "" for text in told) == words.text


def test_what_whisper_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    segments = [{"start": 0.0, "end": 1.5, "text": " Hello"}, {"start": 1.5, "end": 3.0, "text": " there "}]
    path.write_text(json.dumps({"text": " Hello there", "segments": segments}))
    assert read_words(path) == Words("Hello there", (Cue(0.0, 1.5, "Hello"), Cue(1.5, 3.0, "there")))
    path.write_text(json.dumps(segments))
    assert read_words(path).text == "Hello there"
    path.write_text(json.dumps({"text": "no  times"}))
    assert read_words(path) == Words("no times")
    assert read_words(path).between(0, 1) is None


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.srt", b"no subtitles", "-->"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b'{"other": 1}', "neither `text` nor `segments`"),
        ("a.json", b'[{"start": 0}]', "a segment is not"),
        ("a.txt", b"\xff\xfe\xfa", "UTF-8"),
    ],
)
def test_other_files_are_refused(name: str, content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SidecarError, match=told):
        read_words(tmp_path / name)
