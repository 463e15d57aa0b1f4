"""A chat template that words one item exactly as an embedder does, for tools that know chat templates.

sentence-transformers puts every input into a user message and renders it with the model's chat template;
its own prompts go before a text only, while ours also go behind it. What surrounds the content is the same
string for every item of a kind, so the template consists of those strings and of the content between them.
They are read off the embedder's own rendering, whatever that came from, and checked against it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vidvec_msg.embedders.chat import Chat, Placement
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Modality, Pixels
from vidvec_msg.media.video import Frames

_MARK = "x7q"  # stands for the content while the words around it are read off
_ROOM = 1 << 20  # tokens: the marks are never cut
# texts whose wording is compared before a template is trusted; control tokens of the model are added
PROBES = (
    "a dog",
    "  spaces at both ends \n",
    "An end.",
    "two\n\nlines\tand a tab",
    "naïve café, Straße, Ελληνικά, русский, עברית, हिन्दी",
    "東京の夜、雨が降る。",
    "emoji 🐢🏁 and a zero-width\u200bspace",
    "{{ braces }} {% of jinja %} and a \"quote\" with 'others' and a \\ backslash",
    "https://example.org/cat.png",
    "1 2 3 4 5",
    "Summarize above sentence in one word: ",
)

Around = tuple[str, str]  # the words before the content and behind it


@dataclass(frozen=True, slots=True)
class Wording:
    """Everything that an embedder puts around an item.

    Args:
        text: around a text.
        media: around nothing, per kind of medium: the whole turn of a clip or an image without words.
        said: around a transcript, per kind of medium; empty if transcripts are not placed.
        control: tokens that are broken up inside content, in this order.
    """

    text: Around
    media: dict[Modality, str]
    said: dict[Modality, Around]
    control: tuple[str, ...]


def wording_of(
    chat: Chat, prompt: PromptTemplate, placement: Placement, modalities: Sequence[Modality]
) -> Wording:
    """Reads an embedder's wording off its rendering.

    Args:
        chat: the embedder's.
        prompt: its template.
        placement: where it puts a clip's transcript.
        modalities: what it reads; of these, texts, images and clips are worded here.

    Raises:
        RefusedRequest: the rendering depends on the content, so that no constant words surround it.
    """
    text = _split(chat.text_turn(prompt, _MARK, max_tokens=_ROOM).prompt)
    if chat.processor is None:
        text = _with_special_tokens(chat, prompt, text)
    media: dict[Modality, str] = {}
    said: dict[Modality, Around] = {}
    for kind, visual in _visuals(chat).items():
        if kind not in modalities:
            continue
        media[kind] = chat.visual_turn(prompt, visual, max_tokens=_ROOM).prompt
        if placement != "none":
            turn = chat.visual_turn(prompt, visual, transcript=_MARK, placement=placement, max_tokens=_ROOM)
            said[kind] = _split(turn.prompt)
    return Wording(text, media, said, _broken_up(chat, prompt))


def words_of(embedder: MultimodalLLM) -> Wording:
    """:func:`wording_of` a loaded embedder."""
    card = embedder.card
    if card.prompt is None:
        raise RefusedRequest(
            f"embedder {card.name!r} has no prompt, so nothing says how its items are worded"
        )
    # a chat template can place a clip's frames, and not hear its sound with them
    kinds = [kind for kind in card.modalities if kind != "video" or not card.sound]
    return wording_of(embedder.chat, card.prompt, card.transcript, kinds)


def unserved(embedder: MultimodalLLM) -> list[Modality]:
    """What a loaded embedder reads and the template does not word."""
    return [kind for kind in embedder.card.modalities if kind not in ("text", *words_of(embedder).media)]


def fits(embedder: MultimodalLLM, text: str) -> bool:
    """Whether a loaded embedder takes a text whole."""
    prompt, limit = embedder.card.prompt, embedder.card.max_tokens
    if prompt is None or limit is None:
        return True
    return embedder.chat.text_turn(prompt, text, max_tokens=_ROOM).tokens <= limit


def item_template(wording: Wording) -> str:
    """The Jinja template: one user message in, the embedder's words out.

    A message's content is a string, or a list of at most one text and at most one medium. Whatever the
    embedder would refuse or word in another way (an empty text, a system turn, an answer, words beside a
    medium where transcripts are not placed) raises: nothing is embedded under other words than it seems.
    """
    kinds = ", ".join(["text", *wording.media])
    lines = [
        "{%- set item = namespace(turns=0, text='', texts=0, kind='text') -%}",
        "{%- for message in messages -%}",
        "{%- if message['role'] != 'user' -%}",
        _raise("this embedder words each item itself: no system turn, prompt or answer is accepted"),
        "{%- endif -%}",
        "{%- set item.turns = item.turns + 1 -%}",
        "{%- set parts = message['content'] -%}",
        "{%- if parts is string -%}{%- set parts = [{'type': 'text', 'text': parts}] -%}{%- endif -%}",
        "{%- for part in parts -%}",
        "{%- if part['type'] == 'text' -%}",
        "{%- set item.text = part['text'] | trim -%}{%- set item.texts = item.texts + 1 -%}",
        f"{{%- elif part['type'] in {_literal(list(wording.media))} and item.kind == 'text' -%}}",
        "{%- set item.kind = part['type'] -%}",
        "{%- else -%}",
        _raise(f"this embedder reads {kinds}, one medium an item"),
        "{%- endif -%}",
        "{%- endfor -%}",
        "{%- endfor -%}",
        "{%- if item.turns != 1 or item.texts > 1 -%}",
        _raise("an item is one user message with one text"),
        "{%- endif -%}",
        f"{{%- for token in {_literal(list(wording.control))} -%}}",
        "{%- set item.text = item.text | replace(token, token[0] ~ ' ' ~ token[1:]) -%}",
        "{%- endfor -%}",
        "{%- if item.kind == 'text' -%}",
        "{%- if not item.text -%}" + _raise("empty text") + "{%- endif -%}",
        _around(wording.text),
    ]
    for kind, alone in wording.media.items():
        lines.append(f"{{%- elif item.kind == {_literal(kind)} -%}}")
        lines.append("{%- if item.text -%}")
        if kind in wording.said:
            lines.append(_around(wording.said[kind]))
        else:
            lines.append(_raise(f"this embedder reads no words beside a medium ({kind})"))
        lines.append(f"{{%- else -%}}{{{{- {_literal(alone)} -}}}}{{%- endif -%}}")
    lines.append("{%- endif -%}")
    return "\n".join(lines)


def check_template(chat: Chat, prompt: PromptTemplate, template: str) -> None:
    """Compares token ids of texts under the template with the embedder's own.

    Args:
        chat: the embedder's.
        prompt: its template.
        template: of :func:`item_template`.

    Raises:
        RefusedRequest: a text has other token ids.
    """
    inside = [f"before {token} behind" for token in _broken_up(chat, prompt)]
    for text in (*PROBES, *inside):
        ours = chat.text_ids(prompt, text, max_tokens=_ROOM)
        theirs = ids_under(chat, template, text)
        if ours != theirs:
            raise RefusedRequest(
                f"this model cannot be exported exactly: the text {text!r} has {len(ours)} tokens here and "
                f"{len(theirs)} other ones under the template that the exported folder would carry"
            )


def ids_under(chat: Chat, template: str, text: str) -> list[int]:
    """Token ids of a text, rendered by the template as transformers' ``apply_chat_template`` does it."""
    renderer: Any = chat.processor if chat.processor is not None else chat.tokenizer
    message = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    encoded = renderer.apply_chat_template([message], chat_template=template, tokenize=True, return_dict=True)
    ids: list[int] = list(encoded["input_ids"][0])
    return ids


