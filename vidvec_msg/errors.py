"""The three ways in which a request ends early, and the exit code of each.

An error says what was given, what is accepted and what to do next; several problems come in one message.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice


class RefusedRequest(ValueError):
    """The request cannot be carried out as given; nothing was written. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One item that could not be processed.

    Args:
        item: id of the item.
        reason: what is wrong with it, in one line.
    """

    item: str
    reason: str


def first_failures(failures: Iterable[Failure], count: int) -> str:
    """The first three failures with their reasons, and how many more of ``count`` there are; no more of them
    are read."""
    told = [f"{one.item}: {one.reason}" for one in islice(failures, 3)]
    return "; ".join([*told, f"… and {count - len(told)} more"] if count > len(told) else told)


class ItemError(ValueError):
    """Some items of a batch cannot be processed; the others can.

    The pipelines above the embedder contract catch it, record each failure and go on with the rest.
    """

    def __init__(self, failures: Iterable[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__("; ".join(f"item {f.item!r}: {f.reason}" for f in self.failures))

    def __reduce__(self) -> tuple[type[ItemError], tuple[tuple[Failure, ...]]]:
        return type(self), (self.failures,)  # survives the trip back from a worker process


class JobFailed(RuntimeError):
    """The job began and did not end well; what it wrote stays. Exit code 1."""


class TooManyFailures(JobFailed):
    """The job ended and wrote its results, but more items failed than allowed."""


@dataclass(slots=True)
class Problems:
    """Collects every problem of a request, so that one message names them all.

    Args:
        subject: what is being checked, for the first line of the message.
        most: how many problems the message spells out; the rest is counted.
    """

    subject: str
    most: int = 20
    found: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Notes one problem."""
        self.found.append(problem)

    def refuse_if_any(self) -> None:
        """Raises RefusedRequest with all that was found; does nothing if all is well."""
        if not self.found:
            return
        shown = self.found[: self.most]
        rest = len(self.found) - len(shown)
        lines = [f"{self.subject}: {len(self.found)} problem{'s' if len(self.found) > 1 else ''}"]
        lines += [f"  - {problem}" for problem in shown]
        if rest:
            lines.append(f"  - … and {rest} more")
        raise RefusedRequest("\n".join(lines))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an error message: ``" (did you mean 'x'?)"``, or nothing if no known name is near."""
    near = nearest(name, known)
    return f" (did you mean {near!r}?)" if near is not None else ""


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name that is spelled most like this one, in capitals or not; None if none is near.

    Args:
        name: what was given.
        known: what is accepted.
        likeness: difflib's ratio from which a name is near; 1 is the same name.
    """
    spellings = {one.casefold(): one for one in known}
    given = name.casefold()
    found = difflib.get_close_matches(given, list(spellings), cutoff=likeness)
    # "filter" is as near to "fit" as to "filter-pairs"
    begun = [one for one in found if one.startswith(given)]
    return spellings[(begun or found)[0]] if found else None


def explain_unknown(message: str, known: Iterable[str], *, ending: str, inside: str = "") -> str:
    """A jsonargparse complaint with the nearest valid name of each option that it does not know, and about
    words that stand where no option takes them.

    Args:
        message: what the parser said.
        known: every valid option, dotted.
        ending: closes an explanation; what is accepted, or where it is listed.
        inside: subcommand that the parser puts before the names of a file's keys.

    Returns:
        the explanation; the message itself if it is about something else.
    """
    names = re.findall(r"--([\w.-]+)", message.partition("nrecognized arguments:")[2])
    names += re.findall(r"(?:[Oo]ption|[Kk]ey) '([\w.-]+)' is not (?:accepted|expected)", message)
    groups = re.findall(r"(?:Group|Subcommand) '([\w.-]+)' does not accept option '([\w.-]+)'", message)
    names += [f"{group}.{name}" for group, name in groups]
    if not names:
        stray = message.partition("nrecognized arguments:")[2].strip()
        return (
            f"no option takes {stray!r}: options begin with two dashes, and a value of several words stands "
            "in quotes"
            if stray
            else message
        )
    names = [name.removeprefix(f"{inside}.") for name in dict.fromkeys(names)]
    known = list(known)
    hints = [f"unknown option {name!r}{did_you_mean(name.replace('-', '_'), known)}" for name in names]
    return f"{'; '.join(hints)}. {ending}"
