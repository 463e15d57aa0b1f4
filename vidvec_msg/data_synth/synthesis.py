"""Personas → questions → answers → pairs: what a synthesis asks for, and how its answers become rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from vidvec_msg.data_synth.chat import Prompt, Reply
from vidvec_msg.data_synth.parsing import fields_of
from vidvec_msg.data_synth.questions import Kind, Question
from vidvec_msg.data_synth.replies import Record
from vidvec_msg.data_synth.template import Template
from vidvec_msg.formats.pairs import Pair

FIELDS = ("message", "storyline")


@dataclass(frozen=True, slots=True)
class Synthesis:
    """The questions of a run: one per persona and round.

    Args:
        personas: in the order of the draw.
        count: questions in all; the personas are gone through as often as that takes.
        template: their wording.
        seed: of the axes.
    """

    personas: Sequence[str]
    count: int
    template: Template
    seed: int

    def __iter__(self) -> Iterator[Question]:
        """The questions, worded one after the other."""
        for number in range(self.count):
            turn, place = divmod(number, len(self.personas))
            yield self.question(self.personas[place], turn)

    def question(self, persona: str, turn: int) -> Question:
        """The question to one persona.

        Args:
            persona: its words.
            turn: 0 for its first pair; others draw other values of the axes.
        """
        mark = persona if not turn else f"{persona}\0{turn}"
        drawn = self.template.drawn(self.seed, mark)
        name = blake2b(f"{self.seed}\0{mark}".encode(), digest_size=6).hexdigest()
        prompt = self.template.prompt(persona=persona, **drawn)
        return Question(name, prompt, {"persona": persona, **drawn})


def read_pair(reply: Reply) -> Mapping[str, str]:
    """Message and storyline of an answer.

    Raises:
        Unusable: it does not hold them.
    """
    return fields_of(reply, FIELDS)


def pair_of(record: Record, question: Question, kind: Kind, template: Template) -> Pair:
    """An answer as a row of pairs, with where it is from."""
    return Pair(
        anchor=record["fields"]["storyline"],
        positive=record["fields"]["message"],
        id=question.id,
        provenance={
            **question.about,
            "generator": record.get("model") or kind.model,
            "template": template.version,
            "prompt_sha": prompt_sha(question.prompt),
        },
    )


def prompt_sha(prompt: Prompt) -> str:
    """16 hex digits of a prompt's words."""
    return blake2b(f"{prompt.system}\0{prompt.user}".encode(), digest_size=8).hexdigest()


def example(question: Question) -> str:
    """A prompt for people."""
    about: dict[str, Any] = dict(question.about)
    persona = about.pop("persona")
    drawn = ", ".join(f"{name}: {value}" for name, value in about.items())
    return f"[{question.id}] {persona}\n  {drawn}"
