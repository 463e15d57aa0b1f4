"""The two ends at which people come in: tasks for them to rate, and their ratings made a collection."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.annotation.collection import collection_from_ratings
from vidvec_msg.data_synth.annotation.rule import load_rule
from vidvec_msg.data_synth.annotation.tasks import check_request, export_tasks
from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean
from vidvec_msg.runs import read_json

RANKED, TASKS, COLLECTION = "ranked.jsonl", "tasks", "collection"
_OURS = ("ranked", "ratings", "out", "rule", "files", "tasks", "about")
_TOLD = ("models", "templates", "ranking", "providers")  # of a build's summary, for the collection's card


def check_options(
    tasks: Mapping[str, Any] | None, collecting: Mapping[str, Any] | None, problems: Problems
) -> None:
    """Notes options of the two that there are not, and values that they cannot have."""
    for name, given, function in (
        ("tasks", tasks, export_tasks),
        ("collecting", collecting, collection_from_ratings),
    ):
        known = _options(function)
        for key in given or {}:
            if key not in known:
                problems.add(f"{name}: unknown {key!r}{did_you_mean(key, known)}; known: {', '.join(known)}")
    right = [
        _fits(name, key, value, problems)
        for name, given in (("tasks", tasks), ("collecting", collecting))
        for key, value in (given or {}).items()
    ]
    if all(right):  # told now, not when all the candidates have been paid for
        asked = tasks or {}
        check_request(
            problems, asked.get("per_message", 0), asked.get("raters", ()), asked.get("raters_per_task", 3)
        )


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "per_message": ((int,), "a whole number"),
    "raters_per_task": ((int,), "a whole number"),
    "seed": ((int,), "a whole number"),
    "max_failures": ((int, float), "a number"),
    "raters": ((list, tuple), "a list of names"),
    "columns": ((dict,), "a table"),
}


def _fits(name: str, key: str, value: Any, problems: Problems) -> bool:
    """Whether an option has the type that it must have; notes it if not."""
    types, plain = _KINDS.get(key, ((str,), "a text"))
    fits = isinstance(value, types) and not isinstance(value, bool)
    if key == "raters" and fits:
        fits = all(isinstance(one, str) for one in value)
    if not fits:
        problems.add(f"{name}: {key} is {value!r}; it must be {plain}")
    return fits


def _options(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in _OURS]


def export(out: Path, options: Mapping[str, Any] | None, *, seed: int) -> None:
    """Tasks of the ranked candidates, if there are any.

    Args:
        out: folder of the build.
        options: of :func:`export_tasks`.
        seed: of the order, unless the options name one.
    """
    ranked = out / RANKED
    if ranked.is_file() and ranked.stat().st_size:
        export_tasks(ranked, out / TASKS, **{"seed": seed, **(options or {})})


def collect_ratings(
    out: Path,
    ratings: Sequence[Path],
    collection: Path | None,
    rule: Path | None,
    files: Path | None,
    options: Mapping[str, Any] | None,
) -> None:
    """People's ratings of the ranked candidates, as a collection.

    Args:
        out: folder of the build.
        ratings: tables.
        collection: to make; one in the folder if not given.
        rule: file of the rule.
        files: of the clips.
        options: of :func:`collection_from_ratings`.

    Raises:
        RefusedRequest: there is no build, or a collection already; or something is wrong with the ratings.
    """
    about = read_json(out / "summary.json", what="benchmark", made_by="vidvec-msg build-benchmark")
    target = collection or out / COLLECTION
    if target.is_dir() and any(target.iterdir()):
        raise RefusedRequest(f"{target} already holds files; remove it first, or give --collection FOLDER")
    tasks = out / TASKS / "tasks.csv"
    collection_from_ratings(
        out / RANKED,
        ratings,
        target,
        rule=None if rule is None else load_rule(rule),
        tasks=tasks if tasks.is_file() else None,
        files=files,
        about={name: about[name] for name in _TOLD if name in about},
        **(options or {}),
    )
