"""``vidvec-msg VERB``: a table of verb → function; the function's signature and docstring are its options.

Every option is also a YAML key (``--config FILE``; ``--print_config`` writes the file). Exit codes: 0 done;
1 done, but more items failed than allowed, or the job could not go on; 2 the request was refused and nothing
was written; 130 interrupted, and resumable by the same command.
"""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vidvec_msg.errors import JobFailed, RefusedRequest, did_you_mean

PROGRAM = "vidvec-msg"


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb.

    Args:
        target: ``module:function``, imported when the verb is called and not before.
        summary: one line for the overview.
        takes_argv: the function parses its own arguments (LightningCLI does) and gets them, verb first.
    """

    target: str
    summary: str
    takes_argv: bool = False


VERBS: Mapping[str, Verb] = {
    "demo": Verb("vidvec_msg.tinyworld.demo:demo", "the whole loop on the tiny world, with a report"),
    "fit": Verb("vidvec_msg.train.fit:main", "train an adapter on text pairs", takes_argv=True),
    "validate": Verb("vidvec_msg.train.fit:main", "retrieval of a checkpoint, both ways", takes_argv=True),
    "embed": Verb("vidvec_msg.retrieval.embed:embed", "one side of a collection → a folder of vectors"),
    "index": Verb("vidvec_msg.retrieval.index:index", "vectors or a collection → a FAISS index folder"),
    "search": Verb("vidvec_msg.retrieval.search:search", "query an index by text, clip, image or id"),
    "evaluate": Verb("vidvec_msg.retrieval.evaluate:evaluate", "measure an embedder in both directions"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code.

    Args:
        argv: the words after the program's name; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return 0
    if words[0] == "--version":
        from vidvec_msg import __version__

        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return 0
    try:
        verb = VERBS[known_verb(words[0])]
        _log_to_stderr()
        function = _load(verb.target)
        if verb.takes_argv:
            function(words)
        else:
            run_function(function, words[1:], program=f"{PROGRAM} {words[0]}")
    except RefusedRequest as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 2
    except JobFailed as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{PROGRAM}: interrupted; the same command continues from here\n")
        return 130
    except BrokenPipeError:  # `| head` closed our output: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except SystemExit as stop:  # --help and --print_config end this way
        return int(stop.code or 0) if not isinstance(stop.code, str) else 2
    return 0


def overview() -> str:
    """The text of ``vidvec-msg --help``."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.summary}" for name, verb in VERBS.items())
    return (
        f"usage: {PROGRAM} VERB [--option value …] [--config FILE.yaml]\n\n"
        "Retrieval embedders made from multimodal LLMs, with text only.\n\n"
        f"{verbs}\n\n"
        f"`{PROGRAM} VERB --help` lists a verb's options with their units; docs/ has a page per verb.\n"
    )


def known_verb(name: str) -> str:
    """The verb itself.

    Raises:
        RefusedRequest: no such verb; the message names the nearest and all of them.
    """
    if name in VERBS:
        return name
    raise RefusedRequest(f"unknown verb {name!r}{did_you_mean(name, VERBS)}; verbs: {', '.join(VERBS)}")


def run_function(function: Callable[..., Any], words: Sequence[str], *, program: str) -> Any:
    """Calls a function with the options that the words give.

    Raises:
        RefusedRequest: a word that is no option, a missing or a wrong value.
    """
    from jsonargparse import ArgumentError, ArgumentParser

    parser = ArgumentParser(prog=program, description=_description(function), exit_on_error=False)
    parser.add_argument("--config", action="config", help="YAML file of these options; later options win.")
    parser.add_function_arguments(function, as_group=False, as_positional=False)
    options = list(inspect.signature(function).parameters)
    try:
        namespace = parser.parse_args(normalised(words, function))
    except ArgumentError as error:
        raise RefusedRequest(f"{explained(str(error), options)}\nSee `{program} --help`.") from error
    values = parser.instantiate_classes(namespace).as_dict()
    values.pop("config", None)
    return function(**values)


def explained(message: str, options: Sequence[str]) -> str:
    """A parser's complaint with the nearest valid name of each option that it does not know."""
    unrecognised = message.partition("unrecognized arguments:")[2]
    unknown = re.findall(r"--([\w.-]+)", unrecognised)
    unknown += re.findall(r"(?:Option|Key|key) '([\w.]+)' is not (?:accepted|expected)", message)
    hints = [f"unknown option {name!r}{did_you_mean(name.replace('-', '_'), options)}" for name in unknown]
    if not hints:
        return message
    return "; ".join(hints) + f". Accepted: {', '.join(options)}"


def normalised(words: Sequence[str], function: Callable[..., Any]) -> list[str]:
    """Words as the parser takes them, from words as people type them.

    ``--max-failures`` is ``--max_failures``; a bare flag of a yes-or-no option means yes; a list option
    takes the words that follow it, up to the next option.
    """
    types = typing.get_type_hints(function)
    result: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--"):
            result.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name.replace("-", "_") in types:  # other options (--print_config) keep their spelling
            name = name.replace("-", "_")
        following: list[str] = []
        if not equals:
            following = list(itertools.takewhile(lambda word: not word.startswith("--"), words[position:]))
        kind = types.get(name)
        if kind is bool and not equals and (not following or following[0] not in ("true", "false")):
            result.append(f"--{name}=true")
        elif _is_list(kind) and following and not following[0].startswith("["):
            result.append(f"--{name}={json.dumps(following)}")
            position += len(following)
        else:
            result.append(f"--{name}{equals}{value}")
    return result


def _is_list(kind: Any) -> bool:
    return any(typing.get_origin(part) is list or part is list for part in (kind, *typing.get_args(kind)))


def _description(function: Callable[..., Any]) -> str:
    """The docstring up to its first section: what the verb does."""
    text = inspect.getdoc(function) or ""
    return re.split(r"\n(?:Args|Returns|Raises|Yields):", text)[0].strip()


def _load(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    if not callable(function):
        raise TypeError(f"verb target {target} is not callable")
    return typing.cast(Callable[..., Any], function)


class _Stderr(logging.Handler):
    """Bare lines to the stderr of the moment: results alone go to stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


def _log_to_stderr() -> None:
    logger = logging.getLogger("vidvec_msg")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Stderr) for handler in logger.handlers):
        logger.addHandler(_Stderr())


if __name__ == "__main__":
    raise SystemExit(main())
