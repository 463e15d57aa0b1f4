"""Which tokens of a vocabulary begin an answer with a word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def single_tokens(tokenizer: Any, word: str, *, any_case: bool = False) -> list[int]:
    """Ids of the forms of a word, bare and with a space before it, that are one token and read as it.

    Args:
        tokenizer: of the model.
        word: in one spelling.
        any_case: take a token that reads as the word in another case, as where a tokenizer lower-cases.
    """
    found = set()
    for form in (word, f" {word}"):
        ids = tokenizer.encode(form, add_special_tokens=False)
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            continue
        read = tokenizer.decode(ids).strip()
        if read == word or (any_case and read.casefold() == word.casefold()):
            found.add(int(ids[0]))
    return sorted(found)


def first_tokens(tokenizer: Any, words: Iterable[str]) -> list[int]:
    """Ids of the tokens that the forms of some words begin with; a lone space is none of them."""
    found = set()
    for word in words:
        for form in (word, f" {word}"):
            ids = tokenizer.encode(form, add_special_tokens=False)
            if ids and ids[0] != tokenizer.unk_token_id and tokenizer.decode(ids[:1]).strip():
                found.add(int(ids[0]))
    return sorted(found)
