"""Runs a build in children that are killed as soon as another number of answers is kept; a program.

    python dying_builds.py KILLS WORD …

A program of its own, so that a fork finds one thread only. Prints a line after each death: answers that were
kept, and the child's exit code or minus the signal; the last life ends by itself.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import openai

from vidvec_msg.cli import main
from vidvec_msg.data_synth.replies import Record, ReplyStore


def life(words: list[str], answers: int | None, seconds: float) -> tuple[int, int]:
    """One child, killed some seconds after so many answers were kept; answers, and how it ended."""
    begun, begins = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(begun)
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
    while (answers is None or seen < answers) and os.read(begun, 1):
        seen += 1
    if answers is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    os.close(begun)
    return seen, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    # what the children need is loaded once, the client's lazy parts too
    openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9")
    import vidvec_msg.data_synth.benchmark.verb

    assert vidvec_msg.data_synth.benchmark.verb
    dice = random.Random(7)
    for _ in range(int(sys.argv[1])):
        print(*life(sys.argv[2:], dice.randint(1, 6), dice.uniform(0.0, 0.08)), flush=True)
    print(*life(sys.argv[2:], None, 0.0), flush=True)
