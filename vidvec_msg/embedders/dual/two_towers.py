"""An embedder of two encoders that end in one space: one for words, one for what is seen."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vidvec_msg.embedders.batching import halved_if_out_of_memory
from vidvec_msg.embedders.check import unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.contract import EmbedderCard, Inspection, Role, Vectors, check_role
from vidvec_msg.embedders.prompts import TEXT_SLOT
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item, Pixels
from vidvec_msg.media.frames import frame_times

logger = logging.getLogger(__name__)


class Towers(Protocol):
    """Two encoders with one space; they know nothing of items, roles and prompts."""

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest text in tokens, the tokenizer's own marks included."""
        ...

    def wording(self, text: str) -> str:
        """The text as the tokenizer gets it: lower case for models that were trained so."""
        ...

    def count_tokens(self, wording: str) -> int:
        """Tokens of a text before any cut."""
        ...

    def texts(self, wordings: Sequence[str]) -> np.ndarray:
        """Float32 (texts, dim), of any norm; what is too long is cut at its end."""
        ...

    def clips(self, clips: Sequence[Pixels]) -> np.ndarray:
        """Float32 (clips, dim), of any norm, from clips of uint8 (frames, height, width, 3) each."""
        ...

    def visual_tokens(self, clip: Pixels) -> int:
        """Patches that the vision tower sees of a clip; 0 where the model has none."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """A text item on its way to the tokenizer.

    Args:
        wording: as the tokenizer gets it.
        tokens: that the model sees.
        cut: tokens of content that did not fit.
    """

    wording: str
    tokens: int
    cut: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A clip or an image, which is a clip of one frame.

    Args:
        pixels: uint8 (frames, height, width, 3).
        asked: frames that the policy asks for in a clip of this duration.
        reader: who decoded it.
    """

    pixels: Pixels
    asked: int
    reader: str


