"""How an item is worded for a chat model: template, user turn, token ids, processor call.

Training reads ``text_ids`` and evaluation reads ``batch``; both go through one rendering, so a text has the
same token ids on either path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from vidvec_msg.embedders.prompts import TEXT_SLOT, VISUAL_SLOT, PromptTemplate
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.video import Frames

# processors whose inputs for one item were found not to depend on the others of the call
_MIXES_SIZES = {"VideoLlama3Processor", "Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"}

Placement = Literal["before", "after", "none"]
Side = Literal["right", "left"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One item, worded: the rendered chat and what fills its visual slot.

    Args:
        prompt: the chat as a string, generation prompt included, placeholder tokens not yet expanded.
        frames: of a clip.
        image: uint8 ``(height, width, 3)``.
        tokens: of the prompt, placeholders not expanded.
        cut: tokens of content that did not fit.
    """

    prompt: str
    tokens: int
    frames: Frames | None = None
    image: Pixels | None = None
    cut: int = 0

    @property
    def size(self) -> int:
        """A guess of the tokens after expansion, to sort by; exact for text."""
        visual = self.frames.pixels if self.frames is not None else self.image
        # 28 x 28 pixels make a token: a patch of the Qwen-VL families after merging
        return self.tokens + (0 if visual is None else visual.size // 3 // (28 * 28))

    @property
    def kind(self) -> Literal["text", "image", "video"]:
        """What fills the visual slot."""
        if self.frames is not None:
            return "video"
        return "text" if self.image is None else "image"


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
        self._control = _control_tokens(tokenizer, processor)

    @classmethod
    def open(
        cls,
        model: str,
        *,
        revision: str | None = None,
        trust_remote_code: bool = False,
        padding: Side = "right",
    ) -> Chat:
        """The processor (or the tokenizer, if the model has no processor) of a folder or hub model.

        Raises:
            RefusedRequest: neither can be loaded; the message holds the reason.
        """
        from transformers import AutoProcessor, AutoTokenizer

        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        try:
            found = AutoProcessor.from_pretrained(model, **options)
            if hasattr(found, "tokenizer"):
                return cls(found.tokenizer, found, padding=padding)
            if not hasattr(found, "convert_tokens_to_ids"):  # an image processor alone
                found = AutoTokenizer.from_pretrained(model, **options)
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise RefusedRequest(
                f"cannot load a processor or tokenizer for {model!r}: {error}. Accepted are a folder with a "
                "checkpoint and its processor files, or a hub name `org/name` that this machine can reach."
            ) from error
        return cls(found, padding=padding)

    @property
    def template(self) -> str | None:
        """The chat template, or None if the model has none."""
        own = getattr(self.processor, "chat_template", None)
        return own or getattr(self.tokenizer, "chat_template", None)

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
            return self._render([{"type": "text", "text": f"{before}{content}{after}"}], template.instruction)

        prompt, tokens, cut = self._fit(render, self._as_words(text), max_tokens)
        return Turn(prompt, tokens, cut=cut)

    def text_ids(self, template: PromptTemplate, text: str, *, max_tokens: int) -> list[int]:
        """Token ids of :meth:`text_turn`, unpadded."""
        return self._ids(self.text_turn(template, text, max_tokens=max_tokens).prompt)

    def visual_turn(
        self,
        template: PromptTemplate,
        visual: Frames | Pixels,
        *,
        transcript: str | None = None,
        placement: Placement = "none",
        max_tokens: int = 1024,
    ) -> Turn:
        """A clip, or an image, in its user turn.

        Args:
            template: wording around the frames.
            visual: frames of a clip, or an image as uint8 ``(height, width, 3)``.
            transcript: what is said; None or blank leaves no trace.
            placement: the transcript's place: "before" the frames (VidVec-Msg), "after" them, or "none".
            max_tokens: tokens of the words (chat, prompt and transcript; the frames not counted). A longer
                transcript is cut at its end.

        Raises:
            ValueError: the model takes no frames, or the prompt alone is longer than ``max_tokens``.
        """
        if self.processor is None:
            raise ValueError("this model reads text only")
        kind = "video" if isinstance(visual, Frames) else "image"
        before, after = (template.video if kind == "video" else template.image).split(VISUAL_SLOT)

        def render(said: str) -> str:
            opening = f"{said}\n{before}" if said and placement == "before" else before
            closing = f"\n{said}{after}" if said and placement == "after" else after
            parts = [
                {"type": "text", "text": opening},
                {"type": kind},
                {"type": "text", "text": closing},
            ]
            return self._render([part for part in parts if part.get("text") != ""], template.instruction)

        said = (transcript or "").strip() if placement != "none" else ""
        prompt, tokens, cut = self._fit(render, self._as_words(said), max_tokens)
        if isinstance(visual, Frames):
            return Turn(prompt, tokens, frames=visual, cut=cut)
        return Turn(prompt, tokens, image=visual, cut=cut)

    def _render(self, parts: list[dict[str, str]], instruction: str) -> str:
        if self.template is None:
            words = "".join(
                part["text"] if part["type"] == "text" else self._placeholder(part["type"]) for part in parts
            )
            return f"{instruction}\n{words}" if instruction else words
        as_string = self.processor is None  # plain language models' templates expect strings

        def content(of: list[dict[str, str]]) -> Any:
            return "".join(part["text"] for part in of) if as_string else of

        conversation = [{"role": "user", "content": content(parts)}]
        if instruction:
            conversation.insert(
                0, {"role": "system", "content": content([{"type": "text", "text": instruction}])}
            )
        renderer: Any = self.processor if getattr(self.processor, "chat_template", None) else self.tokenizer
        rendered: str = renderer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        return rendered

    def _placeholder(self, kind: str) -> str:
        """The token that the processor replaces by an image's or clip's tokens, for models without a
        template."""
        token = getattr(self.processor, f"{kind}_token", None)
        if token is None:
            raise ValueError(f"this model has no chat template and its processor names no token for a {kind}")
        opens, closes = (getattr(self.processor, f"vision_{edge}_token", "") for edge in ("start", "end"))
        return f"{opens}{token}{closes}"

    def _as_words(self, text: str) -> str:
        """Breaks up control tokens inside content: `<|im_end|>` in a transcript must not end the turn, and a
        placeholder must not ask for frames."""
        for token in self._control:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    # --- length ---------------------------------------------------------------------------------------------

    def _fit(self, render: Callable[[str], str], content: str, max_tokens: int) -> tuple[str, int, int]:
        """Renders with as much of the content's beginning as fits.

        Returns:
            the rendering, its tokens, and the tokens of content that were cut.
        """
        prompt = render(content)
        total = len(self._ids(prompt))
        if total <= max_tokens:
            return prompt, total, 0
        ends = self._token_ends(content)
        keep = len(ends)
        while total > max_tokens:
            keep -= total - max_tokens
            if keep < 1:
                around = len(self._ids(render("")))
                raise ValueError(
                    f"max_tokens is {max_tokens}, and the prompt around the content takes {around} of them; "
                    "raise max_tokens or shorten the prompt"
                )
            prompt = render(content[: ends[keep - 1]])
            total = len(self._ids(prompt))
        self.cut_items += 1
        self.cut_tokens += len(ends) - keep
        return prompt, total, len(ends) - keep

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
        ids: list[int] = self.tokenizer(prompt, add_special_tokens=self._adds_specials(prompt))["input_ids"]
        return ids

    def _adds_specials(self, prompt: str) -> bool:
        """transformers' own rule for processors: not if the template wrote the first token itself."""
        bos = self.tokenizer.bos_token
        return not (bos is not None and prompt.startswith(bos))

    # --- the processor call ---------------------------------------------------------------------------------

    def batch(self, turns: Sequence[Turn]) -> Mapping[str, torch.Tensor]:
        """Model inputs of a batch; clips may differ in length, and texts may stand among them.

        Args:
            turns: at least one. Images and clips do not go into one batch (SmolVLM gives both the same name).

        Returns:
            ``input_ids`` and ``attention_mask`` of shape (batch, tokens), and what the family adds for
            pixels.

        Raises:
            ValueError: images and clips in one batch.
        """
        prompts = [turn.prompt for turn in turns]
        settings: dict[str, Any] = {
            "padding": True,
            "padding_side": self.padding,
            "return_tensors": "pt",
            "add_special_tokens": self._adds_specials(prompts[0]),
        }
        if self.processor is None:
            encoded: Mapping[str, torch.Tensor] = self.tokenizer(prompts, **settings)
            return encoded
        kinds = {turn.kind for turn in turns}
        if {"image", "video"} <= kinds:
            raise ValueError("images and clips go into batches of their own")
        if "image" in kinds:
            settings["images"] = [[] if turn.image is None else [turn.image] for turn in turns]
        if "video" in kinds:
            clips = [self._long_enough(turn.frames) for turn in turns if turn.frames is not None]
            given = iter(clips)
            settings["videos"] = [[next(given).pixels] if turn.kind == "video" else [] for turn in turns]
            # the frames are chosen already; without the metadata families assume 24 fps and wrong positions
            settings["do_sample_frames"] = False
            settings["video_metadata"] = [video_metadata(clip) for clip in clips]
            settings["fps"] = clips[0].sampled_fps  # Qwen2.5-Omni reads this one instead
        processed: Mapping[str, torch.Tensor] = self.processor(text=prompts, **settings)
        return processed

    def go_together(self, one: Turn, other: Turn) -> bool:
        """Whether two turns may share a processor call without changing each other's inputs.

        Tested families take any mixture of sizes. Others get equals only: SmolVLM words every clip of a call
        with the frame count of the longest, and Qwen2.5-Omni takes one frame rate for all clips of a call.
        """
        if one.kind != other.kind:
            return False
        if one.kind == "text" or type(self.processor).__name__ in _MIXES_SIZES:
            return True
        if one.frames is not None and other.frames is not None:
            same_rate = abs(one.frames.sampled_fps - other.frames.sampled_fps) < 1e-3
            return same_rate and one.frames.pixels.shape == other.frames.pixels.shape
        return one.image is not None and other.image is not None and one.image.shape == other.image.shape

    def _long_enough(self, frames: Frames) -> Frames:
        """Repeats the last frame where the family needs at least one full temporal patch (Qwen3-VL: 2
        frames)."""
        patch = getattr(getattr(self.processor, "video_processor", None), "temporal_patch_size", 1) or 1
        missing = patch - len(frames.pixels)
        if missing <= 0:
            return frames
        last = [-1] * missing
        return Frames(
            pixels=np.concatenate([frames.pixels, frames.pixels[last]]),
            times=np.concatenate([frames.times, frames.times[last]]),
            indices=np.concatenate([frames.indices, frames.indices[last]]),
            fps=frames.fps,
            total_frames=frames.total_frames,
            duration=frames.duration,
            reader=frames.reader,
        )


def video_metadata(frames: Frames) -> dict[str, Any]:
    """What processors need to know about the clip that frames come from.

    They compute a frame's second as index / fps. Indices are therefore counted on a clock of the source's
    mean rate, from the segment's beginning: right for clips of variable rate and for segments too.
    """
    return {
        "fps": frames.fps,
        "total_num_frames": max(round(frames.duration * frames.fps), len(frames.pixels)),
        "frames_indices": np.rint(frames.times * frames.fps).astype(int).tolist(),
        "duration": frames.duration,
    }


def _control_tokens(tokenizer: Any, processor: Any | None) -> list[str]:
    """Tokens with a meaning for the model's machinery, longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    found = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
    found |= {getattr(processor, name, None) or "" for name in ("image_token", "video_token", "audio_token")}
    return sorted((token for token in found if len(token) > 1), key=len, reverse=True)