def _visuals(chat: Chat) -> dict[Modality, Frames | Pixels]:
    """One of each kind that fills a visual slot; what it shows does not matter to the words."""
    if chat.processor is None:
        return {}
    pixels = np.zeros((2, 56, 56, 3), dtype=np.uint8)
    clip = Frames(
        pixels=pixels,
        times=np.array([0.0, 1.0]),
        indices=np.array([0, 1]),
        fps=1.0,
        total_frames=2,
        duration=2.0,
        reader="memory",
    )
    return {"image": pixels[0], "video": clip}


def _split(prompt: str) -> Around:
    before, mark, behind = prompt.partition(_MARK)
    if not mark or _MARK in behind:
        raise RefusedRequest(
            "this model cannot be exported: its chat template does not word an item exactly once "
            f"(it gives {prompt!r})"
        )
    return before, behind


def _broken_up(chat: Chat, prompt: PromptTemplate) -> tuple[str, ...]:
    """The model's control tokens that the embedder breaks up inside content, longest first as it does."""
    added = getattr(chat.tokenizer, "added_tokens_decoder", {}).values()
    named = (getattr(chat.processor, f"{kind}_token", None) for kind in ("image", "video", "audio"))
    known = (
        {str(token) for token in added}
        | set(chat.tokenizer.all_special_tokens)
        | {name or "" for name in named}
    )
    candidates = sorted((token for token in known if len(token) > 1), key=len, reverse=True)
    if not candidates:
        return ()
    words = chat.text_turn(prompt, "\n".join(candidates), max_tokens=_ROOM).prompt.split("\n")
    return tuple(token for token in candidates if any(f"{token[0]} {token[1:]}" in line for line in words))


def _with_special_tokens(chat: Chat, prompt: PromptTemplate, around: Around) -> Around:
    """The words around a text with the special tokens that the tokenizer adds: a bare tokenizer adds none to
    what a chat template gave."""
    ids = chat.text_ids(prompt, _MARK, max_tokens=_ROOM)
    bare: list[int] = chat.tokenizer(_MARK.join(around), add_special_tokens=False)["input_ids"]
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            tokens = chat.tokenizer.convert_ids_to_tokens
            before, behind = tokens(ids[:start]), tokens(ids[start + len(bare) :])
            return "".join(before) + around[0], around[1] + "".join(behind)
    return around  # check_template finds the difference


def _around(around: Around) -> str:
    return f"{{{{- {_literal(around[0])} ~ item.text ~ {_literal(around[1])} -}}}}"


def _raise(why: str) -> str:
    return f"{{{{- raise_exception({_literal(why)}) -}}}}"


def _literal(value: str | list[str]) -> str:
    """A Jinja literal. JSON's escapes are Jinja's; what is not ASCII stays as it is (a surrogate pair would
    become two characters)."""
    return json.dumps(value, ensure_ascii=False)
