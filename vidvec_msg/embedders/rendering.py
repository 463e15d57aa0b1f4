"""The parts of a user turn → one string: by the chat template, with a placeholder for each medium."""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateError

from vidvec_msg.embedders.omni import hears
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.embedders.visuals import frames_as_images, takes_images, takes_videos
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.video import Frames


class Rendering:
    """The chat template of a model, and its words for media.

    Args:
        tokenizer: of the model.
        processor: of the model; None for a language model without eyes.
    """

    def __init__(self, tokenizer: Any, processor: Any | None) -> None:
        self.tokenizer = tokenizer
        self.processor = processor
        self.options: dict[str, Any] = {}  # variables of the chat template, such as enable_thinking
        self._moved: dict[str, bool] = {}  # media that the chat template moves before all words
        self._control = _control_tokens(tokenizer, processor)

    @property
    def template(self) -> str | None:
        """The chat template, or None if the model has none."""
        own = getattr(self.processor, "chat_template", None)
        return own or getattr(self.tokenizer, "chat_template", None)

    def slots(self, visual: Frames | Pixels) -> list[dict[str, str]]:
        """The parts of a conversation that stand for a clip or an image.

        Raises:
            ValueError: the model takes no such thing.
        """
        kind = "video" if isinstance(visual, Frames) else "image"
        if not (takes_images(self.processor) or (kind == "video" and takes_videos(self.processor))):
            raise ValueError(self._blindness(kind))
        if isinstance(visual, Frames) and frames_as_images(self.processor):
            return [{"type": "image"}] * len(visual.pixels)
        return [{"type": kind}]

    def chat(self, parts: list[dict[str, str]], template: PromptTemplate) -> str:
        """The chat as a string, generation prompt included; the bare words without a chat template.

        Args:
            parts: of the user turn: ``{"type": "text", "text": …}`` and those of :meth:`slots`.
            template: says what the system turn is, and whether there is a chat at all.

        Raises:
            ValueError: the chat template refuses it, or a medium has no token.
        """
        if self.template is None or not template.chat:
            words = self._words(parts)
            return f"{template.instruction}\n{words}" if template.instruction else words
        medium = next((part["type"] for part in parts if part["type"] != "text"), None)
        if medium and parts[0]["type"] == "text" and self._puts_first(medium):
            # as a word among words, a placeholder stays where it is
            parts = [{"type": "text", "text": self._words(parts)}]
        return self._chat_of(parts, template.instruction)

    def _puts_first(self, medium: str) -> bool:
        """Whether the chat template moves a medium before all words, as LLaVA-OneVision's does."""
        if medium not in self._moved:
            token, word = self.token(medium), "sentinel"
            chat = self._chat_of([{"type": "text", "text": word}, {"type": medium}], "")
            self._moved[medium] = token is not None and 0 <= chat.find(token) < chat.find(word)
        return self._moved[medium]

    def _chat_of(self, parts: list[dict[str, str]], instruction: str) -> str:
        as_string = self.processor is None  # plain language models' templates expect strings

        def content(of: list[dict[str, str]]) -> Any:
            return "".join(part["text"] for part in of) if as_string else of

        conversation = [{"role": "user", "content": content(parts)}]
        if instruction:
            conversation.insert(
                0, {"role": "system", "content": content([{"type": "text", "text": instruction}])}
            )
        renderer: Any = self.processor if getattr(self.processor, "chat_template", None) else self.tokenizer
        try:
            rendered: str = renderer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True, **self.options
            )
        except TemplateError as error:
            raise ValueError(
                f"the chat template of {type(renderer).__name__} refuses this chat: {error}. If it takes no "
                "system turn, write the instruction into the prompt's text, video and image"
            ) from error
        return rendered

    def _words(self, parts: list[dict[str, str]]) -> str:
        """The parts' words in order, a placeholder for each medium."""
        return "".join(
            part["text"] if part["type"] == "text" else self.placeholder(part["type"]) for part in parts
        )

    def token(self, kind: str) -> str | None:
        """The token that the processor replaces by an image's or clip's tokens."""
        token: str | None = getattr(self.processor, f"{kind}_token", None)
        return token

    def placeholder(self, kind: str) -> str:
        """What stands for a medium among words, where no template writes it.

        Raises:
            ValueError: the processor names no token for it.
        """
        token = self.token(kind)
        if token is None:
            raise ValueError(
                f"{type(self.processor).__name__} names no token for a {kind} (`{kind}_token`), and no chat "
                "template writes one into these words"
            )
        sense = "audio" if kind == "audio" else "vision"
        edges = ("bos", "eos") if hears(self.processor) else ("start", "end")
        opens, closes = (getattr(self.processor, f"{sense}_{edge}_token", "") for edge in edges)
        return f"{opens}{token}{closes}"

    def check_slots(self, prompt: str, slots: list[dict[str, str]]) -> None:
        """Refuses a chat that does not hold a placeholder for each image or clip that will be given.

        Raises:
            ValueError: it does not.
        """
        kind = slots[0]["type"]
        token = self.token(kind)
        if token is None or (found := prompt.count(token)) == len(slots):
            return
        given = f"{len(slots)} {kind}{'s' if len(slots) > 1 else ''}"
        raise ValueError(
            f"the chat template of {type(self.processor).__name__} words {given} as {found} placeholders "
            f"{token}; this model cannot be shown {'several images' if len(slots) > 1 else f'a {kind}'} in "
            "one turn"
        )

    def _blindness(self, kind: str) -> str:
        if self.processor is None:
            return "this model reads text only"
        return (
            f"this model reads no {kind}: its {type(self.processor).__name__} has neither a video processor "
            "nor an image processor"
        )

    def as_words(self, text: str) -> str:
        """Breaks up control tokens inside content: `<|im_end|>` in a transcript must not end the turn, and a
        placeholder must not ask for frames."""
        for token in self._control:
            if token in text:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text


def _control_tokens(tokenizer: Any, processor: Any | None) -> list[str]:
    """Tokens with a meaning for the model's machinery, longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    found = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
    found |= {getattr(processor, name, None) or "" for name in ("image_token", "video_token", "audio_token")}
    return sorted((token for token in found if len(token) > 1), key=len, reverse=True)
