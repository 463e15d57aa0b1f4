"""An item becomes a turn: its media are read and checked, its words placed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vidvec_msg.embedders.chat import Chat, Placement, Turn
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item, Modality, Pixels
from vidvec_msg.media.frames import FramePolicy, frame_times
from vidvec_msg.media.images import check_pixels, read_image
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.video import Frames, frames_in_memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ItemReader:
    """Turns items into turns.

    Args:
        chat: the model's words.
        prompt: wording per modality.
        policy: which frames of a clip.
        transcript: where a clip's transcript goes.
        max_tokens: of words, per item.
        modalities: what the model reads.
        pool: decodes clips, within limits.
    """

    chat: Chat
    prompt: PromptTemplate
    policy: FramePolicy
    transcript: Placement
    max_tokens: int
    modalities: tuple[Modality, ...]
    pool: DecodePool

    def turns(self, items: Sequence[Item]) -> list[Turn]:
        """All items, clips decoded side by side; every pixel stays in memory until the call's end.

        Raises:
            ItemError: every item that cannot be read, with its reason.
        """
        if any(item.video is not None for item in items):
            with ThreadPoolExecutor(self.pool.workers) as threads:
                seen = list(threads.map(self._visual_or_failure, items))
        else:
            seen = [self._visual_or_failure(item) for item in items]
        turns: list[Turn] = []
        failures: list[Failure] = []
        # in this thread alone: a fast tokenizer that several threads call says "Already borrowed"
        for item, visual in zip(items, seen, strict=True):
            if isinstance(visual, Failure):
                failures.append(visual)
                continue
            try:
                turns.append(self._worded(item, visual))
            except ValueError as error:  # an empty text, or wording that does not fit
                failures.append(Failure(item.id, str(error)))
        if failures:
            raise ItemError(failures)
        return turns

    def _visual_or_failure(self, item: Item) -> Frames | Pixels | Failure | None:
        """What is to be seen of an item; None for a text."""
        if item.modality not in self.modalities:
            readable = ", ".join(self.modalities)
            return Failure(item.id, f"this embedder reads {readable}; the item is {item.modality}")
        try:
            if item.modality == "video":
                return clip_of(item, self.policy, self.pool)
            return image_of(item, self.policy) if item.modality == "image" else None
        except ValueError as error:  # VideoError, ImageError
            return Failure(item.id, str(error))

    def _worded(self, item: Item, visual: Frames | Pixels | None) -> Turn:
        if visual is None:
            return self.chat.text_turn(self.prompt, item.full_text, max_tokens=self.max_tokens)
        return self.chat.visual_turn(
            self.prompt,
            visual,
            transcript=item.transcript,
            placement=self.transcript,
            max_tokens=self.max_tokens,
        )


def clip_of(item: Item, policy: FramePolicy, pool: DecodePool) -> Frames:
    """The frames of an item's clip, from its file or from memory.

    Raises:
        VideoError: the clip cannot be used.
    """
    if item.video is None or isinstance(item.video, np.ndarray):
        frames = frames_in_memory(item.video, policy, fps=item.fps, start=item.start, end=item.end)
    else:
        frames = pool.read(Path(item.video), policy, start=item.start, end=item.end)
    asked = len(frame_times(0.0, frames.duration, policy))
    logger.debug(
        "item %r: %d frames asked for, %d used (%s)", item.id, asked, len(frames.pixels), frames.reader
    )
    return frames


def image_of(item: Item, policy: FramePolicy) -> Pixels:
    """The pixels of an item's image, from its file or from memory.

    Raises:
        ImageError: the image cannot be used.
    """
    if item.image is None or isinstance(item.image, np.ndarray):
        return check_pixels(item.image, dimensions=3, max_pixels=policy.max_pixels)
    return read_image(Path(item.image), max_pixels=policy.max_pixels)
