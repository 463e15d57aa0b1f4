"""How far a job is, on a terminal and in a log."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from vidvec_msg.retrieval import progress as module
from vidvec_msg.retrieval.progress import progress

LOG = logging.getLogger("vidvec_msg.test_progress")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with caplog.at_level("INFO"), progress("embed v", 10_000, done=2000, log=LOG) as tell:
        for second, done in ((30, 2300), (60, 2600), (90, 3000), (120, 3201), (4000, 4001)):
            clock[0] = 100.0 + second
            tell(done, done // 1000)
    assert caplog.messages == [
        "embed v: 2,600 of 10,000 items (26%), 10.0 items/s, 12:20 left, 2 failed",
        "embed v: 3,201 of 10,000 items (32%), 10.0 items/s, 11:19 left, 3 failed",
        "embed v: 4,001 of 10,000 items (40%), 2.0 s/item, 3:19:52 left, 4 failed",
    ]


def test_a_short_job_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), progress("embed v", 3, done=0, log=LOG) as tell:
        for done in range(4):
            tell(done, 0)
    assert caplog.messages == []


def test_a_terminal_gets_a_bar_with_rate_time_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("embed v", 100, done=40, log=LOG) as tell:
        tell(60, 0)
        tell(100, 7)
    last = terminal.getvalue().split("\r")[-1]
    assert re.search(r"embed v: 100%.*100/100 \[00:00<00:00, .*item/s, failed=7\]", last)
