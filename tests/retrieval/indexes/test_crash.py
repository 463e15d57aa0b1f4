"""kill -9 at any moment: the index before the change or after it, never neither; readers never fail."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from index_histories import State, beginning, carry_out, holds, next_state, vector_of

from vidvec_msg.retrieval.indexes.changes import changing
from vidvec_msg.retrieval.indexes.folder import files_of, read_manifest
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

KILLS = 50
TESTS = Path(__file__).parents[2]


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "index_worker.py")],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a writer lives on where a test failed
    process.wait()


def start(
    nursery: subprocess.Popen[str], folder: Path, state: State, step: int, *, dies_before: int = 0
) -> int:
    """A writer that begins with this step, and dies before so many changes of files; its process id."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    (folder / "state.json").write_text(json.dumps(state))
    nursery.stdin.write(f"{folder} {step} {dies_before}\n")
    nursery.stdin.flush()
    word, pid = nursery.stdout.readline().split()
    assert word == "pid"
    return int(pid)


def ended_step(nursery: subprocess.Popen[str]) -> int:
    """Waits until the writer ends a step; its number."""
    assert nursery.stdout is not None
    return int(nursery.stdout.readline().split()[1])


def kill(nursery: subprocess.Popen[str], pid: int) -> list[int]:
    """Kills a writer; the steps that it had ended."""
    os.kill(pid, signal.SIGKILL)
    return death(nursery)


def death(nursery: subprocess.Popen[str]) -> list[int]:
    """Waits until a writer is gone; the steps that it had ended."""
    assert nursery.stdout is not None
    done = []
    while (line := nursery.stdout.readline()) != "gone\n":
        done.append(int(line.split()[1]))
    return done


@pytest.mark.slow
def test_killed_at_fifty_moments_it_is_the_old_index_or_the_new_one(
    tmp_path: Path, nursery: subprocess.Popen[str]
) -> None:
    state, step, index = beginning(tmp_path), 0, tmp_path / "index"
    moments, usual = random.Random(0), 0.05
    for turn in range(KILLS):
        begun = time.monotonic()
        pid, ended = start(nursery, tmp_path, state, step), moments.randrange(3)
        done_before = [ended_step(nursery) for _ in range(ended)]
        usual = (time.monotonic() - begun) / ended if ended else usual  # seconds a change
        time.sleep(moments.uniform(0, usual))
        for done in done_before + kill(nursery, pid):
            assert done == step
            state, step = next_state(state, step), step + 1
        after = next_state(state, step)  # of the change that was cut short, if it got that far
        try:
            holds(index, state)
        except AssertionError:
            holds(index, after)
            state, step = after, step + 1
        if turn % 2:  # else the next writer itself finds what was left
            put_in_order(index)
            holds(index, state)
    assert step > KILLS / 2  # changes went on between the kills


def put_in_order(index: Path) -> None:
    """What the next writer does first; no file of an interrupted one is left then."""
    with changing(index) as manifest:
        there = {path.name for path in index.iterdir()}
        assert there == {*files_of(manifest), "index.json", ".writer.lock", ".writer.json"}


@pytest.mark.slow
@pytest.mark.parametrize("step", range(4), ids=["add", "replace", "delete", "compact"])
def test_killed_before_each_write_it_is_the_old_index_until_the_commit(
    tmp_path: Path, nursery: subprocess.Popen[str], step: int
) -> None:
    state = beginning(tmp_path / "start")
    for earlier in range(step):
        state = carry_out(tmp_path / "start", state, earlier)
    after = next_state(state, step)
    generation = read_manifest(tmp_path / "start" / "index")["generation"]
    committed: list[bool] = []
    for write in itertools.count(1):
        folder = tmp_path / str(write)
        shutil.copytree(tmp_path / "start", folder)
        start(nursery, folder, state, step, dies_before=write)
        if death(nursery):
            break  # it ended before that many writes
        committed.append(read_manifest(folder / "index")["generation"] > generation)
        for _ in range(2):
            holds(folder / "index", after if committed[-1] else state)
            put_in_order(folder / "index")
        shutil.rmtree(folder)
    assert committed == sorted(committed)
    assert {*committed} == {False, True}


@pytest.mark.slow
def test_readers_that_open_while_a_writer_works_never_fail(
    tmp_path: Path, nursery: subprocess.Popen[str]
) -> None:
    states, index = [beginning(tmp_path)], tmp_path / "index"
    for step in range(400):
        states.append(next_state(states[-1], step))
    by_ids: dict[frozenset[str], list[State]] = {}
    for state in states:
        by_ids.setdefault(frozenset(state), []).append(state)
    pid = start(nursery, tmp_path, states[0], 0)
    generations: set[int] = set()
    until = time.monotonic() + 100
    while len(generations) < 25 and time.monotonic() < until:
        opened = VectorIndex.open(index, mmap=bool(len(generations) % 2))
        generations.add(opened.manifest["generation"])
        _, names = opened.search(vector_of("d7", 0)[None], 1000)
        assert len(names[0]) == len(opened)
        matching = by_ids[frozenset(names[0])]  # one of the states that there were, not a mixture of two
        one = names[0][0]
        versions = [vector_of(one, state[one]) for state in matching]
        assert any((opened.vector(one) == version).all() for version in versions)
        assert opened.metadata(one)["text"] == f"text of {one}"
    done = kill(nursery, pid)
    assert len(done) < 400
    assert len(generations) == 25


def test_what_is_open_stays_what_it_was(tmp_path: Path) -> None:
    state, index = beginning(tmp_path), tmp_path / "index"
    for mmap in (False, True):
        opened = VectorIndex.open(index, mmap=mmap)
        before = opened.search(vector_of("d7", 0)[None], 100)
        text = opened.metadata(before[1][0][0])
        later = state
        for step in range(4):
            later = carry_out(tmp_path, later, step + 4 * mmap)
        again = opened.search(vector_of("d7", 0)[None], 100)
        assert (again[0] == before[0]).all()
        assert again[1] == before[1]
        assert opened.metadata(before[1][0][0]) == text
        state = later
    holds(index, state)
