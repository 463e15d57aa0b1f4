"""From pairs as they were written to those that stay: filters, checks by a model, the result's folder."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.checks import ModelChecks
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.data_synth.filters.chain import Reject, Step, apply_filters, build_filters
from vidvec_msg.data_synth.funnel import stages, terminal_table
from vidvec_msg.data_synth.prices import Price
from vidvec_msg.data_synth.questions import Asker
from vidvec_msg.data_synth.result import PAIRS, reject_row, write_result
from vidvec_msg.errors import Problems
from vidvec_msg.formats.pairs import Pair

log = logging.getLogger(__name__)

_GROUP, _GROUP_SHARE = (
    20,
    0.02,
)  # a group that is larger than both is a chain, or a topic written again and again


@dataclass(slots=True)
class Refining:
    """What is done to pairs.

    Args:
        filters: filter → options, or null.
        spec: of the embedder; None for none.
        judge: ask the four questions.
        round_trip: let a model choose the message.
        model: that judges and chooses.
        validation_share: of the pairs.
        seed: of splits and checks.
    """

    filters: Mapping[str, Any] | None
    spec: str | None
    judge: bool
    round_trip: bool
    model: str
    validation_share: float
    seed: int
    vectors: MessageVectors = field(init=False)

    def __post_init__(self) -> None:
        self.vectors = MessageVectors(self.spec)

    def check(self, problems: Problems) -> None:
        """Notes what is wrong, without loading a model."""
        self.vectors.check(problems)
        if not 0 <= self.validation_share < 1:
            problems.add(f"validation_share is {self.validation_share}; it is at least 0 and below 1")
        build_filters(self.filters, problems, embedder=_anything if self.spec else None)

    def run(self, pairs: Iterable[Pair], replies: Path, asker: Asker | None, price: Price | None) -> Refined:
        """Filters and checks.

        Args:
            pairs: as they were written.
            replies: folder of the checks' answers.
            asker: gets them; None makes no checks.
            price: of the judging model.
        """
        filters = build_filters(self.filters, Problems("filters"), embedder=self.vectors.vectors())
        kept, rejects, steps = apply_filters(pairs, filters)
        used: dict[str, Any] = {}
        if asker is not None and (self.judge or self.round_trip):
            checks = ModelChecks(asker, self.model, price, replies, self.judge, self.round_trip, self.seed)
            kept, further, more, used = checks.run(kept, self.vectors.of)
            rejects, steps = [*rejects, *further], [*steps, *more]
        return Refined(kept, rejects, steps, used)


@dataclass(frozen=True, slots=True)
class Refined:
    """What came of it.

    Args:
        kept: pairs that stay.
        rejects: with their reasons.
        steps: account per filter and check.
        used: by each check.
    """

    kept: list[Pair]
    rejects: Sequence[Reject]
    steps: Sequence[Step]
    used: Mapping[str, Any]

    def write(
        self,
        out: Path,
        about: Mapping[str, Any],
        refining: Refining,
        *,
        asked: int | None = None,
        failed: Mapping[str, int] | None = None,
        rejects: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Writes the folder, and the funnel to stdout.

        Args:
            out: the folder.
            about: for the summary.
            refining: that was done.
            asked: requests; None if the pairs were there before.
            failed: reason → requests without a usable answer.
            rejects: further rows of ``rejects.jsonl``.
        """
        way = stages(asked, failed or {}, self.steps)
        rows = [*rejects, *(reject_row(one) for one in self.rejects)]
        about = {
            **about,
            "filters": dict(refining.filters or {}),
            "embedder": refining.spec,
            "checks": dict(self.used),
        }
        summary = write_result(
            out, self.kept, rows, way, about, validation_share=refining.validation_share, seed=refining.seed,
            vectors=refining.vectors.of(self.kept),
        )  # fmt: skip
        sys.stdout.write(terminal_table(way))
        _warn_of_chains(summary["groups"]["largest"], len(self.kept), out)
        log.info(f"made {out}: {len(self.kept):,} pairs, {len(rows):,} rejects with their reasons")


def _warn_of_chains(largest: int, pairs: int, out: Path) -> None:
    """Neighbours of neighbours hang together, which one common phrase can make a chain of."""
    if largest > max(_GROUP, _GROUP_SHARE * pairs):
        log.warning(
            f"the largest group of near messages has {largest:,} of {pairs:,} pairs: none of them is ever a "
            f"negative of another, and all go to one side of a split. Look at them in {out / PAIRS} (group); "
            "a lower likeness of message_duplicates takes more of them out"
        )


_anything: Any = object()  # stands for an embedder while options are checked: nothing is called
