"""Decoding within limits: a time limit per clip, in processes that can be killed and are replaced now and
then.

Decoders block for ever on some files and ignore Ctrl-C, and leak memory with every file they open. Here the
file goes to the reject list, the process is replaced, and the job goes on.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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
_RECYCLE_AFTER = 100  # clips a process decodes before a new one takes its place

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
        timeout: seconds that one clip may take; 0 decodes in this process, without a limit.
    """

    def __init__(self, workers: int = 2, timeout: float = 120.0) -> None:
        if workers < 1 or timeout < 0:
            raise ValueError(
                f"workers must be at least 1 and timeout at least 0 s, got {workers} and {timeout}"
            )
        self.workers = workers
        self.timeout = timeout
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
            return read_frames(path, policy, start=start, end=end)
        header, pixels = self._ask("frames", path, policy=asdict(policy), start=start, end=end)
        times = np.array(header.pop("times"), dtype=np.float64)
        indices = np.array(header.pop("indices"), dtype=np.int64)
        return Frames(pixels=pixels, times=times, indices=indices, **header)

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
        found, _ = self._ask("facts", path, depth=depth)
        return MediaFacts(**found)

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
            worker = self._idle_worker() or _Worker()
            self._busy.add(worker)
            try:
                yield worker
            finally:
                self._busy.discard(worker)
                if worker.alive and worker.answered < _RECYCLE_AFTER:
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


@lru_cache
def shared_pool(workers: int = 2, timeout: float = 120.0) -> DecodePool:
    """The process-wide pool of these limits, so that several embedders do not keep decoders of their own."""
    return DecodePool(workers, timeout)


class _Worker:
    """One decoding process and the two pipes to it."""

    def __init__(self) -> None:
        self.answered = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "vidvec_msg.media.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # codec libraries write a line per broken packet
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        _widen(_pipes(self._process)[1])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

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
            code = self._process.wait()
            took = time.monotonic() - began
            raise failed(f"{path}: the decoder crashed after {took:.1f} s (exit code {code})") from error
        except failed:
            complete = True
            raise
        finally:
            timer.cancel()
            if not complete:  # interrupted half way: what is left in the pipe belongs to no one
                self.kill()
        self.answered += 1
        return answer

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
