"""The sound of a file, or of a segment of it: one channel at one rate, whatever the file holds.

Second 0 is that of the pictures where there are any, so that a segment's sound and its frames cover the same
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vidvec_msg.media.files import file_problem

Samples = npt.NDArray[np.float32]

RATE = 16_000  # samples per second; what Whisper's feature extractor and all that descend from it expect

# Root mean square of the loudest second below which there is nothing to hear. -80 dB of full scale: the
# dither of 16-bit sound lies at -90 to -96 dB, a quiet room's noise at -60 to -70 dB.
SILENCE = 1e-4

_GAP = 0.1  # seconds without samples that become silence; shorter ones are the rounding of clocks
_WORTH_SEEKING = 5.0  # seconds; before that, decoding from the beginning costs less than a bad seek
_RUN_UP = 1.0  # seconds decoded in front of a segment after a seek: codecs need a few packets to settle


class SoundError(ValueError):
    """A sound cannot be used; the message is one line that a reject list can hold."""


class NoSound(SoundError):
    """The file, or the segment, has no sound. Not fatal where there are pictures."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Decoded sound.

    Args:
        samples: float32 ``(samples,)``, one channel, full scale at -1 and 1.
        rate: samples per second.
        duration: in seconds.
        silent: nothing to hear: the loudest second's root mean square is below :data:`SILENCE`.
    """

    samples: Samples
    rate: int
    duration: float
    silent: bool

    @classmethod
    def of(cls, samples: Samples, rate: int) -> Sound:
        """The sound of these samples, listened to for silence."""
        return cls(samples, rate, len(samples) / rate, loudest_second(samples, rate) < SILENCE)


def read_sound(
    path: Path, *, rate: int = RATE, start: float | None = None, end: float | None = None
) -> Sound:
    """Decodes a file's sound in this process and without a time limit.

    Jobs use :meth:`vidvec_msg.media.limits.DecodePool.read_sound`, which can be interrupted. Channels are
    averaged. A sound that begins after the pictures is preceded by silence, gaps become silence; a
    truncated file gives what can be decoded.

    Args:
        path: any container and codec that FFmpeg reads.
        rate: samples per second.
        start: first second of the segment, from the beginning of the file.
        end: last second of the segment; behind the sound's end it is the sound's end.

    Raises:
        NoSound: no sound stream, or the sound ends before the segment begins.
        SoundError: the file is missing, empty, not a media file, or broken beyond use.
    """
    import av

    if rate < 1:
        raise ValueError(f"rate must be at least 1 sample per second, got {rate}")
    first = 0.0 if start is None else float(start)
    if first < 0 or (end is not None and end <= first):
        last = "end" if end is None else f"{end:g}"
        raise SoundError(f"{path}: segment {first:g}–{last} s is empty or begins before 0")
    if problem := file_problem(path):
        raise SoundError(problem)
    try:
        samples = _from_nearest_seek(path, rate, first, end)
    except SoundError as error:
        raise type(error)(f"{path}: {error}") from error
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SoundError(f"{path}: no sound file, or broken beyond use ({reason})") from error
    if not np.isfinite(samples).all():
        raise SoundError(f"{path}: its sound holds values that are not finite")
    return Sound.of(samples, rate)


def loudest_second(samples: Samples, rate: int) -> float:
    """Root mean square of the loudest second; a bang in an hour of silence is not silence."""
    if len(samples) == 0:
        return 0.0
    energy = np.square(samples, dtype=np.float64)
    starts = np.arange(0, len(samples), rate)
    sizes = np.diff([*starts, len(samples)])
    return float(np.sqrt((np.add.reduceat(energy, starts) / sizes).max()))


def _from_nearest_seek(path: Path, rate: int, first: float, end: float | None) -> Samples:
    if first - _RUN_UP > _WORTH_SEEKING:
        samples = _decoded(path, rate, first, end, seek=True)
        if samples is not None:
            return samples
    samples = _decoded(path, rate, first, end, seek=False)
    if samples is None:
        raise NoSound(f"its sound ends before the segment begins at {first:g} s")
    return samples


def _decoded(path: Path, rate: int, first: float, end: float | None, *, seek: bool) -> Samples | None:
    """Samples of the segment ``[first, end)``; None if a seek landed behind its beginning, or the sound
    ends before it."""
    import av

    with av.open(str(path.absolute())) as container:
        if not container.streams.audio:
            kinds = sorted({stream.type for stream in container.streams}) or ["nothing"]
            raise NoSound(f"no sound stream (it holds {', '.join(kinds)})")
        stream = container.streams.audio[0]
        origin = _origin(container)
        if seek:
            wanted = first + origin - _RUN_UP
            container.seek(int(wanted / float(stream.time_base)), stream=stream, backward=True)
        line = _Line(rate, first, end)
        heard = False
        try:
            for frame in container.decode(stream):
                at = line.reached if frame.pts is None else frame.pts * float(frame.time_base) - origin
                if seek and not heard and at > first:
                    return None
                heard = True
                if not line.add(frame, at):
                    break
        except av.FFmpegError:
            if not heard and not seek:  # a truncated file is used as far as it goes
                raise
        if not heard and not seek:
            raise SoundError("broken beyond use (no sound could be decoded)")
        return line.samples()


def _origin(container: Any) -> float:
    """The container's second that counts as 0, by the rule of the pictures: a clock that starts late
    (MPEG-TS) is set back to 0."""
    stream = (container.streams.video or container.streams.audio)[0]
    return max(float((stream.start_time or 0) * stream.time_base), 0.0)


class _Line:
    """Samples of a segment, put in their places as frames come in.

    Args:
        rate: samples per second.
        first: second at which the segment begins.
        end: second at which it ends, or None.
    """

    def __init__(self, rate: int, first: float, end: float | None) -> None:
        self._rate = rate
        self._first = round(first * rate)
        self._end = None if end is None else round(end * rate)
        self._parts: list[Samples] = []
        self._next: int | None = None  # sample at which the coming one stands, from second 0
        self._resampler: Any = None
        self._format: Any = None

    @property
    def reached(self) -> float:
        """Second up to which the line is filled."""
        return (self._next or 0) / self._rate

    def add(self, frame: Any, at: float) -> bool:
        """Puts a decoded frame at its second; False when the segment is full."""
        place = round(at * self._rate)
        allowed = round(_GAP * self._rate)
        if self._next is None:
            self._next, allowed = min(place, self._first), 0
        if place - self._next > allowed:
            self._flush()
            until = place if self._end is None else max(min(place, self._end), self._next)
            self._put(np.zeros(until - self._next, np.float32))
        for part in self._resampled(frame):
            self._put(part)
        return self._end is None or self._next < self._end

    def samples(self) -> Samples | None:
        """All of the segment that was heard; None if nothing was."""
        self._flush()
        joined = np.concatenate(self._parts) if self._parts else np.zeros(0, np.float32)
        return joined if len(joined) else None

    def _put(self, part: Samples) -> None:
        place = self._next or 0
        stop = len(part) if self._end is None else self._end - place
        kept = part[max(self._first - place, 0) : max(stop, 0)]
        if len(kept):
            self._parts.append(kept)
        self._next = place + len(part)

    def _resampled(self, frame: Any) -> Iterator[Samples]:
        from av import AudioResampler

        seen = (frame.format.name, frame.layout.name, frame.sample_rate)
        if seen != self._format:  # broadcasts change from stereo to 5.1 in the middle
            self._flush()
            self._format = seen
            self._resampler = AudioResampler(format="fltp", layout=seen[1], rate=self._rate)
        frame.pts = None  # places are counted here; the resampler would fill or drop by its own rules
        for part in self._resampler.resample(frame):
            yield _mixed(part)

    def _flush(self) -> None:
        """The samples that the resampler's filter still holds."""
        if self._resampler is not None:
            for part in self._resampler.resample(None):
                self._put(_mixed(part))
            self._resampler = self._format = None


def _mixed(frame: Any) -> Samples:
    """The mean of the channels. FFmpeg's own mix is louder for one sample format than for another."""
    mean: Samples = frame.to_ndarray().mean(axis=0, dtype=np.float32)  # (samples,)
    return mean
