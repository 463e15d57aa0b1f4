"""What a parser says about the value of an option, in the words of whoever wrote the option.

jsonargparse lists every type that a value failed to be; what is accepted, which classes there are, and what
the one named needs, is not in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature

from vidvec_msg.errors import did_you_mean
from vidvec_msg.train import losses
from vidvec_msg.train.losses import PairLoss
from vidvec_msg.wrong_values import IN_WORDS, explain_file

_KEY = re.compile(r'Parser key "([\w.]+)"')
_CLASS = re.compile(r"Problem with given class_path '([\w.]+)'")
_LACKING = re.compile(r"the following arguments are required: ([\w, ]+)")
_STRANGE = re.compile(r"Option '([\w.-]+)' is not accepted")
_NO_SUBCLASS = re.compile(r"not correspond to a subclass of (\w+)")
_NO_CLASS = (
    re.compile(r"module '[\w.]+' has no attribute '(\w+)'"),
    re.compile(r"Expected a dot import path string: (\S+)"),
    re.compile(r"Expected a path but (\S+) either not accessible or invalid"),
    re.compile(r"Unexpected import path format: (\S+)"),
)
_EXPECTED = re.compile(r"Expected an? <class '([\w.]+)'>")
_LITERALS = re.compile(r"typing\.Literal(\[[^\]]*\])")
_GIVEN = re.compile(r"(?:Got value|Given value): (?:NestedArg\(key='([\w.]+)', val=(.+)\)|(.+))")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an option is when its value is a class.

    Args:
        what: one of them.
        names: those that need no module before their name.
    """

    what: str
    names: Callable[[], Iterable[str]]


def shipped_losses() -> dict[str, type[PairLoss]]:
    """Every loss of this package by its name."""
    found = {name: getattr(losses, name) for name in losses.__all__}
    return {
        name: kind
        for name, kind in found.items()
        if isinstance(kind, type) and issubclass(kind, PairLoss) and kind is not PairLoss
    }


def _callbacks() -> list[str]:
    from vidvec_msg.train.callback_checks import CALLBACKS

    return [kind.__name__ for kind in CALLBACKS]


def _loggers() -> list[str]:
    from pytorch_lightning import loggers

    return [name for name in loggers.__all__ if name != "Logger"]


def _strategies() -> list[str]:
    from vidvec_msg.train.strategies import asked_for

    return [*asked_for.NAMES, *sorted(set(asked_for.OURS.values()))]


KINDS: Mapping[str, Kind] = {
    "model.loss": Kind("PairLoss", shipped_losses),
    "trainer.callbacks": Kind("Callback", _callbacks),
    "trainer.logger": Kind("Logger", _loggers),
    "trainer.strategy": Kind("Strategy", _strategies),
}
"""Options whose values are classes."""


def explain_value(message: str, *, verb: str) -> str | None:
    """A refusal that names what was given and what is accepted.

    Args:
        message: what the parser said.
        verb: whose options they are.

    Returns:
        None if the message is about something else.
    """
    hint = f"configs/train holds some, and `{verb} --print_config` writes one"
    if told := explain_file(message, hint=hint, inside=verb):
        return told
    if (key := _KEY.search(message)) is None:
        return None
    name, about = key[1].removeprefix(f"{verb}."), message[key.end() :]
    return _of_classes(name, about) or _of_values(name, about)


def _of_classes(name: str, about: str) -> str | None:
    """About a class that is not there, or about one's options."""
    if (lacking := _LACKING.search(about)) and (around := _CLASS.findall(about[: lacking.start()])):
        return f"{name}: {_short(around[-1])} needs {lacking[1].strip()}{_options_of(around[-1])}"
    if inside := _CLASS.search(about):
        own = re.split(r"\n    - ", about[inside.end() :])[0]  # the parser goes on with its other guesses
        if strange := _STRANGE.search(own):
            hint = did_you_mean(strange[1], signature(_imported(inside[1])).parameters)
            return f"{name} {_short(inside[1])}: unknown option {strange[1]!r}{hint}{_options_of(inside[1])}"
        if (key := _KEY.search(own)) is not None:
            deeper = f"{name}.{key[1]}"
            return _of_classes(deeper, own[key.end() :]) or _of_values(deeper, own[key.end() :])
    kind = KINDS.get(name)
    if kind is None:
        return None
    accepted = f"accepted: {', '.join(sorted(kind.names()))}, or the full path of a {kind.what} of your own"
    if _NO_SUBCLASS.search(about):
        given = re.search(r"Given value: (\S+)", about)
        return f"{name}: {f'{given[1]!r} is' if given else 'that is'} no {kind.what}; {accepted}"
    for pattern in _NO_CLASS:
        if (found := pattern.search(about)) is not None:
            hint = did_you_mean(found[1], kind.names())
            return f"{name}: there is no {kind.what} {found[1]!r}{hint}; {accepted}"
    return None


def _of_values(name: str, about: str) -> str | None:
    """About a value that is none of the accepted ones, or of another type."""
    if (given := _GIVEN.search(about)) is None:
        return None
    inner, nested, plain = given.groups()
    value = (nested or plain).strip().strip("'")
    accepted = [
        str(one)
        for choices in _LITERALS.findall(about)
        for one in ast.literal_eval(choices)  # a list of constants
    ]
    nullable = ["null"] if "NoneType" in about else []
    if not accepted:
        kinds = [kind.rpartition(".")[2] for kind in _EXPECTED.findall(about)]
        accepted, nullable = [IN_WORDS.get(kind, f"a {kind}") for kind in kinds], []
    if not accepted:
        return None
    listed = ", ".join(dict.fromkeys([*accepted, *nullable]))
    where = f"{name}.{inner}" if inner else name
    return f"{where} is {value!r}{did_you_mean(value, accepted)}; accepted: {listed}"


def _short(path: str) -> str:
    return path.rpartition(".")[2]


def _imported(path: str) -> Callable[..., object]:
    module, _, name = path.rpartition(".")
    found: Callable[..., object] = getattr(import_module(module), name)
    return found


def _options_of(path: str) -> str:
    shown = [
        name if entry.default is Parameter.empty else f"{name} ({entry.default})"
        for name, entry in signature(_imported(path)).parameters.items()
    ]
    return f"; its options and their defaults: {', '.join(shown)}"
