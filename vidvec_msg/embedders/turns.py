"""One item, worded: what goes into a model's processor."""

from __future__ import annotations

from dataclasses import dataclass

from vidvec_msg.embedders.hearing import Heard
from vidvec_msg.formats.items import Modality, Pixels
from vidvec_msg.media.sound import Sound
from vidvec_msg.media.video import Frames


@dataclass(frozen=True, slots=True)
class Turn:
    """One item, worded: the rendered chat and what fills its slot.

    Args:
        prompt: the chat as a string, generation prompt included, placeholder tokens not yet expanded.
        frames: of a clip.
        image: uint8 ``(height, width, 3)``.
        tokens: of the prompt, placeholders not expanded.
        cut: tokens of content that did not fit.
        heard: sound of the clip, or sound alone; None if nobody listened.
        ids: token ids of the prompt of a text or a question, special tokens included, placeholders not
            expanded.
    """

    prompt: str
    tokens: int
    frames: Frames | None = None
    image: Pixels | None = None
    cut: int = 0
    heard: Heard | None = None
    ids: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """A guess of the tokens after expansion, to sort by; exact for text."""
        visual = self.frames.pixels if self.frames is not None else self.image
        # 28 x 28 pixels make a token: a patch of the Qwen-VL families after merging
        seen = 0 if visual is None else visual.size // 3 // (28 * 28)
        # 25 tokens a second: Qwen2.5-Omni's rate, twice that of Qwen3-Omni
        return self.tokens + seen + (0 if self.sound is None else round(25 * self.sound.duration))

    @property
    def pictures(self) -> int:
        """Frames of a clip; an image, or sound alone, counts as one."""
        return len(self.frames.pixels) if self.frames is not None else int(self.kind != "text")

    @property
    def sound(self) -> Sound | None:
        """What the model hears."""
        return None if self.heard is None else self.heard.sound

    @property
    def kind(self) -> Modality:
        """What fills the slot."""
        if self.frames is not None:
            return "video"
        if self.image is not None:
            return "image"
        return "text" if self.sound is None else "audio"
