"""Filters one after the other: built from options, run over pairs, counted."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vidvec_msg.data_synth.filters.contract import Draft, DraftFilter, Filter, Reason, SetFilter
from vidvec_msg.data_synth.filters.density import Density
from vidvec_msg.data_synth.filters.duplicates import MessageDuplicates, StorylineDuplicates
from vidvec_msg.data_synth.filters.language import Language
from vidvec_msg.data_synth.filters.lengths import Lengths
from vidvec_msg.data_synth.filters.meaning import MessageMeanings, StatedMeaning, TextVectors
from vidvec_msg.data_synth.filters.phrases import Phrases
from vidvec_msg.data_synth.filters.stated import PersonaLeak, Stated
from vidvec_msg.embedders.contract import Embedder
from vidvec_msg.errors import Problems, did_you_mean
from vidvec_msg.formats.pairs import Pair

FILTERS: tuple[Callable[..., Any], ...] = (
    Phrases, Lengths, Language, Stated, PersonaLeak, Density, MessageDuplicates, StorylineDuplicates,
)  # fmt: skip
"""In the order in which they run: what is cheap and certain first."""

WITH_EMBEDDER: tuple[Callable[..., Any], ...] = (MessageMeanings, StatedMeaning)
"""Those that need vectors; they run last, on what is left."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A pair that a filter took out.

    Args:
        pair: as it was.
        filter: name of the filter.
        reason: why.
        about: what the filter knows beside it, such as a judge's answers.
    """

    pair: Pair
    filter: str
    reason: Reason
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Step:
    """One filter's account.

    Args:
        filter: its name.
        given: pairs that it looked at.
        codes: kind of reason → pairs.
    """

    filter: str
    given: int
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def rejected(self) -> int:
        """Pairs that it took out."""
        return sum(self.codes.values())


def build_filters(
    options: Mapping[str, Any] | None, problems: Problems, *, embedder: Embedder | TextVectors | None = None
) -> list[Filter]:
    """The filters with their options.

    Args:
        options: filter → options, or null to leave it out; filters that are not named run as they are.
        problems: unknown filters, unknown options and values out of range are noted there.
        embedder: for the filters that compare meanings, or the vectors that it made so far; without it they
            do not run.
    """
    classes = {one.name: one for one in (*FILTERS, *WITH_EMBEDDER)}  # type: ignore[attr-defined]  # each has a name
    for name in options or {}:
        if name not in classes:
            problems.add(
                f"filters: unknown filter {name!r}{did_you_mean(name, classes)}; known: {', '.join(classes)}"
            )
    built: list[Filter] = []
    for name, one in classes.items():
        given = (options or {}).get(name, {})
        needs = one in WITH_EMBEDDER
        if given is None or given is False or (needs and embedder is None and name not in (options or {})):
            continue
        if needs and embedder is None:
            problems.add(f"filters: {name} compares vectors; give --embedder SPEC")
            continue
        if made := _built(name, one, given, problems, {"embedder": embedder} if needs else {}):
            built.append(made)
    return built


def _built(
    name: str, one: Callable[..., Any], given: Any, problems: Problems, further: Mapping[str, Any]
) -> Any:
    known = [option for option in inspect.signature(one).parameters if option != "embedder"]
    if not isinstance(given, Mapping):
        problems.add(f"filters: {name} is {given!r}; it takes a table of {', '.join(known)}, or null")
        return None
    unknown = [option for option in given if option not in known]
    for option in unknown:
        problems.add(
            f"filters: {name} has no option {option!r}{did_you_mean(str(option), known)}; it has: "
            f"{', '.join(known)}"
        )
    if unknown:
        return None
    try:
        return one(**given, **further)
    except (ValueError, TypeError) as error:
        problems.add(f"filters: {name}: {error}")
        return None


def apply_filters(
    pairs: Iterable[Pair], filters: Sequence[Filter]
) -> tuple[list[Pair], list[Reject], list[Step]]:
    """Runs filters over pairs; a pair goes with the first reason that it meets.

    Args:
        pairs: any number, read once.
        filters: those that look at one pair are run first, whatever their place.

    Returns:
        the pairs that stay, in order; the rejects; an account per filter.
    """
    kept, steps, rejects = _one_by_one(pairs, [one for one in filters if isinstance(one, DraftFilter)])
    for one in filters:
        if isinstance(one, SetFilter):
            kept, step, gone = run_set_filter(one, kept)
            steps.append(step)
            rejects += gone
    return kept, rejects, steps


def _one_by_one(
    pairs: Iterable[Pair], filters: Sequence[DraftFilter]
) -> tuple[list[Pair], list[Step], list[Reject]]:
    kept: list[Pair] = []
    rejects: list[Reject] = []
    for pair in pairs:
        draft = Draft(pair)  # its words are forgotten with it: memory holds texts alone
        for one in filters:
            if (reason := one.reason(draft)) is not None:
                rejects.append(Reject(pair, one.name, reason))
                break
        else:
            kept.append(pair)
    left, steps = len(kept) + len(rejects), []
    for one in filters:
        step = Step(one.name, left, Counter(gone.reason.code for gone in rejects if gone.filter == one.name))
        left -= step.rejected
        steps.append(step)
    return kept, steps, rejects


def run_set_filter(one: SetFilter, pairs: Sequence[Pair]) -> tuple[list[Pair], Step, list[Reject]]:
    """Runs one filter that looks at all pairs.

    Returns:
        the pairs that stay, the account, the rejects.
    """
    step = Step(one.name, len(pairs))
    kept: list[Pair] = []
    rejects: list[Reject] = []
    for pair, reason in zip(pairs, one.reasons(pairs) if pairs else [], strict=True):
        if reason is None:
            kept.append(pair)
        else:
            step.codes[reason.code] += 1
            rejects.append(Reject(pair, one.name, reason))
    return kept, step, rejects
