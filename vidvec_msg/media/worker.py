"""The decoding process: reads requests, answers with frames, knows neither torch nor the rest of the package.

Run as ``python -m vidvec_msg.media.worker`` by :mod:`vidvec_msg.media.limits`, never by hand. A process of
its own and not a multiprocessing child: it does not import the caller's script, it may be started inside
DataLoader workers, and killing it disturbs nobody.

On the wire, both ways: one line of JSON; an answer that says ``{"shape": …}`` is followed by that many bytes
of pixels. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import VideoError, read_frames

_GRACE = 10  # seconds past the limit after which the process ends itself, should its parent be gone


def main() -> None:
    """Answers requests until the parent closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a codec library prints must not get between the answers
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    for line in sys.stdin.buffer:
        answer(json.loads(line), answers)


def answer(request: dict[str, Any], answers: BinaryIO) -> None:
    """Decodes one request and writes its answer."""
    if hasattr(signal, "alarm"):
        signal.alarm(int(request["timeout"]) + _GRACE)  # the kernel ends a decoder that never returns
    try:
        policy = FramePolicy(**request["policy"])
        frames = read_frames(Path(request["path"]), policy, start=request["start"], end=request["end"])
    except VideoError as error:
        header: dict[str, Any] = {"error": str(error)}
        pixels = b""
    except Exception as error:
        header = {"error": f"{request['path']}: {type(error).__name__}: {error}"}
        pixels = b""
    else:
        header = {
            "shape": frames.pixels.shape,
            "times": frames.times.tolist(),
            "indices": frames.indices.tolist(),
            "fps": frames.fps,
            "total_frames": frames.total_frames,
            "duration": frames.duration,
            "reader": frames.reader,
        }
        pixels = frames.pixels.tobytes()
    answers.write(json.dumps(header).encode() + b"\n")
    answers.write(pixels)
    answers.flush()
    if hasattr(signal, "alarm"):
        signal.alarm(0)


if __name__ == "__main__":
    main()
