"""The card: what its fingerprint counts, and what it does not."""

from __future__ import annotations

import dataclasses

import pytest

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.prompts import NEUTRAL, PROMPTS, PromptTemplate
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.runs import digest_of

CARD = EmbedderCard(
    name="a",
    dim=8,
    modalities=("text", "video"),
    weights="w",
    prompt=PROMPTS["vidvec"],
    layer=-1,
    pooling="last",
    frames=FramePolicy(),
)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 9},
        {"modalities": ("text",)},
        {"weights": "v"},
        {"prompt": PROMPTS["plain"]},
        {"prompt": dataclasses.replace(PROMPTS["vidvec"], chat=False)},
        {"prompt": dataclasses.replace(PROMPTS["vidvec"], audio="{audio}")},
        {"role_prompts": {"query": "find: "}},
        {"layer": 3},
        {"pooling": "mean"},
        {"padding": "left"},
        {"frames": FramePolicy(fps=2)},
        {"frames": None},
        {"transcript": "before"},
        {"dtype": "bfloat16"},
        {"max_tokens": 7},
    ],
    ids=str,
)
def test_whatever_may_change_a_vector_changes_the_fingerprint(change):
    assert dataclasses.replace(CARD, **change).fingerprint != CARD.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"base_model": "x"},
        {"revision": "r"},
        {"adapter": "here"},
        {"versions": {"torch": "3"}},
    ],
    ids=str,
)
def test_names_places_and_versions_do_not(change):
    assert dataclasses.replace(CARD, **change).fingerprint == CARD.fingerprint


def test_a_remote_model_is_known_by_its_name():
    remote = dataclasses.replace(CARD, weights="", base_model="x")
    assert remote.fingerprint != dataclasses.replace(remote, base_model="y").fingerprint


def test_fields_that_came_later_leave_earlier_fingerprints_as_they_were():
    """Worked out by hand: the card's content as 0.1 had it."""
    earlier = {
        "dim": 8,
        "modalities": ("text", "video"),
        "weights": "w",
        "prompt": {
            "text": "{text}\nSummarize above sentence in one word: ",
            "video": "{video}\nSummarize above video in one word: ",
            "image": "{video}\nSummarize above image in one word: ",
            "instruction": "",
        },
        "role_prompts": {},
        "layer": -1,
        "pooling": "last",
        "padding": "",
        "frames": {"fps": 1.0, "max_frames": 64, "max_pixels": 0},
        "transcript": "none",
        "dtype": "float32",
        "max_tokens": None,
    }
    assert CARD.fingerprint == digest_of(earlier)[:16]
    assert {entry.name for entry in dataclasses.fields(PromptTemplate) if entry.metadata == NEUTRAL} == {
        "audio",
        "chat",
    }


def test_a_card_survives_the_disk():
    assert EmbedderCard.from_dict(CARD.to_dict()) == CARD
    with pytest.raises(ValueError, match=r"not an embedder card: .*colour"):
        EmbedderCard.from_dict({**CARD.to_dict(), "colour": "red"})
