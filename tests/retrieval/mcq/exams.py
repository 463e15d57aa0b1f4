"""Small collections and questions for exams."""

from __future__ import annotations

from pathlib import Path

from fakes import KEYWORDS

from vidvec_msg.formats.collections import Collection, write_collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.mcq.question import Option, Question

MESSAGES = 6  # of each topic


def messages(folder: Path, *, topics: int = 2, clips: int = 3, reverse: bool = False) -> Collection:
    """Topics of six messages each, each with a keyword of its own and some storylines that hold it."""
    queries, corpus, qrels = [], [], {}
    for topic in range(topics):
        for number in range(MESSAGES):
            name, word = f"t{topic}m{number}", KEYWORDS[number]
            queries.append(
                {"_id": name, "text": f"{word} wisdom {topic}", "groups": {"topic": f"topic {topic}"}}
            )
            for clip in range(clips):
                corpus.append(
                    {"_id": f"{name}c{clip}", "text": f"a {word} story", "groups": {"mood": f"mood {clip}"}}
                )
                qrels.setdefault(name, {})[f"{name}c{clip}"] = 1
    if reverse:
        queries, corpus = queries[::-1], corpus[::-1]
    write_collection(folder, corpus=corpus, queries=queries, qrels={"test": qrels})
    return Collection.load(folder)


def question(
    name: str = "q", *texts: str, right: int = 0, clip: Item | None = None, words: str = "Which?"
) -> Question:
    """A question of the given options, or of four fruits."""
    texts = texts or ("apple pie", "bridge toll", "candle light", "dog days")
    options = tuple(Option(f"o{number}", text) for number, text in enumerate(texts))
    return Question(name, clip or Item(name, text="an apple story"), words, options, right)
