"""What pretraining is shown: the proof that no caption and no clip ever meets a message."""

from collections import Counter

import numpy as np
import pytest

from vidvec_msg.tinyworld.clips import sample_cast
from vidvec_msg.tinyworld.lessons import (
    ONE_WORD_TEXT,
    ONE_WORD_VIDEO,
    WHAT,
    Lesson,
    Lessons,
    draw_clips,
    tokenizer_texts,
)
from vidvec_msg.tinyworld.stories import (
    LEAD_INS,
    STORIES,
    STORY_BY_KEY,
    caption_texts,
    content_words,
    withheld_colours,
)

LITERAL = content_words([text for story in STORIES for text in caption_texts(story)] + list(LEAD_INS))
IMPLICIT = content_words([text for story in STORIES for text in story.messages])


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    """2,400 lessons as the trainer consumes them: batches of the default stream, in order."""
    rng = np.random.default_rng(0)
    notes = [(story, sample_cast(story, rng), 2) for story in STORIES for _ in range(8)]
    stream = Lessons(notes, seed=0)
    return [lesson for _ in range(75) for part in stream.next_batch() for lesson in part]


def test_a_caption_or_clip_never_meets_a_message(lessons: list[Lesson]) -> None:
    kinds: Counter[str] = Counter()
    for lesson in lessons:
        words = content_words([lesson.text or "", *(question.answer for question in lesson.questions)])
        literal, implicit = words & LITERAL, words & IMPLICIT
        assert words <= LITERAL | IMPLICIT
        assert not (literal and implicit), lesson
        if lesson.clip is not None:
            assert lesson.text is None
            assert literal
            kinds["clip"] += 1
        else:
            kinds["caption" if literal else "message"] += 1
    # all three kinds are there, in the stream's proportions: the test has seen what it claims to have seen
    assert kinds == {"clip": 1200, "caption": 600, "message": 600}


def test_a_mixed_lesson_would_be_noticed() -> None:
    story = STORIES[0]
    words = content_words([story.captions[0].format(a="red circle", b="blue square"), story.trained[0]])
    assert words & LITERAL
    assert words & IMPLICIT


def test_messages_are_answered_by_another_paraphrase_and_never_by_a_never_seen_one(
    lessons: list[Lesson],
) -> None:
    for lesson in lessons:
        answers = [question.answer for question in lesson.questions]
        story = STORY_BY_KEY[lesson.story]
        if lesson.text is not None and content_words(answers) <= IMPLICIT:
            assert answers[0] in story.trained + story.held_out
            assert answers[0] != lesson.text
    seen = {text for lesson in lessons for text in (lesson.text, *(q.answer for q in lesson.questions))}
    never = {text for story in STORIES for text in story.never_seen}
    assert not seen & never
    assert not set(tokenizer_texts()) & never


def test_the_prompts_are_the_presets(lessons: list[Lesson]) -> None:
    assert ONE_WORD_TEXT == "\nSummarize above sentence in one word: "
    assert ONE_WORD_VIDEO == "\nSummarize above video in one word: "
    for lesson in lessons:
        prompts = [question.prompt for question in lesson.questions]
        assert prompts == ([ONE_WORD_TEXT] if lesson.clip is None else [WHAT, ONE_WORD_VIDEO])
        assert lesson.questions[-1].from_last


def test_pretraining_clips_are_never_cast_in_a_withheld_colour() -> None:
    frames, notes = draw_clips(64, seed=0)
    assert frames.shape == (64, 8, 48, 48, 3)
    assert all(cast.colour not in withheld_colours(story) for story, cast, _ in notes)
    again, _ = draw_clips(64, seed=0)
    np.testing.assert_array_equal(frames, again)


def test_the_same_seed_teaches_the_same() -> None:
    notes = [(story, sample_cast(story, np.random.default_rng(1)), 2) for story in STORIES]
    one, two, other = Lessons(notes, seed=4), Lessons(notes, seed=4), Lessons(notes, seed=5)
    assert [one.next_batch() for _ in range(3)] == [two.next_batch() for _ in range(3)]
    assert one.next_batch() != other.next_batch()
