"""Answers, kept one by one as they come: whatever ends an exam, it goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.retrieval.mcq.question import Answer, Question
from vidvec_msg.runs import write_json_lines

ANSWERS = "answers.jsonl"

Key = tuple[str, str, str]  # fingerprint of the answerer, round, digest of the question


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept answer.

    Args:
        key: what it answers.
        answer: the answer.
        row: its line, with names and letters for people.
    """

    key: Key
    answer: Answer
    row: Mapping[str, Any]


class Answers:
    """The answers of an exam on disk, a line each; failures are not kept, so that they are tried again.

    Args:
        path: the file; a torn last line (a killed process) and lines that are no answers are passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[Key, Kept] = {}
        if path.is_file():
            content = path.read_bytes()
            for line in content.split(b"\n"):
                kept = _read(line)
                if kept is not None:
                    self._kept[kept.key] = kept
            if content and not content.endswith(b"\n"):
                with path.open("ab") as stream:
                    stream.write(b"\n")  # ends the torn line, or the next answer would be torn too

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Answer | None:
        """The answer, if it is there."""
        kept = self._kept.get(key)
        return None if kept is None else kept.answer

    def add(self, key: Key, answer: Answer, question: Question, *, model: str) -> None:
        """Keeps an answer; it is on disk when this returns."""
        row = {
            "model": model,
            "fingerprint": key[0],
            "round": key[1],
            "question": answer.question,
            "letter": None if answer.chosen is None else question.letters[answer.chosen],
            "chosen": None if answer.chosen is None else question.options[answer.chosen].id,
            "right": answer.chosen == question.right,
            "position": answer.chosen,
            "scores": None if answer.scores is None else list(answer.scores),
            "mass": answer.mass,
            "tied": answer.tied,
            "raw": answer.raw,
            "key": key[2],
        }
        self._kept[key] = Kept(key, answer, row)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")

    def settle(self, keys: Iterable[Key]) -> None:
        """Writes the answers of these keys anew in their order, so that a resumed exam ends in the bytes of
        an undisturbed one; those of other models, from earlier exams in this folder, stand behind them."""
        first = list(dict.fromkeys(key for key in keys if key in self._kept))
        others = sorted(self._kept.keys() - set(first))
        rows = [self._kept[key].row for key in (*first, *others)]
        write_json_lines(self.path, rows)


def _read(line: bytes) -> Kept | None:
    try:
        row = json.loads(line)
        scores = row["scores"]
        answer = Answer(
            row["question"],
            row["position"],
            None if scores is None else tuple(scores),
            row["raw"],
            row["mass"],
            row["tied"],
        )
        return Kept((row["fingerprint"], row["round"], row["key"]), answer, row)
    except (ValueError, KeyError, TypeError):
        return None
