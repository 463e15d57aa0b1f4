"""Prompts: the words around an item that make a generator summarise it.

A template has one slot per modality. Text in training and video at test time go through the same
template with one word changed (the *prompt mirror* of E5-V, LamRA and VidVec); that is what lets an
adapter trained on text alone serve pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vidvec_msg.errors import did_you_mean
from vidvec_msg.yaml_files import read_table

TEXT_SLOT = "{text}"
VISUAL_SLOT = "{video}"
AUDIO_SLOT = "{audio}"

# Marks a field that came later: its default means what a card without the field meant, so that the default
# leaves the fingerprints of earlier cards as they were.
NEUTRAL = {"neutral default": True}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """How an item is worded before the chat template wraps it in a user turn.

    Args:
        text: template of an item that is text; holds ``{text}`` exactly once.
        video: template of an item that is a clip; holds ``{video}`` exactly once, the place of the frames.
        image: template of an item that is one image; holds ``{video}`` exactly once.
        instruction: system turn, empty for none.
        audio: template of an item that is sound alone; holds ``{audio}`` exactly once.
        chat: whether the model's chat template wraps the words; False leaves them as they are, with the
            bare placeholder token in the slot of a medium.
    """

    text: str = "{text}\nSummarize above sentence in one word: "
    video: str = "{video}\nSummarize above video in one word: "
    image: str = "{video}\nSummarize above image in one word: "
    instruction: str = ""
    audio: str = field(default="{audio}\nSummarize above audio in one word: ", metadata=NEUTRAL)
    chat: bool = field(default=True, metadata=NEUTRAL)

    def __post_init__(self) -> None:
        slots = {"text": TEXT_SLOT, "video": VISUAL_SLOT, "image": VISUAL_SLOT, "audio": AUDIO_SLOT}
        for name, slot in slots.items():
            template: str = getattr(self, name)
            if template.count(slot) != 1:
                raise ValueError(
                    f"prompt template {name!r} is {template!r}; it must hold {slot} exactly once, "
                    f"for example {getattr(PROMPTS['vidvec'], name)!r}"
                )
        if self.instruction and not self.chat:
            raise ValueError(
                f"the instruction {self.instruction!r} is a system turn and chat is off; write it into the "
                "templates of text, video, image and audio instead"
            )


PROMPTS: dict[str, PromptTemplate] = {}
"""Presets by name; sources in each entry's comment. What a source does not word (most know no audio, some no
video) follows its other wordings."""

# VidVec (arXiv 2602.08099): `<caption> "Summarize above sentence in one word: "`, then <emb>.
PROMPTS["vidvec"] = PromptTemplate()
# LamRA (its text stage and its inference code): the same wording.
PROMPTS["lamra"] = PromptTemplate()
# E5-V (arXiv 2407.12580): "Summary above …"; it knows images only, and a clip is worded as one.
PROMPTS["e5v"] = PromptTemplate(
    text="{text}\nSummary above sentence in one word: ",
    video="{video}\nSummary above image in one word: ",
    image="{video}\nSummary above image in one word: ",
    audio="{audio}\nSummary above audio in one word: ",
)
# CaRe: E5-V's words for text, its own for clips, without a space at the end.
PROMPTS["care"] = PromptTemplate(
    text="{text}\nSummary above sentence in one word:",
    video="{video}\nSummary above video in one word:",
    image="{video}\nSummary above image in one word:",
    audio="{audio}\nSummary above audio in one word:",
)
# LCO-Embedding: "the above", and no space at the end.
PROMPTS["lco"] = PromptTemplate(
    text="{text}\nSummarize the above text in one word:",
    video="{video}\nSummarize the above video in one word:",
    image="{video}\nSummarize the above image in one word:",
    audio="{audio}\nSummarize the above audio in one word:",
)
# Qwen3-VL-Embedding: nothing around the content; the system turn instructs, the last token of
# "assistant\n" is read.
PROMPTS["qwen3vl-embedding"] = PromptTemplate(
    text="{text}",
    video="{video}",
    image="{video}",
    audio="{audio}",
    instruction="Represent the user's input.",
)
# VLM2Vec-V2 on text-to-video retrieval: its task instruction before a text, its instruction for clips behind
# the bare placeholder token, no chat template.
PROMPTS["vlm2vec"] = PromptTemplate(
    text="Find a video that contains the following visual content: {text}",
    video="{video} Understand the content of the provided video.",
    image="{video} Represent the given image.",
    audio="{audio} Understand the content of the provided audio.",
    chat=False,
)
# Ours, for what a text or clip wants to say rather than what it shows. The end of a sentence of prose, so
# that base models and small instruct models go on with a message; chosen on validation pairs (docs/quality).
PROMPTS["moral"] = PromptTemplate(
    text="{text}\nThe moral of the story is that",
    video="{video}\nThe moral of the video is that",
    image="{video}\nThe moral of the image is that",
    audio="{audio}\nThe moral of the audio is that",
    chat=False,
)
# Nothing around the content: the control that shows what the one-word prompt is worth.
PROMPTS["plain"] = PromptTemplate(text="{text}", video="{video}", image="{video}", audio="{audio}")


def resolve_prompt(prompt: str | PromptTemplate | Mapping[str, Any]) -> PromptTemplate:
    """The template that a value stands for.

    Args:
        prompt: a preset's name; a YAML file of a template's fields; those fields as a mapping; or a template.

    Raises:
        ValueError: an unknown preset or field, or a file that cannot be read; the message says what is
            accepted.
    """
    if isinstance(prompt, PromptTemplate):
        return prompt
    if isinstance(prompt, Mapping):
        known = [entry.name for entry in fields(PromptTemplate)]
        if strangers := sorted(map(str, set(prompt) - set(known))):
            raise ValueError(
                f"unknown prompt fields {', '.join(strangers)}; known fields: {', '.join(known)}"
            )
        return PromptTemplate(**prompt)
    if prompt in PROMPTS:
        return PROMPTS[prompt]
    if prompt.endswith((".yaml", ".yml")):
        example = 'fields such as `text: "{text} In one word: "`'
        return resolve_prompt(read_table(Path(prompt).expanduser(), what="prompt file", holds=example))
    raise ValueError(
        f"unknown prompt preset {prompt!r}{did_you_mean(prompt, PROMPTS)}; known presets: "
        f"{', '.join(sorted(PROMPTS))}. Words of your own go into a YAML file with the fields text, video, "
        "image."
    )


def worded_for(template: PromptTemplate, instruction: str) -> PromptTemplate:
    """The template with another system turn; empty for none.

    Raises:
        ValueError: the template leaves the chat template out, and with it system turns.
    """
    return replace(template, instruction=instruction)
