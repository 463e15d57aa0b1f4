"""One kind of question to a chat model: its words, how its answers are read, and where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.chat import Reply, Sampling
from vidvec_msg.data_synth.prices import Price
from vidvec_msg.data_synth.questions import Asker, Kind, Question
from vidvec_msg.data_synth.replies import ReplyStore, read_records
from vidvec_msg.data_synth.template import Template
from vidvec_msg.errors import JobFailed

REPLIES = "replies"


@dataclass(frozen=True, slots=True)
class Correspondent:
    """A chat model, and the folder of its answers.

    Args:
        asker: gets answers.
        model: as the endpoint calls it.
        price: of it.
        folder: of the build.
        tries: answers to one question that may be unusable.
        seed: of the sampling.
    """

    asker: Asker
    model: str
    price: Price | None
    folder: Path
    tries: int = 3
    seed: int = 0

    def task(
        self,
        name: str,
        template: Template,
        read: Callable[[Reply], Mapping[str, Any]],
        *,
        temperature: float,
        max_tokens: int,
    ) -> Task:
        """One kind of question.

        Args:
            name: of the files of its replies.
            template: its words.
            read: makes fields of a reply, or raises Unusable.
            temperature: of the draw.
            max_tokens: of an answer.
        """
        sampling = Sampling(temperature, max_tokens=max_tokens, seed=self.seed)
        return Task(name, template, Kind(self.model, sampling, read, self.price, self.tries), self)


@dataclass(slots=True)
class Task:
    """See :meth:`Correspondent.task`.

    Args:
        name: of the files of its replies.
        template: its words.
        kind: of its questions.
        by: whom it asks.
        failed: id of a question of the last call → kind and text of the reason that it has no answer.
        stopped: why the last call stopped early; empty if it did not.
    """

    name: str
    template: Template
    kind: Kind
    by: Correspondent
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    stopped: str = ""

    def question(self, identity: str, **fields: str) -> Question:
        """The question about one thing.

        Args:
            identity: of the thing, for the reader of the replies.
            fields: of the template.
        """
        return Question(identity, self.template.prompt(**fields), {})

    def answers(self, questions: Sequence[Question]) -> dict[str, Mapping[str, Any]]:
        """Answers by the questions' ids; those that are kept are not asked again.

        Raises:
            JobFailed: the endpoint does not answer any more, or the model ignores the format; what was
                answered is kept.
            RefusedRequest: the first request of the call shows that the endpoint cannot answer.
        """
        keys = {question.id: self.kind.key(question) for question in questions}
        with ReplyStore(self.by.folder / REPLIES, self.name) as store:
            missing = [question for question in questions if keys[question.id] not in store.answered]
            before = len(store.answered)
            self.stopped = ""
            if missing:
                outcome = self.by.asker.ask_all(
                    missing, self.kind, store, total=before + len(missing), what=self.name.replace("_", " ")
                )
                self.stopped = outcome.stopped
            asked = set(keys.values())
            found = {
                record["key"]: record["fields"]
                for record in read_records(store.path)
                if record["key"] in asked
            }
            self._note_failures(keys, found, store)
        return {identity: found[key] for identity, key in keys.items() if key in found}

    def refuse_to_go_on(self) -> None:
        """Ends the job if the last call stopped before its end.

        Raises:
            JobFailed: the budget is used up.
        """
        if self.stopped:
            raise JobFailed(
                f"stopped: {self.stopped}. What was answered is kept; the same command with a larger "
                "--budget goes on."
            )

    def _note_failures(self, keys: Mapping[str, str], found: Mapping[str, Any], store: ReplyStore) -> None:
        self.failed = {}
        if len(found) == len(set(keys.values())):
            return
        last = {record["key"]: record for record in read_records(store.failed_path) if record.get("final")}
        for identity, key in keys.items():
            if key in found:
                continue
            record = last.get(key)
            self.failed[identity] = (
                ("not asked", self.stopped or "not asked")
                if record is None
                else (str(record["code"]), str(record["reason"]))
            )
