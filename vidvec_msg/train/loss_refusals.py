"""What a parser says about ``model.loss``, in the words of whoever wrote the option.

jsonargparse lists every type that a value failed to be; which losses there are, and what the one named needs,
is not in it.
"""

from __future__ import annotations

import re
from inspect import Parameter, signature

from vidvec_msg.errors import did_you_mean
from vidvec_msg.train import losses
from vidvec_msg.train.losses import PairLoss

_KEY = re.compile(r'Parser key "(?:\w+\.)?model\.loss"')
_CLASS = re.compile(r"Problem with given class_path '[\w.]*?(\w+)'")
_LACKING = re.compile(r"the following arguments are required: ([\w, ]+)")
_NO_CLASS = (
    re.compile(r"module '[\w.]+' has no attribute '(\w+)'"),
    re.compile(r"Expected a dot import path string: (\S+)"),
    re.compile(r"Expected a path but (\S+) either not accessible or invalid"),
    re.compile(r"Unexpected import path format: (\S+)"),
)


def shipped_losses() -> dict[str, type[PairLoss]]:
    """Every loss of this package by its name."""
    found = {name: getattr(losses, name) for name in losses.__all__}
    return {
        name: kind
        for name, kind in found.items()
        if isinstance(kind, type) and issubclass(kind, PairLoss) and kind is not PairLoss
    }


def explain_loss(message: str) -> str | None:
    """A refusal that names the losses, or the options of the one that lacks some.

    Args:
        message: what the parser said.

    Returns:
        None if the message is about something else.
    """
    if not _KEY.search(message):
        return None
    known = shipped_losses()
    if lacking := _LACKING.search(message):
        name = _CLASS.findall(message[: lacking.start()])[-1]
        options = _options_of(known[name]) if name in known else ""
        return f"model.loss: {name} needs {lacking[1].strip()}{options}"
    if "not correspond to a subclass of PairLoss" in message:
        given = re.search(r"Given value: (\S+)", message)
        what = f"{given[1]!r} is no PairLoss" if given else "that is no PairLoss"
        return f"model.loss: {what}; {_accepted(known)}"
    for pattern in _NO_CLASS:
        if found := pattern.search(message):
            name = found[1]
            return f"model.loss: no loss {name!r}{did_you_mean(name, known)}; {_accepted(known)}"
    return None


def _accepted(known: dict[str, type[PairLoss]]) -> str:
    return f"losses: {', '.join(sorted(known))}, or the full path of a PairLoss of your own"


def _options_of(kind: type[PairLoss]) -> str:
    shown = [
        name if entry.default is Parameter.empty else f"{name} ({entry.default})"
        for name, entry in signature(kind).parameters.items()
    ]
    return f"; its options and their defaults: {', '.join(shown)}"
