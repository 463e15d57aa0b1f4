"""Sentences about clips: right ones are right, wrong ones wrong in the way that they say, none a message."""

from collections import Counter

import numpy as np
import pytest

from vidvec_msg.tinyworld.clips import sample_cast
from vidvec_msg.tinyworld.matching import (
    WRONG,
    Kind,
    Sentence,
    first_sentences,
    sentence,
    taught_sentences,
)
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import (
    LEAD_INS,
    STORIES,
    STORY_BY_KEY,
    Story,
    caption_texts,
    content_words,
)

CAST = Cast("red", "circle", "blue", "square")
SWAP = STORY_BY_KEY["gems_swapped"]


def told(story: Story, cast: Cast, *, held_out: bool) -> set[str]:
    """Every sentence that is right, without its lead-in and in lower case."""
    captions = [text.format(**cast.names).lower() for text in story.captions]
    if held_out:
        return {captions[-1], story.gists[-1]}
    return {*captions[:-1], *story.gists[:-1]}


def bare(one: Sentence) -> str:
    text = one.text.lower()
    for lead_in in LEAD_INS:
        if lead_in:
            text = text.removeprefix(lead_in.lower())
    return text


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.key)
def test_sentences_are_what_their_kind_says(story: Story, held_out: bool) -> None:
    rng = np.random.default_rng(0)
    twin = STORIES[STORIES.index(story) ^ 1]
    others = [one for one in STORIES if one not in (story, twin)]
    for _ in range(25):
        assert bare(sentence(story, CAST, "right", rng, held_out=held_out)) in told(
            story, CAST, held_out=held_out
        )
        assert bare(sentence(story, CAST, "twin", rng, held_out=held_out)) in told(
            twin, CAST, held_out=held_out
        )
        other = bare(sentence(story, CAST, "story", rng, held_out=held_out))
        assert any(other in told(one, CAST, held_out=held_out) for one in others)
        for kind in ("colour", "shape", "actors"):
            wrong = sentence(story, CAST, kind, rng, held_out=held_out)
            assert not wrong.matches
            assert bare(wrong) not in told(story, CAST, held_out=held_out)


def test_wrong_actors() -> None:
    rng = np.random.default_rng(1)
    right = "the red circle and the blue square swap a gem for a leaf."
    found: dict[Kind, set[str]] = {kind: set() for kind in ("colour", "shape", "actors")}
    for kind, texts in found.items():
        texts.update(bare(sentence(SWAP, CAST, kind, rng)) for _ in range(60))
    swapped = (
        right.replace("red circle", "X").replace("blue square", "red circle").replace("X", "blue square")
    )
    assert swapped in found["actors"]
    assert right.replace("circle", "triangle") in found["shape"]
    assert right.replace("red", "green") in found["colour"]
    # what is changed is never changed into itself
    assert not any("the red circle and the blue" in text for text in found["colour"] | found["shape"])


def test_a_story_of_one_actor_has_nobody_to_change_parts_with() -> None:
    alone = next(story for story in STORIES if not any("{b}" in text for text in story.captions))
    assert sentence(alone, CAST, "actors", np.random.default_rng(0)).kind == "colour"


def test_half_of_what_is_taught_is_right_and_length_gives_nothing_away() -> None:
    rng = np.random.default_rng(2)
    said = [
        one
        for _ in range(120)
        for story in STORIES
        for one in taught_sentences(story, sample_cast(story, rng), rng)
    ]
    assert sum(one.matches for one in said) == len(said) / 2
    kinds = Counter(one.kind for one in said if not one.matches)
    # "actors" falls back to "colour" for stories of one actor
    for kind in ("story", "twin", "shape"):
        assert kinds[kind] / kinds.total() == pytest.approx(WRONG[kind], abs=0.02)
    gists = {gist for story in STORIES for gist in story.gists}
    right = np.mean([one.text in gists for one in said if one.matches])
    wrong = np.mean([one.text in gists for one in said if not one.matches])
    assert right == pytest.approx(wrong, abs=0.03)


def test_the_first_lessons_are_easy() -> None:
    rng = np.random.default_rng(3)
    kinds = [one.kind for story in STORIES for one in first_sentences(story, CAST, rng)]
    assert kinds == ["right", "right", "story", "story"] * 32


def test_no_message_is_ever_said() -> None:
    rng = np.random.default_rng(4)
    literal = content_words([text for story in STORIES for text in caption_texts(story)] + list(LEAD_INS))
    implicit = content_words([text for story in STORIES for text in story.messages])
    said = [one.text for _ in range(40) for story in STORIES for one in taught_sentences(story, CAST, rng)]
    words = content_words(said)
    assert words <= literal
    assert not words & implicit
    assert len(words) > 100  # it has seen what it claims to have seen


def test_the_same_seed_says_the_same() -> None:
    one, two, other = (
        [taught_sentences(story, CAST, np.random.default_rng(seed)) for story in STORIES]
        for seed in (5, 5, 6)
    )
    assert one == two
    assert one != other
