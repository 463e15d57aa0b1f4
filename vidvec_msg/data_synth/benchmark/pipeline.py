"""From messages to a ranking: stage after stage, and again for messages with too few candidates."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from vidvec_msg.data_synth.benchmark.candidates import Candidate, Searching
from vidvec_msg.data_synth.benchmark.left_out import Account, Left
from vidvec_msg.data_synth.benchmark.messages import Message
from vidvec_msg.data_synth.benchmark.queries import Asking, Judging, Query
from vidvec_msg.data_synth.benchmark.rankers import Group, RankWith
from vidvec_msg.data_synth.benchmark.ranking import Ranking
from vidvec_msg.data_synth.benchmark.stage_file import StageFile
from vidvec_msg.data_synth.benchmark.stories import Refinement, Story, Writing, wanted_story

log = logging.getLogger(__name__)

Stage = Literal["messages", "stories", "refined", "queries", "judged", "candidates", "ranked", "tasks"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages of a build.

    Args:
        writing: messages → stories.
        refinement: stories → better ones; None leaves them as they are.
        asking: stories → queries.
        judging: queries → those that give nothing away.
        searching: queries → candidates.
        ranking: candidates → the best of them.
        stories: per message and round.
        rounds: at most, for messages with fewer candidates than ``enough``.
        enough: candidates of a message.
        rank_with: what clips should be near to.
        account: of what was left out.
    """

    writing: Writing
    refinement: Refinement | None
    asking: Asking
    judging: Judging
    searching: Searching
    ranking: Ranking
    stories: int
    rounds: int
    enough: int
    rank_with: RankWith
    account: Account

    def run(self, messages: Sequence[Message], until: Stage) -> None:
        """Goes as far as it is asked to, and takes out of the files what nothing asks for any more.

        Raises:
            JobFailed: a budget or quota is used up, or somebody does not answer; what there is is kept.
        """
        wanted = self.writing.own(messages)
        found: dict[str, list[Candidate]] = {}
        last = STAGES.index(until)
        stories: list[Story] = []
        queries: list[Query] = []
        passed: list[Query] = []
        for turn in range(self.rounds):
            needy = [one for one in messages if not turn or len(found.get(one.id, [])) < self.enough]
            if not needy:
                break
            if turn:
                log.info(f"round {turn + 1}: another story for {len(needy)} messages with few candidates")
            first = turn * self.stories + 1
            further = [wanted_story(one, n) for one in needy for n in range(first, first + self.stories)]
            there = {story.id for story in wanted}
            wanted += [story for story in further if story.id not in there]
            stories = self._stories(_in_order(wanted, messages), last)
            if last < STAGES.index("queries"):
                break
            queries = self.asking.run(stories)
            if last < STAGES.index("judged"):
                break
            passed = self.judging.run(queries)
            if last < STAGES.index("candidates"):
                break
            found = self.searching.run(passed)
        names = [story.id for story in wanted]
        texts = ([query.id for query in queries], [query.id for query in passed])
        self._prune(messages, names, *texts, last)
        if last >= STAGES.index("candidates"):
            self._note_messages(messages, found)
        if last >= STAGES.index("ranked"):
            self.ranking.run(self._groups(messages, stories, found))
            self.ranking.file.prune({one for one in found if found[one]})

    def _stories(self, wanted: Sequence[Story], last: int) -> list[Story]:
        stories = self.writing.run(wanted)
        if self.refinement is None or last < STAGES.index("refined"):
            return stories
        return self.refinement.run(stories)

    def _prune(
        self,
        messages: Sequence[Message],
        stories: Sequence[str],
        queries: Sequence[str],
        passed: Sequence[str],
        last: int,
    ) -> None:
        """Takes units out of the files that went into nothing, in those stages that were reached."""
        files: list[tuple[Stage, StageFile, Sequence[str]]] = [
            ("stories", self.writing.file, stories),
            ("queries", self.asking.file, stories),
            ("judged", self.judging.file, queries),
            ("candidates", self.searching.file, passed),
        ]
        if self.refinement is not None:
            files.append(("refined", self.refinement.file, stories))
        known = {one.id for one in messages}
        for stage, file, wanted in files:
            if STAGES.index(stage) > last:
                continue
            kept = set(wanted)
            if last < STAGES.index("candidates"):  # nobody knows yet which messages need their later rounds
                kept |= {unit for unit, rows in file.units.items() if rows[0]["message_id"] in known}
            file.prune(kept)

    def _groups(
        self, messages: Sequence[Message], stories: Sequence[Story], found: dict[str, list[Candidate]]
    ) -> list[Group]:
        return [
            Group(
                one.id,
                [one.text]
                if self.rank_with == "message"
                else [story.text for story in stories if story.message.id == one.id],
                one.text,
                found[one.id],
            )
            for one in messages
            if found.get(one.id)
        ]

    def _note_messages(self, messages: Sequence[Message], found: dict[str, list[Candidate]]) -> None:
        """Messages that nothing was found for, with what became of their stories and queries."""
        self.account.enter("messages", len(messages))
        for one in messages:
            if found.get(one.id):
                continue
            mine = [left for left in self.account.left.values() if left.message_id == one.id]
            told = (
                "; ".join(dict.fromkeys(f"{left.stage}: {left.code}" for left in mine)) or "no query was left"
            )
            self.account.note(Left("messages", one.id, one.id, "no candidate", told))


def _in_order(wanted: Sequence[Story], messages: Sequence[Message]) -> list[Story]:
    """Stories by message, the order in which a person reads the files."""
    place = {one.id: number for number, one in enumerate(messages)}
    return sorted(wanted, key=lambda story: (place[story.message.id], story.number))
