"""What pretraining is shown: clips with literal answers, and texts with a text of their own side.

Three kinds of lesson, and no other: (clip → literal words), (caption → literal words of the same story) and
(message → another paraphrase of the same message). A caption or a clip never meets a message;
`tests/tinyworld/test_lessons.py` proves it from the very objects the trainer consumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.tinyworld.clips import MODEL_OFFSET, caption, draw_model_frames, sample_cast
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import COLOURS, LEAD_INS, SHAPES, STORIES, Story

_PRESET = PROMPTS["vidvec"]
ONE_WORD_VIDEO = _PRESET.video.replace("{video}", "")
ONE_WORD_TEXT = _PRESET.text.replace("{text}", "")
WHAT = "\nSay what happens."

CLIP_SEED, TEXT_SEED = 1_000, 2_000
"""First word of the generators' seed sequences: pretraining clips never share a stream with the
collections'."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt and its answer.

    Args:
        prompt: the words after the clip or text, before the assistant's turn.
        answer: what to say.
        from_last: the answer may look at the last prompt token only, so that this position must carry
            everything.
    """

    prompt: str
    answer: str
    from_last: bool = False


@dataclass(frozen=True, slots=True)
class Lesson:
    """A thing (a clip of ``story`` or a text) and the questions about it.

    Args:
        story: key of the story.
        text: the text, or None for a clip.
        clip: row of the clip in the clip array, or None for a text.
        questions: what is asked, each on its own: they cannot see each other.
    """

    story: str
    text: str | None
    clip: int | None
    questions: tuple[Question, ...]


def _pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]


def literal_text(story: Story, cast: Cast, rng: np.random.Generator, *, gist_share: float = 0.5) -> str:
    """A gist or a caption of the story, one of its wordings at random."""
    if rng.random() < gist_share:
        return _pick(rng, story.gists)
    return caption(story, cast, int(rng.integers(len(story.captions))))


def clip_lesson(row: int, story: Story, cast: Cast, rng: np.random.Generator) -> Lesson:
    """The two questions about a clip: what happens, and the one-word prompt."""
    return Lesson(
        story=story.key,
        text=None,
        clip=row,
        questions=(
            Question(WHAT, caption(story, cast, int(rng.integers(len(story.captions))))),
            Question(ONE_WORD_VIDEO, literal_text(story, cast, rng), from_last=True),
        ),
    )


def caption_lesson(story: Story, rng: np.random.Generator) -> Lesson:
    """A caption under the one-word prompt, answered by another literal wording of the same story."""
    cast = Cast(
        colour=_pick(rng, tuple(COLOURS)),
        shape=_pick(rng, SHAPES),
        other_colour=_pick(rng, tuple(COLOURS)),
        other_shape=_pick(rng, SHAPES),
    )
    text = caption(story, cast, int(rng.integers(len(story.captions))), _pick(rng, LEAD_INS))
    text = thin(text, rng) if rng.random() < 0.25 else text
    question = Question(ONE_WORD_TEXT, literal_text(story, cast, rng), from_last=True)
    return Lesson(story.key, text, None, (question,))


def message_lesson(story: Story, rng: np.random.Generator) -> Lesson:
    """A message under the one-word prompt, answered by another paraphrase of the same message."""
    known = story.trained + story.held_out  # never_seen stays never seen
    first, second = rng.permutation(len(known))[:2]
    text = thin(known[first], rng) if rng.random() < 0.5 else known[first]
    return Lesson(story.key, text, None, (Question(ONE_WORD_TEXT, known[second], from_last=True),))


def thin(text: str, rng: np.random.Generator) -> str:
    """A text with about a fifth of its words missing, and in one case of three in another order.

    Half the messages are read so: with seven wordings each, a model would otherwise know sentences by
    heart and not the words that a new paraphrase shares with them.
    """
    words = text.split()
    kept = [word for word in words if rng.random() > 0.2] or words
    if rng.random() < 1 / 3:
        kept = [kept[place] for place in rng.permutation(len(kept))]
    return " ".join(kept)


def draw_clips(count: int, seed: int) -> tuple[np.ndarray, list[tuple[Story, Cast, int]]]:
    """Pretraining clips.

    Args:
        count: clips, spread evenly over the stories.
        seed: the build's seed.

    Returns:
        Frames (count, 8, 48, 48, 3) uint8, and each clip's story, cast and first sampled frame (0 to 3).
    """
    rng = np.random.default_rng([CLIP_SEED, seed])
    notes, frames = [], []
    for number in range(count):
        story = STORIES[number % len(STORIES)]
        cast = sample_cast(story, rng)
        offset = int(rng.integers(4)) if rng.random() < 0.5 else MODEL_OFFSET
        notes.append((story, cast, offset))
        frames.append(draw_model_frames(story, cast, offset=offset))
    return np.stack(frames), notes


class Lessons:
    """The stream of batches the trainer consumes; the same seed gives the same stream.

    Args:
        notes: story, cast and offset of every pretraining clip.
        seed: the build's seed.
        clips, captions, messages: lessons of each kind in a batch.
        questions: questions asked about a clip at once; 1 is the plain recipe.
    """

    def __init__(
        self,
        notes: Sequence[tuple[Story, Cast, int]],
        *,
        seed: int,
        clips: int = 16,
        captions: int = 8,
        messages: int = 8,
        questions: int = 2,
    ) -> None:
        self.notes = notes
        self.sizes = (clips, captions, messages)
        self.questions = questions
        self.rng = np.random.default_rng([TEXT_SEED, seed])
        self._order: list[int] = []

    def _next_row(self) -> int:
        if not self._order:
            self._order = self.rng.permutation(len(self.notes)).tolist()
        return self._order.pop()

    def next_batch(self) -> tuple[list[Lesson], list[Lesson]]:
        """(clip lessons, text lessons) of one step."""
        clips, captions, messages = self.sizes
        seen = []
        for _ in range(clips):
            row = self._next_row()
            story, cast, _ = self.notes[row]
            lesson = clip_lesson(row, story, cast, self.rng)
            if self.questions < len(lesson.questions):
                chosen = self.rng.permutation(len(lesson.questions))[: self.questions]
                lesson = Lesson(lesson.story, None, row, tuple(lesson.questions[i] for i in sorted(chosen)))
            seen.append(lesson)
        read = [
            caption_lesson(STORIES[int(self.rng.integers(len(STORIES)))], self.rng) for _ in range(captions)
        ]
        read += [
            message_lesson(STORIES[int(self.rng.integers(len(STORIES)))], self.rng) for _ in range(messages)
        ]
        return seen, read


def tokenizer_texts() -> list[str]:
    """Texts the tokenizer is trained on: every wording but the never-seen paraphrases."""
    texts = [WHAT, ONE_WORD_TEXT, ONE_WORD_VIDEO] * 8
    actors = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    for story in STORIES:
        for template in story.captions:
            texts += [template.format(a=actors[i], b=actors[-1 - i]) for i in range(0, len(actors), 5)]
        texts += [*story.gists, *story.trained, *story.held_out] * 3
    return texts + [lead.strip() for lead in LEAD_INS]
