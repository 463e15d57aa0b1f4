"""The world's texts: what each story shows and means, and that the two sides share no content word."""

from collections import Counter

import pytest

from vidvec_msg.tinyworld.scenes import SCENES
from vidvec_msg.tinyworld.stories import (
    COLOURS,
    STORIES,
    TOPICS,
    Story,
    caption_texts,
    content_words,
    shared_words,
    stem,
    withheld_colours,
)


def test_no_content_word_stands_in_a_caption_and_in_a_message() -> None:
    assert shared_words() == frozenset()


def test_a_shared_word_would_be_found() -> None:
    literal = content_words(["The red circle climbs the walls."])
    implicit = content_words(["Every wall is climbed with patience."])
    assert literal & implicit == {stem("wall"), stem("climbs")}


def test_there_are_32_stories_in_8_topics_of_4() -> None:
    assert len(STORIES) == 32
    assert len({story.key for story in STORIES}) == 32
    assert Counter(story.topic for story in STORIES) == dict.fromkeys(TOPICS, 4)
    assert 6 <= len(TOPICS) <= 8


def test_contrast_pairs_share_a_topic() -> None:
    for one, two in zip(STORIES[::2], STORIES[1::2], strict=True):
        assert one.topic == two.topic


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.key)
def test_a_story_is_complete(story: Story) -> None:
    assert story.key in SCENES
    assert len(story.captions) >= 3
    assert len(story.gists) >= 3
    assert len(story.trained) >= 4
    assert len(story.held_out) == 2
    assert len(story.never_seen) == 2
    for template in story.captions:
        assert "{a}" in template
        assert "{" not in template.format(a="red circle", b="blue square")
    assert not any("{" in text for text in (*story.gists, *story.messages))


def test_every_message_is_worded_once() -> None:
    messages = [message for story in STORIES for message in story.messages]
    assert len(set(messages)) == len(messages) == 288
    assert all(4 <= len(message.split()) <= 12 for message in messages)


def test_every_story_withholds_two_colours_and_every_colour_is_withheld_equally_often() -> None:
    counts = Counter(colour for story in STORIES for colour in set(withheld_colours(story)))
    assert set(counts) == set(COLOURS)
    assert set(counts.values()) == {8}
    for one, two in zip(STORIES[::2], STORIES[1::2], strict=True):
        assert set(withheld_colours(one)) != set(withheld_colours(two))


@pytest.mark.parametrize(
    ("word", "root"), [("slides", "slid"), ("sliding", "slid"), ("hopping", "hop"), ("patience", "patienc")]
)
def test_stems(word: str, root: str) -> None:
    assert stem(word) == root


def test_captions_fill_every_slot() -> None:
    assert all("{" not in text for story in STORIES for text in caption_texts(story))
