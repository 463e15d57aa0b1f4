"""Phrases that betray a model: refusals, talk about the task, and worn-out wording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vidvec_msg.data_synth.filters.contract import Draft, Reason
from vidvec_msg.data_synth.filters.watched import Watched
from vidvec_msg.data_synth.parsing import is_refusal

TASK: Mapping[str, str] = {
    r"\bas an ai\b": "ai",
    r"\blanguage model\b": "language",
    r"\bas requested\b": "requested",
    r"^\W*here (?:is|are|'s) (?:a|the|your)\b(?=.{0,40}:)": "here",
    r"\bpersonas?\b": "persona personas",
    r"\bthe publisher\b": "publisher",
    r"\bstoryline\b": "storyline",
    r"\[(?:insert|name|your|message|storyline)\b[^\]]*\]": "insert name your message storyline",
    r"\blorem ipsum\b": "lorem",
    r"```": "",
    r"^\s*(?:message|storyline|caption)\s*:": "message storyline caption",
}
WORN: Mapping[str, str] = {
    r"\ba testament to\b": "testament",
    r"\btapestry of\b": "tapestry",
    r"\bin today's (?:fast-paced )?world\b": "today",
    r"\bat the end of the day\b": "day",
    r"\bit'?s not about .{1,60}? it'?s about\b": "about",
    r"\bremember,": "remember",
    r"\bthe power of\b": "power",
    r"\bunlock(?:ing|s)? (?:your|the (?:power|potential|secrets?))\b": "unlock unlocks unlocking",
    r"\bembrac(?:e|ing) (?:the|your)\b": "embrace embracing",
    r"\ba (?:stark|powerful|gentle|poignant) reminder\b": "reminder",
}


class Phrases:
    """Rejects pairs with a refusal, with words about the task itself, or with worn-out wording.

    Args:
        further: regular expressions of your own, without case.
        worn: whether worn-out wording counts.

    Raises:
        ValueError: an expression that is none.
    """

    name = "phrases"

    def __init__(self, further: Sequence[str] = (), worn: bool = True) -> None:
        for expression in further:
            try:
                re.compile(expression)
            except re.error as error:
                raise ValueError(f"further: {expression!r} is no regular expression: {error}") from error
        self._task = Watched(TASK)
        self._worn = Watched({**(WORN if worn else {}), **dict.fromkeys(further, "")})
        self._watched = self._task | self._worn

    def reason(self, draft: Draft) -> Reason | None:
        """Why the pair is rejected."""
        # mostly there is nothing: both texts in one look
        if not self._watched.may_match(f"{draft.message}\n{draft.storyline}", draft.words) and not (
            is_refusal(draft.message) or is_refusal(draft.storyline)
        ):
            return None
        for what, text in (("message", draft.message), ("storyline", draft.storyline)):
            if is_refusal(text):
                return Reason("refusal", f"the {what} begins {text[:60]!r}")
            if found := self._task.first(text, draft.words):
                return Reason("talks about the task", f"{found!r} in the {what}")
            if found := self._worn.first(text, draft.words):
                return Reason("boilerplate", f"{found!r} in the {what}")
        return None
