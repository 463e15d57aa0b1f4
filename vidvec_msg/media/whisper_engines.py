"""The two engines that run Whisper: faster-whisper (CTranslate2) and transformers.

Both search with beams and never sample, so that the same sound gives the same words; neither drops a window
that it takes for one without speech, nor lets a window's words steer the next one (that is how loops spread).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.media.sound import RATE, Samples, Sound
from vidvec_msg.media.speech import Segment, Transcript, joined
from vidvec_msg.runs import digest_of, file_digest

BEAMS = 5  # Whisper's paper, section 4.5, and faster-whisper's default
WINDOW = 30  # seconds that Whisper hears at once
LONGEST = 224  # tokens of a window, half of Whisper's context; the rest is for words before it
_WEIGHTS = ("*.safetensors", "model.bin")


class FasterWhisper:
    """Whisper by faster-whisper, the extra ``asr``.

    Args:
        model: folder in CTranslate2's form, hub name, or size ("large-v3-turbo").
        language: code of the spoken language; None lets the model find out.
        device: "auto", "cpu", "cuda".

    Raises:
        RefusedRequest: faster-whisper is not installed, or the model cannot be loaded.
    """

    def __init__(self, model: str, *, language: str | None = None, device: str = "auto") -> None:
        library = require("faster_whisper", purpose="recognise speech with a CTranslate2 model")
        library.transcribe.ctranslate2.set_log_level(logging.ERROR)  # not that a CPU computes in float32
        kind, _, number = device.partition(":")
        try:
            folder = model if Path(model).is_dir() else library.download_model(model)
            self._model = library.WhisperModel(
                str(folder), device=kind, device_index=int(number or 0), compute_type="default"
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise RefusedRequest(
                f"cannot load the speech model {model!r} with faster-whisper: {error}"
            ) from error
        self._language = language
        if language is not None and language not in self._model.supported_languages:
            raise RefusedRequest(_no_such_language(language, model, self._model.supported_languages))
        self.settings: dict[str, Any] = {
            "engine": "faster-whisper",
            "version": version("faster-whisper"),
            "model": Path(model).name,
            "weights": _weights(Path(folder)),
            "language": language,
            "beams": BEAMS,
        }

    def transcribe(self, sound: Sound) -> Transcript:
        """The transcript of a sound at 16 kHz."""
        segments, info = self._model.transcribe(
            sound.samples,
            language=self._language,
            task="transcribe",
            beam_size=BEAMS,
            max_new_tokens=LONGEST,
            temperature=[0.0],  # no second try by sampling: a loop stays, and is flagged
            condition_on_previous_text=False,
            no_speech_threshold=None,  # a window is never dropped; its probability is kept
            vad_filter=False,
        )
        found = [Segment(segment.text, float(segment.no_speech_prob)) for segment in segments]
        return joined(found, language=info.language, certainty=float(info.language_probability))


class TransformersWhisper:
    """Whisper by transformers.

    Args:
        model: folder that ``save_pretrained`` wrote (safetensors), or hub name.
        language: code of the spoken language; None lets the model find out.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".

    Raises:
        RefusedRequest: the model cannot be loaded, or is no Whisper.
    """

    def __init__(self, model: str, *, language: str | None = None, device: str = "auto") -> None:
        import torch
        from transformers import AutoConfig, WhisperForConditionalGeneration, WhisperProcessor
        from transformers import __version__ as installed

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            kind = AutoConfig.from_pretrained(model).model_type
            if kind != "whisper":
                raise ValueError(f"it is a model of the type {kind!r}, not whisper")
            self._processor = WhisperProcessor.from_pretrained(model)
            with _quiet_transformers():
                self._model, report = WhisperForConditionalGeneration.from_pretrained(
                    model, use_safetensors=True, output_loading_info=True
                )
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise RefusedRequest(
                f"cannot load the speech model {model!r} with transformers: {error}"
            ) from error
        missing = sorted(key for key in report["missing_keys"] if key != "proj_out.weight")  # tied
        if missing:
            raise RefusedRequest(
                f"speech model {model!r}: {len(missing)} parameters are missing from the checkpoint and "
                f"would stay random, for example {missing[0]}"
            )
        self._device = torch.device(device)
        self._model = self._model.to(self._device).eval()
        self._languages = _languages(self._model, self._processor.tokenizer)  # code → token id
        self._language = language
        if language is not None and language not in (self._languages or {"en": 0}):
            raise RefusedRequest(_no_such_language(language, model, self._languages or {"en": 0}))
        self.settings: dict[str, Any] = {
            "engine": "transformers",
            "version": installed,
            "model": Path(model).name,
            "weights": _weights(Path(model)) or getattr(self._model.config, "_commit_hash", None),
            "language": language,
            "beams": BEAMS,
        }

    def transcribe(self, sound: Sound) -> Transcript:
        """The transcript of a sound at 16 kHz."""
        windows = list(self._windows(sound.samples))
        no_speech = [float(first[self._no_speech_token()]) for first in windows]
        language, certainty = self._heard(windows)
        words = {"language": language, "task": "transcribe"} if self._languages else {}
        found = [
            Segment(text, no_speech[min(int(second // WINDOW), len(no_speech) - 1)])
            for second, text in self._segments(sound.samples, words)
        ]
        return joined(found, language=language, certainty=certainty)

    def _segments(self, samples: Samples, words: dict[str, Any]) -> Iterator[tuple[float, str]]:
        """Second and text of each segment."""
        import torch

        with torch.inference_mode(), _quiet_transformers():
            made = self._model.generate(
                **self._features(samples),
                **words,
                num_beams=BEAMS,
                early_stopping=True,  # as Whisper: else it goes on to the last token and prefers loops
                do_sample=False,
                max_new_tokens=LONGEST,
                return_timestamps=True,
                return_segments=True,
                condition_on_prev_tokens=False,
            )
        for segment in made["segments"][0]:
            text = self._processor.tokenizer.decode(segment["tokens"], skip_special_tokens=True)
            yield float(segment["start"]), text

    def _windows(self, samples: Samples) -> Iterator[np.ndarray]:
        """What the model expects first in each window of 30 s: probabilities, (vocabulary,)."""
        import torch

        start = torch.tensor([[self._model.generation_config.decoder_start_token_id]], device=self._device)
        for at in range(0, max(len(samples), 1), WINDOW * RATE):
            features = self._features(samples[at : at + WINDOW * RATE]).input_features  # (1, mels, steps)
            missing = self._processor.feature_extractor.nb_max_frames - features.shape[-1]
            filled = torch.nn.functional.pad(
                features, (0, missing)
            )  # (1, mels, 3000), as `generate` fills it
            with torch.inference_mode():
                logits = self._model(filled, decoder_input_ids=start).logits  # (1, 1, vocabulary)
            yield logits[0, 0].float().softmax(-1).cpu().numpy()

    def _features(self, samples: Samples) -> Any:
        """As long as the sound: of 30 s of samples `generate` would also write about what was filled in."""
        return self._processor(
            samples,
            sampling_rate=RATE,
            return_tensors="pt",
            return_attention_mask=True,
            truncation=False,
            padding="longest",
        ).to(self._device, self._model.dtype)

    def _heard(self, windows: list[np.ndarray]) -> tuple[str, float]:
        """The language of the first window, and its probability among languages, as Whisper decides it."""
        if not self._languages:
            return "en", 1.0  # a model of English alone
        codes, ids = zip(*self._languages.items(), strict=True)
        share = windows[0][list(ids)]
        share = share / share.sum()
        if self._language is not None:
            return self._language, 1.0
        best = int(share.argmax())
        return codes[best], float(share[best])

    def _no_speech_token(self) -> int:
        """It stands before "no timestamps" in every Whisper vocabulary, under one of two names."""
        return int(self._model.generation_config.no_timestamps_token_id) - 1


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bar per model, and no remarks about options that Whisper's own ``generate`` sets."""
    from transformers.utils import logging as remarks

    level, bars = remarks.get_verbosity(), remarks.is_progress_bar_enabled()
    remarks.set_verbosity_error()
    remarks.disable_progress_bar()
    try:
        yield
    finally:
        remarks.set_verbosity(level)
        if bars:
            remarks.enable_progress_bar()


def _languages(model: Any, tokenizer: Any) -> dict[str, int]:
    """Language code → token; empty for a model of one language."""
    if not getattr(model.generation_config, "is_multilingual", False):
        return {}
    tokens = getattr(model.generation_config, "lang_to_id", None) or {
        token: number for token, number in tokenizer.get_vocab().items() if token.startswith("<|")
    }
    found = {re.fullmatch(r"<\|([a-z]{2,3})\|>", token): number for token, number in tokens.items()}
    return {match[1]: number for match, number in found.items() if match is not None}


def _no_such_language(language: str, model: str, known: Any) -> str:
    codes = sorted(known)
    shown = ", ".join(codes[:12]) + (", …" if len(codes) > 12 else "")
    return f"speech model {model!r} knows no language {language!r}; accepted: {shown}"


def _weights(folder: Path) -> str:
    """Digest of a folder's weights; empty where there are none here (a hub name)."""
    found = sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern)) if folder.is_dir() else []
    return digest_of([[path.name, file_digest(path)] for path in found])[:16] if found else ""
