"""The text cascade: a clip becomes what is said and what is written in it, then any text embedder."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import quote

import numpy as np

from vidvec_msg.embedders.cascade.recognised_file import RecognisedFile
from vidvec_msg.embedders.cascade.recognition import Recognition, has_pictures, has_sound
from vidvec_msg.embedders.contract import (
    Embedder,
    EmbedderCard,
    Inspection,
    Inspects,
    Role,
    Vectors,
    check_role,
)
from vidvec_msg.embedders.convert import convert
from vidvec_msg.embedders.endpoint.vector_cache import user_cache
from vidvec_msg.errors import Failure, ItemError, RefusedRequest, did_you_mean
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.media.screen_text import MIN_CONFIDENCE, ScreenTextReader
from vidvec_msg.media.speech import Engine, open_speech

logger = logging.getLogger(__name__)

Condition = Literal["asr", "ocr", "asr+ocr"]
Wording = Literal["labelled", "plain"]
Empty = Literal["fail", "placeholder"]

LABELS = {"transcript": "Speech", "ocr": "On-screen text"}
PLACEHOLDER = "A clip without speech and without on-screen text."
_FIELDS: dict[str, tuple[str, ...]] = {
    "asr": ("transcript",),
    "ocr": ("ocr",),
    "asr+ocr": ("transcript", "ocr"),
}
_MISSING = {
    "transcript": "no transcript; `vidvec-msg annotate --asr MODEL` writes it into the collection, or give "
    "the option speech_model=MODEL",
    "ocr": "no on-screen text; `vidvec-msg annotate --ocr` writes it into the collection, or give the option "
    "ocr_frames=4",
}
_NOTHING = {"transcript": "nothing is said", "ocr": "nothing is written on screen"}
CACHE_FILE = "recognised.jsonl"


class Cascade:
    """Embeds the words of clips with a text embedder; texts go to it as they are.

    The words are the item's fields ``transcript`` and ``ocr``. A field that is missing (not one that is
    empty) is recognised on the way if that was asked for, and remembered.

    Args:
        condition: "asr" (the transcript), "ocr" (the on-screen text), "asr+ocr" (both, in this order).
        embedder: embeds the words.
        wording: of two texts: "labelled" lines ("Speech: …", "On-screen text: …"), or "plain" ones.
        empty: a clip in which nothing is said and written: "fail" (an item error with that reason) or
            "placeholder": it stands for the words :data:`PLACEHOLDER`, so that all such clips are one vector.
        speech_model: Whisper model for items without a transcript: folder, hub name or size; None: they fail.
        speech_engine: "faster-whisper", "transformers", or "auto": by the model's form.
        speech_language: spoken language, a code such as "en"; None: found out per clip.
        speech_device: "auto" (GPU if there is one), "cpu", "cuda".
        ocr_frames: frames that are read of clips without on-screen text; 0: they fail.
        ocr_confidence: lines of text below it are left out, 0 to 1.
        cache: folder that remembers what was recognised; "auto" takes the user's cache folder, None none.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        name: for tables; made from the condition and the embedder's name if not given.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the embedder reads no text, or a recogniser cannot be loaded.
    """

    def __init__(
        self,
        condition: Condition,
        embedder: Embedder,
        *,
        wording: Wording = "labelled",
        empty: Empty = "fail",
        speech_model: str | None = None,
        speech_engine: Engine = "auto",
        speech_language: str | None = None,
        speech_device: str = "auto",
        ocr_frames: int = 0,
        ocr_confidence: float = MIN_CONFIDENCE,
        cache: str | None = "auto",
        decode_timeout: float = 120.0,
        name: str | None = None,
    ) -> None:
        _check_options(condition, embedder, wording=wording, empty=empty, ocr_frames=ocr_frames)
        self.embedder = embedder
        self._fields = _FIELDS[condition]
        self._wording = wording
        self._empty = empty
        reads_screen = "ocr" in self._fields and ocr_frames > 0
        hears = "transcript" in self._fields and speech_model is not None
        self._screen = (
            ScreenTextReader(frames=ocr_frames, min_confidence=ocr_confidence) if reads_screen else None
        )
        self._speech = (
            open_speech(speech_model, engine=speech_engine, language=speech_language, device=speech_device)
            if hears and speech_model is not None
            else None
        )
        self._recognition = Recognition(
            shared_pool(2, decode_timeout),
            speech=self._speech,
            screen=self._screen,
            kept=_cache(cache) if self._speech or self._screen else None,
        )
        self._card = self._made_card(condition, name)

    @property
    def card(self) -> EmbedderCard:
        """The inner embedder's card, with the way in which clips become words."""
        return self._card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items, float32 (items, dim).

        Raises:
            ItemError: items without words, each with what is missing; or what the inner embedder raises.
        """
        check_role(role)
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        return self.embedder.encode(self.as_texts(items), role=role)

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        """What the inner embedder is given; its tokens too, if it can say."""
        texts = self.as_texts(items)
        if isinstance(self.embedder, Inspects):
            return self.embedder.inspect(texts, role=role)
        return [Inspection(item.id, wording=item.full_text) for item in texts]

    def as_texts(self, items: Sequence[Item]) -> list[Item]:
        """The items as the inner embedder gets them: texts, under the same ids.

        Raises:
            ItemError: items without words, and clips that cannot be read.
        """
        texts: list[Item] = []
        failures = []
        silent = 0
        for item in items:
            try:
                words = item.full_text if _is_text(item) else self._words(item)
            except RefusedRequest:
                raise
            except ValueError as error:
                failures.append(Failure(item.id, str(error)))
                continue
            if words is None:
                silent += 1
                words = PLACEHOLDER
            texts.append(Item(item.id, text=words, groups=item.groups))
        if failures:
            raise ItemError(failures)
        if silent:
            logger.info("%d of %d clips hold no words: embedded as %r", silent, len(items), PLACEHOLDER)
        return texts

    def _words(self, item: Item) -> str | None:
        """The words of a clip; None if it stands for the placeholder.

        Raises:
            ValueError: it has none, or they are not known.
        """
        if item.modality not in self.card.modalities:
            readable = ", ".join(self.card.modalities)
            raise ValueError(f"this embedder reads {readable}; the item is {item.modality}")
        found = {name: self._field(item, name).strip() for name in self._fields}
        present = {name: text for name, text in found.items() if text}
        if not present:
            if self._empty == "placeholder":
                return None
            reasons = " and ".join(_NOTHING[name] for name in self._fields)
            raise ValueError(
                f"{reasons}: no words to embed (empty=placeholder embeds such clips as one text)"
            )
        if len(self._fields) == 1 or self._wording == "plain":
            return "\n".join(present.values())
        return "\n".join(f"{LABELS[name]}: {text}" for name, text in present.items())

    def _field(self, item: Item, name: str) -> str:
        """A field's text, recognised if it is missing; empty where the item has no medium for it."""
        known: str | None = getattr(item, name)
        if known is not None:
            return known
        if not (has_sound(item) if name == "transcript" else has_pictures(item)):
            return ""
        if (self._speech if name == "transcript" else self._screen) is None:
            raise ValueError(_MISSING[name])
        recognise = self._recognition.transcript if name == "transcript" else self._recognition.screen_text
        return recognise(item).text

    def _made_card(self, condition: Condition, name: str | None) -> EmbedderCard:
        inner = self.embedder.card
        way: dict[str, Any] = {"condition": condition, "empty": self._empty}
        if len(self._fields) > 1:
            way["wording"] = self._wording
        if self._empty == "placeholder":
            way["placeholder"] = PLACEHOLDER
        if self._speech is not None:
            way["speech"] = self._speech.settings
        if self._screen is not None:
            way["screen"] = self._screen.settings
        media: tuple[tuple[Modality, bool], ...] = (
            ("text", True),
            ("image", "ocr" in self._fields),
            ("video", True),
            ("audio", "transcript" in self._fields),
        )
        return dataclasses.replace(
            inner,
            name=name or f"cascade {condition} {inner.name}",
            modalities=tuple(medium for medium, reads in media if reads),
            frames=None,
            transcript="none",
            # the one field of the card that says how content becomes a vector, whatever the embedder
            pooling=f"cascade {json.dumps(way, sort_keys=True, ensure_ascii=False)}; then {inner.pooling}",
        )


