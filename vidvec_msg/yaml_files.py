"""A YAML file that somebody wrote by hand: read whole, or refused with what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest, did_you_mean


def read_table(path: Path, *, what: str, holds: str) -> Mapping[Any, Any]:
    """The table that a YAML file holds.

    Args:
        path: the file.
        what: it is, for messages: "template", "--prices".
        holds: what stands in it, for messages.

    Raises:
        RefusedRequest: there is no such file, or it is no YAML, or no table; the message says what is needed.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        beside = [one.name for one in path.parent.glob("*") if one.suffix in (".yaml", ".yml")]
        hint = did_you_mean(path.name, beside)
        raise RefusedRequest(
            f"{what} {path}: no such file{hint}; needed is a YAML file of {holds}"
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # of another encoding, or a date that is none
        told = _told(error)
        raise RefusedRequest(f"{what} {path} is not YAML: {told}; needed are {holds}") from error
    except OSError as error:
        raise RefusedRequest(
            f"{what} {path} cannot be read ({error.strerror}); needed is a YAML file of {holds}"
        ) from error
    if not isinstance(content, Mapping):
        raise RefusedRequest(f"{what} {path} is no table, but {_kind(content)}; needed are {holds}")
    return content


def _told(error: Exception) -> str:
    """What is wrong with a file, and where, in one line."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return " ".join(str(error).split())
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})"


def _kind(content: object) -> str:
    if content is None:
        return "empty"
    return {"list": "a list", "str": "a text"}.get(type(content).__name__, f"a {type(content).__name__}")
