"""What there is to hear in an item: an audio file, or a clip's own sound, or the reason why there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal

from vidvec_msg.embedders.omni import hears, longest_sound, sound_rate
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.sound import NoSound, Sound, SoundError

Silence = Literal["", "silent", "no sound"]

_JUST_LONGER = 0.1  # seconds read past the longest sound, to see that there is more


@dataclass(frozen=True, slots=True)
class Heard:
    """The sound of an item.

    Args:
        sound: what the model is given; None if there is nothing to hear.
        silence: why not: "silent" (a track without a sound in it) or "no sound" (no track).
        cut: whether it was longer than the model takes.
    """

    sound: Sound | None = None
    silence: Silence = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Listener:
    """Reads the sound of items for one model.

    Args:
        pool: decodes, within limits.
        rate: samples per second that the model takes.
        longest: seconds that it takes; the beginning of a longer sound is used.
        to_clips: whether clips are given with their sound.
    """

    pool: DecodePool
    rate: int
    longest: float
    to_clips: bool

    @classmethod
    def of_model(
        cls, processor: Any | None, pool: DecodePool, *, to_clips: bool, instead: str = "transcript=before"
    ) -> Listener | None:
        """Who reads sound for a model; None for one that does not hear.

        Args:
            processor: of the model.
            pool: decodes.
            to_clips: whether clips are given with their sound.
            instead: option that gives a clip's transcript to the model, for the message.

        Raises:
            RefusedRequest: they shall be, and the model takes no sound.
        """
        if hears(processor):
            return cls(pool, sound_rate(processor), longest_sound(processor), to_clips)
        if to_clips:
            raise RefusedRequest(
                f"sound is true, and this model ({type(processor).__name__}) takes no sound; Qwen2.5-Omni "
                f"and Qwen3-Omni do. Leave it out, or let transcripts stand for what is said ({instead})"
            )
        return None

    def each(self, items: Sequence[Item]) -> Iterator[Callable[[], Heard | None]]:
        """For every item, in order, a call that gives what :meth:`of` gives, or raises what it raises.

        Files are decoded side by side, and a few ahead of the one that is asked for.
        """
        wanted = [item.modality == "audio" or (item.modality == "video" and self.to_clips) for item in items]
        if self.pool.timeout == 0 or not any(wanted):  # no limit, no threads: as for the pictures
            yield from (partial(self.of, item) for item in items)
            return
        waiting: deque[Future[Heard | None]] = deque()
        tasks: SimpleQueue[tuple[Future[Heard | None], Item] | None] = SimpleQueue()
        # daemons, unlike an executor's threads: Ctrl-C does not wait for a decoder that hangs
        for _ in range(self.pool.workers):
            Thread(target=self._work, args=(tasks,), daemon=True, name="listen ahead").start()
        try:
            for item in items:
                waiting.append(Future())
                tasks.put((waiting[-1], item))
                if len(waiting) > 2 * self.pool.workers:
                    yield waiting.popleft().result
            while waiting:
                yield waiting.popleft().result
        finally:
            for future in waiting:  # of a caller that went away
                future.cancel()
            for _ in range(self.pool.workers):
                tasks.put(None)

    def _work(self, tasks: SimpleQueue[tuple[Future[Heard | None], Item] | None]) -> None:
        while (task := tasks.get()) is not None:
            future, item = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self.of(item))
            except BaseException as error:  # raised where the sound is asked for
                future.set_exception(error)

    def of(self, item: Item) -> Heard | None:
        """The sound of any item; None for what is not listened to.

        Raises:
            SoundError: as :meth:`clip` and :meth:`file`.
        """
        if item.modality == "audio":
            return self.file(item)
        return self.clip(item) if item.modality == "video" else None

    def clip(self, item: Item) -> Heard | None:
        """The sound of a clip; None if clips are not listened to. Frames in memory have none.

        Raises:
            SoundError: the clip has a sound track that cannot be decoded.
        """
        if not self.to_clips:
            return None
        if not isinstance(item.video, (str, Path)):
            return Heard(silence="no sound")
        try:
            heard = self._read(Path(item.video), item)
        except NoSound:
            return Heard(silence="no sound")
        if heard.sound is not None and heard.sound.silent:
            return Heard(silence="silent")
        return heard

    def file(self, item: Item) -> Heard:
        """The sound of an audio item.

        Raises:
            SoundError: the file cannot be used, or there is nothing to hear in it.
        """
        if not isinstance(item.audio, (str, Path)):
            raise SoundError(f"audio is {type(item.audio).__name__}; give the path of a file")
        heard = self._read(Path(item.audio), item)
        if heard.sound is not None and heard.sound.silent:
            raise SoundError(f"{item.audio}: silent; there is nothing to hear, and nothing to see beside it")
        return heard

    def _read(self, path: Path, item: Item) -> Heard:
        end = item.end
        stop = (item.start or 0.0) + self.longest + _JUST_LONGER
        if stop < float("inf") and (end is None or end > stop):
            end = stop
        sound = self.pool.read_sound(path, rate=self.rate, start=item.start, end=end)
        if sound.duration <= self.longest:
            return Heard(sound)
        return Heard(Sound.of(sound.samples[: round(self.longest * self.rate)], self.rate), cut=True)
