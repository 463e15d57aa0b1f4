"""What went nowhere, stage by stage, and why: no answer, disclosing queries, long clips."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vidvec_msg.data_synth.funnel import Stage
from vidvec_msg.runs import replacing

LEFT_OUT = "left_out.jsonl"


@dataclass(frozen=True, slots=True)
class Left:
    """Something that did not go on.

    Args:
        stage: in which it ended.
        message_id: whose it was.
        what: which one: id of a story or query, of a clip, or of the message.
        code: kind of reason, for counting.
        reason: in full.
    """

    stage: str
    message_id: str
    what: str
    code: str
    reason: str


@dataclass(slots=True)
class Account:
    """What each stage was given and left out; later notes about the same thing replace earlier ones."""

    given: dict[str, int] = field(default_factory=dict)
    left: dict[tuple[str, str, str], Left] = field(default_factory=dict)

    def enter(self, stage: str, given: int) -> None:
        """Begins a stage's account anew, since each round goes through all of it.

        Args:
            stage: its name.
            given: units that came in.
        """
        self.given[stage] = given
        self.left = {key: one for key, one in self.left.items() if one.stage != stage}

    def note(self, left: Left) -> None:
        """One more."""
        self.left[left.stage, left.message_id, left.what] = left

    def way(self) -> list[Stage]:
        """The funnel."""
        codes: dict[str, Counter[str]] = {stage: Counter() for stage in self.given}
        for one in self.left.values():
            codes[one.stage][one.code] += 1
        return [Stage(stage, given, codes[stage]) for stage, given in self.given.items()]

    def reasons(self) -> Mapping[str, Mapping[str, int]]:
        """Stage → kind of reason → count."""
        return {stage.name: dict(stage.codes) for stage in self.way()}

    def write(self, folder: Path) -> None:
        """Writes all of it."""
        with replacing(folder / LEFT_OUT) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for one in self.left.values():
                row = {
                    "stage": one.stage,
                    "message_id": one.message_id,
                    "what": one.what,
                    "code": one.code,
                    "reason": one.reason,
                }
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
