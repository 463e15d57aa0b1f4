"""From a model's words to the fields that were asked for: parsed, repaired where that is safe, or a reason.

Three readings, the plainest first: the whole answer, the whole answer in a code fence, and then every
balanced pair of braces in it. Splitting at back-ticks would break on those inside strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vidvec_msg.data_synth.chat import Reply

_THOUGHT = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)  # of reasoning models
_FENCED = re.compile(r"^\s*(`{3,}|~{3,})[\w-]*[ \t]*\n(.*)\n\s*\1\s*$", re.DOTALL)
_REFUSAL = re.compile(
    r"^\W*(?:i['’]?m (?:really |very |so )?sorry|i am sorry|sorry|i apologi[sz]e|"
    r"i (?:can['’]?t|cannot|can not|won['’]?t|will not|must decline|am unable|['’]m unable|am not able)|"
    r"i['’]m (?:unable|not able)|as an ai\b|unfortunately,? i (?:can|am))",
    re.IGNORECASE,
)
_TRIES = 200  # opening braces that are tried; an answer of braces alone would cost its length squared


class Unusable(Exception):
    """An answer that does not hold what was asked for.

    Args:
        code: kind of fault, for counting: "refusal", "empty", "cut off", "filtered", "no JSON", "fields".
        detail: what exactly, in one line.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code, self.detail = code, detail


def is_refusal(text: str) -> bool:
    """Whether a text begins as a model's refusal does."""
    return bool(_REFUSAL.match(text))


def fields_of(reply: Reply, names: Sequence[str]) -> dict[str, str]:
    """The texts of an answer, each in one line.

    Args:
        reply: as it came.
        names: fields that must be there, each a text that is not empty.

    Raises:
        Unusable: it is not what was asked for.
    """
    found = object_of(reply, names)
    result = {}
    for name in names:
        value = found[name]
        if not isinstance(value, str):
            raise Unusable("fields", f"{name} is a {type(value).__name__}, not a text")
        result[name] = " ".join(value.split())
        if not result[name]:
            raise Unusable("fields", f"{name} is empty")
    return result


def object_of(reply: Reply, names: Sequence[str]) -> dict[str, Any]:
    """The JSON object of an answer, with these fields; their names are told apart without case.

    Raises:
        Unusable: a refusal, an empty or a cut answer, no object, or one without the fields.
    """
    text = _THOUGHT.sub("", reply.text).lstrip("\ufeff").strip()
    if reply.refusal or (not text.startswith("{") and is_refusal(text)):
        raise Unusable("refusal", (reply.refusal or text)[:120])
    if reply.finish == "content_filter":
        raise Unusable("filtered", "the endpoint's content filter ended it")
    if not text:
        raise Unusable("empty", "no words in the answer")
    seen: list[str] = []
    for candidate in _objects(text):
        by_name = {str(name).strip().casefold(): value for name, value in candidate.items()}
        if all(name in by_name for name in names):
            return {name: by_name[name] for name in names}
        seen = list(candidate)
    if reply.finish == "length":
        raise Unusable("cut off", "it reached max_tokens before its end")
    if seen:
        missing = ", ".join(name for name in names if name not in {one.casefold() for one in seen})
        raise Unusable("fields", f"no {missing} among {', '.join(seen)[:120]}")
    raise Unusable("no JSON", text[:120])


def truths_of(reply: Reply, names: Sequence[str]) -> dict[str, bool]:
    """Fields that are true or false; "yes" and "no" are taken for them.

    Raises:
        Unusable: one of them is missing or neither.
    """
    found = object_of(reply, names)
    truths: dict[str, bool] = {}
    for name in names:
        value = found[name]
        if isinstance(value, str) and value.strip().casefold() in ("true", "false", "yes", "no"):
            value = value.strip().casefold() in ("true", "yes")
        if not isinstance(value, bool):
            raise Unusable("fields", f"{name} is {value!r}, not true or false")
        truths[name] = value
    return truths


def words_in(reply: Reply, name: str) -> str:
    """A text that may be missing, in one line; empty if it is."""
    try:
        value = object_of(reply, (name,))[name]
    except Unusable:
        return ""
    return " ".join(value.split()) if isinstance(value, str) else ""


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """JSON objects in a text, the most literal reading first."""
    fenced = _FENCED.match(text)
    for whole in (text, *((fenced[2],) if fenced else ())):
        found = _parsed(whole)
        if isinstance(found, list) and len(found) == 1:  # a list of the one object that was asked for
            found = found[0]
        if isinstance(found, dict):
            yield found
    for span in _balanced(text):
        found = _parsed(span)
        if isinstance(found, dict):
            yield found


def _parsed(text: str) -> Any:
    """The value of a JSON text; line breaks inside strings and trailing commas are forgiven."""
    for repaired in (str, without_trailing_commas):
        try:
            return json.loads(repaired(text), strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def without_trailing_commas(text: str) -> str:
    """A JSON text without commas before a closing bracket; what stands in strings stays as it is."""
    result: list[str] = []
    comma = -1  # where in result the last comma stands that only spaces have followed
    for piece in _PIECES.findall(text):
        if piece == ",":
            comma = len(result)
        elif piece in "}]" and comma >= 0:
            result[comma] = ""
            comma = -1
        elif not piece.isspace():
            comma = -1
        result.append(piece)
    return "".join(result)


_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|\s+|[,}\]]|[^",}\]\s]+|"', re.DOTALL)


def _balanced(text: str) -> Iterator[str]:
    """From each opening brace to the one that closes it, braces in strings left out of the count."""
    begin, tries = text.find("{"), 0
    while begin >= 0 and tries < _TRIES:
        tries += 1
        end = _closing(text, begin)
        if end > 0:
            yield text[begin : end + 1]
        begin = text.find("{", begin + 1)


def _closing(text: str, begin: int) -> int:
    depth, inside, escaped = 0, False, False
    for position in range(begin, len(text)):
        char = text[position]
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if not depth:
                return position
    return -1
