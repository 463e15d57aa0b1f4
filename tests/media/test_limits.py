"""Decoding in processes that can be killed."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from media.clips import grey_frames, write_clip

from vidvec_msg.media import limits, video
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.sound import SoundError
from vidvec_msg.media.video import VideoError, read_frames

POLICY = FramePolicy(fps=2)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clips") / "a.mp4", grey_frames(20))


@pytest.fixture(scope="module")
def pool():  # one for all: starting a process costs more than what is tested
    pool = DecodePool(workers=1, timeout=60)
    yield pool
    pool.close()


def same(one, other):
    np.testing.assert_array_equal(one.pixels, other.pixels)
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_array_equal(one.indices, other.indices)
    for name in ("fps", "total_frames", "duration", "reader"):
        assert getattr(one, name) == getattr(other, name)


def test_a_worker_process_gives_the_same_frames(clip, pool):
    same(pool.read(clip, POLICY), read_frames(clip, POLICY))
    same(pool.read(clip, POLICY, start=0.5, end=1.5), read_frames(clip, POLICY, start=0.5, end=1.5))


def test_a_relative_path_is_of_the_folder_of_now(clip, pool, monkeypatch):
    pool.read(clip, POLICY)  # its process was started in another folder
    monkeypatch.chdir(clip.parent)
    same(pool.read(Path(clip.name), POLICY), read_frames(clip, POLICY))


def test_without_a_limit_it_decodes_here(clip, monkeypatch):
    monkeypatch.setattr(limits, "_Worker", None)  # would fail if it was used
    same(DecodePool(timeout=0).read(clip, POLICY), read_frames(clip, POLICY))


def test_errors_cross_over_and_the_process_lives_on(clip, pool, tmp_path):
    bad = tmp_path / "bad.mp4"
    bad.write_text("no video")
    with pytest.raises(VideoError, match=r"bad\.mp4: not a video"):
        pool.read(bad, POLICY)
    pool.read(clip, POLICY)
    (worker,) = list(pool._idle.queue)
    with pytest.raises(VideoError, match="no such file"):
        pool.read(tmp_path / "missing.mp4", POLICY)
    pool.read(clip, POLICY)
    assert list(pool._idle.queue) == [worker]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process with a POSIX signal")
def test_a_decoder_that_hangs_is_stopped_and_the_job_goes_on(clip, pool, monkeypatch):
    pool.read(clip, POLICY)  # the process is warm: the limit below is for the clip alone
    (worker,) = list(pool._idle.queue)
    worker._process.send_signal(signal.SIGSTOP)  # a decoder that does nothing, for ever
    with monkeypatch.context() as patch:
        patch.setattr(pool, "timeout", 0.5)
        with pytest.raises(VideoError, match=r"a.mp4: decoding took longer than 0.5 s and was stopped"):
            pool.read(clip, POLICY)
    assert not worker.alive
    assert len(pool.read(clip, POLICY).pixels) == 4


def test_where_decord_takes_its_process_down_pyav_reads(clip, pool, monkeypatch):
    pool.read(clip, POLICY)
    (worker,) = list(pool._idle.queue)
    exchange = worker._exchange

    def crashes(request):
        worker._process.kill()
        return exchange(request)

    monkeypatch.setattr(worker, "_exchange", crashes)
    frames = pool.read(clip, POLICY)
    assert (frames.reader, frames.indices.tolist()) == ("pyav", read_frames(clip, POLICY).indices.tolist())
    assert not worker.alive
    assert pool.read(clip, POLICY).reader == "decord"


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, r"\(exit code -9\)"),
        (signal.SIGABRT, r"\(exit code -6; perhaps it needs more than the 4096 MiB that it may take\)"),
    ],
)
@pytest.mark.parametrize("what", ["read", "facts", "read_sound"])
def test_a_decoder_that_crashes_is_reported(clip, pool, monkeypatch, number, told, what):
    exchange = limits._Worker._exchange

    def crashes(worker, request):
        worker._process.send_signal(number)
        worker._process.wait()
        return exchange(worker, request)

    with monkeypatch.context() as patch:
        patch.setattr(limits._Worker, "_exchange", crashes)
        with pytest.raises(SoundError if what == "read_sound" else VideoError) as caught:
            getattr(pool, what)(clip, *([POLICY] if what == "read" else []))
    assert re.search(rf"a\.mp4: the decoder crashed after .* s {told}$", str(caught.value))
    assert len(pool.read(clip, POLICY).pixels) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not refuse memory")
@pytest.mark.parametrize("memory", [256, 300])
def test_a_process_is_refused_the_memory_that_it_may_not_take(memory):
    program = (
        "import sys; import numpy; from vidvec_msg.media.worker import limit_memory\n"
        "limit_memory(int(sys.argv[1])); kept = []\n"
        "try:\n    while True: kept.append(numpy.ones(1 << 20, 'uint8'))\n"
        "except MemoryError: print(len(kept))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(memory)], capture_output=True, text=True)
    assert memory - 200 < int(done.stdout) < memory


def test_clips_are_counted_by_who_read_them(clip, pool, monkeypatch):
    before = limits.clips_read()
    pool.read(clip, POLICY)
    DecodePool(timeout=0).read(clip, POLICY)
    monkeypatch.setattr(video, "_read_with_decord", None)  # cannot be called
    DecodePool(timeout=0).read(clip, POLICY)
    after = limits.clips_read()
    assert {name: after[name] - before.get(name, 0) for name in after} == {"decord": 2, "pyav": 1}
    assert limits.readers_since(before) == "clips read: 2 by decord, 1 by PyAV"
    assert limits.readers_since(after) == ""


def test_a_process_that_died_while_it_waited_costs_no_clip(clip, pool):
    pool.read(clip, POLICY)
    (worker,) = list(pool._idle.queue)
    worker._process.kill()
    worker._process.wait()
    assert len(pool.read(clip, POLICY).pixels) == 4


def test_workers_are_recycled(clip, pool, monkeypatch):
    pool.close()
    monkeypatch.setattr(limits, "_RECYCLE_AFTER", 2)
    processes = set()
    for _ in range(3):
        pool.read(clip, POLICY)
        processes |= {worker._process.pid for worker in pool._idle.queue}
    assert len(processes) == 2  # each seen after its first clip, gone after its second


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux's /proc")
@pytest.mark.parametrize(("above", "stays"), [(1 / 4, True), (1 / 1000, False)])
def test_a_worker_that_holds_too_much_memory_is_replaced(clip, pool, monkeypatch, above, stays):
    monkeypatch.setattr(limits, "_RECYCLE_ABOVE", above)  # 1,024 MiB, or 4
    monkeypatch.setattr(limits, "_USUAL", 1)
    pool.close()
    pool.read(clip, POLICY)
    assert len(list(pool._idle.queue)) == stays


def test_a_worker_of_little_memory_stays(clip):
    pool = DecodePool(1, 60, memory=limits._LEAST_MEMORY)
    pool.read(clip, POLICY)
    assert len(list(pool._idle.queue)) == 1
    pool.close()


def test_threads_share_the_workers(clip):
    pool = DecodePool(workers=2, timeout=60)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: pool.read(clip, POLICY), range(16)))
    for frames in results:
        same(frames, results[0])
    assert len(list(pool._idle.queue)) <= 2
    pool.close()


def test_interrupted_in_the_middle_leaves_no_half_answer(clip, pool, monkeypatch):
    pool.read(clip, POLICY)
    (worker,) = list(pool._idle.queue)

    def interrupted(request):
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.read(clip, POLICY)
    assert not worker.alive
    assert len(pool.read(clip, POLICY).pixels) == 4


def test_at_the_programs_end_nothing_is_decoded_any_more(clip):
    """Not what is being decoded, and nothing new that a background thread would begin."""
    pool = DecodePool(workers=1, timeout=60)
    pool.read(clip, POLICY)
    (worker,) = list(pool._idle.queue)
    with ThreadPoolExecutor(1) as threads, pool._worker() as busy:
        assert busy is worker
        waiting = threads.submit(pool.read, clip, POLICY)
        pool._end()
        assert worker._process.wait(10) != 0
    with pytest.raises(RuntimeError, match="the program is ending; no clip is decoded any more"):
        waiting.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_workers_of_its_own(clip, pool):
    pool.read(clip, POLICY)
    child = os.fork()
    if child == 0:  # a DataLoader worker
        try:
            fine = len(pool.read(clip, POLICY).pixels) == 4
            pool.close()
            os._exit(0 if fine else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (worker,) = list(pool._idle.queue)
    assert worker.alive
    assert len(pool.read(clip, POLICY).pixels) == 4


def test_the_decoding_process_knows_no_torch():
    code = (
        "import vidvec_msg.media.worker, sys; print({'torch', 'transformers', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((0, 1), "workers must be at least 1 and timeout at least 0 s, got 0 and 1"),
        ((1, -1), "workers must be at least 1 and timeout at least 0 s, got 1 and -1"),
        ((1, 1, 100), "memory must be 0 or at least 256 MiB, got 100"),
        ((1, 1, -1), "memory must be 0 or at least 256 MiB, got -1"),
    ],
)
def test_values_are_checked(options, told):
    with pytest.raises(ValueError, match=told):
        DecodePool(*options)
