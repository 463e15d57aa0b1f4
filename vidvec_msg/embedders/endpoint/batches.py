"""Many texts through an endpoint: batches side by side, smaller ones where it does not take them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.embedders.endpoint.client import Endpoint, Reply, Unfit
from vidvec_msg.embedders.endpoint.retries import GaveUp, Retrying, Stopped, asking
from vidvec_msg.errors import JobFailed, RefusedRequest

log = logging.getLogger(__name__)

Keep = Callable[[Mapping[bytes, Vectors]], None]

_PROBE = "How many dimensions has this?"  # a text that any endpoint takes


@dataclass(slots=True)
class Usage:
    """What has been used so far.

    Args:
        requests: that were answered.
        texts: that were embedded by them.
        tokens: that the endpoint counted; 0 if it does not say.
        cached: texts that the cache answered.
    """

    requests: int = 0
    texts: int = 0
    tokens: int = 0
    cached: int = 0


@dataclass(slots=True)
class Call:
    """Texts to embed together, and what has come in.

    Args:
        texts: key → wording, none empty.
        fields: further fields of the requests.
        dim: dimensions that the vectors must have.
        keep: called with the vectors of each answer as soon as it is there; those that are finite and not
            zero.
        vectors: key → (dim,), as the endpoint gave it.
        refused: key → why, in the endpoint's words.
        stop: set when the call has failed as a whole.
    """

    texts: Mapping[bytes, str]
    fields: Mapping[str, str]
    dim: int
    keep: Keep
    vectors: dict[bytes, Vectors] = field(default_factory=dict)
    refused: dict[bytes, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)


class EndpointBatches:
    """Embeds any number of texts by an endpoint.

    Args:
        endpoint: answers one request.
        retrying: decides whether and when a request is sent again.
        batch_size: texts per request at most. Where the endpoint takes fewer, it is lowered.
        batch_chars: characters per request at most, a longer text alone excepted.
        concurrency: requests at a time.
    """

    def __init__(
        self, endpoint: Endpoint, retrying: Retrying, *, batch_size: int, batch_chars: int, concurrency: int
    ) -> None:
        self.endpoint, self.retrying = endpoint, retrying
        self.batch_size, self.batch_chars, self.concurrency = batch_size, batch_chars, concurrency
        self.usage = Usage()
        self._lock = threading.Lock()

    def answer(self, call: Call) -> None:
        """Fills ``vectors`` and ``refused`` of a call; each of its texts ends in one of them.

        Raises:
            JobFailed: the endpoint does not answer.
            RefusedRequest: it refuses key, model or options, or gives vectors of other dimensions.
        """
        missing = [key for key in call.texts if key not in call.vectors]
        if not missing:
            return
        # after an error, answers to requests on their way are kept when they come
        with asking(self.concurrency, call.stop) as (workers, _):
            batches = list(self._batches(missing, call.texts))
            futures = [workers.submit(self._answer_or_stop, batch, call) for batch in batches]
            for future in as_completed(futures):
                with suppress(Stopped):  # by another one, which says why
                    future.result()

    def probe(self, fields: Mapping[str, str], *, retries: int | None = None) -> Reply:
        """The answer to one short text.

        Args:
            fields: further fields of the request.
            retries: fewer than usual; a wrong address should not take half a minute to say so.

        Raises:
            RefusedRequest: the endpoint does not answer, or does not take even that.
        """
        usual = self.retrying
        retrying = Retrying(
            usual.host,
            retries=usual.retries if retries is None else min(usual.retries, retries),
            backoff=usual.backoff,
            patience=usual.patience,
        )
        try:
            reply = retrying.run(lambda: self.endpoint.ask([_PROBE], fields=fields), threading.Event())
        except Unfit as error:
            raise RefusedRequest(
                f"{self.endpoint.host} does not take a request for model {self.endpoint.model!r}, not even "
                f"of one short text: {error}. Look at dimensions, encoding_format and role_param."
            ) from None
        except GaveUp as error:
            raise RefusedRequest(
                f"no embeddings from {self.endpoint.base_url} (model {self.endpoint.model!r}): {error}. Is "
                "the server up, and base_url right?"
            ) from None
        finally:
            usual.mishaps += retrying.mishaps
            usual.cool_downs += retrying.cool_downs
        self._count(reply, 1)
        return reply

    def usage_so_far(self) -> Usage:
        """A copy."""
        with self._lock:
            return replace(self.usage)

    def _batches(self, keys: Sequence[bytes], texts: Mapping[bytes, str]) -> Iterator[list[bytes]]:
        batch: list[bytes] = []
        chars = 0
        for key in keys:
            length = len(texts[key])
            if batch and (len(batch) >= self.batch_size or chars + length > self.batch_chars):
                yield batch
                batch, chars = [], 0
            batch.append(key)
            chars += length
        if batch:
            yield batch

    def _answer_or_stop(self, batch: list[bytes], call: Call) -> None:
        """An error that is final ends the call for the other workers too, before they send more."""
        try:
            self._answer(batch, call)
        except BaseException:
            call.stop.set()
            raise

    def _answer(self, batch: list[bytes], call: Call) -> None:
        """Gets a batch answered, in parts where the endpoint does not take it whole."""
        most = self.batch_size
        if len(batch) > most:  # lowered since the batch was made
            for first in range(0, len(batch), most):
                self._answer(batch[first : first + most], call)
            return
        texts = [call.texts[key] for key in batch]
        try:
            reply = self.retrying.run(lambda: self.endpoint.ask(texts, fields=call.fields), call.stop)
        except Unfit as error:
            if not self.usage.requests:
                self.probe(call.fields)  # does it refuse this text, or everything?
            if len(batch) == 1:
                call.refused[batch[0]] = str(error)
            else:
                self._answer_in_halves(batch, call, str(error))
        except GaveUp as error:
            raise JobFailed(f"{error}. What was answered is kept; the same command goes on.") from None
        else:
            self._take(batch, reply, call)

    def _answer_in_halves(self, batch: list[bytes], call: Call, words: str) -> None:
        """Finds the texts that are refused; if there are none, the batch was too large."""
        middle = len(batch) // 2
        self._answer(batch[:middle], call)
        self._answer(batch[middle:], call)
        if any(key in call.refused for key in batch):
            return
        with self._lock:
            self.batch_size = min(self.batch_size, len(batch) - middle)
        log.info(
            "%s takes no %d texts at once (%s); from now on %d at most",
            self.endpoint.host, len(batch), words, self.batch_size,
        )  # fmt: skip

    def _take(self, batch: Sequence[bytes], reply: Reply, call: Call) -> None:
        self._refuse_other_dim(reply.vectors.shape[1], call.dim)
        found = dict(zip(batch, reply.vectors, strict=True))
        call.keep({key: row for key, row in found.items() if np.isfinite(row).all() and row.any()})
        call.vectors.update(found)
        self._count(reply, len(batch))

    def _count(self, reply: Reply, texts: int) -> None:
        with self._lock:
            self.usage.requests += 1
            self.usage.texts += texts
            self.usage.tokens += reply.tokens

    def _refuse_other_dim(self, dim: int, expected: int) -> None:
        if dim == expected:
            return
        asked = self.endpoint.dimensions
        raise RefusedRequest(
            f"{self.endpoint.host} gave vectors of {dim} dimensions, not {expected}: "
            + (
                f"dimensions={asked} was asked for and the endpoint does not do it; leave it out."
                if asked
                else "another model answers under the same name; remove its cache folder, or use cache=none."
            )
        )
