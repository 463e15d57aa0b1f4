"""Clip–caption matching: literal sentences about a clip, right ones and wrong ones of five kinds.

What the yes/no skill (`yes_no`) is taught and measured on. Every sentence is a caption or a gist; no message
ever stands here, and `tests/tinyworld/test_matching.py` reads that off the stream that the trainer consumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from vidvec_msg.tinyworld.clips import caption
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import COLOURS, LEAD_INS, SHAPES, STORIES, Story

Kind = Literal["right", "story", "twin", "colour", "shape", "actors"]
WRONG: dict[Kind, float] = {"story": 0.35, "twin": 0.45, "colour": 0.1, "shape": 0.05, "actors": 0.05}
"""Kinds of wrong sentences, and their shares among those that are taught:

========= ==========================================================================
story     tells another story of the same actors, of another contrast pair
twin      tells the other story of the contrast pair: looks alike, ends differently
colour    names another colour for the main actor
shape     names another shape for the main actor
actors    the two actors have changed their parts
========= ==========================================================================
"""

_Choice = TypeVar("_Choice")

# Gists name no actor, so only the first two kinds can be gists: these shares make a gist right as often as
# wrong, and its length gives nothing away.
_RIGHT_GISTS = 0.3
_WRONG_GISTS = _RIGHT_GISTS / (WRONG["story"] + WRONG["twin"])


@dataclass(frozen=True, slots=True)
class Sentence:
    """A literal sentence that is said of a clip.

    Args:
        text: the sentence.
        kind: "right", or what is wrong with it.
    """

    text: str
    kind: Kind

    @property
    def matches(self) -> bool:
        """Whether the clip shows it."""
        return self.kind == "right"


def sentence(
    story: Story, cast: Cast, kind: Kind, rng: np.random.Generator, *, held_out: bool = False
) -> Sentence:
    """A sentence of one kind about the clip of a story and its cast.

    Args:
        story: what the clip shows.
        cast: who plays in it.
        kind: "right", or what shall be wrong.
        rng: source of every choice.
        held_out: use the wordings that the skill is never taught with (the last caption and the last gist of
            each story, without a lead-in), rather than the others.
    """
    share = {"right": _RIGHT_GISTS, "story": _WRONG_GISTS, "twin": _WRONG_GISTS}.get(kind, 0.0)
    told, names = _wrong(story, cast, kind, rng)
    if rng.random() < share:
        return Sentence(_one(told.gists, rng, held_out), kind)
    wordings = [number for number, text in enumerate(told.captions) if kind != "actors" or "{b}" in text]
    if not wordings:  # nobody to change parts with
        return sentence(story, cast, "colour", rng, held_out=held_out)
    wording = _one(wordings, rng, held_out)
    lead_in = "" if held_out else LEAD_INS[int(rng.integers(len(LEAD_INS)))]
    return Sentence(caption(told, names, wording, lead_in), kind)


def _one(choices: Sequence[_Choice], rng: np.random.Generator, held_out: bool) -> _Choice:
    """The last choice if held out, one of the others if not; the only one if it is the only one."""
    if held_out or len(choices) == 1:
        return choices[-1]
    return choices[int(rng.integers(len(choices) - 1))]


def _wrong(story: Story, cast: Cast, kind: Kind, rng: np.random.Generator) -> tuple[Story, Cast]:
    """The story and the cast that a sentence of this kind tells of."""
    number = STORIES.index(story)
    if kind == "twin":
        return STORIES[number ^ 1], cast
    if kind == "story":
        other = int(rng.integers(len(STORIES) - 2))
        return STORIES[other if other < number & ~1 else other + 2], cast
    if kind == "colour":
        return story, replace(cast, colour=_another(tuple(COLOURS), cast.colour, rng))
    if kind == "shape":
        return story, replace(cast, shape=_another(SHAPES, cast.shape, rng))
    if kind == "actors":
        mine, theirs = (cast.colour, cast.shape), (cast.other_colour, cast.other_shape)
        return story, Cast(*theirs, *mine)
    return story, cast


def _another(names: Sequence[str], own: str, rng: np.random.Generator) -> str:
    others = [name for name in names if name != own]
    return others[int(rng.integers(len(others)))]


def taught_sentences(
    story: Story, cast: Cast, rng: np.random.Generator, *, count: int = 4
) -> tuple[Sentence, ...]:
    """``count`` sentences about a clip, half of them right, in the shares of `WRONG`."""
    kinds: list[Kind] = list(WRONG)
    wrong = rng.choice(len(kinds), size=count // 2, p=list(WRONG.values()))
    right: list[Kind] = ["right"]
    asked = right * (count - count // 2) + [kinds[number] for number in wrong]
    return tuple(sentence(story, cast, kind, rng) for kind in asked)


def first_sentences(story: Story, cast: Cast, rng: np.random.Generator) -> tuple[Sentence, ...]:
    """Four sentences as `taught_sentences` gives them, the wrong ones all of other stories: the easy kind, to
    begin with."""
    asked: tuple[Kind, ...] = ("right", "right", "story", "story")
    return tuple(sentence(story, cast, kind, rng) for kind in asked)
