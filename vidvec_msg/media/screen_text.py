"""What is written in a clip: the lines of text in a few of its frames, each once, in reading order.

RapidOCR recognises; its PP-OCR models ship inside the package, so nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from vidvec_msg.extras import require
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.frames import FramePolicy

ENGINE = "rapidocr"
FRAMES = 4  # per clip, uniform; a caption that changes every few seconds needs more
MIN_CONFIDENCE = 0.5  # RapidOCR's own limit; what it reads in textures lies below it
MAX_PIXELS = 1280 * 720  # of a frame; the detector works at 736 pixels on the shorter side anyway

_ALIKE = 0.85  # difflib's ratio from which two lines without their spaces and signs are one line read twice
_BLOCK = 16  # pixels; side of the squares in which two frames are compared
# grey levels that a square may differ: x264 stayed below 3.3 (crf 35), a changed digit gave 30
_STILL = 6.0
_RULES = 1  # number of the rules below; part of every key, so that results of other rules are not reused


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text on the screen.

    Args:
        text: as it was read.
        confidence: of the recogniser, 0 to 1.
        second: at which it was seen first, from the segment's beginning.
    """

    text: str
    confidence: float
    second: float = 0.0


@dataclass(frozen=True, slots=True)
class ScreenText:
    """What is written in a clip or an image.

    Args:
        lines: each once; frames in the order of time, the lines of a frame in reading order.
        frames: that were looked at.
    """

    lines: tuple[TextLine, ...]
    frames: int

    @property
    def text(self) -> str:
        """The lines, one below the other; empty if nothing is written."""
        return "\n".join(line.text for line in self.lines)

    @property
    def confidence(self) -> float | None:
        """Mean over the lines; None if there are none."""
        if not self.lines:
            return None
        return round(sum(line.confidence for line in self.lines) / len(self.lines), 4)


class ScreenTextReader:
    """Reads the text in frames.

    The models are loaded when the first frame comes.

    Args:
        frames: of a clip that are looked at, uniformly spaced; a shorter clip gives what it has.
        min_confidence: lines below it are left out, 0 to 1.
        max_pixels: height x width of a frame at most; 0 leaves it as it is.
        threads: of the recogniser; 0 takes one per core.

    Raises:
        ValueError: an option out of its range.
        RefusedRequest: RapidOCR is not installed.
    """

    def __init__(
        self,
        *,
        frames: int = FRAMES,
        min_confidence: float = MIN_CONFIDENCE,
        max_pixels: int = MAX_PIXELS,
        threads: int = 0,
    ) -> None:
        if frames < 1 or threads < 0 or not 0 <= min_confidence <= 1:
            raise ValueError(
                "ocr: frames must be at least 1, threads at least 0, and the confidence from 0 to 1, "
                f"got {frames}, {threads} and {min_confidence:g}"
            )
        # a rate that every clip exceeds: the cap alone decides how many frames are taken
        self.policy = FramePolicy(fps=1000.0, max_frames=frames, max_pixels=max_pixels)
        self.min_confidence = min_confidence
        self._threads = threads
        self._engine: Any = None
        self._require()

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides what is read; part of every key."""
        return {
            "engine": ENGINE,
            "version": engine_version(),
            "frames": self.policy.max_frames,
            "max_pixels": self.policy.max_pixels,
            "min_confidence": self.min_confidence,
            "rules": _RULES,
        }

    def read(self, pixels: Pixels, times: Iterable[float] | None = None) -> ScreenText:
        """The text in frames. A frame that shows the picture of the one before it is not read again.

        Args:
            pixels: uint8 ``(frames, height, width, 3)``, in the order of time.
            times: second of each frame.
        """
        seconds = [0.0] * len(pixels) if times is None else [float(second) for second in times]
        seen: list[list[TextLine]] = []
        last: Pixels | None = None
        for frame, second in zip(pixels, seconds, strict=True):
            if last is None or not same_picture(last, frame):
                seen.append(self._lines(frame, second))
                last = frame
        return ScreenText(tuple(merged(seen)), len(pixels))

    def info(self, found: ScreenText) -> dict[str, Any]:
        """Where a text comes from, as it is kept beside it."""
        settings = self.settings
        return {
            "engine": settings["engine"],
            "version": settings["version"],
            "model": self._model(),
            "frames": found.frames,
            "lines": len(found.lines),
            "confidence": found.confidence,
            "min_confidence": self.min_confidence,
        }

    def _lines(self, frame: Pixels, second: float) -> list[TextLine]:
        result = self._recogniser()(
            np.ascontiguousarray(frame[:, :, ::-1])
        )  # it expects BGR, as OpenCV reads
        if result.txts is None:
            return []
        return [
            TextLine(" ".join(text.split()), round(float(score), 4), round(second, 2))
            for text, score in zip(result.txts, result.scores, strict=True)
            if text.strip() and score >= self.min_confidence
        ]

    def _recogniser(self) -> Any:
        if self._engine is None:
            threads = self._threads or -1  # -1: the library's "one per core"
            self._engine = self._require().RapidOCR(
                params={
                    "Global.log_level": "critical",  # it logs every frame without text as a warning
                    "Global.text_score": 0.0,  # ours is applied above
                    "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                    "EngineConfig.onnxruntime.inter_op_num_threads": threads,
                }
            )
        return self._engine

    def _model(self) -> str:
        reading = self._recogniser().cfg.Rec
        kind, size = (getattr(part, "value", part) for part in (reading.ocr_version, reading.model_type))
        return f"{kind} {size}"

    @staticmethod
    def _require() -> Any:
        purpose = "read the text in clips"
        require("onnxruntime", purpose=purpose)
        return require("rapidocr", purpose=purpose)


def engine_version() -> str:
    """Version of the installed recogniser; empty if there is none."""
    try:
        return version(ENGINE)
    except PackageNotFoundError:
        return ""


def same_picture(one: Pixels, other: Pixels) -> bool:
    """Whether no square of two frames (height, width, 3) differs by more than a codec's noise."""
    differs = np.abs(one.astype(np.int16) - other).mean(axis=2)  # (height, width)
    starts = [np.arange(0, max(side - _BLOCK + 1, 1), _BLOCK) for side in differs.shape]
    sums = np.add.reduceat(np.add.reduceat(differs, starts[0], axis=0), starts[1], axis=1)
    sides = [np.diff([*at, side]) for at, side in zip(starts, differs.shape, strict=True)]
    return bool((sums / np.outer(*sides)).max() <= _STILL)  # (squares down, squares across)


