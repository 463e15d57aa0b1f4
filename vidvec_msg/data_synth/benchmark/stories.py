"""The second stage: stories that imply the message, and their refinement by a judge's words."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vidvec_msg.data_synth.benchmark.disclosure import disclosed_words
from vidvec_msg.data_synth.benchmark.left_out import Account, Left
from vidvec_msg.data_synth.benchmark.messages import Message
from vidvec_msg.data_synth.benchmark.stage_file import MARK, Form, Row, StageFile, source_of
from vidvec_msg.data_synth.benchmark.task import Task
from vidvec_msg.data_synth.chat import Reply
from vidvec_msg.data_synth.parsing import fields_of, truths_of, words_in
from vidvec_msg.data_synth.questions import Question

log = logging.getLogger(__name__)

STORIES = Form(
    "stories", "stories", "id", ("id",), {"id": (str,), "message_id": (str,), "story": (str,)},
    "their message, the template or the model",
)  # fmt: skip
REFINED = Form(
    "refined", "refined stories", "id", ("id",),
    {"id": (str,), "message_id": (str,), "story": (str,), "passed": (bool,)},
    "their story, their message, the templates or the model",
)  # fmt: skip

ASKED = ("inferable", "implicit", "filmable")
"""What the judge of a story is asked; it is not revised if all are true."""


@dataclass(frozen=True, slots=True)
class Story:
    """A scene that implies a message.

    Args:
        id: the message's, a point, and the number.
        message: that it implies.
        number: 1 for the message's first.
        text: the scene; empty as long as it is not written.
    """

    id: str
    message: Message
    number: int
    text: str = ""


def wanted_story(message: Message, number: int) -> Story:
    """A story to be written."""
    return Story(f"{message.id}.{number}", message, number)


@dataclass(frozen=True, slots=True)
class Writing:
    """Has stories written.

    Args:
        task: asks for one.
        file: of the stage.
        seed: of the axes.
        account: of what got none.
    """

    task: Task
    file: StageFile
    seed: int
    account: Account

    def run(self, wanted: Sequence[Story]) -> list[Story]:
        """The stories that there are now; with the answers that were there, if the budget is used up."""
        questions = {story.id: self.question(story) for story in wanted}
        by_id = {story.id: story for story in wanted}

        def make(ids: Sequence[str]) -> dict[str, list[Row]]:
            answers = self.task.answers([questions[one] for one in ids])
            return {one: [self._row(by_id[one], answers[one])] for one in answers}

        sources = {one: source_of(self.task.kind.key(question)) for one, question in questions.items()}
        self.account.enter("stories", len(wanted))
        units = self.file.settle(sources, make)
        for story in wanted:
            if story.id not in units:
                code, reason = self.task.failed.get(story.id, ("no answer", "no answer"))
                self.account.note(Left("stories", story.message.id, story.id, code, reason))
        self.task.refuse_to_go_on()
        return [
            Story(one, by_id[one].message, by_id[one].number, row["story"]) for one, [row] in units.items()
        ]

    def own(self, messages: Sequence[Message]) -> list[Story]:
        """Stories that a person put into the file."""
        by_id = {message.id: message for message in messages}
        rows = [row for rows in self.file.units.values() for row in rows if MARK not in row]
        return [
            Story(row["id"], by_id[row["message_id"]], number, row["story"])
            for number, row in enumerate(rows, start=1)
            if row["message_id"] in by_id
        ]

    def question(self, story: Story) -> Question:
        """The request for one story."""
        mark = f"{story.message.text}\0{story.number}"
        drawn = self.task.template.drawn(self.seed, mark)
        return self.task.question(
            story.id, message=story.message.text, topic=story.message.topic or "any", **drawn
        )

    def _row(self, story: Story, answer: Mapping[str, Any]) -> Row:
        message = story.message
        drawn = self.task.template.drawn(self.seed, f"{message.text}\0{story.number}")
        return {
            "id": story.id,
            "message_id": message.id,
            "message": message.text,
            **drawn,
            "story": answer["story"],
        }


@dataclass(frozen=True, slots=True)
class Refinement:
    """Has stories judged, and revised by what the judge says, a bounded number of times.

    Args:
        critique: asks the judge.
        revision: asks for another wording.
        file: of the stage.
        rounds: revisions of a story at most.
        share: of the message's content words that a story may use.
        account: of what was not accepted in the end; those stories go on as they are.
    """

    critique: Task
    revision: Task
    file: StageFile
    rounds: int
    share: float
    account: Account

    def run(self, stories: Sequence[Story]) -> list[Story]:
        """The stories in their last wording."""
        by_id = {story.id: story for story in stories}
        templates = (self.critique.template.sha, self.revision.template.sha)
        models = (self.critique.kind.model, self.revision.kind.model)
        sources = {
            story.id: source_of(story.message.text, story.text, *templates, *models, self.rounds, self.share)
            for story in stories
        }
        self.account.enter("refined", len(stories))
        units = self.file.settle(sources, lambda ids: self._refined([by_id[one] for one in ids]))
        for story in stories:
            if story.id not in units:
                reason = self.critique.failed.get(story.id) or self.revision.failed.get(story.id)
                code, words = reason or ("no answer", "no answer")
                self.account.note(Left("refined", story.message.id, story.id, code, words))
        if unaccepted := sum(not row["passed"] for [row] in units.values()):
            log.warning(f"{unaccepted} stories were not accepted in the end and go on as they are")
        self.critique.refuse_to_go_on()
        self.revision.refuse_to_go_on()
        return [
            Story(one, by_id[one].message, by_id[one].number, row["story"]) for one, [row] in units.items()
        ]

    def _refined(self, stories: Sequence[Story]) -> dict[str, list[Row]]:
        history: dict[str, list[Row]] = {story.id: [] for story in stories}
        open_ones = list(stories)
        rows: dict[str, list[Row]] = {}
        failed: list[dict[str, tuple[str, str]]] = []
        for turn in range(self.rounds + 1):
            verdicts = self._verdicts(open_ones)
            failed.append(dict(self.critique.failed))
            for story in open_ones:
                if story.id in verdicts:
                    verdict = verdicts[story.id]
                    if verdict["passed"] or turn == self.rounds:
                        rows[story.id] = [_refined_row(story, verdict, history[story.id])]
            left = [story for story in open_ones if story.id in verdicts and story.id not in rows]
            if not left or self.critique.stopped:
                break
            words = {story.id: verdicts[story.id]["feedback"] for story in left}
            for story in left:
                history[story.id].append({"story": story.text, "feedback": words[story.id]})
            answers = self.revision.answers(
                [
                    self.revision.question(
                        story.id, message=story.message.text, story=story.text, feedback=words[story.id]
                    )
                    for story in left
                ]
            )
            failed.append(dict(self.revision.failed))
            open_ones = [
                Story(story.id, story.message, story.number, answers[story.id]["story"])
                for story in left
                if story.id in answers
            ]
            if self.revision.stopped:
                break
        for reasons in failed:
            self.critique.failed.update(reasons)
        return rows

    def _verdicts(self, stories: Sequence[Story]) -> dict[str, Row]:
        """The judge's answers, and our own look at the words."""
        questions = [
            self.critique.question(story.id, message=story.message.text, story=story.text)
            for story in stories
        ]
        answers = self.critique.answers(questions)
        verdicts: dict[str, Row] = {}
        for story in stories:
            if story.id not in answers:
                continue
            answer = answers[story.id]
            said = disclosed_words(story.message.text, story.text, self.share)
            feedback = [answer["feedback"]] if answer["feedback"] else []
            if said:
                feedback.append(f"It uses the message's own words: {', '.join(said)}. Do without them.")
            passed = all(answer[name] for name in ASKED) and not said
            if not passed and not feedback:
                failed = [name for name in ASKED if not answer[name]]
                feedback.append(f"It is not {' and not '.join(failed)}.")
            verdicts[story.id] = {
                "passed": passed,
                **{name: answer[name] for name in ASKED},
                "feedback": " ".join(feedback),
            }
        return verdicts


def _refined_row(story: Story, verdict: Row, history: Sequence[Row]) -> Row:
    return {
        "id": story.id,
        "message_id": story.message.id,
        "message": story.message.text,
        "story": story.text,
        **verdict,
        "revisions": len(history),
        "history": list(history),
    }


def read_story(reply: Reply) -> Mapping[str, Any]:
    """The story of an answer.

    Raises:
        Unusable: it does not hold one.
    """
    return fields_of(reply, ("story",))


def read_critique(reply: Reply) -> Mapping[str, Any]:
    """The three answers of a judge, and the feedback.

    Raises:
        Unusable: one of them is missing or neither true nor false.
    """
    return {**truths_of(reply, ASKED), "feedback": words_in(reply, "feedback")}