def open_cascade(source: str, **options: Any) -> Cascade:
    """The cascade of a spec: ``cascade:CONDITION:EMBEDDER?key=value``.

    Args:
        source: what stands behind ``cascade:``: a condition, a colon, and the spec of a text embedder.
        options: those of :class:`Cascade`; all others are the inner embedder's.

    Raises:
        RefusedRequest: no such condition, no embedder, or an option that neither of the two has.
    """
    from vidvec_msg.embedders.load import load_embedder  # which calls this

    condition, _, inner = source.partition(":")
    form = "a cascade is written cascade:CONDITION:EMBEDDER, for example cascade:asr+ocr:st:NAME"
    if condition not in _FIELDS:
        raise RefusedRequest(
            f"cascade condition {condition!r} does not exist{did_you_mean(condition, _FIELDS)}; "
            f"accepted: {', '.join(_FIELDS)} ({form})"
        )
    if not inner:
        raise RefusedRequest(f"cascade:{source} names no text embedder; {form}")
    known = [
        name
        for name, parameter in inspect.signature(Cascade).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    own = {name: _converted(name, options.pop(name)) for name in known if name in options}
    texts = [f"{quote(name)}={quote(value)}" for name, value in options.items() if isinstance(value, str)]
    values = {name: value for name, value in options.items() if not isinstance(value, str)}
    try:
        embedder = load_embedder(f"{inner}?{'&'.join(texts)}" if texts else inner, **values)
    except RefusedRequest as error:
        if not options:
            raise
        near = "".join(did_you_mean(name, known) for name in options)
        raise RefusedRequest(
            f"{error}\nThe cascade's own options are {', '.join(known)}{near}; all others go to its embedder."
        ) from error
    return Cascade(condition, embedder, **own)  # type: ignore[arg-type]  # checked above


def _converted(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return convert(value, get_type_hints(Cascade.__init__)[name])
    except ValueError as error:
        raise RefusedRequest(f"option {name}: {error}") from error


def _check_options(condition: str, embedder: Embedder, *, wording: str, empty: str, ocr_frames: int) -> None:
    if condition not in _FIELDS:
        raise ValueError(f"condition must be one of {', '.join(_FIELDS)}, got {condition!r}")
    if wording not in get_args(Wording):
        raise ValueError(f"wording must be one of {', '.join(get_args(Wording))}, got {wording!r}")
    if empty not in get_args(Empty):
        raise ValueError(f"empty must be one of {', '.join(get_args(Empty))}, got {empty!r}")
    if ocr_frames < 0:
        raise ValueError(f"ocr_frames must be 0 (fields of the collection alone) or more, got {ocr_frames}")
    if "text" not in embedder.card.modalities:
        readable = ", ".join(embedder.card.modalities)
        raise RefusedRequest(f"a cascade needs a text embedder; {embedder.card.name!r} reads {readable}")


def _cache(folder: str | None) -> RecognisedFile | None:
    if folder is None:
        return None
    root = user_cache() if folder == "auto" else Path(folder).expanduser()
    return RecognisedFile(root / CACHE_FILE)


def _is_text(item: Item) -> bool:
    """An item without media is a text, unless it has nothing but what was recognised in a clip."""
    return item.modality == "text" and (
        bool(item.full_text) or (item.transcript is None and item.ocr is None)
    )
