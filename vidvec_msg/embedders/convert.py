"""An option's text becomes the type that a signature names."""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_TRUE = {"true", "yes", "1", "on"}
_FALSE = {"false", "no", "0", "off"}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def convert(text: str, wanted: Any) -> Any:
    """The value that a text stands for.

    Args:
        text: for example ``"2"``, ``"none"``, ``"true"``.
        wanted: str, int, float, bool, Path, a Literal, or a union of these and None. What else a union names
            is not tried: its str or Path member is.

    Raises:
        ValueError: the text is not of that type; the message says what is accepted.
    """
    origin = get_origin(wanted)
    if origin is Literal:
        return _one_of(text, get_args(wanted))
    if origin in (Union, UnionType):
        return _member(text, get_args(wanted))
    if wanted is bool:
        return _boolean(text)
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {_KINDS[wanted]}") from None
    if wanted is Path:
        return Path(text)
    return text


def _one_of(text: str, accepted: tuple[Any, ...]) -> Any:
    for value in accepted:
        if text == str(value):
            return value
    raise ValueError(f"{text!r} is not one of {', '.join(str(value) for value in accepted)}")


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"{text!r} is neither true nor false")


def _member(text: str, members: tuple[Any, ...]) -> Any:
    if NoneType in members and text.lower() in ("none", "null", ""):
        return None
    rest = [member for member in members if member is not NoneType]
    simple = [member for member in (bool, int, float) if member in rest]
    for member in simple:
        try:
            return convert(text, member)
        except ValueError:
            if len(rest) == 1:
                raise
    literals = [member for member in rest if get_origin(member) is Literal]
    if not literals or str in rest:
        return text
    try:
        return convert(text, literals[0])
    except ValueError as error:
        others = "".join(f", nor {_KINDS[member]}" for member in simple)
        raise ValueError(f"{error}{others}") from None
