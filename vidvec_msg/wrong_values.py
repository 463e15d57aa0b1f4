"""What a parser says about the value of an option, in words: what was given, what is accepted, what to do.

jsonargparse lists every type that a value failed to be, by its name in Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from vidvec_msg.errors import did_you_mean

IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "a table of names and values",
    "Path": "a path",
    "NoneType": "null",
}
"""What a value must be, by the Python type."""

_SEVERAL = {
    "int": "whole numbers",
    "float": "numbers",
    "str": "texts",
    "Path": "paths",
    "bool": "true or false",
}

_KEY = re.compile(r'Parser key "([\w.]+)"')
_GIVEN = re.compile(r"Given value type: (?P<kind>[^\n]+)\n\s*Given value:(?P<value>.*)", re.DOTALL)
_GOT = re.compile(r"Got value:(.*)")
_NESTED = re.compile(r"NestedArg\(key='([\w.-]+)', val=(.+)\)", re.DOTALL)
_WITHOUT = re.compile(r"argument --([\w.]+)(?:/--[\w.]+\+)?: expected one argument")
_NO_FILE = re.compile(r"Parser key \"([\w.]+)\":\s*File does not exist: '(.+)'")


def explain_value(message: str, types: Mapping[str, Any]) -> str | None:
    """A refusal that names what was given and what is accepted.

    Args:
        message: what the parser said.
        types: option → what it takes, as its signature says.

    Returns:
        None if the message is about something else.
    """
    if (without := _WITHOUT.search(message)) is not None and without[1] in types:
        kind = types[without[1]]
        return f"--{without[1]} is given without a value; accepted: {', '.join(accepted(kind))}"
    key = _KEY.search(message)
    name = "" if key is None else key[1].partition(".")[0]
    if key is None or name not in types:
        return None
    tables = [part for part in (types[name], *get_args(types[name])) if get_origin(part) is dict]
    if "NestedArg" in message and not tables:
        told = f"--{name} is no table, and has no --{name}.NAME"
        return f"{told}; accepted: {', '.join(accepted(types[name]))}"
    if (found := _GIVEN.search(message, key.end())) is not None:
        value, is_text = found["value"].strip(), "'str'" in found["kind"]
    elif (got := _GOT.search(message, key.end())) is not None:
        value = got[1].strip()
        is_text = not value.startswith(("[", "{"))
    else:
        return None
    where, kind = name, types[name]
    if (nested := _NESTED.fullmatch(value)) is not None:  # one of a table's values
        where, value = f"{name}.{nested[1]}", nested[2]
        kind = get_args(tables[0])[1]
    wrong = inner[1].strip() if (inner := _GOT.search(message, key.end())) is not None else value
    told = (
        f"--{where} is {repr(value) if is_text else value}{did_you_mean(wrong, _choices(kind))}; "
        f"accepted: {', '.join(accepted(kind))}"
    )
    if is_text and kind is types[name] and tables:
        told += (
            f". A table stands in one word (--{name} '{{NAME: VALUE}}'), in several (--{name}.NAME VALUE), "
            f"or under {name}: in the YAML file of --config; the name of a file is none"
        )
    return told


def explain_file(message: str, *, hint: str, inside: str = "") -> str | None:
    """A refusal of a file of options that is not there, or holds none.

    Args:
        message: what the parser said.
        hint: what helps.
        inside: subcommand that the parser puts before the names of options.

    Returns:
        None if the message is about something else.
    """
    if message.startswith("Problems parsing config"):
        told = " ".join(message.partition(":")[2].replace('in "<unicode string>", ', "").split())
        return f"the config is not YAML: {told}"
    if message.startswith("Unexpected config"):
        told = " ".join(message.partition(":")[2].split())
        return (
            f"the config holds no table of options, but {told[:60]!r}; give a YAML file of options ({hint})"
        )
    if (missing := _NO_FILE.search(message)) is None:
        return None
    name, path = missing[1].removeprefix(f"{inside}."), Path(missing[2])
    beside = [file.name for file in path.parent.glob("*") if file.is_file()]
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return (
        f"--{name} {shown}: there is no such file{did_you_mean(path.name, beside)}; give a YAML file of "
        f"options ({hint})"
    )


def accepted(kind: Any) -> list[str]:
    """What a type takes, in words, one entry per possibility."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return list(dict.fromkeys(told for part in inner for told in accepted(part)))
    if origin is Literal:
        return [str(one) for one in inner]
    if kind is None or kind is NoneType:
        return ["null"]
    if origin in (list, Sequence):
        return [f"a list of {_several(inner[0])}"]
    if origin in (dict, Mapping):
        return [f"a table of names and {_several(inner[1])}"]
    name = getattr(kind, "__name__", str(kind))
    return [IN_WORDS.get(name, f"a {name}")]


def _several(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(str(one) for one in get_args(kind))
    return _SEVERAL.get(getattr(kind, "__name__", ""), "values")


def _choices(kind: Any) -> list[str]:
    """The words among what a type takes."""
    if get_origin(kind) is Literal:
        return [str(one) for one in get_args(kind)]
    return [one for part in get_args(kind) for one in _choices(part)]
