"""Clips decoded ahead: the same frames, within bounds, errors where they are asked for, no process left."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from media.clips import grey_frames, write_clip

from vidvec_msg.embedders.contract import Prepares
from vidvec_msg.embedders.reading import ClipReader, clip_of
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.video import Frames, VideoError, read_frames

TESTS = Path(__file__).parent.parent
POLICY = FramePolicy(fps=2)


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> list[Item]:
    """Eight clips of two seconds."""
    folder = tmp_path_factory.mktemp("clips")
    return [
        Item(f"c{n}", video=write_clip(folder / f"{n}.mp4", grey_frames(20, size=(32, 32 + 16 * n))))
        for n in range(8)
    ]


@pytest.fixture(scope="module")
def pool():
    pool = DecodePool(workers=2, timeout=60)
    yield pool
    pool.close()


class CountingPool:
    """Gives one grey frame per clip; knows what was read, and can be told to wait."""

    timeout, workers = 60.0, 2

    def __init__(self, *, size: int = 10) -> None:
        self.read_paths: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.size = size

    def read(self, path, policy, *, start=None, end=None) -> Frames:
        assert self.go.wait(10)
        self.read_paths.append(f"{path}@{start}-{end}" if start or end else str(path))
        if "bad" in path.name:
            raise VideoError(f"{path}: broken")
        pixels = np.full((1, self.size, self.size, 3), 7, np.uint8)
        return Frames(pixels, np.zeros(1), np.zeros(1, np.int64), 1.0, 1, 1.0, "memory")


def items(*names: str) -> list[Item]:
    return [Item(f"item {number}", video=Path(name)) for number, name in enumerate(names)]


def settle(reader: ClipReader) -> None:
    """Waits until no thread decodes."""
    until = time.monotonic() + 10
    while reader._threads:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_prepared_frames_are_the_files_frames(clips, pool):
    reader = ClipReader(POLICY, pool, ahead=3)
    reader.prepare(clips)
    for item in clips:
        expected = read_frames(item.video, POLICY)
        for frames in (reader.clip_of(item), clip_of(item, POLICY, pool)):
            np.testing.assert_array_equal(frames.pixels, expected.pixels)
            np.testing.assert_array_equal(frames.times, expected.times)
    assert not reader._begun
    assert not reader._queued


def test_whatever_the_order_and_however_often(clips, pool):
    reader = ClipReader(POLICY, pool, ahead=2)
    part = Item("part", video=clips[0].video, start=1.0, end=2.0)
    asked = [clips[5], clips[0], part, clips[0], clips[7], clips[1], clips[1]]
    reader.prepare([clips[0], part, *clips])
    for item in asked:
        expected = read_frames(item.video, POLICY, start=item.start, end=item.end)
        np.testing.assert_array_equal(reader.clip_of(item).pixels, expected.pixels)


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_more_clips_wait_than_the_bound(ahead):
    pool, most = CountingPool(), 0
    reader = ClipReader(POLICY, pool, ahead=ahead)
    wanted = items(*(f"{n}.mp4" for n in range(40)))
    reader.prepare(wanted)
    settle(reader)
    assert len(pool.read_paths) == len(reader._begun) == ahead  # and then it waits, however long
    for item in wanted:
        reader.clip_of(item)
        most = max(most, len(reader._begun))
    assert most <= ahead
    assert sorted(pool.read_paths) == sorted(str(item.video) for item in wanted)  # each decoded once


def test_no_clip_is_begun_while_too_many_bytes_wait():
    pool = CountingPool(size=100)  # 30,000 bytes a clip
    reader = ClipReader(POLICY, pool, ahead=64, ahead_bytes=100_000)
    reader.prepare(items(*(f"{n}.mp4" for n in range(40))))
    settle(reader)
    # the fourth passes the bound; what was being decoded at that moment comes on top
    assert 4 <= len(reader._begun) < 4 + pool.workers


def test_a_clip_that_two_items_show_is_decoded_once():
    pool = CountingPool()
    reader = ClipReader(POLICY, pool)
    one, other, part = *items("a.mp4", "a.mp4"), Item("part", video=Path("a.mp4"), start=1.0)
    for _ in range(2):
        reader.prepare([one, other, part])  # saying it again changes nothing
    settle(reader)
    for item in (one, part, other):
        reader.clip_of(item)
    assert sorted(pool.read_paths) == ["a.mp4", "a.mp4@1.0-None"]
    assert not reader._begun


def test_prepare_returns_at_once_and_a_bad_clip_is_told_when_it_is_asked_for(tmp_path):
    pool = CountingPool()
    pool.go.clear()
    reader = ClipReader(POLICY, pool)
    wanted = [*items("bad.mp4", "good.mp4"), Item("text", text="a dog"), Item("frames", video=np.zeros(3))]
    reader.prepare(wanted)
    assert pool.read_paths == []
    pool.go.set()
    with pytest.raises(VideoError, match=r"bad\.mp4: broken"):
        reader.clip_of(wanted[0])
    assert len(reader.clip_of(wanted[1]).pixels) == 1
    with pytest.raises(VideoError, match="pixels must be uint8"):
        reader.clip_of(wanted[3])
    assert len(pool.read_paths) == 2


def test_clips_that_nobody_came_for_make_room():
    pool = CountingPool()
    reader = ClipReader(POLICY, pool, ahead=3)
    reader.prepare(items("old 0", "old 1", "old 2"))  # of a job that was interrupted
    settle(reader)
    wanted = items(*(f"new {n}" for n in range(6)))
    reader.prepare(wanted)
    for item in wanted:
        reader.clip_of(item)
        settle(reader)
    assert not any("old" in str(path) for path, *_ in reader._begun)
    assert len(pool.read_paths) == 9


def test_without_processes_nothing_is_decoded_ahead(clips, monkeypatch):
    reader = ClipReader(POLICY, DecodePool(timeout=0))
    reader.prepare(clips)
    assert not reader._queued
    assert not reader._begun
    np.testing.assert_array_equal(reader.clip_of(clips[0]).pixels, read_frames(clips[0].video, POLICY).pixels)


@pytest.mark.parametrize("bound", [{"ahead": 0}, {"ahead_bytes": 0}])
def test_bounds_are_checked(bound):
    with pytest.raises(ValueError, match="ahead and ahead_bytes must be at least 1, got"):
        ClipReader(POLICY, DecodePool(timeout=0), **bound)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_begins_anew(clips, pool):
    reader = ClipReader(POLICY, pool)
    reader.prepare(clips)
    child = os.fork()
    if child == 0:  # a DataLoader worker
        try:
            reader.prepare(clips[:2])
            fine = all(len(reader.clip_of(item).pixels) == 4 for item in clips[:3])
            pool.close()
            os._exit(0 if fine else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(len(reader.clip_of(item).pixels) == 4 for item in clips)


def test_the_embedder_prepares(llm):
    assert isinstance(llm("text"), Prepares)


INTERRUPTED = """
import sys, threading, time
from pathlib import Path
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import DecodePool

