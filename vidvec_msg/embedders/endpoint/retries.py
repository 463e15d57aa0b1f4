"""Asking a busy or failing endpoint again: a retry budget per request, and one cool-down for all workers.

The two are kept apart. "Too many requests" (429) says nothing about the request: it costs none of its budget,
and every worker waits, since a worker that goes on keeps the limit exceeded for all. A time-out, a cut
connection or a 5xx is the request's own misfortune: it is sent again after a pause that doubles, a limited
number of times.
"""

from __future__ import annotations

import email.utils
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

FIRST_COOL_DOWN = 1.0  # seconds, where a 429 names none; doubles up to LONGEST_PAUSE
LONGEST_PAUSE = 60.0  # seconds that a pause may grow to by doubling; a Retry-After may be longer


class Busy(Exception):
    """The endpoint asks for patience (429).

    Args:
        words: what it said.
        wait: seconds that it asks for; None if it names none.
    """

    def __init__(self, words: str, wait: float | None = None) -> None:
        super().__init__(words)
        self.wait = wait


class Mishap(Exception):
    """A request failed in a way that may not happen again: 5xx, a time-out, a torn answer."""


class GaveUp(Exception):
    """The retry budget of a request, or the patience with a busy endpoint, is used up."""


class Stopped(Exception):
    """Another request of the same call failed for good; there is no use in going on."""


class Retrying:
    """Sends requests until they are answered; one object for all workers of an endpoint.

    Args:
        host: for messages.
        retries: times that one request is sent again after a mishap.
        backoff: seconds before the first of them; doubles, with up to half of it added by chance.
        patience: seconds that the endpoint may stay busy without a single answer.

    Raises:
        ValueError: an option out of its range.
    """

    def __init__(self, host: str, *, retries: int = 6, backoff: float = 0.5, patience: float = 900.0) -> None:
        if retries < 0 or backoff < 0 or patience < 0:
            raise ValueError(
                f"retries, backoff (seconds) and patience (seconds) must not be negative, "
                f"got {retries}, {backoff} and {patience}"
            )
        self.host, self.retries, self.backoff, self.patience = host, retries, backoff, patience
        self.mishaps = 0
        self.cool_downs = 0
        self._lock = threading.Lock()
        self._until = 0.0  # time.monotonic() before which nobody sends
        self._began = 0.0  # when the present cool-down was ordered
        self._pause = FIRST_COOL_DOWN  # of the next cool-down that names no time
        self._busy_since: float | None = None

    def run(self, send: Callable[[], Answer], stop: threading.Event) -> Answer:
        """What ``send`` returns in the end.

        Args:
            send: sends the request once; raises Busy, Mishap, or whatever is final.
            stop: set by another worker when the whole call has failed; pauses end at once.

        Raises:
            GaveUp: the budget is used up, or the endpoint stayed busy for longer than ``patience``.
            Stopped: ``stop`` was set.
        """
        failed = 0
        while True:
            self._wait_for_turn(stop)
            sent = time.monotonic()
            try:
                answer = send()
            except Busy as busy:
                self.cool_down(busy, sent)
            except Mishap as mishap:
                failed += 1
                _sleep(self.pause_after(mishap, failed), stop)
            else:
                self.answered()
                return answer

    def _wait_for_turn(self, stop: threading.Event) -> None:
        while True:
            left = self.seconds_to_wait()
            if left <= 0:
                if stop.is_set():
                    raise Stopped
                return
            _sleep(left, stop)

    # --- what is decided, for whoever sends: threads above, coroutines in data_synth.patience -------------

    def seconds_to_wait(self) -> float:
        """Until the present cool-down is over; not above 0 if there is none."""
        with self._lock:
            return self._until - time.monotonic()

    def pause_after(self, mishap: Mishap, failed: int) -> float:
        """Seconds before a request is sent again.

        Args:
            mishap: the last one.
            failed: mishaps of this request so far.

        Raises:
            GaveUp: its budget is used up.
        """
        with self._lock:
            self.mishaps += 1
        if failed > self.retries:
            raise GaveUp(
                f"{self.host} failed {failed} times in a row on one request "
                f"(retries={self.retries}), the last time with: {mishap}"
            ) from None
        pause: float = min(self.backoff * 2 ** (failed - 1), LONGEST_PAUSE) * (1 + random.random() / 2)
        log.debug("%s: %s; again in %.1f s (%d of %d)", self.host, mishap, pause, failed, self.retries)
        return pause

    def cool_down(self, busy: Busy, sent: float) -> None:
        """Orders a pause for every worker; answers to requests sent before it was ordered change little.

        Args:
            busy: what the endpoint said.
            sent: time.monotonic() at which the request was sent.

        Raises:
            GaveUp: the endpoint stays busy for longer than ``patience``.
        """
        with self._lock:
            now = time.monotonic()
            late = sent < self._began  # its 429 and the one that began the cool-down are one event
            wait = busy.wait
            if wait is None:
                wait = 0.0 if late else self._pause
                if not late:
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._busy_since = since = now if self._busy_since is None else self._busy_since
            if now + wait - since > self.patience:
                self._busy_since = None  # whoever asks again has new patience
                raise GaveUp(
                    f"{self.host} has answered nothing but 429 (too many requests) for "
                    f"{now - since:.0f} s and asks for {wait:.0f} s more, beyond "
                    f"patience={self.patience:.0f} s: {busy}"
                ) from None
            self._until = max(self._until, now + wait)
            if late:
                return
            self._began = now
            self.cool_downs += 1
        log.info("%s is busy (429); all requests wait %.1f s", self.host, wait)

    def answered(self) -> None:
        """Notes that the endpoint answers again."""
        with self._lock:
            self._busy_since = None
            self._pause = FIRST_COOL_DOWN


@contextmanager
def asking(
    concurrency: int, stop: threading.Event | None = None
) -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Threads that send requests, and the event that ends their waiting: set when the block ends in an error.

    Args:
        concurrency: requests at a time.
        stop: the event, if there is one already.
    """
    stop = stop or threading.Event()
    with ThreadPoolExecutor(concurrency) as workers:
        try:
            yield workers, stop
        except BaseException:  # Ctrl-C too, and whoever stops asking
            stop.set()
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def _sleep(seconds: float, stop: threading.Event) -> None:
    if stop.wait(seconds):
        raise Stopped


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer's headers ask to wait: ``retry-after-ms``, or ``Retry-After`` in any form.

    Args:
        headers: of the answer; names in any case, if the mapping does not mind.

    Returns:
        seconds, at least 0; None if there is no such header, or one that says nothing.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            seconds = _until_date(value)
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _until_date(value: str) -> float:
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except ValueError:
        return -1.0
