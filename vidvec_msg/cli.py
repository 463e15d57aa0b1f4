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
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vidvec_msg.errors import JobFailed, RefusedRequest, did_you_mean, explain_unknown

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
    "preview": Verb("vidvec_msg.train.preview:main", "a fit's first batch, to the letter", takes_argv=True),
    "collect": Verb(
        "vidvec_msg.retrieval.collect.verb:collect", "a folder of clips, a table, a data set → a collection"
    ),
    "import-benchmark": Verb(
        "vidvec_msg.retrieval.benchmarks.verb:import_benchmark", "a benchmark you have → a collection"
    ),
    "annotate": Verb(
        "vidvec_msg.retrieval.annotate:annotate", "words that clips say and show → the collection"
    ),
    "embed": Verb("vidvec_msg.retrieval.embed:embed", "one side of a collection → a folder of vectors"),
    "index": Verb("vidvec_msg.retrieval.index:index", "vectors or a collection → a FAISS index folder"),
    "index-add": Verb(
        "vidvec_msg.retrieval.indexes.add:index_add", "more items into an index, or new for old"
    ),
    "index-delete": Verb("vidvec_msg.retrieval.indexes.delete:index_delete", "items out of an index, by id"),
    "index-compact": Verb(
        "vidvec_msg.retrieval.indexes.compact:index_compact", "an index of many changes → one segment again"
    ),
    "index-merge": Verb("vidvec_msg.retrieval.indexes.merge:index_merge", "indexes of one embedder → one"),
    "search": Verb("vidvec_msg.retrieval.search:search", "ask an index by text, clip, id, or many queries"),
    "synth": Verb("vidvec_msg.data_synth.verb:synth", "personas and a chat model → pairs that fit takes"),
    "filter-pairs": Verb(
        "vidvec_msg.data_synth.filter_verb:filter_pairs", "any pairs → those that stay, and why others do not"
    ),
    "build-benchmark": Verb(
        "vidvec_msg.data_synth.benchmark.verb:build_benchmark", "messages → clips, rated → a benchmark"
    ),
    "mine-negatives": Verb(
        "vidvec_msg.retrieval.mining.verb:mine_negatives", "hard negatives for pairs, by any embedder"
    ),
    "mine-relevance": Verb(
        "vidvec_msg.retrieval.relevance_mining.verb:mine_relevance", "pairs of one meaning, for review"
    ),
    "evaluate": Verb("vidvec_msg.retrieval.evaluate:evaluate", "measure an embedder in both directions"),
    "compare": Verb("vidvec_msg.retrieval.compare:compare", "evaluations side by side, with paired tests"),
    "fuse": Verb("vidvec_msg.retrieval.fuse:fuse", "evaluations of several embedders → one, lists joined"),
    "rerank": Verb("vidvec_msg.retrieval.rerank:rerank", "the top of a run, judged pair by pair"),
    "leaderboard": Verb(
        "vidvec_msg.retrieval.leaderboard:leaderboard", "many evaluations → one table a benchmark"
    ),
    "mcq": Verb("vidvec_msg.retrieval.mcq.verb:mcq", "multiple choice, by embedders and language models"),
    "probe-layers": Verb(
        "vidvec_msg.retrieval.probing.layers_verb:probe_layers", "which layer of a model retrieves best"
    ),
    "probe-prompts": Verb(
        "vidvec_msg.retrieval.probing.prompts_verb:probe_prompts", "which wording and frames retrieve best"
    ),
    "doctor": Verb("vidvec_msg.retrieval.doctor:doctor", "examine an embedder, and audit a collection"),
    "merge": Verb("vidvec_msg.embedders.merge:merge", "an adapter into its model's weights, as an embedder"),
    "export": Verb("vidvec_msg.embedders.export.verb:export", "an embedder → a folder that other tools open"),
    "push": Verb("vidvec_msg.embedders.push:push", "an embedder or pairs → a repository on a hub"),
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
        # OpenMP threads that wait actively take the cores from each other on a busy machine: 30 steps of the
        # tiny model took 300 s on two such cores, waiting passively 25 s. Read once, when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        with _log_on_stderr():
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
        same = "the same command continues from here"
        further = "what was saved goes on with --ckpt_path last" if words[0] == "fit" else same
        sys.stderr.write(f"\n{PROGRAM}: interrupted; {further}\n")
        return 130
    except BrokenPipeError:  # `| head` closed our output: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except SystemExit as stop:  # --help and --print_config end this way
        if isinstance(stop.code, str):
            sys.stderr.write(f"{PROGRAM}: {stop.code}\n")
            return 2
        return stop.code or 0
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

    from vidvec_msg.wrong_values import explain_file, explain_value

    parser = ArgumentParser(prog=program, description=_description(function), exit_on_error=False)
    parser.add_argument("--config", action="config", help="YAML file of these options; later options win.")
    parser.add_function_arguments(function, as_group=False, as_positional=False)
    options = list(inspect.signature(function).parameters)
    arguments = normalised(words, function)
    try:
        namespace = parser.parse_args(arguments)
    except ArgumentError as error:
        told = (
            explain_file(str(error), hint=f"`{program} --print_config` writes one")
            or explain_value(str(error), typing.get_type_hints(function))
            or explain_unknown(str(error), options, ending=f"Accepted: {', '.join(options)}")
        )
        raise RefusedRequest(f"{told}\nSee `{program} --help`.") from error
    values = parser.instantiate_classes(namespace).as_dict()
    values.pop("config", None)
    return function(**values | _texts_taken_for_nothing(arguments, values, function))


