"""Runs that cannot be lost: killed thirty times, nothing that was answered is asked again, none is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from data_synth.chat_server import TROUBLES, chat_server

from vidvec_msg.cli import main
from vidvec_msg.data_synth.replies import read_records
from vidvec_msg.formats.pairs import read_pairs

ROOT = Path(__file__).parents[2]
COUNT, KILLS = 400, 30


def words(url: str, out: Path) -> list[str]:
    return [
        "synth", "--personas", str(ROOT / "data/personas.jsonl"), "--endpoint", url, "--model", "m",
        "--count", str(COUNT), "--out", str(out), "--concurrency", "8", "--timeout", "0.6",
        "--backoff", "0.01", "--retries", "50", "--tries", "50",
    ]  # fmt: skip


@pytest.mark.slow(minutes=1)
def test_thirty_kills_lose_nothing_double_nothing_and_end_in_the_same_bytes(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    deaths: list[tuple[int, set[str]]] = []  # requests so far, persona of each kept answer
    with chat_server(troubles=TROUBLES, share=0.4, seed=5) as server:
        server.delay, server.slow = 0.2, 0.8
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("dying_runs.py")),
             "7", str(KILLS), "1", "0.5", "9,9,2", *words(server.url, out)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        codes = []
        for line in program.stdout:
            codes.append(int(line.split()[1]))
            kept = {str(record["persona"]) for record in read_records(out / "replies" / "pairs.jsonl")}
            deaths.append((len(server.requests), kept))
            program.stdin.write("go on\n")
            program.stdin.flush()
        assert program.wait() == 0
        asked, met = server.asked, server.met
    assert codes[-1] == 0
    assert Counter(codes[:-1])[-9] >= KILLS // 2
    assert 130 in codes
    assert set(met) == set(TROUBLES)

    # no answer that was kept before a death is asked for after it
    for requests, kept in deaths:
        later = {words.split("\n")[0].removeprefix("Persona: ") for words in asked[requests:]}
        assert not kept & later
    assert len({len(kept) for _, kept in deaths}) > KILLS // 2  # the deaths fell into the work

    records = Counter(record["key"] for record in read_records(out / "replies" / "pairs.jsonl"))
    assert len(records) == COUNT
    assert set(records.values()) == {1}

    # the same bytes as a run that nothing happened to
    calm = tmp_path / "calm"
    with chat_server() as server:
        assert main(words(server.url, calm)) == 0
        assert len(server.requests) == COUNT
    assert (calm / "pairs.jsonl").read_bytes() == (out / "pairs.jsonl").read_bytes()
    pairs = read_pairs(out / "pairs.jsonl")
    rejects = [json.loads(line) for line in (out / "rejects.jsonl").read_text().splitlines()]
    assert (
        len({pair.id for pair in pairs} | {row["id"] for row in rejects})
        == len(pairs) + len(rejects)
        == COUNT
    )
