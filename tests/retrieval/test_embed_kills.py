"""Killed again and again, at random moments, the verb ends in the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import KEYWORDS

TESTS = Path(__file__).parent.parent
KILLS = 20


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are made by forking")
@pytest.mark.parametrize("slices", [0, 3])
def test_twenty_kills_at_random_moments_change_no_byte(tmp_path: Path, slices: int) -> None:
    texts = ["nothing" if n % 9 == 4 else " ".join(KEYWORDS[: 1 + n % len(KEYWORDS)]) for n in range(60)]
    lines = [json.dumps({"_id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)]
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection" / "corpus.jsonl").write_text("".join(lines))
    words = [
        sys.executable,
        str(TESTS / "embed_dying.py"),
        str(tmp_path / "collection"),
        str(tmp_path / "out"),
    ]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*words, str(slices), str(KILLS)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    whole = content(tmp_path / "out" / "whole")
    assert len([name for name in whole if name.startswith("shard-")]) == 9
    for run in range(told["runs"]):
        assert content(tmp_path / "out" / str(run)) == whole
    states = {tuple(state) for state in told["states"]}
    assert len(told["states"]) >= KILLS
    assert len(states) >= 5, "the kills fell on too few different moments to test anything"
