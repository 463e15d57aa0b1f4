"""The checks of pairs by a model, as steps after the filters: asked, kept, and turned into reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.chat import Reply, Sampling
from vidvec_msg.data_synth.diversity import Vectors
from vidvec_msg.data_synth.filters.chain import Reject, Step
from vidvec_msg.data_synth.judging import (
    ASKED,
    Verdict,
    choice_questions,
    judge_questions,
    read_choice,
    read_judgement,
)  # fmt: skip
from vidvec_msg.data_synth.prices import Price
from vidvec_msg.data_synth.questions import Asker, Kind
from vidvec_msg.data_synth.replies import ReplyStore
from vidvec_msg.data_synth.template import load_template
from vidvec_msg.formats.pairs import Pair

log = logging.getLogger(__name__)

_ANSWER_TOKENS = 200  # of a judge's five fields


@dataclass(frozen=True, slots=True)
class ModelChecks:
    """Which checks are made, and by whom.

    Args:
        asker: gets answers.
        model: that judges.
        price: of it.
        folder: of the replies.
        judge: whether the four questions are asked.
        round_trip: whether the message is chosen from the storyline.
        seed: of the requests.
    """

    asker: Asker
    model: str
    price: Price | None
    folder: Path
    judge: bool = False
    round_trip: bool = False
    seed: int = 0

    def run(
        self, pairs: Sequence[Pair], vectors_of: Callable[[Sequence[Pair]], Vectors | None]
    ) -> tuple[list[Pair], list[Reject], list[Step], dict[str, Any]]:
        """Asks, and takes out what the answers speak against.

        Args:
            pairs: that the filters left.
            vectors_of: vectors of their messages, or None.

        Returns:
            the pairs that stay, the rejects, an account per check, and what was used by each.
        """
        kept = list(pairs)
        rejects: list[Reject] = []
        steps: list[Step] = []
        used: dict[str, Any] = {}
        if self.judge and kept:
            template = load_template("judge_v1", fields=("persona", "message", "storyline"), answers=ASKED)
            verdict = judge_questions(kept, template)
            kept = self._settle(verdict, kept, read_judgement, rejects, steps, used)
        if self.round_trip and len(kept) > 1:
            fields = ("storyline", "messages", "options")
            template = load_template("choice_v1", fields=fields, answers=("choice",))
            verdict = choice_questions(kept, template, vectors_of(kept), seed=self.seed)
            kept = self._settle(verdict, kept, read_choice, rejects, steps, used)
        return kept, rejects, steps, used

    def _settle(
        self,
        verdict: Verdict,
        pairs: Sequence[Pair],
        read: Callable[[Reply], Mapping[str, Any]],
        rejects: list[Reject],
        steps: list[Step],
        used: dict[str, Any],
    ) -> list[Pair]:
        sampling = Sampling(temperature=0.0, max_tokens=_ANSWER_TOKENS, seed=self.seed)
        kind = Kind(self.model, sampling, read, self.price)
        with ReplyStore(self.folder, verdict.name) as store:
            outcome = self.asker.ask_all(
                verdict.questions, kind, store, total=len(pairs), what=verdict.name.replace("_", " ")
            )
            kept, step, gone, unanswered = verdict.settled(pairs, kind, store)
            used[verdict.name] = {
                "model": self.model,
                "unanswered": unanswered,
                "stopped": outcome.stopped,
                "answers": store.spent.answers,
                "dollars": round(store.spent.dollars, 6),
            }
        if unanswered:
            why = outcome.stopped or f"{store.failed_path} says why"
            log.warning(f"{verdict.name}: {unanswered:,} pairs got no answer and stay ({why})")
        rejects += gone
        steps.append(step)
        return kept
