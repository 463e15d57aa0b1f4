"""The three ways in which a request ends early, and the exit code of each.

An error says what was given, what is accepted and what to do next; several problems come in one message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field


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
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
