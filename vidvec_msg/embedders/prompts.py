"""Prompts: the words around an item that make a generator summarise it.

A template has one slot per modality. Text in training and video at test time go through the same
template with one word changed (the *prompt mirror* of E5-V, LamRA and VidVec); that is what lets an
adapter trained on text alone serve pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

TEXT_SLOT = "{text}"
VISUAL_SLOT = "{video}"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """How an item is worded before the chat template wraps it in a user turn.

    Args:
        text: template of an item that is text; holds ``{text}`` exactly once.
        video: template of an item that is a clip; holds ``{video}`` exactly once, the place of the frames.
        image: template of an item that is one image; holds ``{video}`` exactly once.
        instruction: system turn, empty for none.
    """

    text: str = "{text}\nSummarize above sentence in one word: "
    video: str = "{video}\nSummarize above video in one word: "
    image: str = "{video}\nSummarize above image in one word: "
    instruction: str = ""

    def __post_init__(self) -> None:
        for name, slot in (("text", TEXT_SLOT), ("video", VISUAL_SLOT), ("image", VISUAL_SLOT)):
            template: str = getattr(self, name)
            if template.count(slot) != 1:
                raise ValueError(
                    f"prompt template {name!r} is {template!r}; it must hold {slot} exactly once, "
                    f"for example {getattr(PROMPTS['vidvec'], name)!r}"
                )


PROMPTS: dict[str, PromptTemplate] = {}
"""Presets by name; sources in each entry's comment."""

# VidVec (arXiv 2602.08099): `<caption> "Summarize above sentence in one word: "`, then <emb>.
# LamRA's pre-training uses the same wording.
PROMPTS["vidvec"] = PromptTemplate()
# Nothing around the content: the control that shows what the one-word prompt is worth.
PROMPTS["plain"] = PromptTemplate(text="{text}", video="{video}", image="{video}")


def resolve_prompt(prompt: str | PromptTemplate | Mapping[str, str]) -> PromptTemplate:
    """The template of a preset name, or the template itself, or one from a mapping of its fields (YAML).

    Raises:
        ValueError: an unknown preset or field; the message names the known ones.
    """
    if isinstance(prompt, PromptTemplate):
        return prompt
    if isinstance(prompt, Mapping):
        known = [entry.name for entry in fields(PromptTemplate)]
        if strangers := sorted(set(prompt) - set(known)):
            raise ValueError(
                f"unknown prompt fields {', '.join(strangers)}; known fields: {', '.join(known)}"
            )
        return PromptTemplate(**prompt)
    if prompt not in PROMPTS:
        raise ValueError(f"unknown prompt preset {prompt!r}; known presets: {', '.join(sorted(PROMPTS))}")
    return PROMPTS[prompt]
