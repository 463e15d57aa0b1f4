"""Runs a verb in children that are killed at random moments; a program, so that a fork finds one thread only.

    python dying_runs.py SEED KILLS MOST LONGEST SIGNALS WORD …

A life is killed by one of SIGNALS (9,9,2) up to LONGEST seconds after one of its first MOST answers; every
fifth one at any time from its start. Prints a line after each death, the answers that were counted and how it
ended (exit code, or minus the signal), and waits for a line before the next; the last life ends by itself.
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

_WAITS = 20.0  # seconds for an answer at most


def life(words: list[str], how: int, *, answers: int, seconds: float) -> tuple[int, int]:
    """One child, killed some seconds after so many answers, or left alone; answers, and how it ended."""
    begun, begins = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(begun)
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
    seen = 0
    while (not how or seen < answers) and select.select([begun], [], [], _WAITS)[0] and os.read(begun, 1):
        seen += 1
    if how:
        time.sleep(seconds)
        os.kill(pid, how)
    os.close(begun)
    return seen, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    # what the children need is loaded once, the client's lazy parts too
    openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9")
    import vidvec_msg.data_synth.benchmark.verb
    import vidvec_msg.data_synth.verb  # noqa: F401

    dice = random.Random(int(sys.argv[1]))
    kills, most, longest = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    signals, words = [int(one) for one in sys.argv[5].split(",")], sys.argv[6:]
    for number in range(kills):
        how, seconds, answers = dice.choice(signals), dice.uniform(0.0, longest), dice.randint(1, most)
        print(*life(words, how, answers=0 if number % 5 == 4 else answers, seconds=seconds), flush=True)
        sys.stdin.readline()
    print(*life(words, 0, answers=0, seconds=0.0), flush=True)
