"""Runs a verb in children that are killed at random moments; a program, so that a fork finds one thread only.

    python dying_runs.py SEED KILLS SHORTEST LONGEST WORD …

Prints a line after each death and waits for a line before the next life; the last life ends by itself.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from vidvec_msg.cli import main


def life(words: list[str], seconds: float | None, how: signal.Signals) -> int:
    """One child; its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 70
        try:
            code = main(words)
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, how)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    import asyncio  # noqa: F401  # what the children need is loaded once

    import openai

    import vidvec_msg.data_synth.verb  # noqa: F401

    openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9")  # its lazy parts too
    dice = random.Random(int(sys.argv[1]))
    shortest, longest = float(sys.argv[3]), float(sys.argv[4])
    for _ in range(int(sys.argv[2])):
        how = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT])
        print(life(sys.argv[5:], dice.uniform(shortest, longest), how), flush=True)
        sys.stdin.readline()
    print(life(sys.argv[5:], None, signal.SIGKILL), flush=True)
