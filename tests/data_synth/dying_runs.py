"""Runs a verb in children that are killed at random moments; a program, so that a fork finds one thread only.

    python dying_runs.py SEED KILLS LONGEST WORD …

A life is killed up to LONGEST seconds after its first answer; every fifth one at any time from its start.
Prints a line after each death and waits for a line before the next life; the last life ends by itself.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time

import openai

from vidvec_msg.cli import main
from vidvec_msg.data_synth.replies import Record, ReplyStore

_STARTS = 20.0  # seconds that a start may take at most


def life(words: list[str], how: signal.Signals | None, *, seconds: float = 0.0, early: bool = False) -> int:
    """One child; its exit code, or minus the signal that ended it."""
    begun, begins = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        keep = ReplyStore.keep

        def told(self: ReplyStore, record: Record) -> None:
            keep(self, record)
            os.write(begins, b"!")

        ReplyStore.keep = told  # type: ignore[method-assign]
        code = 70
        try:
            code = main(words)
        finally:
            os._exit(code)
    os.close(begins)
    if how is not None:
        if not early:
            select.select([begun], [], [], _STARTS)
        time.sleep(seconds)
        os.kill(pid, how)
    os.close(begun)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    # what the children need is loaded once, the client's lazy parts too
    openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9")
    import vidvec_msg.data_synth.verb  # noqa: F401

    dice = random.Random(int(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        how = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT])
        seconds = dice.uniform(0.0, float(sys.argv[3]))
        print(life(sys.argv[4:], how, seconds=seconds, early=number % 5 == 4), flush=True)
        sys.stdin.readline()
    print(life(sys.argv[4:], None), flush=True)
