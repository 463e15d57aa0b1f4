"""An item becomes a turn: its media are read and checked, its words placed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from threading import Condition, Thread

import numpy as np

from vidvec_msg.embedders.chat import Chat, Placement, Turn
from vidvec_msg.embedders.hearing import Heard, Listener
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
        clips: decodes clips, by the frame policy and within limits.
        transcript: where a clip's transcript goes.
        max_tokens: of words, per item.
        modalities: what the model reads.
        listener: reads sound; None for a model that does not hear.
    """

    chat: Chat
    prompt: PromptTemplate
    clips: ClipReader
    transcript: Placement
    max_tokens: int
    modalities: tuple[Modality, ...]
    listener: Listener | None = None

    @property
    def policy(self) -> FramePolicy:
        """Which frames of a clip."""
        return self.clips.policy

    @property
    def pool(self) -> DecodePool:
        """Who decodes."""
        return self.clips.pool

    def prepare(self, items: Sequence[Item]) -> None:
        """Begins with the decoding of clips, for a model that sees them; see :meth:`ClipReader.prepare`."""
        if "video" in self.modalities:
            self.clips.prepare(items)

    def turn(self, item: Item, sound: Callable[[], Heard | None]) -> Turn:
        """One item, worded.

        Args:
            item: of any modality.
            sound: gives its sound, from :meth:`~vidvec_msg.embedders.hearing.Listener.each`.

        Raises:
            ValueError: it cannot be read, with the reason.
        """
        if item.modality not in self.modalities:
            readable = ", ".join(self.modalities)
            raise ValueError(f"this embedder reads {readable}; the item is {item.modality}")
        if item.modality == "text":
            return self.chat.text_turn(self.prompt, item.full_text, max_tokens=self.max_tokens)
        if item.modality == "audio":
            return self.chat.audio_turn(
                self.prompt,
                sound(),
                transcript=item.transcript,
                placement=self.transcript,
                max_tokens=self.max_tokens,
            )
        return self.chat.visual_turn(
            self.prompt,
            self.clips.clip_of(item) if item.modality == "video" else self.clips.image_of(item),
            transcript=item.transcript,
            placement=self.transcript,
            max_tokens=self.max_tokens,
            heard=sound(),
        )

    def turns(self, items: Sequence[Item]) -> list[Turn]:
        """All items at once, clips decoded side by side; every pixel stays in memory until the call's end.

        Raises:
            ItemError: every item that cannot be read, with its reason.
        """
        failures: list[Failure] = []
        turns = [turn for _, turn in self.stream(items, failures)]
        if failures:
            raise ItemError(failures)
        return turns

    def stream(self, items: Sequence[Item], failures: list[Failure]) -> Iterator[tuple[int, Turn]]:
        """The items one by one, in their order, while workers decode the clips that come next.

        Words are placed in the caller's thread alone: a fast tokenizer that several threads call says
        "Already borrowed".

        Args:
            items: any mixture of modalities.
            failures: the items that cannot be read are added here, and left out.

        Yields:
            position among the items, and turn.
        """
        self.prepare(items)
        sounds = repeat(lambda: None) if self.listener is None else self.listener.each(items)
        for row, (item, sound) in enumerate(zip(items, sounds, strict=False)):
            try:
                turn = self.turn(item, sound)
            except ValueError as error:  # a broken medium, an empty text, wording that does not fit
                failures.append(Failure(item.id, str(error)))
                continue
            yield row, turn


