"""Questions asked by an endpoint's Batch API: uploaded as files, polled, collected; half the price, in hours.

What is under way is written down beside the replies, and each batch carries the folder's name at the
endpoint, so that a killed run finds its batches again and does not pay for them twice, also when it is asked
for more or for less than before. Rows are known by the hash of their request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from vidvec_msg.data_synth.chat import Structured, request_body
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.parsing import Unusable
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.questions import Kind, Outcome, Question
from vidvec_msg.data_synth.replies import ReplyStore
from vidvec_msg.embedders.endpoint.connection import Unfit
from vidvec_msg.embedders.endpoint.retries import GaveUp
from vidvec_msg.errors import JobFailed, RefusedRequest

log = logging.getLogger(__name__)

_MOST_BYTES = 100 << 20  # of one upload; OpenAI takes 200 MB
_ENDED = ("completed", "failed", "expired", "cancelled")


@dataclass(slots=True)
class Batches:
    """Asks by files of requests.

    Args:
        endpoint: with a Batch API.
        retrying: the patience with its calls.
        poll: seconds between two looks at a batch.
        batch_requests: per file at most.
        budget: dollars that the folder's answers may cost in all; None sets no bound.
        structured: how the form of an answer is told; None asks for a JSON schema, since what the endpoint
            takes cannot be found out by a file.
    """

    endpoint: ChatEndpoint
    retrying: PatientRequests
    poll: float = 60.0
    batch_requests: int = 10_000
    budget: float | None = None
    structured: Structured | None = None

    def ask_all(
        self, questions: Iterable[Question], kind: Kind, store: ReplyStore, *, total: int, what: str
    ) -> Outcome:
        """See :class:`vidvec_msg.data_synth.questions.Asker`."""
        self.structured = self.structured or "json_schema"
        began = time.monotonic()
        with tqdm(
            total=total, initial=min(len(store.answered), total), desc=f"{what} (batch)", unit="answer",
            disable=not sys.stderr.isatty(),
        ) as bar:  # fmt: skip
            run = _Run(self, kind, store, bar)
            asyncio.run(run.whole({kind.key(one): one for one in questions}))
        run.outcome.seconds = time.monotonic() - began
        run.outcome.mishaps, run.outcome.cool_downs = self.retrying.mishaps, self.retrying.cool_downs
        return run.outcome


@dataclass(slots=True)
class _Run:
    """The state of one call of ``ask_all``."""

    way: Batches
    kind: Kind
    store: ReplyStore
    bar: Any
    outcome: Outcome = field(default_factory=Outcome)
    faults: dict[str, str] = field(default_factory=dict)  # key → code of its last unusable answer

    async def whole(self, questions: Mapping[str, Question]) -> None:
        """Batches of the run before this one are collected first; then rounds until nothing is missing."""
        try:
            name = self._name()
            await self._collect(await self._under_way(name), questions, earlier=name)
            for attempt in range(self.kind.tries):
                missing = {key: one for key, one in questions.items() if key not in self.store.answered}
                if not missing or self.outcome.stopped:
                    break
                await self._collect(await self._submitted(missing, name, attempt), questions)
            for key in questions:
                if key not in self.store.answered and key in self.faults:
                    self.outcome.count_failed(self.faults[key])
        except GaveUp as error:
            raise JobFailed(f"{error}. What was answered is kept; the same command goes on.") from None
        except Unfit as error:
            raise RefusedRequest(
                f"{self.way.endpoint.host} does not take a batch: {error}. Has it a Batch API? --mode online "
                "needs none."
            ) from None
        finally:
            with suppress(Exception):
                await self.way.endpoint.close()

    @property
    def _log(self) -> Path:
        return self.store.path.with_name(f"{self.store.path.stem}_batches.jsonl")

    def _name(self) -> str:
        """The name of the folder's batches at the endpoint, drawn once: whatever is asked for later, with
        whatever count and from wherever, finds those that are there."""
        for entry in self._entries():
            if "run" in entry:
                return str(entry["run"])
        name = uuid4().hex[:16]
        self._write({"run": name})
        return name

    def _entries(self) -> list[dict[str, Any]]:
        """What is written down; a torn line counts as absent."""
        entries = []
        if self._log.is_file():
            for line in self._log.read_text(encoding="utf-8").split("\n"):
                with suppress(ValueError):
                    entries.append(json.loads(line))
        return entries

    async def _under_way(self, name: str) -> list[str]:
        """Batches of this folder that were submitted and not collected as a whole."""
        state = {entry["batch"]: entry["state"] for entry in self._entries() if "batch" in entry}
        with suppress(Unfit, RefusedRequest):  # an endpoint that lists no batches: what is written must do
            for found in await self.way.retrying.run_async(lambda: self.way.endpoint.batches_of(name)):
                state.setdefault(found, "submitted")  # killed between the submission and its record
        return [batch for batch, said in state.items() if said in ("submitted", "partly")]

    async def _submitted(self, missing: Mapping[str, Question], name: str, attempt: int) -> list[str]:
        batches: list[str] = []
        lines: list[Mapping[str, Any]] = []
        size, reserved = 0, 0.0
        for key, question in missing.items():
            most = self.kind.most(question, batch=True)
            if self.way.budget is not None and self.store.dollars + reserved + most > self.way.budget:
                self.outcome.stopped = (
                    f"the budget of ${self.way.budget:g} leaves no room: "
                    f"${self.store.dollars:.4f} spent, ${reserved:.4f} under way at most"
                )
                break
            reserved += most
            body = request_body(
                self.kind.model, question.prompt, self.kind.sampling,
                structured=self.way.structured or "none", attempt=attempt,
            )  # fmt: skip
            line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}
            size += len(json.dumps(line, ensure_ascii=False).encode())
            if lines and (len(lines) >= self.way.batch_requests or size > _MOST_BYTES):
                batches.append(await self._submit(lines, name))
                lines, size = [], 0
            lines.append(line)
        if lines:
            batches.append(await self._submit(lines, name))
        return batches

    async def _submit(self, lines: list[Mapping[str, Any]], name: str) -> str:
        batch = await self.way.retrying.run_async(lambda: self.way.endpoint.submit(lines, run=name))
        self._write({"batch": batch, "state": "submitted"})
        log.info("batch %s: %d requests", batch, len(lines))
        return batch

    def _write(self, entry: Mapping[str, str]) -> None:
        # begun with a line break: what a kill tore stays a line of its own
        with self._log.open("a", encoding="utf-8") as stream:
            stream.write("\n" + json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    async def _collect(
        self, batches: list[str], questions: Mapping[str, Question], *, earlier: str = ""
    ) -> None:
        """Waits for batches and takes what they hold; ``earlier``: name of the folder's, if they are of a run
        before this one."""
        waiting = list(batches)
        while waiting:
            for batch in list(waiting):
                try:
                    found = await self.way.retrying.run_async(partial(self.way.endpoint.batch, batch))
                    if found.status not in _ENDED:
                        continue
                    left = await self._taken(found, questions)
                except (RefusedRequest, Unfit) as error:
                    if not earlier or not await self._lists_batches(earlier):
                        raise
                    log.warning(
                        "batch %s of an earlier run is no longer at %s, and what was not collected is asked "
                        "again: %s", batch, self.way.endpoint.host, error,
                    )  # fmt: skip
                    self._write({"batch": batch, "state": "gone"})
                    waiting.remove(batch)
                    continue
                if found.status != "completed":
                    log.warning("batch %s ended as %s: %s", batch, found.status, _errors(found))
                # answers to questions of a larger count were paid for: that count will want them
                self._write({"batch": batch, "state": "partly" if left else "collected"})
                waiting.remove(batch)
                if found.status == "failed" and not self.outcome.asked:
                    raise JobFailed(
                        f"{self.way.endpoint.host} could not run batch {batch}: {_errors(found)}. If it does "
                        "not take JSON schemas, give --structured json_object or none."
                    )
            if waiting:
                await asyncio.sleep(self.way.poll)

    async def _taken(self, found: Any, questions: Mapping[str, Question]) -> int:
        """Keeps what an ended batch's files hold; returns how many answers are of other requests."""
        left = 0
        for file_id in (found.output_file_id, found.error_file_id):
            if file_id:
                rows = await self.way.retrying.run_async(partial(self.way.endpoint.file_lines, file_id))
                left += self._take(rows, questions)
        return left

    async def _lists_batches(self, name: str) -> bool:
        """Whether the endpoint takes our key and answers about batches: then it is one batch that is gone."""
        try:
            await self.way.retrying.run_async(lambda: self.way.endpoint.batches_of(name))
        except (RefusedRequest, Unfit):
            return False
        return True

    def _take(self, rows: list[dict[str, Any]], questions: Mapping[str, Question]) -> int:
        """Keeps what a file holds; returns how many are of requests that are not asked for now."""
        left = 0
        for row in rows:
            key = str(row.get("custom_id"))
            question = questions.get(key)
            if question is None or key in self.store.answered:
                left += question is None and key not in self.store.answered
                continue
            response = row.get("response") or {}
            body = response.get("body") or {}
            if response.get("status_code") != 200:
                words = self.way.endpoint.clean(json.dumps(row.get("error") or body or response))
                self._fail({"key": key, "id": question.id, **question.about, "text": ""}, "refused", words)
                continue
            self.outcome.asked += 1
            try:
                reply = self.way.endpoint.reply(body)
                record = self.kind.record(key, question, reply, batch=True)
            except (ValueError, TypeError) as error:
                self._fail(
                    {"key": key, "id": question.id, **question.about, "text": ""}, "no answer", str(error)
                )
                continue
            try:
                fields = dict(self.kind.read(reply))
            except Unusable as fault:
                self._fail(record, fault.code, fault.detail)
            else:
                self.store.keep({**record, "fields": fields, "batch": True})
                self.outcome.kept += 1
                self.bar.update(1)
        return left

    def _fail(self, record: dict[str, Any], code: str, detail: str) -> None:
        self.faults[record["key"]] = code
        self.store.keep_failed({**record, "reason": f"{code}: {detail}", "code": code, "final": True})


def _errors(batch: Any) -> str:
    errors = getattr(getattr(batch, "errors", None), "data", None) or []
    return "; ".join(str(getattr(one, "message", one)) for one in errors[:3]) or "no reason given"
