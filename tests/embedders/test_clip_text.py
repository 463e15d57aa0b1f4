"""Which words stand for a clip."""

from pathlib import Path

import pytest

from vidvec_msg.embedders.clip_text import clip_fields, words_of_clip
from vidvec_msg.formats.items import Item

CLIP = Item("c", video=Path("c.mp4"), transcript=" said ", ocr="written", text="caption", title="name")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("transcript+ocr", "said\nwritten"),
        ("ocr+transcript", "written\nsaid"),
        ("text", "caption"),
        ("title + text", "name\ncaption"),
    ],
)
def test_fields_in_their_order(spec, words):
    assert words_of_clip(CLIP, clip_fields(spec)) == words


def test_blank_fields_are_left_out():
    assert words_of_clip(Item("c", transcript=" \n", ocr="written"), ("transcript", "ocr")) == "written"


def test_nothing_there_names_what_was_looked_for():
    with pytest.raises(ValueError, match=r"the clip has no ocr and no text, .* \(clip_text=ocr\+text\)"):
        words_of_clip(Item("c", transcript="said"), ("ocr", "text"))


def test_none_reads_no_clips():
    assert clip_fields(None) == ()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("transkript", r"'transkript' is no field of a clip \(did you mean 'transcript'\?\)"),
        ("ocr+", r"'' is no field of a clip"),
        ("ocr+ocr", "a field stands twice"),
    ],
)
def test_specs_that_are_none(spec, complaint):
    with pytest.raises(ValueError, match=complaint):
        clip_fields(spec)
