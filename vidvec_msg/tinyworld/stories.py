"""The world's texts: 32 micro-stories, what each one shows and what each one means.

A story has two sides that never share a content word (`shared_words` is empty, and a test holds it so):

* **captions**, literal: what is on screen, with slots ``{a}`` (the main actor) and ``{b}`` (the other one);
  **gists** are the same without the actors, a few words long;
* **messages**, implicit: what a person would take home. Each has nine paraphrases in three sets:

  ============ ====================================== =======================
  set          pretraining (message → paraphrase)      the adapter's pairs
  ============ ====================================== =======================
  trained      yes                                    yes
  held_out     yes                                    no
  never_seen   no (nor the tokenizer's training)      no
  ============ ====================================== =======================

Stories come in contrast pairs that look alike and differ in motion or outcome, so a single frame is not
enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vidvec_msg.tinyworld.story_texts import STORY_TEXTS

ParaphraseSet = Literal["trained", "held_out", "never_seen"]

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 62, 58),
    "orange": (242, 142, 38),
    "yellow": (247, 208, 62),
    "green": (72, 172, 88),
    "blue": (58, 112, 222),
    "purple": (142, 82, 202),
    "pink": (243, 142, 192),
    "white": (246, 246, 244),
}
"""Actor colours by the name captions use, as RGB."""

SHAPES: tuple[str, ...] = ("circle", "square", "triangle")
"""Actor shapes by the name captions use."""

LEAD_INS: tuple[str, ...] = ("", "", "Here, ", "On screen, ", "Watch: ", "In this clip, ")
"""Openings of a caption; the empty one is the commonest."""

# Function words that may stand on both sides: they carry no topic. Words of three letters or fewer are free.
_STOP_WORDS = """
about after again against also among another because before both cannot does down each else even
ever every everyone from have here into itself just more most much never none nothing once only
onto other others over own still than that their them then there they this those through under
until what when where which while who with without your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class Story:
    """One micro-story.

    Args:
        key: short id, also the pairs' group.
        topic: one of `TOPICS`.
        captions: literal wordings with slots ``{a}`` and ``{b}``; every wording holds ``{a}``.
        gists: literal wordings without slots, a few words long.
        trained, held_out, never_seen: paraphrases of the message (see the module's table).
    """

    key: str
    topic: str
    captions: tuple[str, ...]
    gists: tuple[str, ...]
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    never_seen: tuple[str, ...]

    def paraphrases(self, name: ParaphraseSet) -> tuple[str, ...]:
        """The message's paraphrases of one set."""
        return {"trained": self.trained, "held_out": self.held_out, "never_seen": self.never_seen}[name]

    @property
    def messages(self) -> tuple[str, ...]:
        """Every paraphrase of the message, all three sets."""
        return self.trained + self.held_out + self.never_seen


def _lines(block: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in block.strip().splitlines() if line.strip())


def _read_stories(text: str) -> tuple[Story, ...]:
    stories = []
    for chunk in re.split(r"^== ", text, flags=re.M)[1:]:
        head, _, body = chunk.partition("\n")
        key, topic = (part.strip() for part in head.split("|"))
        parts = dict(re.findall(r"^(\w+):\n((?:^ .*\n?)+)", body, flags=re.M))
        stories.append(
            Story(
                key=key,
                topic=topic,
                captions=_lines(parts["shows"]),
                gists=_lines(parts["gist"]),
                trained=_lines(parts["means"]),
                held_out=_lines(parts["held_out"]),
                never_seen=_lines(parts["never_seen"]),
            )
        )
    return tuple(stories)


STORIES: tuple[Story, ...] = _read_stories(STORY_TEXTS)
"""All stories, topic by topic; neighbours (0 and 1, 2 and 3, …) are the contrast pairs."""

STORY_BY_KEY: dict[str, Story] = {story.key: story for story in STORIES}
TOPICS: tuple[str, ...] = tuple(dict.fromkeys(story.topic for story in STORIES))


def withheld_colours(story: Story) -> tuple[str, ...]:
    """The two main-actor colours this story is never trained with: what "combo" clips are drawn in."""
    names = tuple(COLOURS)
    index = STORIES.index(story)
    # 3 is prime to 8 and the pair is an odd 5 apart, so every colour is withheld equally often and
    # the two stories of a contrast pair withhold different colours.
    return names[(3 * index) % len(names)], names[(3 * index + 5) % len(names)]


def caption_texts(story: Story) -> Iterator[str]:
    """Every caption of a story with all slots filled (shapes and colours), and its gists."""
    actors = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    for template in story.captions:
        for number, actor in enumerate(actors):
            yield template.format(a=actor, b=actors[(number + 7) % len(actors)])
    yield from story.gists


def stem(word: str) -> str:
    """A crude stem, good enough to see that "sliding" and "slides" are one word."""
    word = word.lower().removesuffix("'s")
    for suffix in (
        "ness",
        "ingly",
        "edly",
        "ing",
        "ies",
        "ied",
        "ers",
        "er",
        "est",
        "ed",
        "es",
        "ly",
        "s",
        "y",
        "e",
    ):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 4 else word


def content_words(texts: Sequence[str]) -> frozenset[str]:
    """Stems of the words that carry content: over three letters and not in `STOP_WORDS`."""
    found = set()
    for text in texts:
        for word in re.findall(r"[a-zA-Z']+", text):
            if len(word) > 3 and word.lower() not in STOP_WORDS:
                found.add(stem(word))
    return frozenset(found)


def shared_words() -> frozenset[str]:
    """Content-word stems standing both in any caption and in any message of the world: must be empty."""
    literal = [text for story in STORIES for text in caption_texts(story)] + list(LEAD_INS)
    implicit = [text for story in STORIES for text in story.messages]
    return content_words(literal) & content_words(implicit)