def merged(frames: Sequence[Sequence[TextLine]]) -> list[TextLine]:
    """The lines of several frames, each once.

    A line that was seen before counts once, also where the recogniser read it a little differently: the
    reading with the higher confidence is kept, in the place of the first. Lines whose digits differ ("Step
    1", "Step 2") are different lines. A line that goes on in a later frame ("Buy", "Buy two") is replaced by
    the longer one. Within a frame nothing is merged: a word that stands there twice is there twice.

    Args:
        frames: the lines of each frame in reading order, frames in the order of time.
    """
    kept: list[TextLine] = []
    for lines in frames:
        free = list(range(len(kept)))  # each kept line stands for one line of a frame
        for line in lines:
            alike = {place: likeness(kept[place].text, line.text) for place in free}
            place = max(alike, key=alike.__getitem__, default=-1)
            if alike.get(place, 0.0) < _ALIKE:
                kept.append(line)
                continue
            free.remove(place)
            before = kept[place]
            longer = len(_bare(line.text)) - len(_bare(before.text))
            goes_on = longer > 0 and _begins(line.text, before.text)
            stays = longer < 0 and _begins(before.text, line.text)
            if goes_on or (not stays and line.confidence > before.confidence):
                kept[place] = TextLine(line.text, line.confidence, before.second)
    return kept


def likeness(one: str, other: str) -> float:
    """How far two readings are one line: 1 for the same letters and digits, 0 for other digits; one that goes
    on from the other counts as alike."""
    first, second = _bare(one), _bare(other)
    if first == second:
        return 1.0
    if _begins(one, other) or _begins(other, one):
        return _ALIKE
    if re.findall(r"\d", first) != re.findall(r"\d", second):
        return 0.0
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _begins(longer: str, shorter: str) -> bool:
    """Whether a line goes on from another one, by whole words."""
    words, start = (re.findall(r"\w+", text.casefold()) for text in (longer, shorter))
    return len(words) > len(start) > 0 and words[: len(start)] == start


def _bare(text: str) -> str:
    """Letters and digits alone: spaces and signs are where two readings of one line differ first. A line of
    nothing but signs is itself."""
    return re.sub(r"[\W_]+", "", text.casefold()) or text
