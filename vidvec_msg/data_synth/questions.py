"""Questions to a model: the contract between what is asked and how it is asked, online or in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vidvec_msg.data_synth.chat import Prompt, Reply, Sampling, request_key
from vidvec_msg.data_synth.prices import Price
from vidvec_msg.data_synth.replies import Record, ReplyStore


@dataclass(frozen=True, slots=True)
class Question:
    """One request that wants a usable answer.

    Args:
        id: whose it is, for the reader of the files.
        prompt: its words.
        about: further fields of its record.
    """

    id: str
    prompt: Prompt
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What all questions of a file have in common.

    Args:
        model: as the endpoint calls it.
        sampling: how answers are drawn.
        read: makes fields of a reply, or raises :class:`~vidvec_msg.data_synth.parsing.Unusable`.
        price: of the model; None if unknown.
        tries: answers that may be unusable before a question is given up for this run.
    """

    model: str
    sampling: Sampling
    read: Callable[[Reply], Mapping[str, Any]]
    price: Price | None = None
    tries: int = 3

    def key(self, question: Question) -> str:
        """Of the question's request."""
        return request_key(self.model, question.prompt, self.sampling)

    def record(self, key: str, question: Question, reply: Reply, *, batch: bool) -> Record:
        """What is written of an answer, usable or not; ``key`` is that of the question."""
        price = 0.0
        if self.price is not None:
            price = self.price.of(reply.prompt_tokens, reply.completion_tokens, batch=batch)
        return {
            "key": key,
            "id": question.id,
            **question.about,
            "text": reply.refusal or reply.text,
            "finish": reply.finish,
            "model": reply.model,
            "in": reply.prompt_tokens,
            "out": reply.completion_tokens,
            "dollars": round(price, 9),
        }

    def most(self, question: Question, *, batch: bool) -> float:
        """Dollars that the question's answer can cost at most; 0 without a price."""
        if self.price is None:
            return 0.0
        # bytes, of which English has one a character: a token of other scripts holds one or two characters
        size = len(question.prompt.system.encode()) + len(question.prompt.user.encode())
        return self.price.most(size, self.sampling.max_tokens, batch=batch)


@dataclass(slots=True)
class Outcome:
    """How asking ended.

    Args:
        asked: requests that were sent and answered in this run, repeated ones included.
        kept: usable answers of this run.
        failed: code of the fault → questions that ended so.
        stopped: why it stopped before the end; empty if it did not.
        mishaps: 5xx, time-outs and cut connections that were survived.
        cool_downs: times that the endpoint asked for patience.
        seconds: it took.
    """

    asked: int = 0
    kept: int = 0
    failed: dict[str, int] | None = None
    stopped: str = ""
    mishaps: int = 0
    cool_downs: int = 0
    seconds: float = 0.0

    def count_failed(self, code: str) -> None:
        """One more question without a usable answer."""
        self.failed = self.failed or {}
        self.failed[code] = self.failed.get(code, 0) + 1


class Asker(Protocol):
    """A way of getting questions answered."""

    def ask_all(
        self, questions: Iterable[Question], kind: Kind, store: ReplyStore, *, total: int, what: str
    ) -> Outcome:
        """Asks those questions that the store holds no usable answer to, and keeps what comes.

        Args:
            questions: any number; read as they are needed.
            kind: what they have in common.
            store: open; answers are written as soon as they are there.
            total: how many questions there are, for the bar.
            what: is being made, for the bar.

        Raises:
            RefusedRequest: the first request shows that the endpoint cannot answer; nothing was asked.
            JobFailed: the endpoint does not answer any more, or the model ignores the format. What was
                answered is kept.
        """
        ...
