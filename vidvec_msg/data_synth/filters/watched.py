"""Expressions looked for in many texts: each behind a plain word that must be there for it to match."""

from __future__ import annotations

import re
from collections.abc import Mapping


class Watched:
    """Several expressions, without case.

    An alternation of twenty expressions costs 50 µs a text, twenty searches for a plain word 4 µs.

    Args:
        expressions: expression → a lower-case text that each of its matches holds; empty where there is none.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        self._expressions = dict(expressions)
        self._entries = [
            (needle, re.compile(expression, re.IGNORECASE | re.MULTILINE))
            for expression, needle in expressions.items()
        ]
        self._needles = tuple(dict.fromkeys(expressions.values()))

    def __or__(self, other: Watched) -> Watched:
        return Watched({**self._expressions, **other._expressions})

    def may_match(self, text: str) -> bool:
        """False where no expression can match; quick."""
        return any(map(text.lower().__contains__, self._needles))

    def first(self, text: str) -> str | None:
        """The words of the first expression that matches; None if none does."""
        lowered = text.lower()
        if not any(map(lowered.__contains__, self._needles)):
            return None
        for needle, expression in self._entries:
            if needle in lowered and (found := expression.search(text)):
                return found[0]
        return None
