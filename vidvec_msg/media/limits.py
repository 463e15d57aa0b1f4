"""Decoding within limits of time and memory, in processes that can be killed and are replaced now and then.

Decoders block for ever on some files and ignore Ctrl-C, take gigabytes for others, and leak memory with every
file they open. Here the file goes to the reject list, the process is replaced, and the job goes on.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.media.facts import Depth, MediaFacts, read_facts
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.sound import RATE, NoSound, Sound, SoundError, read_sound
from vidvec_msg.media.video import Frames, VideoError, read_frames

_PIPE = 1 << 20  # bytes; a clip is megabytes, and the usual 64 KB wake both ends up for every frame
# A new process takes half a second, as long as ten clips: it comes seldom, or when the old one has grown.
_RECYCLE_AFTER = 1000  # clips that a process decodes before a new one takes its place
_RECYCLE_ABOVE = 1 / 4  # of the memory that it may take, while it decodes nothing
_USUAL = 160  # MiB that it may hold whatever its limit: 75 after small clips, 130 after Full HD, 260 after 4K
_MEMORY = 4096  # MiB; 64 frames of 4K, the default's most, take 1,600 if nothing makes them smaller
_LEAST_MEMORY = 256  # MiB; the process itself takes some 60
# numpy's linear algebra, which no decoder uses, would reserve memory per core
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

logger = logging.getLogger(__name__)


class DecoderCrashed(VideoError):
    """The decoding process ended instead of answering."""


# what a request wants → the errors of its answer, by the name that crosses the pipe; the usual one first
_ERRORS: dict[str, dict[str, type[ValueError]]] = {
    "frames": {"VideoError": VideoError},
    "sound": {"SoundError": SoundError, "NoSound": NoSound},
    "facts": {"VideoError": VideoError},
}


class DecodePool:
    """Reads clips in a few worker processes.

    Safe to call from several threads; each call occupies one process. Processes start when they are first
    needed and end with the pool.

    Args:
        workers: processes at most.
        timeout: seconds that one clip may take; 0 decodes in this process, without any limit.
        memory: MiB that one process may take; what needs more is rejected. Linux only; 0 sets no limit.
    """

    def __init__(self, workers: int = 2, timeout: float = 120.0, memory: int = _MEMORY) -> None:
        if workers < 1 or timeout < 0:
            raise ValueError(
                f"workers must be at least 1 and timeout at least 0 s, got {workers} and {timeout}"
            )
        if memory < 0 or 0 < memory < _LEAST_MEMORY:
            raise ValueError(f"memory must be 0 or at least {_LEAST_MEMORY} MiB, got {memory}")
        self.workers = workers
        self.timeout = timeout
        self.memory = memory
        self._owner = os.getpid()
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._busy: set[_Worker] = set()
        self._slots = threading.BoundedSemaphore(workers)
        self._ended = False
        atexit.register(self._end)

    def read(
        self, path: Path, policy: FramePolicy, *, start: float | None = None, end: float | None = None
    ) -> Frames:
        """As :func:`vidvec_msg.media.video.read_frames`, within the limits.

        Raises:
            VideoError: as there; or decoding took too long, or the decoder crashed.
        """
        if self.timeout == 0:
            frames = read_frames(path, policy, start=start, end=end)
        else:
            header, pixels = self._ask_again("frames", path, policy=asdict(policy), start=start, end=end)
            times = np.array(header.pop("times"), dtype=np.float64)
            indices = np.array(header.pop("indices"), dtype=np.int64)
            frames = Frames(pixels=pixels, times=times, indices=indices, **header)
        with _counting:
            _read_by[frames.reader] += 1
        return frames

    def read_sound(
        self, path: Path, *, rate: int = RATE, start: float | None = None, end: float | None = None
    ) -> Sound:
        """As :func:`vidvec_msg.media.sound.read_sound`, within the limits.

        Raises:
            SoundError: as there; or decoding took too long, or the decoder crashed.
        """
        if self.timeout == 0:
            return read_sound(path, rate=rate, start=start, end=end)
        header, samples = self._ask("sound", path, rate=rate, start=start, end=end)
        return Sound(samples=samples, **header)

    def facts(self, path: Path, *, depth: Depth = "first") -> MediaFacts:
        """As :func:`vidvec_msg.media.facts.read_facts`, within the limits.

        Raises:
            VideoError: as there; or decoding took too long, or the decoder crashed.
        """
        if self.timeout == 0:
            return read_facts(path, depth=depth)
        found, _ = self._ask_again("facts", path, depth=depth)
        return MediaFacts(**found)

    def _ask_again(self, want: str, path: Path, **settings: Any) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        """An answer; where decord takes its process down, PyAV's, from another process."""
        try:
            return self._ask(want, path, reader="auto", **settings)
        except DecoderCrashed as error:
            logger.debug("%s; PyAV's turn", error)
            return self._ask(want, path, reader="pyav", **settings)

    def _ask(self, want: str, path: Path, **settings: Any) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        with self._worker() as worker:
            # absolute: the process may have been started in another folder
            return worker.ask(
                {"want": want, "path": str(path.absolute()), "timeout": self.timeout, **settings}
            )

    def close(self) -> None:
        """Ends the idle processes. The pool starts new ones if it is used again."""
        if self._owner != os.getpid():
            return  # a forked child must not end its parent's processes
        while True:
            try:
                self._idle.get_nowait().kill()
            except queue.Empty:
                return

    def _end(self) -> None:
        """At the program's exit: nothing that a background thread still decodes may outlive it."""
        if self._owner == os.getpid():
            self._ended = True
            for worker in list(self._busy):
                worker.stop()
            self.close()

    @contextmanager
    def _worker(self) -> Iterator[_Worker]:
        if self._owner != os.getpid():  # forked (a DataLoader worker): the pipes belong to the parent
            self._owner = os.getpid()
            self._idle = queue.LifoQueue()
            self._busy = set()
            self._slots = threading.BoundedSemaphore(self.workers)
        with self._slots:
            if self._ended:
                raise RuntimeError("the program is ending; no clip is decoded any more")
            worker = self._idle_worker() or _Worker(self.memory)
            self._busy.add(worker)
            try:
                yield worker
            finally:
                self._busy.discard(worker)
                if worker.alive and not worker.is_worn:
                    self._idle.put(worker)
                else:
                    worker.kill()

    def _idle_worker(self) -> _Worker | None:
        """One that waits. One that died meanwhile (out of memory) must not cost the next clip its place."""
        while True:
            try:
                worker = self._idle.get_nowait()
            except queue.Empty:
                return None
            if worker.alive:
                return worker
            worker.kill()


