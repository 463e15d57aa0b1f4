"""An embedder under examination: what it answered, alone and in batches, and how much time is left."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import Embedder, Inspection, Inspects, Role
from vidvec_msg.embedders.precomputed import Precomputed
from vidvec_msg.errors import Failure, ItemError, RefusedRequest, first_failures
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.doctor.probes import Probe
from vidvec_msg.retrieval.doctor.space import Matrix

# Shares of the time budget for the first pass over a probe, one item at a time. About eight passes follow
# (batch, again, mixed, other role, readers, three reloads), so that they sum up to 0.12.
_SHARES = {"text": 0.04, "video": 0.04, "image": 0.01, "audio": 0.01}
_SIDE_SHARE = 0.01
_WARMING_UP = 5  # the first item may take so many shares: decoders start, kernels are chosen
_LEAST = {"text": 3}  # items that are tried whatever they cost; 1 elsewhere
_HOPELESS = 3  # errors of one probe after which it is given up
_LOOKUPS = 64  # of precomputed vectors that are compared; all ids are looked up


class OutOfTime(Exception):
    """What a check is about to do does not fit into what is left of the budget."""


@dataclass(slots=True)
class Answers:
    """What the embedder answered to a probe.

    Args:
        probe: the question.
        items: those that were answered alone, in time, and together; the other passes take these.
        singles: what ``encode([item])`` returned, for each.
        batch: what ``encode(items)`` returned.
        refused: items that it says it cannot embed.
        errors: what it raised otherwise, one line each.
        left_out: items for which there was no time.
        seconds: that the batch took.
    """

    probe: Probe
    items: tuple[Item, ...] = ()
    singles: list[object] = field(default_factory=list)
    batch: object = None
    refused: list[Failure] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    left_out: int = 0
    seconds: float = 0.0

    def matrix(self) -> Matrix:
        """The batch's vectors, (items, dim)."""
        return as_matrix(self.batch)

    def singles_matrix(self) -> Matrix:
        """The vectors of the items encoded alone, (items, dim)."""
        return np.concatenate([as_matrix(single) for single in self.singles])