class ClipReader:
    """Frames of clips, decoded ahead of whoever asks for them.

    :meth:`prepare` says which clips come next; worker processes decode them in that order while the caller
    does other things, and :meth:`clip_of` waits for the one it needs. At most ``ahead`` clips are begun and
    not yet asked for at any time, so memory stays bounded however many are prepared. What a clip gives does
    not depend on whether it was prepared. Safe to use from several threads.

    Args:
        policy: which frames of a clip.
        pool: decodes clips, within limits. One that decodes in this process (timeout 0) decodes a clip when
            it is asked for: a decoder that hangs in a thread of this process could not be ended.
        ahead: clips that are being decoded or wait to be asked for at most.
        ahead_bytes: pixels that wait; no clip is begun while there are more (the clips that are being
            decoded at that moment come on top).
    """

    def __init__(
        self, policy: FramePolicy, pool: DecodePool, *, ahead: int = 64, ahead_bytes: int = 1 << 29
    ) -> None:
        if ahead < 1 or ahead_bytes < 1:
            raise ValueError(f"ahead and ahead_bytes must be at least 1, got {ahead} and {ahead_bytes}")
        self.policy = policy
        self.pool = pool
        self.ahead = ahead
        self.ahead_bytes = ahead_bytes
        self._reset()

    def prepare(self, items: Iterable[Item]) -> None:
        """Begins with the decoding of the clips among the items and returns at once; never raises for a bad
        one.

        Items that were prepared before and not yet asked for are not decoded twice. Items without a file
        to decode are passed over.
        """
        if self.pool.timeout == 0:
            return
        self._after_fork()
        uses = Counter(key for item in items if (key := _clip_key(item)) is not None)
        with self._changed:
            for key, times in uses.items():
                if key in self._begun:
                    self._begun[key].uses = max(self._begun[key].uses, times)
                else:
                    self._queued[key] = max(self._queued.get(key, 0), times)
            self._start_threads()

    def clip_of(self, item: Item) -> Frames:
        """The frames of an item's clip, from its file or from memory; waits for what was begun.

        Raises:
            VideoError: the clip cannot be used.
        """
        key = _clip_key(item)
        if key is None:
            frames = frames_in_memory(item.video, self.policy, fps=item.fps, start=item.start, end=item.end)
        else:
            self._after_fork()
            frames = self._taken(key)
        asked = len(frame_times(0.0, frames.duration, self.policy))
        logger.debug(
            "item %r: %d frames asked for, %d used (%s)", item.id, asked, len(frames.pixels), frames.reader
        )
        return frames

    def image_of(self, item: Item) -> Pixels:
        """The pixels of an item's image, from its file or from memory.

        Raises:
            ImageError: the image cannot be used.
        """
        return image_of(item, self.policy)

    def _taken(self, key: _ClipKey) -> Frames:
        with self._changed:
            if key in self._queued:  # whoever needs it now does not wait for its turn
                self._use_queued(key)
                self._make_room()
            elif key in self._begun:
                clip = self._begun[key]
                while not clip.done:
                    self._changed.wait()
                clip.uses -= 1
                if clip.uses <= 0 and self._begun.get(key) is clip:
                    del self._begun[key]
                    self._start_threads()
                return clip.result()
        return self._decoded(key)

    def _use_queued(self, key: _ClipKey) -> None:
        self._queued[key] -= 1
        if not self._queued[key]:
            del self._queued[key]

    def _make_room(self) -> None:
        """Drops the clips that wait if there is no room for another. Clips are asked for in the order in
        which they were prepared, so nobody came for these: their job was interrupted."""
        if not self._has_room():
            for key in [key for key, clip in self._begun.items() if clip.done]:
                del self._begun[key]
            self._start_threads()

    # --- in the background ----------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        """As many as there is work for. They are daemons and end when nothing may be begun, so that nothing
        has to be shut down and an interrupted job does not hang at its exit."""
        while self._threads < self.pool.workers and self._queued and self._has_room():
            self._threads += 1
            key, clip = self._begin()
            Thread(target=self._work, args=(key, clip), daemon=True, name="decode ahead").start()

    def _has_room(self) -> bool:
        waiting = sum(clip.frames.pixels.nbytes for clip in self._begun.values() if clip.frames is not None)
        return len(self._begun) < self.ahead and waiting < self.ahead_bytes

    def _begin(self) -> tuple[_ClipKey, _Clip]:
        key = next(iter(self._queued))
        clip = self._begun[key] = _Clip(self._queued.pop(key))
        return key, clip

    def _work(self, key: _ClipKey, clip: _Clip) -> None:
        while True:
            try:
                clip.frames = self._decoded(key)
            except BaseException as error:  # raised where the clip is asked for
                clip.error = error
            with self._changed:
                self._changed.notify_all()
                if not (self._queued and self._has_room()):
                    self._threads -= 1
                    return
                key, clip = self._begin()

    def _decoded(self, key: _ClipKey) -> Frames:
        path, start, end, _ = key
        return self.pool.read(path, self.policy, start=start, end=end)

    def _after_fork(self) -> None:
        if self._owner != os.getpid():  # a DataLoader worker: the threads are the parent's
            self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._changed = Condition()
        self._queued: dict[_ClipKey, int] = {}  # prepared and not begun: how often it will be asked for
        self._begun: dict[_ClipKey, _Clip] = {}  # being decoded, or waiting; the oldest first
        self._threads = 0


# file, first and last second, and the file's size and time of change: one that is replaced is another clip
_ClipKey = tuple[Path, float | None, float | None, tuple[int, int] | None]


@dataclass(slots=True, eq=False)
class _Clip:
    """A clip that was begun: how often it will be asked for, and what became of it."""

    uses: int
    frames: Frames | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it was decoded, well or not."""
        return self.frames is not None or self.error is not None

    def result(self) -> Frames:
        if self.frames is not None:
            return self.frames
        raise self.error or RuntimeError("a clip that is being decoded has no result yet")


def _clip_key(item: Item) -> _ClipKey | None:
    """What decides the frames of a clip in a file, for one policy; None for what is not in a file."""
    if item.video is None or isinstance(item.video, np.ndarray):
        return None
    path = Path(item.video)
    try:
        state = path.stat()
    except OSError:  # missing; said where the clip is decoded
        return path, item.start, item.end, None
    return path, item.start, item.end, (state.st_size, state.st_mtime_ns)


def clip_of(item: Item, policy: FramePolicy, pool: DecodePool) -> Frames:
    """The frames of one item's clip, without anything decoded ahead; as :meth:`ClipReader.clip_of`."""
    return ClipReader(policy, pool).clip_of(item)


def image_of(item: Item, policy: FramePolicy) -> Pixels:
    """The pixels of an item's image, from its file or from memory.

    Raises:
        ImageError: the image cannot be used.
    """
    if item.image is None or isinstance(item.image, np.ndarray):
        return check_pixels(item.image, dimensions=3, max_pixels=policy.max_pixels)
    return read_image(Path(item.image), max_pixels=policy.max_pixels)