_read_by: Counter[str] = Counter()
_counting = threading.Lock()


def clips_read() -> dict[str, int]:
    """How many clips this process's pools have read so far, by who decoded them."""
    with _counting:
        return dict(_read_by)


def readers_since(before: Mapping[str, int]) -> str:
    """Who has read clips since :func:`clips_read` gave ``before``, as a line for a log; empty if nobody."""
    names = {"decord": "decord", "pyav": "PyAV"}
    counts = {name: count - before.get(name, 0) for name, count in clips_read().items()}
    told = [f"{counts[name]:,} by {names[name]}" for name in names if counts.get(name)]
    return f"clips read: {', '.join(told)}" if told else ""


@lru_cache
def shared_pool(workers: int = 2, timeout: float = 120.0) -> DecodePool:
    """The process-wide pool of these limits, so that several embedders do not keep decoders of their own."""
    return DecodePool(workers, timeout)


class _Worker:
    """One decoding process and the two pipes to it."""

    def __init__(self, memory: int) -> None:
        self.answered = 0
        self._memory = memory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "vidvec_msg.media.worker", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # codec libraries write a line per broken packet
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        _widen(_pipes(self._process)[1])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_worn(self) -> bool:
        """Whether a new process should take its place: codec libraries leak with some files."""
        most = max(self._memory * _RECYCLE_ABOVE, _USUAL)
        has_grown = self._memory > 0 and _resident(self._process.pid) > most
        return self.answered >= _RECYCLE_AFTER or has_grown

    def ask(self, request: dict[str, Any]) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        """An answer's facts and its array."""
        path, limit = request["path"], request["timeout"]
        failed = next(iter(_ERRORS[request["want"]].values()))
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._process.kill()  # closes the pipe, which ends the read below

        began = time.monotonic()
        timer = threading.Timer(limit, expire)
        timer.daemon = True
        timer.start()
        complete = False
        try:
            answer = self._exchange(request)
            complete = True
        except (OSError, EOFError) as error:
            if expired.is_set():
                raise failed(f"{path}: decoding took longer than {limit:g} s and was stopped") from error
            reason = f"the decoder crashed after {time.monotonic() - began:.1f} s ({self._ending()})"
            crashed = DecoderCrashed if failed is VideoError else failed
            raise crashed(f"{path}: {reason}") from error
        except failed:
            complete = True
            raise
        finally:
            timer.cancel()
            if not complete:  # interrupted half way: what is left in the pipe belongs to no one
                self.kill()
        self.answered += 1
        return answer

    def _ending(self) -> str:
        """How the process ended; C++ aborts when it is refused memory."""
        code = self._process.wait()
        if code == -signal.SIGABRT and self._memory:
            return f"exit code {code}; perhaps it needs more than the {self._memory} MiB that it may take"
        return f"exit code {code}"

    def _exchange(self, request: dict[str, Any]) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        to, back = _pipes(self._process)
        to.write(json.dumps(request).encode() + b"\n")
        to.flush()
        line = back.readline()
        if not line.endswith(b"\n"):
            raise EOFError("no answer")
        header = json.loads(line)
        if "error" in header:
            raise _ERRORS[request["want"]][header["kind"]](header["error"])
        array = np.empty(header.pop("shape"), dtype=header.pop("dtype"))
        view = memoryview(array.data).cast("B")
        while view:
            received = back.readinto(view)  # type: ignore[attr-defined]  # a BufferedReader has it
            if not received:
                raise EOFError("answer cut short")
            view = view[received:]
        return header, array

    def stop(self) -> None:
        """Ends the process under a thread that waits for its answer; the pipes are that thread's to close."""
        self._process.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in _pipes(self._process):
            try:
                pipe.close()
            except OSError:  # unsent bytes of an interrupted request
                continue


def _resident(pid: int) -> float:
    """MiB of memory that a process holds; 0 where the system does not tell (it is Linux that does)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _widen(pipe: IO[bytes]) -> None:
    """A larger buffer, where the system has it to give (Linux)."""
    try:
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)
    except (ImportError, AttributeError, OSError):
        return


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the decoding process was started without pipes")
    return process.stdin, process.stdout
