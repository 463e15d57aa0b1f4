"""How an item is worded for a chat model: template, user turn, token ids, processor call.

Training reads ``text_ids`` and evaluation reads ``batch``; both go through one rendering, so a text has the
same token ids on either path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from vidvec_msg.embedders.hearing import Heard
from vidvec_msg.embedders.models import remote_code_refusal
from vidvec_msg.embedders.omni import hears, settle_clip_size
from vidvec_msg.embedders.processor_call import (
    Side,
    adds_specials,
    go_together,
    model_inputs,
    video_metadata,
)
from vidvec_msg.embedders.prompts import AUDIO_SLOT, PROMPTS, TEXT_SLOT, VISUAL_SLOT, PromptTemplate
from vidvec_msg.embedders.rendering import Rendering
from vidvec_msg.embedders.turns import Turn
from vidvec_msg.embedders.visuals import settle_sizes
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Modality, Pixels
from vidvec_msg.media.video import Frames

__all__ = ["Chat", "Placement", "Side", "Turn", "video_metadata"]

Placement = Literal["before", "after", "none"]

QUESTION_SLOT = "{query}"


def check_placement(transcript: str) -> None:
    """Raises ValueError for a place of a transcript that there is not."""
    if transcript not in get_args(Placement):
        raise ValueError(f"transcript must be before, after or none, got {transcript!r}")


class Chat:
    """The words around items for one model, made without its weights.

    Args:
        tokenizer: of the model.
        processor: of the model; None for a language model without eyes.
        padding: side on which shorter rows are filled. Right needs no care with positions in a causal model.
    """

    def __init__(self, tokenizer: Any, processor: Any | None = None, *, padding: Side = "right") -> None:
        if padding not in ("right", "left"):
            raise ValueError(f"padding must be 'right' or 'left', got {padding!r}")
        self.tokenizer = tokenizer
        self.processor = processor
        self.padding: Side = padding
        self.cut_items = 0  # items whose content was too long, since this object was made
        self.cut_tokens = 0  # tokens of content that they lost
        tokenizer.padding_side = padding
        if tokenizer.pad_token is None:  # GPT-style; the mask hides padding, its id is of no matter
            tokenizer.pad_token = tokenizer.eos_token
        self.rendering = Rendering(tokenizer, processor)

    @classmethod
    def open(
        cls,
        model: str,
        *,
        revision: str | None = None,
        trust_remote_code: bool = False,
        padding: Side = "right",
        max_pixels: int = 0,
    ) -> Chat:
        """The processor (or the tokenizer, if the model has no processor) of a folder or hub model.

        Args:
            model: folder or hub name.
            revision: commit of a hub model.
            trust_remote_code: run Python files that come with the model.
            padding: side on which shorter rows are filled.
            max_pixels: height x width of the frames and images that will come, at most; the processor does
                not enlarge them again. 0 leaves it to the processor.

        Raises:
            RefusedRequest: neither can be loaded; the message holds the reason.
        """
        from transformers import AutoProcessor, AutoTokenizer

        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        try:
            found = AutoProcessor.from_pretrained(model, **options)
            if hasattr(found, "tokenizer"):
                settle_sizes(found, max_pixels)
                if hears(found):
                    settle_clip_size(found, max_pixels)
                return cls(found.tokenizer, found, padding=padding)
            if not hasattr(found, "convert_tokens_to_ids"):  # an image processor alone
                found = AutoTokenizer.from_pretrained(model, **options)
        except (OSError, ValueError, ImportError, KeyError) as error:
            if refusal := remote_code_refusal(model, error, revision=revision, trusted=trust_remote_code):
                raise refusal from error
            raise RefusedRequest(
                f"cannot load a processor or tokenizer for {model!r}: {error}. Accepted are a folder with a "
                "checkpoint and its processor files, or a hub name `org/name` that this machine can reach."
            ) from error
        return cls(found, padding=padding)

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """What can be worded for the model."""
        if self.processor is None:
            return ("text",)
        return ("text", "image", "video", "audio") if hears(self.processor) else ("text", "image", "video")

    @property
    def template(self) -> str | None:
        """The chat template, or None if the model has none."""
        return self.rendering.template

    # --- wording --------------------------------------------------------------------------------------------

    def text_turn(self, template: PromptTemplate, text: str, *, max_tokens: int) -> Turn:
        """A text in its user turn. Content that does not fit is cut at its end; prompt words never are.

        Args:
            template: wording around the text.
            text: the content. Control tokens of the model inside it are broken up: they are words here.
            max_tokens: tokens of the whole chat, generation prompt included.

        Raises:
            ValueError: the text is empty, or the prompt alone is longer than ``max_tokens``.
        """
        text = text.strip()  # as Item.full_text is: a trailing space in training data must not change the ids
        if not text:
            raise ValueError("empty text")
        before, after = template.text.split(TEXT_SLOT)

        def render(content: str) -> str:
            return self.rendering.chat([{"type": "text", "text": f"{before}{content}{after}"}], template)

        prompt, ids, cut = self._fit(render, self.rendering.as_words(text), max_tokens)
        return Turn(prompt, len(ids), cut=cut, ids=tuple(ids))

    def text_ids(self, template: PromptTemplate, text: str, *, max_tokens: int) -> list[int]:
        """Token ids of :meth:`text_turn`, unpadded."""
        return list(self.text_turn(template, text, max_tokens=max_tokens).ids)

    def visual_turn(
        self,
        template: PromptTemplate,
        visual: Frames | Pixels,
        *,
        transcript: str | None = None,
        placement: Placement = "none",
        max_tokens: int = 1024,
        heard: Heard | None = None,
    ) -> Turn:
        """A clip, or an image, in its user turn.

        Args:
            template: wording around the frames.
            visual: frames of a clip, or an image as uint8 ``(height, width, 3)``.
            transcript: what is said; None or blank leaves no trace.
            placement: the transcript's place: "before" the frames (VidVec-Msg), "after" them, or "none".
            max_tokens: tokens of the words (chat, prompt and transcript; the frames not counted). A longer
                transcript is cut at its end.
            heard: a clip's own sound, which stands where the frames stand.

        Raises:
            ValueError: the model takes no frames, its chat template words another number of them, or the
                prompt alone is longer than ``max_tokens``.
        """
        slots = self.rendering.slots(visual)
        wording = (template.video if isinstance(visual, Frames) else template.image).split(VISUAL_SLOT)
        said = (transcript or "").strip() if placement != "none" else ""
        prompt, tokens, cut = self._around(slots, template, wording, said, placement, max_tokens)
        if isinstance(visual, Frames):
            return Turn(prompt, tokens, frames=visual, cut=cut, heard=heard)
        return Turn(prompt, tokens, image=visual, cut=cut)

    def audio_turn(
        self,
        template: PromptTemplate,
        heard: Heard | None,
        *,
        transcript: str | None = None,
        placement: Placement = "none",
        max_tokens: int = 1024,
    ) -> Turn:
        """Sound alone, in its user turn; the arguments are those of :meth:`visual_turn`.

        Raises:
            ValueError: the model takes no sound, or the prompt alone is longer than ``max_tokens``.
        """
        if not hears(self.processor) or heard is None:
            raise ValueError("this model takes no sound")
        wording = template.audio.split(AUDIO_SLOT)
        said = (transcript or "").strip() if placement != "none" else ""
        slots = [{"type": "audio"}]
        prompt, tokens, cut = self._around(slots, template, wording, said, placement, max_tokens)
        return Turn(prompt, tokens, cut=cut, heard=heard)

    def question_turn(
        self,
        wording: tuple[str, str],
        clip: Frames | Pixels | str | None,
        words: str,
        *,
        transcript: str = "",
        ending: str = "",
        max_tokens: int = 4096,
        heard: Heard | None = None,
    ) -> Turn:
        """A clip and a question about it in one user turn. Nothing of it is ever cut.

        Args:
            wording: what stands before the clip, and what stands behind it with :data:`QUESTION_SLOT` where
                the words go; the words may also stand before the clip.
            clip: frames, an image, a text that stands for a clip, or None for sound alone.
            words: of the question. Control tokens in them are broken up, as in the clip's text.
            transcript: what is said in the clip; stands before it.
            ending: follows the generation prompt, where an answer shall begin.
            max_tokens: tokens of all words, placeholders not expanded.
            heard: the clip's own sound.

        Raises:
            ValueError: the model does not take such a clip, or the words are longer than ``max_tokens``.
        """
        said = self.rendering.as_words(transcript.strip())
        before, after = (part.replace(QUESTION_SLOT, self.rendering.as_words(words)) for part in wording)
        before = f"{said}\n{before}" if said else before
        slots: list[dict[str, str]] = []
        if isinstance(clip, str):
            parts = [{"type": "text", "text": f"{before}{self.rendering.as_words(clip)}{after}"}]
        else:
            if clip is None and (heard is None or not hears(self.processor)):
                raise ValueError("this model takes no sound")
            slots = [{"type": "audio"}] if clip is None else self.rendering.slots(clip)
            parts = [{"type": "text", "text": before}, *slots, {"type": "text", "text": after}]
        prompt = (
            self.rendering.chat([part for part in parts if part.get("text") != ""], PROMPTS["plain"]) + ending
        )
        ids = self._ids(prompt)
        if len(ids) > max_tokens:
            raise ValueError(
                f"the words of the question take {len(ids)} tokens and max_tokens is {max_tokens}; a "
                "question is never cut"
            )
        if slots:
            self.rendering.check_slots(prompt, slots)
        visual = {} if clip is None or isinstance(clip, str) else _filled(clip)
        return Turn(prompt, len(ids), **visual, heard=heard, ids=tuple(ids))

    def _around(
        self,
        slots: list[dict[str, str]],
        template: PromptTemplate,
        wording: Sequence[str],
        said: str,
        placement: Placement,
        max_tokens: int,
    ) -> tuple[str, int, int]:
        """Words around the slots of a medium.

        Returns:
            the rendering, its tokens, and the tokens of the transcript that were cut.
        """
        before, after = wording

        def render(said: str) -> str:
            opening = f"{said}\n{before}" if said and placement == "before" else before
            closing = f"\n{said}{after}" if said and placement == "after" else after
            parts = [{"type": "text", "text": opening}, *slots, {"type": "text", "text": closing}]
            return self.rendering.chat([part for part in parts if part.get("text") != ""], template)

        prompt, ids, cut = self._fit(render, self.rendering.as_words(said), max_tokens)
        self.rendering.check_slots(prompt, slots)
        return prompt, len(ids), cut

    # --- length ---------------------------------------------------------------------------------------------

    def _fit(self, render: Callable[[str], str], content: str, max_tokens: int) -> tuple[str, list[int], int]:
        """Renders with as much of the content's beginning as fits.

        Returns:
            the rendering, its token ids, and the number of tokens of content that were cut.
        """
        prompt = render(content)
        ids = self._ids(prompt)
        if len(ids) <= max_tokens:
            return prompt, ids, 0
        ends = self._token_ends(content)
        keep = len(ends)
        while len(ids) > max_tokens:
            keep -= len(ids) - max_tokens
            if keep < 1:
                around = len(self._ids(render("")))
                raise ValueError(
                    f"max_tokens is {max_tokens}, and the prompt around the content takes {around} of them; "
                    "raise max_tokens or shorten the prompt"
                )
            prompt = render(content[: ends[keep - 1]])
            ids = self._ids(prompt)
        self.cut_items += 1
        self.cut_tokens += len(ends) - keep
        return prompt, ids, len(ends) - keep

    def _token_ends(self, content: str) -> list[int]:
        """Character at which each token of the content ends."""
        if getattr(self.tokenizer, "is_fast", False):
            offsets = self.tokenizer(content, add_special_tokens=False, return_offsets_mapping=True)[
                "offset_mapping"
            ]
            return [end for _, end in offsets]
        ids = self.tokenizer(content, add_special_tokens=False)["input_ids"]
        return [len(self.tokenizer.decode(ids[: count + 1])) for count in range(len(ids))]

    def _ids(self, prompt: str) -> list[int]:
        ids: list[int] = self.tokenizer(prompt, add_special_tokens=adds_specials(self.tokenizer, prompt))[
            "input_ids"
        ]
        return ids

    # --- the processor call ---------------------------------------------------------------------------------

    def batch(self, turns: Sequence[Turn]) -> Mapping[str, Any]:
        """Model inputs of a batch; clips may differ in length, and texts may stand among them.

        Args:
            turns: at least one. Images and clips do not go into one batch (SmolVLM gives both the same name),
                nor do clips with and without their sound.

        Returns:
            ``input_ids`` and ``attention_mask`` of shape (batch, tokens), and what the family adds for
            pixels and sound.

        Raises:
            ValueError: images and clips in one batch, or clips with and without sound.
            RefusedRequest: the processor changed the number of a clip's frames.
        """
        return model_inputs(turns, tokenizer=self.tokenizer, processor=self.processor, side=self.padding)

    def go_together(self, one: Turn, other: Turn) -> bool:
        """Whether two turns may share a processor call without changing each other's inputs.

        Families in :data:`~vidvec_msg.embedders.visuals.MIXES_SIZES` take any mixture of sizes, others get
        equals only.
        """
        return go_together(self.processor, one, other)


def _filled(visual: Frames | Pixels) -> dict[str, Any]:
    return {"frames": visual} if isinstance(visual, Frames) else {"image": visual}