class Examination:
    """One embedder, the probes, and the answers.

    Args:
        embedder: loaded; it is let go before it is loaded again, so that only one is in memory.
        probes: what it is asked.
        budget: seconds; a soft limit.
        reload: loads the embedder again, with options that go before those of its spec; None if it came
            without a spec.
        load_seconds: that loading it again is expected to take.
        first_load: that loading it took.
        spec: what it was loaded from.
    """

    def __init__(
        self,
        embedder: Embedder,
        probes: Sequence[Probe],
        *,
        budget: float = 60.0,
        reload: Callable[..., Embedder] | None = None,
        load_seconds: float = 0.0,
        first_load: float = 0.0,
        spec: str | None = None,
    ) -> None:
        self.embedder: Embedder | None = embedder
        self.kind = type(embedder)
        self.card = embedder.card
        self.looks_up = isinstance(embedder, Precomputed)
        self.probes = list(probes)
        self.spec = spec
        self.reload = reload
        self.load_seconds = load_seconds
        self.first_load = first_load
        self.unread: list[
            tuple[str, bool]
        ] = []  # items of the collection that it does not read; all of a side
        self.answers: dict[str, Answers] = {}
        self._budget = budget
        self._began = time.monotonic()
        self._inspections: dict[str, list[Inspection]] = {}

    # --- time -------------------------------------------------------------------------------------------

    @property
    def left(self) -> float:
        """Seconds of the budget that are left; negative when it is overdrawn."""
        return self._budget - (time.monotonic() - self._began)

    def reserve(self, *probes: str, loads: int = 0) -> None:
        """Says what a check is about to do.

        Args:
            probes: that it encodes once more; none means all.
            loads: how often it loads an embedder.

        Raises:
            OutOfTime: that will take longer than is left, going by what it took before.
        """
        names = probes or tuple(self.answers)
        expected = sum(self.answers[name].seconds for name in names) + loads * self.load_seconds
        if expected > self.left:
            raise OutOfTime(
                f"takes about {expected:.0f} s, and {max(self.left, 0):.0f} s of the budget are left"
            )

    def start_clock(self) -> None:
        """The budget counts from here."""
        self._began = time.monotonic()

    @property
    def answered(self) -> bool:
        """Whether there are vectors to look at."""
        return any(given.items for given in self.answers.values())

    # --- questions --------------------------------------------------------------------------------------

    def ask_all(self) -> None:
        """Asks every probe, one item at a time while its share of the budget lasts, then all at once."""
        for probe in self.probes:
            self.answers[probe.name] = self._ask(probe)

    def _ask(self, probe: Probe) -> Answers:
        answers = Answers(probe)
        asked = self._that_it_holds(probe, answers) if self.looks_up else probe.items
        least = _LEAST.get(probe.name, 1)
        share = _SHARES.get(probe.name, _SIDE_SHARE) * self._budget
        until = time.monotonic() + _WARMING_UP * share
        kept: list[Item] = []
        for number, item in enumerate(asked):
            if len(kept) >= least and time.monotonic() > until:
                answers.left_out = len(asked) - number
                break
            if number == 1 and time.monotonic() < until:
                until = time.monotonic() + share
            vectors, problem = self._try([item], probe.role)
            if isinstance(problem, str):
                answers.errors.append(f"{item.id}: {problem}")
                if len(answers.errors) == _HOPELESS:
                    break
                continue
            if problem is not None:
                answers.refused += problem
                continue
            kept.append(item)
            answers.singles.append(vectors)
        if kept:
            began = time.perf_counter()
            answers.batch, problem = self._try(kept, probe.role)
            answers.seconds = time.perf_counter() - began
            if problem is None:
                answers.items = tuple(kept)
            else:  # without a batch there is nothing to compare the single ones with
                answers.singles.clear()
                told = problem if isinstance(problem, str) else first_failures(problem, len(problem))
                answers.errors.append(f"{len(kept)} items together: {told}")
        return answers

    def _that_it_holds(self, probe: Probe, answers: Answers) -> tuple[Item, ...]:
        """The first items of a probe that precomputed vectors have; what they lack is noted."""
        _, problem = self._try(list(probe.items), probe.role)
        answers.refused += problem if isinstance(problem, list) else []
        absent = {failure.item for failure in answers.refused}
        return tuple(item for item in probe.items if item.id not in absent)[:_LOOKUPS]

    def _try(self, items: list[Item], role: Role) -> tuple[object, str | list[Failure] | None]:
        """What ``encode`` returns, and what went wrong: refused items, or the text of any other error."""
        try:
            return self.opened.encode(items, role=role), None
        except ItemError as error:
            return None, list(error.failures) or "ItemError that names no item"
        except RefusedRequest:
            raise  # says itself what to do, for example what to install
        except Exception as error:
            return None, one_line(error)

    def encode(self, items: Sequence[Item], role: Role) -> Matrix:
        """Vectors of items as (items, dim) float64; errors of the embedder come through."""
        return as_matrix(self.opened.encode(list(items), role=role))

    def inspections(self, name: str) -> list[Inspection] | None:
        """What the model is given for a probe's items; None if the embedder does not say."""
        embedder = self.opened
        if not isinstance(embedder, Inspects):
            return None
        if name not in self._inspections:
            answers = self.answers[name]
            found = embedder.inspect(list(answers.items), role=answers.probe.role) if answers.items else []
            self._inspections[name] = list(found)
        return self._inspections[name]

    # --- the embedder itself ----------------------------------------------------------------------------

    @property
    def opened(self) -> Embedder:
        """The embedder, loaded again if it was let go.

        Raises:
            RuntimeError: it was let go and came without a spec.
        """
        if self.embedder is None:
            if self.reload is None:
                raise RuntimeError("the embedder was let go and came without a spec to load it from")
            self.embedder = self.load_another(self.reload)
        return self.embedder

    def load_another(self, load: Callable[..., Embedder], **options: Any) -> Embedder:
        """Another embedder, after the one in memory was let go."""
        self.embedder = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        began = time.perf_counter()
        another = load(**options)
        self.load_seconds = time.perf_counter() - began  # the first time, libraries were imported too
        return another


def as_matrix(vectors: object) -> Matrix:
    """Whatever an embedder returned as float64, so that a wrong type is no further concern."""
    matrix: Matrix = np.asarray(vectors, dtype=np.float64)
    return matrix


def one_line(error: BaseException) -> str:
    """Type and text of an error, on one line of bearable length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:299]}…"
