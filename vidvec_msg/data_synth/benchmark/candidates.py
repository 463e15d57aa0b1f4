"""The fifth stage: candidate clips of each query, from the providers."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from vidvec_msg.data_synth.benchmark.left_out import Account, Left
from vidvec_msg.data_synth.benchmark.messages import Message
from vidvec_msg.data_synth.benchmark.providers.contract import Clip, Exhausted, Provider, Wanted
from vidvec_msg.data_synth.benchmark.queries import Query
from vidvec_msg.data_synth.benchmark.stage_file import Form, Row, StageFile, source_of
from vidvec_msg.errors import JobFailed

log = logging.getLogger(__name__)

_NOTHING = "nothing found"
_ABOUT = ("channel", "published", "start", "end", "text", "transcript", "ocr")
FORM = Form(
    "candidates", "candidates", "query_id", ("query_id", "source", "clip_id"),
    {
        "query_id": (str,), "message_id": (str,), "query": (str,), "source": (str,), "clip_id": (str, None),
        "video": (str, None), "title": (str, None), "description": (str, None),
        "duration": (int, float, None), "left_out": (str, None),
    },
    "their query, or a provider,",
)  # fmt: skip


@dataclass(slots=True)
class Candidate:
    """A clip that may convey a message, with the queries that found it.

    Args:
        message: that it may convey.
        source: provider.
        clip: as the provider knows it.
        keywords: queries, in the order in which they found it.
        places: place among the results of each of them, 1 for the best.
    """

    message: Message
    source: str
    clip: Clip
    keywords: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Searching:
    """Has providers search.

    Args:
        providers: that are asked, each with every query.
        file: of the stage.
        limit: clips per query and provider.
        max_seconds: that a clip is shorter than.
        account: of what was found and is no candidate.
    """

    providers: Sequence[Provider]
    file: StageFile
    limit: int
    max_seconds: float
    account: Account

    def run(self, queries: Sequence[Query]) -> dict[str, list[Candidate]]:
        """Candidates by message, in the order in which they were found.

        Raises:
            JobFailed: a quota is used up, or a service does not answer any more; what was found is kept.
        """
        by_id = {query.id: query for query in queries}
        settings = [[one.name, dict(one.settings)] for one in self.providers]
        sources = {
            query.id: source_of(query.text, query.story.message.id, settings, self.limit, self.max_seconds)
            for query in queries
        }
        ended: list[JobFailed] = []
        units = self.file.settle(sources, lambda ids: self._found([by_id[one] for one in ids], ended))
        self.account.enter("candidates", 0)
        found: dict[str, list[Candidate]] = {}
        for identity, rows in units.items():
            for place, row in enumerate(rows, start=1):
                self._take(row, place, by_id[identity], found)
        self.account.given["candidates"] = sum(map(len, found.values())) + sum(
            left.stage == "candidates" for left in self.account.left.values()
        )
        if ended:
            raise ended[0]
        return found

    def _found(self, queries: Sequence[Query], ended: list[JobFailed]) -> dict[str, list[Row]]:
        """Rows of each query that could be searched with."""
        rows: dict[str, list[Row]] = {}
        with tqdm(total=len(queries), desc="search", unit="query", disable=not sys.stderr.isatty()) as bar:
            for query in queries:
                try:
                    rows[query.id] = [row for one in self.providers for row in self._rows(one, query)]
                except JobFailed as error:
                    left = len(queries) - len(rows)
                    told = error if isinstance(error, Exhausted) else None
                    ended.append(
                        JobFailed(f"{error}\n{left} queries are left to search with.") if told else error
                    )
                    break
                bar.update(1)
        return rows

    def _rows(self, provider: Provider, query: Query) -> list[Row]:
        message = query.story.message.id
        wanted = Wanted(query.text, message, self.limit, self.max_seconds)
        common = {"query_id": query.id, "message_id": message, "query": query.text, "source": provider.name}
        rows: list[Row] = [
            {
                **common,
                "clip_id": clip.id,
                "video": clip.video,
                "title": clip.title,
                "description": clip.description,
                "duration": clip.duration,
                **(clip.about or {}),
                "left_out": clip.left_out or None,
            }
            for clip in provider.search(wanted)
        ]
        return rows or [{**common, "clip_id": None, "left_out": _NOTHING}]

    def _take(self, row: Row, place: int, query: Query, found: dict[str, list[Candidate]]) -> None:
        """One row of the file: a candidate of its message, a further query of one, or left out."""
        message = query.story.message
        reason = row.get("left_out")
        if not reason and not (row.get("clip_id") and (row.get("video") or row.get("text"))):
            reason = "no clip: the row has no clip_id, or neither a video nor a text"
        if reason:
            what = row.get("clip_id") or f"{query.id} ({row['source']})"
            self.account.note(Left("candidates", message.id, what, reason.partition(":")[0], reason))
            return
        mine = found.setdefault(message.id, [])
        for one in mine:
            if one.source == row["source"] and one.clip.id == row["clip_id"]:
                one.keywords.append(query.text)
                one.places.append(place)
                return
        mine.append(Candidate(message, row["source"], _clip(row), [query.text], [place]))


def _clip(row: Row) -> Clip:
    about = {name: row[name] for name in _ABOUT if row.get(name) is not None}
    duration = row.get("duration")
    return Clip(
        row["clip_id"], row.get("video"), row.get("title") or "", row.get("description") or "",
        None if duration is None else float(duration), about,
    )  # fmt: skip
