"""What is said in a clip: Whisper's transcript, with what it knows about its own doubts.

Whisper writes "Thank you for watching" over music and repeats itself over noise. The transcript is kept as
it was written; the no-speech probability and a repetition flag are kept beside it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.sound import RATE, Sound

Engine = Literal["auto", "faster-whisper", "transformers"]

NO_SPEECH = 0.6  # Whisper's own limit above which a window is taken for one without speech
_COMPRESSION = 2.4  # zlib ratio above which Whisper takes a window for a loop
_STRETCH = 400  # characters judged at once; the ratio of ordinary English grows with its length
_LOOPS = 4  # times in a row; "no, no, no" is speech
_LONGEST_LOOP = 12  # words


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said, as the engine wrote it.

    Args:
        text: empty if nothing was said, or there is no sound; ``reason`` says which.
        language: code such as "en"; None if no engine listened.
        language_probability: 0 to 1; None if the engine does not say.
        no_speech_probability: mean over the text's segments, by length, of the probability that their window
            holds no speech; None if nothing was written.
        repetition: the text runs in a loop.
        silent: there is nothing to hear; no engine listened.
        reason: why the text is empty.
    """

    text: str
    language: str | None = None
    language_probability: float | None = None
    no_speech_probability: float | None = None
    repetition: bool = False
    silent: bool = False
    reason: str | None = None

    @property
    def doubtful(self) -> bool:
        """Written where Whisper heard no speech, by its own limit."""
        return (self.no_speech_probability or 0.0) > NO_SPEECH


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a transcript.

    Args:
        text: as it was written.
        no_speech_probability: of the window that it lies in.
    """

    text: str
    no_speech_probability: float


class SpeechRecogniser(Protocol):
    """Sound in, transcript out."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides what is written; part of every key."""
        ...

    def transcribe(self, sound: Sound) -> Transcript:
        """The transcript of a sound at 16 kHz that is not silent."""
        ...


def open_speech(
    model: str, *, engine: Engine = "auto", language: str | None = None, device: str = "auto"
) -> SpeechRecogniser:
    """Loads a Whisper model.

    Args:
        model: folder, hub name, or size as faster-whisper names it ("large-v3-turbo").
        engine: "faster-whisper" (CTranslate2 form) or "transformers" (safetensors); "auto" takes what the
            folder holds, or the name suggests: ``openai/whisper-…`` is in transformers' form.
        language: spoken language, a code such as "en"; None lets the model find out.
        device: "auto" (GPU if there is one), "cpu", "cuda".

    Raises:
        RefusedRequest: the model cannot be loaded, or its engine is not installed.
    """
    from vidvec_msg.media import whisper_engines

    chosen = engine_of(model) if engine == "auto" else engine
    if chosen == "faster-whisper":
        return whisper_engines.FasterWhisper(model, language=language, device=device)
    if chosen == "transformers":
        return whisper_engines.TransformersWhisper(model, language=language, device=device)
    raise RefusedRequest(f"speech engine {engine!r} does not exist; accepted: {', '.join(get_args(Engine))}")


def listen(recogniser: SpeechRecogniser, sound: Sound) -> Transcript:
    """The transcript of a sound; silence is not given to an engine, which would invent words for it."""
    if sound.rate != RATE:
        raise ValueError(f"speech is recognised at {RATE} samples per second, got {sound.rate}")
    if sound.silent:
        return Transcript("", silent=True, reason="the sound is silent")
    return recogniser.transcribe(sound)


def engine_of(model: str) -> Engine:
    """The engine whose form a model has, by its folder's files or by its name.

    Raises:
        RefusedRequest: a folder that holds neither form.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        if (folder / "model.bin").is_file() and not list(folder.glob("*.safetensors")):
            return "faster-whisper"
        if _model_type(folder) == "whisper":
            return "transformers"
        raise RefusedRequest(
            f"{model} holds no Whisper model: neither model.bin (CTranslate2, for faster-whisper) nor a "
            "config.json of the type whisper with safetensors (for transformers)"
        )
    if folder.is_absolute() or model.startswith((".", "~")):
        raise RefusedRequest(f"no such folder: {model}; give a folder with a Whisper model, or a hub name")
    return "transformers" if re.match(r"openai/|distil-whisper/(?!.*ct2)", model) else "faster-whisper"


def joined(segments: Sequence[Segment], *, language: str | None, certainty: float | None) -> Transcript:
    """The transcript of an engine's segments.

    Args:
        segments: in the order of time.
        language: that was heard.
        certainty: probability of the language.
    """
    text = " ".join("".join(segment.text for segment in segments).split())
    sizes = [len(segment.text.strip()) for segment in segments]
    weighed = sum(size * segment.no_speech_probability for size, segment in zip(sizes, segments, strict=True))
    return Transcript(
        text,
        language=language,
        language_probability=None if certainty is None else round(certainty, 4),
        no_speech_probability=round(weighed / sum(sizes), 4) if sum(sizes) else None,
        repetition=repeats(text),
        reason=None if text else "no words were recognised",
    )


def repeats(text: str) -> bool:
    """Whether a text runs in a loop.

    A phrase of up to 12 words that stands four times in a row; or 400 characters that zlib makes more than
    2.4 times smaller (Whisper's own measure), which also finds loops in languages without spaces.
    """
    stretches = [text[at : at + _STRETCH] for at in range(0, len(text), _STRETCH)]
    if any(_compression(stretch) > _COMPRESSION for stretch in stretches):
        return True
    words = re.findall(r"\w+", text.casefold())
    return any(_in_a_row(words, size) >= _LOOPS for size in range(1, _LONGEST_LOOP + 1))


def _compression(text: str) -> float:
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw))


def _in_a_row(words: Sequence[str], size: int) -> int:
    """How many times a phrase of this many words stands in a row at most."""
    longest = run = 0
    for at in range(size, len(words)):
        run = run + 1 if words[at] == words[at - size] else 0
        longest = max(longest, run)
    return longest // size + 1 if words else 0


def _model_type(folder: Path) -> str:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(content.get("model_type", "")) if isinstance(content, dict) else ""
