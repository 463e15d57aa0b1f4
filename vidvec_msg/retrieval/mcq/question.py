"""A question about a clip: options, exactly one of them right, in the order in which they are shown."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.runs import digest_of

LETTERS = string.ascii_uppercase
GUESS = "You are not shown the clip. Guess the best option."
_INSTRUCTION = "Answer with the letter of the right option alone."


@dataclass(frozen=True, slots=True)
class Option:
    """Something to choose.

    Args:
        id: unique among the options of all questions that mean the same by it; the id of a message, for
            example.
        text: as it is shown.
    """

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Args:
        id: unique.
        clip: what it is about; of any modality, so that a storyline can stand for a clip.
        words: the question itself.
        options: 2 to 26 with different texts, in the order shown.
        right: position of the right one.
        alone: whether an option means something without the question (a message does, "Windows" does not).
        groups: for accuracy per group.
    """

    id: str
    clip: Item
    words: str
    options: tuple[Option, ...]
    right: int
    alone: bool = True
    groups: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 2 <= len(self.options) <= len(LETTERS):
            raise ValueError(
                f"question {self.id!r} has {len(self.options)} options; there are letters for 2 to "
                f"{len(LETTERS)}"
            )
        if not 0 <= self.right < len(self.options):
            raise ValueError(f"question {self.id!r}: there is no option {self.right}")

    @property
    def letters(self) -> str:
        """A letter per option."""
        return LETTERS[: len(self.options)]

    @property
    def chance(self) -> float:
        """Accuracy of a blind guess."""
        return 1 / len(self.options)

    def rotated(self, by: int) -> Question:
        """The same question with every option ``by`` letters further; the last ones come first."""
        count = len(self.options)
        moved = tuple(self.options[(place - by) % count] for place in range(count))
        return replace(self, options=moved, right=(self.right + by) % count)

    def digest(self, *, with_clip: bool) -> str:
        """SHA-256 over everything that an answer may depend on; part of the key of a kept answer."""
        clip = item_digest(self.clip) if with_clip else ""
        shown = [(option.id, option.text) for option in self.options]
        return digest_of([self.id, clip, self.words, shown, self.alone])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model chose.

    Args:
        question: id.
        chosen: position of the option; None if the answer could not be read.
        scores: of the options, by which it was chosen: cosines, or log-likelihoods of the letters.
        raw: what a model wrote, if it wrote.
        mass: probability of all letters together at the answer's position, where letters were read.
        tied: several options had the highest score.
    """

    question: str
    chosen: int | None
    scores: tuple[float, ...] | None = None
    raw: str | None = None
    mass: float | None = None
    tied: bool = False


def wording(question: Question, *, with_clip: bool, transcript: bool = False) -> str:
    """The words that a language model is given after the clip, or in its place.

    Args:
        question: whose options are listed with their letters.
        with_clip: whether the clip stands before the words.
        transcript: whether what is said in the clip is quoted.
    """
    said = (question.clip.transcript or "").strip() if with_clip and transcript else ""
    lines = [f"What is said in the clip: {said}\n"] if said else []
    lines += [] if with_clip else [f"{GUESS}\n"]
    lines.append(question.words)
    lines += [f"{letter}. {one.text}" for letter, one in zip(question.letters, question.options, strict=True)]
    lines.append(_INSTRUCTION)
    return "\n".join(lines)


def best_option(scores: Sequence[float], ids: Sequence[str]) -> tuple[int, bool]:
    """The position of the highest score, and whether several share it.

    Of equal ones the id that comes last wins, as in retrieval (trec_eval's rule): by position the right
    option would win as often as it happens to stand in front.
    """
    highest = max(scores)
    tied = [place for place, score in enumerate(scores) if score == highest]
    return max(tied, key=lambda place: ids[place]), len(tied) > 1
