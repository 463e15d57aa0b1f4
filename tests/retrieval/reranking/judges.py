"""A reranker that a reader can compute in the head, and a collection on which it knows better."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from fakes import KEYWORDS

from vidvec_msg.formats.collections import write_collection
from vidvec_msg.retrieval.reranking.contract import Group, Judged, judged_group


class Judge:
    """Says Yes with 0.9 where text and clip share the ``mark`` behind their keyword, 0.2 where they do not.

    Args:
        dies_after: groups, behind which the process is killed; 0 for never.
        fails: ids of clips that cannot be judged.
        lift: added to the log-odds of a text with an apple, whatever the clip: what a prior takes off.
    """

    name = "judge"
    modalities = ("text",)

    def __init__(self, *, dies_after: int = 0, fails: Sequence[str] = (), lift: float = 0.0) -> None:
        self.fingerprint = f"judge {lift}"
        self.dies_after, self.fails, self.lift = dies_after, fails, lift
        self.asked: list[tuple[str, str]] = []

    def judge(self, groups: Sequence[Group]) -> Iterator[Judged]:
        for number, group in enumerate(groups, start=1):
            self.asked += [(group.clip.id, text.id) for text in group.texts]
            found = [
                "cannot be judged"
                if group.clip.id in self.fails
                else self._logs(group.clip.full_text, text.full_text)
                for text in group.texts
            ]
            yield judged_group(group.clip.id, group.texts, found)
            if number == self.dies_after:
                os.kill(os.getpid(), signal.SIGKILL)

    def _logs(self, clip: str, text: str) -> tuple[float, float]:
        same = bool(clip) and bool(text) and clip.split()[-1] == text.split()[-1]
        odds = math.log(9) if same else math.log(0.25)
        odds += self.lift if "apple" in text else 0.0
        return -math.log1p(math.exp(-odds)), -math.log1p(math.exp(odds))


def marked(root: Path) -> Path:
    """Per keyword three messages with marks of their own, and two documents for each: to the embedder, all of
    a keyword are alike. Every other keyword is of the split dev."""
    corpus, queries = [], []
    qrels: dict[str, dict[str, dict[str, int]]] = {"test": {}, "dev": {}}
    for place, word in enumerate(KEYWORDS[:6]):
        for mark in range(3):
            queries.append({"_id": f"q-{word}-{mark}", "text": f"the {word} {word}{mark}"})
            judged = {}
            for copy in range(2):
                corpus.append(
                    {"_id": f"d-{word}-{mark}-{copy}", "text": f"{word} " * (copy + 1) + f"{word}{mark}"}
                )
                judged[f"d-{word}-{mark}-{copy}"] = 1
            qrels["dev" if place % 2 else "test"][f"q-{word}-{mark}"] = judged
    write_collection(root, corpus=corpus, queries=queries, qrels=qrels)
    return root
