"""What is said and what is written in an item, recognised once and remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.cascade.recognised_file import Recognised, RecognisedFile
from vidvec_msg.embedders.reading import clip_of, image_of
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.screen_text import ScreenTextReader
from vidvec_msg.media.sound import NoSound
from vidvec_msg.media.speech import SpeechRecogniser, Transcript, listen
from vidvec_msg.runs import digest_of


def has_sound(item: Item) -> bool:
    """Whether there is a medium that may be heard."""
    return item.video is not None or item.audio is not None


def has_pictures(item: Item) -> bool:
    """Whether there is a medium that is seen."""
    return item.video is not None or item.image is not None


class Recognition:
    """Recognises speech and on-screen text of items.

    Args:
        pool: decodes clips and sounds, within limits.
        speech: what hears; None where speech is not asked for.
        screen: what reads; None where on-screen text is not asked for.
        kept: remembers results, keyed by the medium's content and the recogniser's settings.
    """

    def __init__(
        self,
        pool: DecodePool,
        *,
        speech: SpeechRecogniser | None = None,
        screen: ScreenTextReader | None = None,
        kept: RecognisedFile | None = None,
    ) -> None:
        self._pool = pool
        self._speech = speech
        self._screen = screen
        self._kept = kept

    def transcript(self, item: Item) -> Recognised:
        """What is said in an item's sound: of its audio file, or of its clip.

        A medium without sound, or with nothing to hear, gives an empty text with its reason.

        Raises:
            ValueError: SoundError: the sound cannot be decoded.
        """
        speech = self._speech
        if speech is None:
            raise RuntimeError("no speech recogniser was given")
        settings = speech.settings

        def recognise() -> Recognised:
            heard = self._heard(item, speech)
            about = dataclasses.asdict(heard)
            del about["text"]
            names = ("engine", "version", "model", "weights")
            return Recognised(heard.text, {name: settings[name] for name in names} | about)

        return self._once(item, {"speech": settings}, recognise)

    def screen_text(self, item: Item) -> Recognised:
        """What is written in an item's clip or image.

        Raises:
            ValueError: VideoError or ImageError: it cannot be decoded.
        """
        screen = self._screen
        if screen is None:
            raise RuntimeError("no reader of on-screen text was given")

        def recognise() -> Recognised:
            if item.video is None:
                found = screen.read(image_of(item, screen.policy)[None])  # (1, height, width, 3)
            else:
                frames = clip_of(item, screen.policy, self._pool)
                found = screen.read(frames.pixels, frames.times)
            return Recognised(found.text, screen.info(found))

        return self._once(item, {"screen": screen.settings}, recognise)

    def _heard(self, item: Item, speech: SpeechRecogniser) -> Transcript:
        source = item.audio if item.audio is not None else item.video
        if source is None or isinstance(source, np.ndarray):
            return Transcript("", silent=True, reason="frames in memory have no sound")
        path = Path(source)
        try:
            sound = self._pool.read_sound(path, start=item.start, end=item.end)
        except NoSound as error:
            return Transcript("", silent=True, reason=str(error).removeprefix(f"{path}: "))
        return listen(speech, sound)

    def _once(
        self, item: Item, settings: dict[str, object], recognise: Callable[[], Recognised]
    ) -> Recognised:
        """The remembered result, or a new one that is remembered from now on."""
        if self._kept is None:
            return recognise()
        try:
            key = digest_of({"medium": medium_digest(item), **settings})
        except OSError as error:
            raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
        found = self._kept.get(key)
        if found is None:
            found = recognise()
            self._kept.put(key, found)
        return found


def medium_digest(item: Item) -> str:
    """Digest of an item's media and segment, whatever words it has: writing words back does not change it."""
    return item_digest(dataclasses.replace(item, text=None, title=None, transcript=None, ocr=None))
