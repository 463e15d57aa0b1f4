"""The decoding process: reads requests, answers with frames, sound or facts, knows no torch and little else
of the package.

Run as ``python -m vidvec_msg.media.worker MEMORY`` by :mod:`vidvec_msg.media.limits`, never by hand. A
process of its own and not a multiprocessing child: it does not import the caller's script, it may be started
inside DataLoader workers, and killing it disturbs nobody.

On the wire, both ways: one line of JSON; an answer that says ``{"shape": …, "dtype": …}`` is followed by that
array's bytes. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from vidvec_msg.media.facts import read_facts
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.sound import SoundError, read_sound
from vidvec_msg.media.video import VideoError, read_frames

_GRACE = 10  # seconds past the limit after which the process ends itself, should its parent be gone


def main() -> None:
    """Answers requests until the parent closes the pipe; the argument is the memory it may take, in MiB."""
    limit_memory(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a codec library prints must not get between the answers
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    for line in sys.stdin.buffer:
        answer(json.loads(line), answers)


def limit_memory(mebibytes: int) -> None:
    """What this process asks for beyond that is refused by the system, where it can (Linux); 0 sets no limit.

    RLIMIT_DATA and not RLIMIT_AS: the latter counts addresses that are only reserved, and those of every
    thread's heap, of which a machine with many cores has gigabytes.
    """
    try:
        import resource

        if mebibytes:
            resource.setrlimit(resource.RLIMIT_DATA, (mebibytes << 20, mebibytes << 20))
    except (ImportError, ValueError, OSError):  # Windows; a lower limit that the user has set
        return


def answer(request: dict[str, Any], answers: BinaryIO) -> None:
    """Decodes one request and writes its answer."""
    if hasattr(signal, "alarm"):
        signal.alarm(int(request["timeout"]) + _GRACE)  # the kernel ends a decoder that never returns
    array: npt.NDArray[Any] = np.empty(0, np.uint8)
    try:
        header, array = _decoded(request)
        header |= {"shape": array.shape, "dtype": str(array.dtype)}
    except (VideoError, SoundError) as error:
        header = {"error": str(error), "kind": type(error).__name__}
    except Exception as error:
        kind = SoundError if request["want"] == "sound" else VideoError
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            reason = f"decoding it takes more than {sys.argv[1]} MiB; fewer frames or max_pixels may help"
        header = {"error": f"{request['path']}: {reason}", "kind": kind.__name__}
    answers.write(json.dumps(header).encode() + b"\n")
    if array.size:
        answers.write(np.ascontiguousarray(array).data.cast("B"))
    answers.flush()
    if hasattr(signal, "alarm"):
        signal.alarm(0)


def _decoded(request: dict[str, Any]) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """The facts of what was asked for, as JSON holds them, and its array."""
    path = Path(request["path"])
    if request["want"] == "facts":
        return asdict(read_facts(path, depth=request["depth"], reader=request["reader"])), np.empty(
            0, np.uint8
        )
    start, end = request["start"], request["end"]
    if request["want"] == "sound":
        sound = read_sound(path, rate=request["rate"], start=start, end=end)
        return {"rate": sound.rate, "duration": sound.duration, "silent": sound.silent}, sound.samples
    policy, reader = FramePolicy(**request["policy"]), request["reader"]
    frames = read_frames(path, policy, start=start, end=end, reader=reader)
    facts = {
        "times": frames.times.tolist(),
        "indices": frames.indices.tolist(),
        "fps": frames.fps,
        "total_frames": frames.total_frames,
        "duration": frames.duration,
        "reader": frames.reader,
    }
    return facts, frames.pixels


if __name__ == "__main__":
    main()
