from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from media.spoken import slide, write_talkie

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.screen_text import ScreenText, ScreenTextReader, TextLine, merged, same_picture
from vidvec_msg.media.video import read_frames


@pytest.fixture(scope="module")
def reader() -> ScreenTextReader:
    return ScreenTextReader(frames=3, threads=1)


def lines(*texts: str, confidence: float = 0.9) -> list[TextLine]:
    return [TextLine(text, confidence) for text in texts]


def read(frames: list[list[TextLine]]) -> list[str]:
    return [line.text for line in merged(frames)]


def test_a_rendered_clip_is_read_exactly(reader, tmp_path, caplog, capfd):
    slides = [slide(["The red boat", "sails home."]), slide(["Part two:", "bread rises."])]
    path = write_talkie(tmp_path / "clip.mp4", [slides[0]] * 6 + [slides[1]] * 3)
    frames = read_frames(path, reader.policy)
    found = reader.read(frames.pixels, frames.times)
    assert found.text == "The red boat\nsails home.\nPart two:\nbread rises."
    assert found.frames == len(frames.pixels) == 3
    assert [line.second for line in found.lines] == [0.2, 0.2, 1.4, 1.4]
    assert found.confidence is not None
    assert 0.9 < found.confidence <= 1
    info = reader.info(found)
    assert (info["engine"], info["model"], info["frames"], info["lines"]) == (
        "rapidocr",
        "PP-OCRv6 small",
        3,
        4,
    )
    assert info["version"] == reader.settings["version"] != ""
    assert capfd.readouterr() == ("", "")  # the engine's own log is silent
    assert logging.getLogger("RapidOCR").level == logging.CRITICAL


def test_a_picture_without_text_gives_none(reader):
    found = reader.read(np.full((1, 90, 120, 3), 60, np.uint8))
    assert (found.text, found.lines, found.confidence, found.frames) == ("", (), None, 1)
    assert reader.info(found)["confidence"] is None


def test_lines_below_the_confidence_are_left_out(reader):
    pixels = slide(["Good morning"])[None]
    (line,) = reader.read(pixels).lines
    strict = ScreenTextReader(frames=1, threads=1, min_confidence=1.0)
    strict._engine = reader._engine  # loaded once
    assert line.confidence < 1
    assert strict.read(pixels).lines == ()


def test_a_still_picture_is_read_once(reader, monkeypatch):
    looked = []
    monkeypatch.setattr(reader, "_lines", lambda frame, second: looked.append(second) or lines("a word"))
    one, other = slide(["Step 1"]), slide(["Step 2"])
    found = reader.read(np.stack([one, one, other, other, one]), [0, 1, 2, 3, 4])
    assert looked == [0, 2, 4]
    assert found.frames == 5


def test_same_picture():
    one = slide(["Step 1"])
    noisy = np.clip(one.astype(int) + np.random.default_rng(0).integers(-3, 4, one.shape), 0, 255)
    assert same_picture(one, noisy.astype(np.uint8))
    assert not same_picture(one, slide(["Step 2"]))
    corner = one.copy()
    corner[-8:, -8:] = 255  # a part of the last square alone
    assert not same_picture(one, corner)
    tiny = np.zeros((5, 200, 3), np.uint8)
    assert same_picture(tiny, tiny)
    assert not same_picture(tiny, tiny + 20)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([["a"], ["a"], ["a"]], ["a"]),
        ([["title", "one"], ["title", "two"]], ["title", "one", "two"]),
        ([["one"], [], ["one"]], ["one"]),
        ([["no", "no"], ["no", "no"]], ["no", "no"]),  # it stands there twice
        ([["no"], ["no", "no"]], ["no", "no"]),
        ([["Step 1"], ["Step 2"]], ["Step 1", "Step 2"]),
        ([["Buy"], ["Buy two"], ["Buy two, get one"]], ["Buy two, get one"]),
        ([["Buy two"], ["Buy"]], ["Buy two"]),
        ([["Buy", "Buy two"], ["Buy two", "Buy"]], ["Buy", "Buy two"]),  # the likest first
        ([["HELLO world!"], ["Hello, World"]], ["HELLO world!"]),
        ([["the cat sat here"], ["the dog lay there"]], ["the cat sat here", "the dog lay there"]),
        ([["—"], ["—"], ["…"]], ["—", "…"]),
        ([["not"], ["nothing"]], ["not", "nothing"]),  # no whole word goes on
        ([], []),
    ],
)  # fmt: skip
def test_merging(frames, expected):
    assert read([lines(*texts) for texts in frames]) == expected


def test_of_two_readings_the_surer_one_is_kept_where_the_first_stood():
    frames = [
        [TextLine("bread rlses in the oven", 0.7, 0.5), TextLine("page", 0.9, 0.5)],
        [TextLine("page", 0.9, 1.5), TextLine("bread rises in the oven", 0.95, 1.5)],
        [TextLine("bread rises in the ovon", 0.6, 2.5)],
    ]
    assert merged(frames) == [TextLine("bread rises in the oven", 0.95, 0.5), TextLine("page", 0.9, 0.5)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=12).filter(str.strip), max_size=5), st.integers(1, 4))
def test_the_same_frame_again_adds_nothing(texts, times):
    assert read([lines(*texts)] * times) == texts


def test_bad_options():
    for options in ({"frames": 0}, {"threads": -1}, {"min_confidence": 1.5}):
        with pytest.raises(
            ValueError, match="frames must be at least 1, threads at least 0, and the confidence"
        ):
            ScreenTextReader(**options)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(RefusedRequest, match=r"read the text in clips .* pip install 'vidvec-msg\[ocr\]'"):
        ScreenTextReader()


def test_settings_name_all_that_decides():
    plain = ScreenTextReader().settings
    for change in ({"frames": 7}, {"min_confidence": 0.2}, {"max_pixels": 100}):
        assert ScreenTextReader(**change).settings != plain
    assert ScreenTextReader(threads=1).settings == plain  # only how fast


def test_no_lines_no_text():
    assert ScreenText((), 3).text == ""
