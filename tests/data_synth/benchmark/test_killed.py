"""Builds that cannot be lost: killed again and again, nothing that was answered is asked for again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from data_synth.benchmark.script import MESSAGES, answer
from data_synth.benchmark.youtube_server import Video, youtube_server
from data_synth.chat_server import chat_server

KILLS = 6
STAGES = ("messages", "stories", "refined", "queries", "judged", "candidates", "ranked")
_INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from vidvec_msg.cli import main
sys.exit(main(sys.argv[1:]))
"""
VIDEOS = {f"clip{n:07d}": Video(f"woman boy baker number {n}") for n in range(30)}


def words(folder: Path, chat: str, youtube: str) -> list[str]:
    return [
        "build-benchmark", "--messages", str(folder.parent / "m.txt"), "--endpoint", chat, "--model", "m",
        "--provider", "youtube", "--youtube_url", youtube, "--out", str(folder), "--concurrency", "2",
        "--refine", "1", "--rounds", "1", "--top", "3", "--per_query", "6",
    ]  # fmt: skip


@pytest.mark.slow(minutes=1)
def test_kills_lose_nothing_double_nothing_and_end_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YOUTUBE_API_KEY", "AIza-a-key-that-nobody-sees")
    (tmp_path / "m.txt").write_text("\n".join(MESSAGES) + "\n", encoding="utf-8")
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    with chat_server() as chat, youtube_server(dict(VIDEOS)) as youtube:
        chat.answers, chat.delay, youtube.delay = answer, 0.05, 0.05
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[1] / "dying_runs.py"),
             "7", str(KILLS), "6", "0.08", "9", *words(killed, chat.url, youtube.url)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert program.stdout is not None
        deaths = [line.split() for line in program.stdout]
        assert program.wait() == 0
        assert [code for _, code in deaths] == ["-9"] * KILLS + ["0"]
        assert len({made for made, _ in deaths}) > KILLS // 2  # the deaths fell into the work
        twice = {one: times for one, times in Counter(chat.asked).items() if times > 1}
        # a request that was on its way when its process died is asked again: two at a time, a death
        assert sum(times - 1 for times in twice.values()) <= 2 * KILLS
        pages = Counter(json.dumps(call) for call in youtube.calls)
        assert sum(times - 1 for times in pages.values()) <= KILLS
        for name in ("stories", "queries", "judgements", "critiques", "revisions", "relevance", "youtube"):
            keys = [json.loads(line)["key"] for line in (killed / "replies" / f"{name}.jsonl").open()]
            assert len(keys) == len(set(keys)), name
        units = sum(json.loads(line)["units"] for line in (killed / "replies" / "youtube_quota.jsonl").open())
        assert units >= sum(100 if call == "search" else 1 for call, _ in youtube.calls)

        # the same bytes as a build that nothing happened to
        from vidvec_msg.cli import main

        chat.delay = youtube.delay = 0.0
        assert main(words(calm, chat.url, youtube.url)) == 0
    for name in STAGES:
        assert (calm / f"{name}.jsonl").read_bytes() == (killed / f"{name}.jsonl").read_bytes(), name


def test_an_interrupted_build_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("\n".join(MESSAGES) + "\n", encoding="utf-8")
    with chat_server() as chat, youtube_server(dict(VIDEOS)) as youtube:
        chat.answers, chat.delay = answer, 0.2
        ran = subprocess.Popen(
            # a job in the background ignores an interruption
            [sys.executable, "-c", _INTERRUPTIBLE, *words(tmp_path / "out", chat.url, youtube.url)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env={**os.environ, "YOUTUBE_API_KEY": "AIza-a-key-that-nobody-sees"},
        )  # fmt: skip
        while len(chat.requests) < 2:
            time.sleep(0.02)
            assert ran.poll() is None
        ran.send_signal(signal.SIGINT)
        _, told = ran.communicate(timeout=60)
        assert ran.returncode == 130
        assert "interrupted; the same command continues from here" in told
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["stopped"] == "interrupted"
