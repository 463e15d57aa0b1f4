"""Questions asked side by side, one request each: the first alone, then as many at a time as allowed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

from tqdm import tqdm

from vidvec_msg.data_synth.chat import Reply, Structured, request_body
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.parsing import Unusable
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.questions import Kind, Outcome, Question
from vidvec_msg.data_synth.replies import ReplyStore
from vidvec_msg.embedders.endpoint.connection import Unfit
from vidvec_msg.embedders.endpoint.retries import GaveUp
from vidvec_msg.errors import JobFailed, RefusedRequest

log = logging.getLogger(__name__)

STRUCTURED: tuple[Structured, ...] = get_args(Structured)
IGNORED = 20  # unusable answers in a row that say that the model does not do what it is asked
_FIRST_RETRIES = 2  # a wrong address should not take half a minute to say so
_APART = 0.003  # seconds between first requests: those sent at once are answered at once, again and again
_SHOWN = 3  # examples in the message of a model that ignores the format
_SHOWN_CHARS = 160


@dataclass(slots=True)
class Online:
    """Asks by one request per question.

    Args:
        endpoint: answers them.
        retrying: the patience with it, shared by all requests.
        concurrency: requests at a time.
        budget: dollars that the folder's answers may cost in all; None sets no bound.
        structured: how the form of an answer is told; None finds the strictest that the endpoint takes.
    """

    endpoint: ChatEndpoint
    retrying: PatientRequests
    concurrency: int = 32
    budget: float | None = None
    structured: Structured | None = None

    def ask_all(
        self, questions: Iterable[Question], kind: Kind, store: ReplyStore, *, total: int, what: str
    ) -> Outcome:
        """See :class:`vidvec_msg.data_synth.questions.Asker`."""
        keyed = ((kind.key(one), one) for one in questions)
        run = _Run(self, kind, store, (one for one in keyed if one[0] not in store.answered))
        done = len(store.answered)
        with tqdm(
            total=total, initial=min(done, total), desc=what, unit="answer", disable=not sys.stderr.isatty()
        ) as bar:
            run.bar = bar
            began = time.monotonic()
            asyncio.run(run.whole())
        run.outcome.seconds = time.monotonic() - began
        run.outcome.mishaps, run.outcome.cool_downs = self.retrying.mishaps, self.retrying.cool_downs
        return run.outcome


@dataclass(slots=True)
class _Run:
    """The state of one call of ``ask_all``; one loop, so nothing needs a lock."""

    way: Online
    kind: Kind
    store: ReplyStore
    questions: Iterator[tuple[str, Question]]  # key of its request, and question
    outcome: Outcome = field(default_factory=Outcome)
    bar: Any = None
    reserved: float = 0.0  # dollars that requests on their way can cost at most
    in_flight: int = 0
    in_a_row: int = 0  # unusable answers since the last usable one
    examples: list[str] = field(default_factory=list)

    async def whole(self) -> None:
        try:
            first = next(self.questions, None)
            if first is None or not self._affordable(first[1]):
                return
            await self._first(*first)
            gc.freeze()  # what is loaded by now is not searched for garbage: that takes time for 20 requests
            workers = [asyncio.create_task(self._work(_APART * n)) for n in range(self.way.concurrency)]
            try:
                await asyncio.gather(*workers)
            except BaseException:  # Ctrl-C too
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                raise
        finally:
            gc.unfreeze()
            with suppress(Exception):
                await self.way.endpoint.close()

    async def _work(self, later: float) -> None:
        await asyncio.sleep(later)
        for key, question in self.questions:
            while not self._affordable(question):
                if not self.in_flight:
                    return
                await asyncio.sleep(0.05)  # what is on its way may turn out cheaper
            if self.outcome.stopped:
                return
            await self._settle(key, question)

    def _affordable(self, question: Question) -> bool:
        """Whether the question's answer fits into the budget, whatever those on their way will cost."""
        budget = self.way.budget
        if budget is None or self.outcome.stopped:
            return True
        most = self.kind.most(question, batch=False)
        if self.store.dollars + self.reserved + most <= budget:
            return True
        if not self.in_flight:
            self.outcome.stopped = (
                f"the budget of ${budget:g} is used up: ${self.store.dollars:.4f} spent, and one more "
                f"answer may cost ${most:.4f}"
            )
        return False

    async def _first(self, key: str, question: Question) -> None:
        """One question alone: it shows whether anybody answers, and which form of request is taken."""
        usual, way = self.way.retrying, self.way
        way.retrying = PatientRequests(
            usual.host, retries=min(usual.retries, _FIRST_RETRIES), backoff=usual.backoff,
            patience=usual.patience,
        )  # fmt: skip
        try:
            for structured in (way.structured,) if way.structured else STRUCTURED:
                way.structured = structured
                try:
                    await self._settle(key, question, probing=True)
                    return
                except Unfit as error:
                    refused = str(error)
                    log.info("%s does not take %s: %s", way.endpoint.host, structured, refused)
            raise RefusedRequest(
                f"{way.endpoint.host} does not take a request for model {way.endpoint.model!r} in any form: "
                f"{refused}. If it names a context length, lower --max_tokens "
                f"({self.kind.sampling.max_tokens}); if it names an option, see --structured."
            )
        except GaveUp as error:
            raise RefusedRequest(
                f"no answer from {way.endpoint.base_url} (model {way.endpoint.model!r}): {error}. Is the "
                "server up, and does --endpoint end as the server says (usually /v1)?"
            ) from None
        finally:
            usual.mishaps += way.retrying.mishaps
            usual.cool_downs += way.retrying.cool_downs
            way.retrying = usual

    async def _settle(self, key: str, question: Question, *, probing: bool = False) -> None:
        """Asks a question until its answer is usable, or its tries are used up."""
        for attempt in range(self.kind.tries):
            try:
                reply = await self._answer(question, attempt)
            except Unfit as error:
                if probing:
                    raise
                self._give_up(key, question, "refused by the endpoint", str(error), {})
                return
            record = self.kind.record(key, question, reply, batch=False)
            try:
                fields = dict(self.kind.read(reply))
            except Unusable as fault:
                self._note_unusable(record, fault)
                last = attempt + 1 == self.kind.tries
                if last or not self._affordable(question):
                    self._give_up(key, question, fault.code, fault.detail, record)
                    return
                self.store.keep_failed({**record, "reason": str(fault), "code": fault.code, "final": False})
            else:
                self.in_a_row = 0
                self.store.keep({**record, "fields": fields, "attempt": attempt})
                self.outcome.kept += 1
                self._show()
                return

    async def _answer(self, question: Question, attempt: int) -> Reply:
        most = self.kind.most(question, batch=False)
        body = request_body(
            self.kind.model, question.prompt, self.kind.sampling,
            structured=self.way.structured or "none", attempt=attempt,
        )  # fmt: skip
        self.reserved += most
        self.in_flight += 1
        try:
            reply = await self.way.retrying.run_async(lambda: self.way.endpoint.ask(body))
        except GaveUp as error:
            if self.outcome.asked == 0:
                raise
            raise JobFailed(f"{error}. What was answered is kept; the same command goes on.") from None
        finally:
            self.reserved -= most
            self.in_flight -= 1
        self.outcome.asked += 1
        return reply

    def _note_unusable(self, record: dict[str, Any], fault: Unusable) -> None:
        self.in_a_row += 1
        self.examples.append(f"({fault}) {record['text'][:_SHOWN_CHARS]!r}")
        if self.in_a_row >= IGNORED:
            self.store.keep_failed({**record, "reason": str(fault), "code": fault.code, "final": True})
            shown = "\n".join(f"  - {example}" for example in self.examples[-_SHOWN:])
            raise JobFailed(
                f"model {self.kind.model!r} gave {IGNORED} answers in a row that cannot be used, the last "
                f"ones:\n{shown}\nAll are in {self.store.failed_path}. Try another model, a lower "
                "--temperature, a larger --max_tokens, or a template of your own (--template)."
            )

    def _give_up(self, key: str, question: Question, code: str, detail: str, record: dict[str, Any]) -> None:
        reason = f"{code}: {detail}" if detail else code
        empty = {"key": key, "id": question.id, **question.about, "text": ""}
        self.store.keep_failed({**empty, **record, "reason": reason, "code": code, "final": True})
        self.outcome.count_failed(code)
        self._show()

    def _show(self) -> None:
        if self.bar is None or self.bar.disable:
            return
        failed = sum((self.outcome.failed or {}).values())
        spent = self.store.dollars
        self.bar.set_postfix(failed=failed, **({"spent": f"${spent:.2f}"} if spent else {}), refresh=False)
        self.bar.update(1)
