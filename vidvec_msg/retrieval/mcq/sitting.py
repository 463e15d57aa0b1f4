"""One answerer takes the exam: the clip shown, options rotated, and without the clip."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from vidvec_msg.errors import Failure
from vidvec_msg.retrieval.mcq.answerer import Answerer
from vidvec_msg.retrieval.mcq.question import Answer, Question
from vidvec_msg.retrieval.mcq.record import Answers, Key

log = logging.getLogger(__name__)

SHOWN = "clip"
CONTROL = "without the clip"


@dataclass(slots=True)
class Sitting:
    """What one answerer did.

    Args:
        name: of the answerer.
        spec: that it was opened from.
        fingerprint: of the answerer.
        sees_letters: whether the order of the options can matter to it.
        rounds: round → question id → answer; the first round is :data:`SHOWN`.
        asked: round → the questions as they were shown in it.
        failures: round → what could not be answered.
        keys: of all answers, in order.
    """

    name: str
    spec: str
    fingerprint: str
    sees_letters: bool
    rounds: dict[str, dict[str, Answer]] = field(default_factory=dict)
    asked: dict[str, tuple[Question, ...]] = field(default_factory=dict)
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)


def sit(
    answerer: Answerer,
    questions: Sequence[Question],
    answers: Answers,
    *,
    spec: str,
    rotations: int,
    control: bool,
) -> Sitting:
    """Asks whatever has no kept answer yet.

    Args:
        answerer: who answers.
        questions: the exam.
        answers: what is known already; new ones are added at once.
        spec: that the answerer was opened from.
        rotations: further rounds in which every option stands 1, 2, … letters further; none for an answerer
            that sees no letters.
        control: a last round without the clip.
    """
    sitting = Sitting(answerer.name, spec, answerer.fingerprint, answerer.sees_letters)
    for name, shown, with_clip in _rounds(questions, rotations if answerer.sees_letters else 0, control):
        sitting.asked[name] = shown
        sitting.rounds[name], sitting.failures[name] = {}, []
        keys = {one.id: (answerer.fingerprint, name, one.digest(with_clip=with_clip)) for one in shown}
        open_ones = []
        for one in shown:
            known = answers.get(keys[one.id])
            if known is None:
                open_ones.append(one)
            else:
                sitting.rounds[name][one.id] = known
        if len(open_ones) < len(shown):
            log.info(
                "%s, %s: %d of %d answers are kept",
                answerer.name,
                name,
                len(shown) - len(open_ones),
                len(shown),
            )
        by_id = {one.id: one for one in open_ones}
        found = answerer.answers(open_ones, with_clip=with_clip, failures=sitting.failures[name])
        for answer in _shown(found, len(open_ones), f"{answerer.name}, {name}") if open_ones else ():
            answers.add(keys[answer.question], answer, by_id[answer.question], model=answerer.name)
            sitting.rounds[name][answer.question] = answer
        sitting.keys += keys.values()
    return sitting


def _rounds(
    questions: Sequence[Question], rotations: int, control: bool
) -> Iterator[tuple[str, tuple[Question, ...], bool]]:
    """Name of a round, the questions as they are shown in it, and whether the clip is."""
    yield SHOWN, tuple(questions), True
    for by in range(1, rotations + 1):
        # a question with fewer options is back at its own order after as many turns
        yield (
            f"{SHOWN}, rotated by {by}",
            tuple(one.rotated(by) for one in questions if by < len(one.options)),
            True,
        )
    if control:
        yield CONTROL, tuple(questions), False


def _shown(answers: Iterator[Answer], count: int, name: str) -> Iterator[Answer]:
    yield from tqdm(answers, total=count, desc=name, unit="question", disable=not sys.stderr.isatty())
