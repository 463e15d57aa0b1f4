"""A budget per request, one cool-down for all."""

import threading
import time
from email.utils import formatdate

import pytest

from vidvec_msg.embedders.endpoint import retries
from vidvec_msg.embedders.endpoint.retries import Busy, GaveUp, Mishap, Retrying, Stopped, retry_after


def sender(*outcomes):
    """Sends what is listed, one outcome a time; the last one for ever."""
    left = list(outcomes)

    def send():
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return send


def run(retrying, *outcomes):
    return retrying.run(sender(*outcomes), threading.Event())


def test_mishaps_are_tried_again_within_the_budget():
    retrying = Retrying("host", retries=2, backoff=0.0)
    assert run(retrying, Mishap("a"), Mishap("b"), "answer") == "answer"
    assert retrying.mishaps == 2
    with pytest.raises(
        GaveUp, match=r"host failed 3 times in a row on one request \(retries=2\).*: HTTP 502"
    ):
        run(retrying, Mishap("HTTP 502"))


def test_pauses_double(monkeypatch):
    slept = []
    monkeypatch.setattr(retries, "_sleep", lambda seconds, stop: slept.append(seconds))
    monkeypatch.setattr(retries.random, "random", lambda: 0.0)
    with pytest.raises(GaveUp):
        run(Retrying("host", retries=9, backoff=0.5), Mishap("again"))
    assert slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_busy_endpoint_costs_no_budget():
    retrying = Retrying("host", retries=0)
    busy = [Busy("slow down", wait=0.001)] * 20
    assert run(retrying, *busy, "answer") == "answer"
    assert (retrying.mishaps, retrying.cool_downs) == (0, 20)


def test_everything_else_is_final():
    with pytest.raises(KeyError):
        run(Retrying("host"), KeyError("x"))


def test_all_workers_wait_for_the_one_that_was_told_to():
    retrying = Retrying("host")
    told = threading.Thread(target=run, args=(retrying, Busy("", wait=0.3), "answer"))
    began = time.monotonic()
    told.start()
    while not retrying.cool_downs:
        time.sleep(0.001)
    sent = retrying.run(time.monotonic, threading.Event())  # another worker's request, never refused itself
    told.join()
    assert sent - began >= 0.3


def test_answers_to_requests_of_before_the_cool_down_do_not_lengthen_it(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_COOL_DOWN", 0.05)
    retrying = Retrying("host")
    both_sent = threading.Barrier(2)

    def once_refused(state):
        if not state:
            state.append("sent")
            both_sent.wait()
            raise Busy("")
        return "answer"

    threads = [
        threading.Thread(target=retrying.run, args=(lambda state=[]: once_refused(state), threading.Event()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert retrying.cool_downs == 1


def test_without_a_time_named_cool_downs_double_until_an_answer(monkeypatch):
    slept = []
    retrying = Retrying("host")
    clock = iter(range(0, 100_000, 100))  # each look at the clock is 100 s later: nobody really waits
    monkeypatch.setattr(retries.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(retries.log, "info", lambda text, host, wait: slept.append(wait))
    retrying.patience = 1e9
    assert run(retrying, *[Busy("")] * 8, "answer") == "answer"
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    run(retrying, Busy(""), "answer")
    assert slept[-1] == 1.0


def test_patience_ends():
    retrying = Retrying("host", patience=0.1)
    with pytest.raises(
        GaveUp, match=r"nothing but 429 .* asks for 3600 s more, beyond patience=0 s: daily limit"
    ):
        run(retrying, Busy("daily limit", wait=3600))
    time.sleep(0.15)
    assert run(retrying, Busy("", wait=0.01), "answer") == "answer"  # a later call has new patience


def test_a_stopped_call_does_not_wait():
    retrying, stop = Retrying("host", backoff=60), threading.Event()
    threading.Timer(0.05, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        retrying.run(sender(Mishap("x")), stop)
    assert time.monotonic() - began < 30
    with pytest.raises(Stopped):  # nothing is sent after that
        retrying.run(sender("answer"), stop)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),  # over already
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds


def test_retry_after_a_date_to_come():
    headers = {"retry-after": formatdate(time.time() + 100, usegmt=True)}
    assert 97 < retry_after(headers) < 101


def test_options_out_of_range():
    with pytest.raises(ValueError, match=r"must not be negative, got -1, 0.5 and 900"):
        Retrying("host", retries=-1)
