"""Two checks of a pair by a model: a judge with four questions, and the round trip from storyline to message.

Both ask like the synthesis does, so their answers are kept, paid for once and resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vidvec_msg.data_synth.chat import Reply
from vidvec_msg.data_synth.diversity import Vectors, tfidf
from vidvec_msg.data_synth.filters.chain import Reject, Step
from vidvec_msg.data_synth.filters.contract import Reason
from vidvec_msg.data_synth.filters.words import words_of
from vidvec_msg.data_synth.parsing import Unusable, object_of, truths_of, words_in
from vidvec_msg.data_synth.questions import Kind, Question
from vidvec_msg.data_synth.replies import Record, ReplyStore, read_records
from vidvec_msg.data_synth.template import Template
from vidvec_msg.formats.pairs import Pair

ASKED = ("inferable", "implicit", "visual", "persona_free")
"""What the judge is asked; a pair stays if all are true."""

OPTIONS = 5  # messages of a round trip, one of them the right one: the size of the paper's choices
_BLOCK = 1_024  # rows of the similarity matrix at once


@dataclass(frozen=True, slots=True)
class Verdict:
    """A check by a model.

    Args:
        name: of the filter and of its file of replies.
        questions: one per pair, in their order.
    """

    name: str
    questions: Sequence[Question]

    def settled(
        self, pairs: Sequence[Pair], kind: Kind, store: ReplyStore
    ) -> tuple[list[Pair], Step, list[Reject], int]:
        """Pairs that stay, the account, the rejects, and how many got no answer (those stay)."""
        answers = {record["key"]: record for record in read_records(store.path)}
        step = Step(self.name, len(pairs))
        kept: list[Pair] = []
        rejects: list[Reject] = []
        unanswered = 0
        for pair, question in zip(pairs, self.questions, strict=True):
            record = answers.get(kind.key(question))
            unanswered += record is None
            reason = None if record is None else _reason(self.name, record, question)
            if reason is None:
                kept.append(pair)
            else:
                step.codes[reason.code] += 1
                rejects.append(
                    Reject(pair, self.name, reason, {"answer": record["fields"] if record else {}})
                )
        return kept, step, rejects, unanswered


def judge_questions(pairs: Sequence[Pair], template: Template) -> Verdict:
    """The judge's questions."""
    return Verdict(
        "judge",
        [
            Question(
                pair.id or str(row),
                template.prompt(
                    persona=str(pair.provenance.get("persona") or "unknown"),
                    message=pair.positive,
                    storyline=pair.anchor,
                ),
                {},
            )
            for row, pair in enumerate(pairs)
        ],
    )


def read_judgement(reply: Reply) -> Mapping[str, Any]:
    """The judge's answers.

    Raises:
        Unusable: one of them is missing or neither true nor false.
    """
    return {**truths_of(reply, ASKED), "why": words_in(reply, "why")}


def choice_questions(
    pairs: Sequence[Pair], template: Template, vectors: Vectors | None = None, *, seed: int = 0
) -> Verdict:
    """The round trip's questions: a storyline, its own message, and the four nearest other ones.

    Args:
        pairs: at least two.
        template: of the question.
        vectors: ``(pairs, dim)`` of the messages; TF-IDF of their stems without.
        seed: of the order of the messages.
    """
    space = tfidf([words_of(pair.positive) for pair in pairs]) if vectors is None else vectors
    near = _neighbours(space, [pair.positive for pair in pairs])
    questions = []
    for row, pair in enumerate(pairs):
        rows = [row, *near[row]]
        dice = np.random.default_rng([seed, *(pair.id or str(row)).encode()])
        order = dice.permutation(len(rows)).tolist()
        messages = "\n".join(f"{n}. {pairs[rows[place]].positive}" for n, place in enumerate(order, start=1))
        prompt = template.prompt(storyline=pair.anchor, messages=messages, options=str(len(rows)))
        right = order.index(0) + 1
        questions.append(Question(pair.id or str(row), prompt, {"right": right, "options": len(rows)}))
    return Verdict("round_trip", questions)


def read_choice(reply: Reply) -> Mapping[str, Any]:
    """The number that was chosen.

    Raises:
        Unusable: it is no number.
    """
    value = object_of(reply, ("choice",))["choice"]
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unusable("fields", f"choice is {value!r}, not a number")
    return {"choice": value}


def _reason(name: str, record: Record, question: Question) -> Reason | None:
    fields = record["fields"]
    if name == "judge":
        failed = [asked for asked in ASKED if not fields[asked]]
        return Reason(f"judged not {' and not '.join(failed)}", str(fields["why"])) if failed else None
    if fields["choice"] == question.about["right"]:
        return None
    return Reason(
        "another message fits the storyline better",
        f"chose {fields['choice']} of {question.about['options']}, its own is {question.about['right']}",
    )


def _neighbours(space: Vectors, messages: Sequence[str]) -> list[list[int]]:
    """The nearest other rows of each, of other words, nearest first."""
    result: list[list[int]] = []
    for start in range(0, len(space), _BLOCK):
        block = space[start : start + _BLOCK] @ space.T  # (block, rows)
        for place, row in enumerate(block):
            me = start + place
            order = np.argsort(-row, kind="stable")[: OPTIONS + 8].tolist()
            others = [one for one in order if one != me and messages[one] != messages[me]]
            result.append(others[: OPTIONS - 1])
    return result