pool = DecodePool(workers=2, timeout=100)
reader = ClipReader(FramePolicy(fps=2), pool)
clips = [Item(str(n), video=Path(name)) for n, name in enumerate(sys.argv[1:])]
reader.clip_of(clips[0])  # the processes take a moment to start
reader.prepare([Item(str(n), video=clips[0].video, start=n / 1e4) for n in range(5000)])
while len(pool._busy) < 2:
    time.sleep(0.001)
workers = [worker._process for worker in pool._busy]
print(*(worker.pid for worker in workers), flush=True)
sys.stdin.readline()  # they are stopped now: decoders that never answer
for item in clips * 1000:
    reader.clip_of(item)
"""


LISTENING = """
import sys, time, wave
from pathlib import Path
from vidvec_msg.embedders.hearing import Listener
from vidvec_msg.formats.items import Item
from vidvec_msg.media.limits import DecodePool

path = Path(sys.argv[1]).with_suffix(".wav")
with wave.open(str(path), "wb") as file:
    file.setparams((1, 2, 16000, 0, "NONE", ""))
    file.writeframes(bytes(range(256)) * 125)
pool = DecodePool(workers=2, timeout=100)
items = [Item(str(n), audio=path) for n in range(5000)]
heard = Listener(pool, 16000, float("inf"), to_clips=False).each(items)
next(heard)()
while pool._idle.qsize() < 2:  # what may be read ahead is read
    time.sleep(0.001)
workers = [worker._process for worker in pool._idle.queue]
print(*(worker.pid for worker in workers), flush=True)
sys.stdin.readline()
for sound in heard:
    sound()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process with a POSIX signal")
@pytest.mark.parametrize("program", [INTERRUPTED, LISTENING], ids=["frames", "sound"])
def test_ctrl_c_while_decoders_hang_ends_the_program_and_its_processes(clips, program):
    heeding = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # not so in background
    )
    job = subprocess.Popen(
        [sys.executable, "-c", heeding + program, *(str(item.video) for item in clips)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    workers = [int(pid) for pid in job.stdout.readline().split()]
    assert len(workers) == 2
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    job.stdin.write("\n")
    job.stdin.flush()
    time.sleep(0.3)
    assert job.poll() is None, job.stderr.read()
    began = time.monotonic()
    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert time.monotonic() - began < 15  # not the 100 s of the decoders
    assert not [pid for pid in workers if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.is_file() and state.read_text().rsplit(") ", 1)[1].startswith("Z"))


def test_a_file_that_is_replaced_is_another_clip(tmp_path):
    """Its old frames may have been prepared, and never asked for, before an interruption."""
    path = write_clip(tmp_path / "clip.mp4", grey_frames(20))
    pool = DecodePool(workers=1, timeout=60)
    reader = ClipReader(POLICY, pool)
    reader.prepare([Item("c", video=path)])
    with reader._changed:
        assert reader._changed.wait_for(lambda: all(clip.done for clip in reader._begun.values()), 30)
    write_clip(path, grey_frames(10))
    assert reader.clip_of(Item("c", video=path)).duration == pytest.approx(1.0)
    pool.close()