def normalised(words: Sequence[str], function: Callable[..., Any]) -> list[str]:
    """Words as the parser takes them, from words as people type them.

    ``--max-failures`` is ``--max_failures``; a bare flag of a yes-or-no option means yes; a list option
    takes the words that follow it, up to the next option, and more of them each time it is given; a value may
    begin with a dash.
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
        if kind is bool:
            given = value if equals else following[0] if following else ""
            answer = _ANSWERS.get(given.lower())
            position += bool(following and answer)
            result.append(f"--{name}={answer or value or 'true'}")
        elif _takes(kind, list) and (following or value):
            more = "+" if any(earlier.startswith(f"--{name}=") for earlier in result) else ""
            result.append(f"--{name}{more}={_as_list(following or [value])}")
            position += len(following)
        elif following and kind is not None:
            result.append(f"--{name}={following[0]}")
            position += 1
        else:
            result.append(f"--{name}{equals}{value}")
    return result


_ANSWERS = {"true": "true", "yes": "true", "false": "false", "no": "false"}


def _as_list(words: Sequence[str]) -> str:
    """Words as a list for the parser; one that is written as a list stays as it is."""
    listed = len(words) == 1 and words[0].startswith("[") and words[0].endswith("]")
    return words[0] if listed else json.dumps(words)


def _takes(kind: Any, wanted: type) -> bool:
    return any(part is wanted or typing.get_origin(part) is wanted for part in (kind, *typing.get_args(kind)))


def _texts_taken_for_nothing(
    arguments: Sequence[str], values: Mapping[str, Any], function: Callable[..., Any]
) -> dict[str, str]:
    """Options of type ``str | None`` whose words YAML reads as nothing: "#hashtag", "null", "~"."""
    types = typing.get_type_hints(function)
    given = {name[2:]: value for name, equals, value in (word.partition("=") for word in arguments) if equals}
    return {
        name: value
        for name, value in given.items()
        if _takes(types.get(name), str) and values.get(name) is None
    }


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


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    sys.stderr.write(f"{PROGRAM}: warning: {message}\n")


def _not_the_device(record: logging.LogRecord) -> bool:
    return record.module != "real_accelerator"


class _Stderr(logging.Handler):
    """Bare lines to the stderr of the moment: results alone go to stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """While a verb runs: a program that calls :func:`main` keeps its own logging."""
    logger = logging.getLogger("vidvec_msg")
    handler, level = _Stderr(), logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    # DeepSpeed, which peft imports too, names its device on stdout, where results stand
    logging.getLogger("DeepSpeed").addFilter(_not_the_device)
    shown = warnings.showwarning
    warnings.showwarning = _warn  # a user needs what it says, not the line of ours that said it
    try:
        yield
    finally:
        warnings.showwarning = shown
        logger.removeHandler(handler)
        logger.setLevel(level)


if __name__ == "__main__":
    raise SystemExit(main())