class TwoTowerEmbedder:
    """Items to vectors through two towers; :class:`DualEncoder` and :class:`VideoPrism` build theirs.

    A clip is its frames; ``text``, ``title``, ``transcript`` and ``ocr`` beside a medium are not read.

    Args:
        towers: the model.
        card: what decides the vectors.
        clips: reads frames.
        templates: words around a text, per role; ``{text}`` stands in each exactly once.
        batch_size: texts that run together at most.
        batch_frames: frames that run together at most.
    """

    def __init__(
        self,
        towers: Towers,
        card: EmbedderCard,
        clips: ClipReader,
        templates: dict[Role, str],
        *,
        batch_size: int,
        batch_frames: int,
    ) -> None:
        self.towers = towers
        self.batch_size = batch_size
        self.batch_frames = batch_frames
        self.cut_items = 0  # texts that did not fit so far, and by how many tokens
        self.cut_tokens = 0
        self._card = card
        self._clips = clips
        self._templates = templates
        self._judged = False  # whether the space was looked at for collapse
        self._told_of_cuts = False
        for role, template in templates.items():
            empty = towers.count_tokens(towers.wording(template.replace(TEXT_SLOT, "")))
            if empty >= towers.max_tokens:
                raise ValueError(
                    f"{role}_prompt takes {empty} tokens and leaves no room for the text: the model reads "
                    f"{towers.max_tokens}"
                )

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors."""
        return self._card

    def prepare(self, items: Sequence[Item]) -> None:
        """Begins to decode the clips among the items in the background and returns at once."""
        self._clips.prepare(items)

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items.

        Args:
            items: any mixture of texts, images and clips.
            role: "query" or "document"; decides the words around a text, if there are any.

        Returns:
            float32 (items, dim).

        Raises:
            ItemError: all items that cannot be read; or items whose vector is not finite.
        """
        check_role(role)
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        self.prepare(items)
        states = np.empty((len(items), self.card.dim), dtype=np.float32)
        failures: list[Failure] = []
        words: list[tuple[int, Words]] = []
        waiting: list[tuple[int, Pixels]] = []  # clips of the batch that is being filled
        for row, item in enumerate(items):
            try:
                read = self._read(item, role)
            except ValueError as error:  # VideoError, ImageError, an empty text
                failures.append(Failure(item.id, str(error)))
                continue
            if isinstance(read, Words):
                words.append((row, read))
                continue
            if failures:
                continue  # nothing will be returned: read on for the other reasons, without the model
            frames = sum(len(pixels) for _, pixels in waiting)
            if waiting and frames + len(read.pixels) > self.batch_frames:
                self._run_clips(waiting, states)
                waiting = []
            waiting.append((row, read.pixels))
        if failures:
            raise ItemError(failures)
        if waiting:
            self._run_clips(waiting, states)
        self._run_words(words, states)
        vectors = unit_vectors(states, items, dtype=self.card.dtype)
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        return vectors

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        """What the model is given of each item.

        ``frames_used`` counts the clip's own frames, not those that are repeated to fill a fixed number.

        Raises:
            ItemError: all items that cannot be read.
        """
        check_role(role)
        self.prepare(items)
        found: list[Inspection] = []
        failures: list[Failure] = []
        for item in items:
            try:
                found.append(self._inspection(item, self._read(item, role)))
            except ValueError as error:
                failures.append(Failure(item.id, str(error)))
        if failures:
            raise ItemError(failures)
        return found

    def _inspection(self, item: Item, read: Words | Seen) -> Inspection:
        if isinstance(read, Words):
            return Inspection(
                item=item.id, wording=read.wording, text_tokens=read.tokens, cut_tokens=read.cut
            )
        height, width = read.pixels.shape[1:3]
        return Inspection(
            item=item.id,
            visual_tokens=self.towers.visual_tokens(read.pixels),
            frames_asked=read.asked,
            frames_used=len(read.pixels),
            size=(height, width),
            reader=read.reader,
        )

    # --- reading --------------------------------------------------------------------------------------------

    def _read(self, item: Item, role: Role) -> Words | Seen:
        """An item's content.

        Raises:
            ValueError: it cannot be embedded; the reason.
        """
        if item.modality not in self.card.modalities:
            readable = ", ".join(self.card.modalities)
            raise ValueError(f"this embedder reads {readable}; the item is {item.modality}")
        if item.modality == "text":
            if not item.full_text:
                raise ValueError("empty text")
            return self._words(item.full_text, role)
        if item.modality == "image":
            return Seen(self._clips.image_of(item)[None], asked=1, reader="")  # (1, height, width, 3)
        frames = self._clips.clip_of(item)
        asked = len(frame_times(0.0, frames.duration, self._clips.policy))
        return Seen(frames.pixels, asked=asked, reader=frames.reader)

    def _words(self, text: str, role: Role) -> Words:
        template = self._templates[role]
        whole = self.towers.wording(template.replace(TEXT_SLOT, text))
        tokens = self.towers.count_tokens(whole)
        limit = self.towers.max_tokens
        if tokens <= limit:
            return Words(whole, tokens, cut=0)
        if not template.partition(TEXT_SLOT)[2].strip():
            return Words(whole, limit, cut=tokens - limit)  # the tokenizer cuts at the end: content only
        fitting = self._shortened(text, template)
        kept = self.towers.count_tokens(fitting)
        return Words(fitting, kept, cut=tokens - kept)

    def _shortened(self, text: str, template: str) -> str:
        """The longest beginning of a text, in whole words, that fits with the words around it: content is
        cut, the prompt never."""
        words = text.split()
        fits, too_many = 0, len(words)
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            worded = self.towers.wording(template.replace(TEXT_SLOT, " ".join(words[:middle])))
            if self.towers.count_tokens(worded) <= self.towers.max_tokens:
                fits = middle
            else:
                too_many = middle
        if fits == 0:
            raise ValueError(
                f"its first word alone does not fit into {self.towers.max_tokens} tokens with the prompt"
            )
        return self.towers.wording(template.replace(TEXT_SLOT, " ".join(words[:fits])))

    # --- running --------------------------------------------------------------------------------------------

    def _run_clips(self, clips: Sequence[tuple[int, Pixels]], states: np.ndarray) -> None:
        rows = [row for row, _ in clips]
        states[rows] = halved_if_out_of_memory(self.towers.clips, [pixels for _, pixels in clips])

    def _run_words(self, words: Sequence[tuple[int, Words]], states: np.ndarray) -> None:
        """Longest first: batches of equal length, and memory is exhausted at once or never."""
        self._count_cuts([one for _, one in words])
        order = sorted(words, key=lambda pair: -pair[1].tokens)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            rows = [row for row, _ in batch]
            states[rows] = halved_if_out_of_memory(self.towers.texts, [one.wording for _, one in batch])

    def _count_cuts(self, words: Sequence[Words]) -> None:
        self.cut_items += sum(one.cut > 0 for one in words)
        self.cut_tokens += sum(one.cut for one in words)
        if self.cut_items and not self._told_of_cuts:
            self._told_of_cuts = True
            logger.warning(
                "%s: texts longer than the model's %d tokens are cut (%d tokens of %d items so far)",
                self.card.name,
                self.towers.max_tokens,
                self.cut_tokens,
                self.cut_items,
            )
