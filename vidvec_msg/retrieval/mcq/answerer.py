"""The contract of whatever answers questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from vidvec_msg.errors import Failure
from vidvec_msg.retrieval.mcq.question import Answer, Question


@runtime_checkable
class Answerer(Protocol):
    """Anything with this shape can take an exam."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever an answer may change; part of the key of a kept answer."""
        ...

    @property
    def sees_letters(self) -> bool:
        """Whether the order of the options can matter to it; rotated rounds are for these alone."""
        ...

    def answers(
        self, questions: Sequence[Question], *, with_clip: bool, failures: list[Failure]
    ) -> Iterator[Answer]:
        """One answer per question, each as soon as it is known, in any order.

        Args:
            questions: what is asked.
            with_clip: whether the clip is shown; without it, the model guesses from the words alone.
            failures: questions that cannot be answered (their clip does not decode) are added here.
        """
        ...
