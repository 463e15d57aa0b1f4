"""The last stage before people: each message's best candidates, without repetitions, in ``ranked.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vidvec_msg.data_synth.benchmark.candidates import Candidate
from vidvec_msg.data_synth.benchmark.left_out import Account, Left
from vidvec_msg.data_synth.benchmark.rankers import Group, Ranker, Score, fused
from vidvec_msg.data_synth.benchmark.stage_file import Form, Row, StageFile, Units, source_of
from vidvec_msg.data_synth.filters.words import words_of

FORM = Form(
    "ranked", "ranked candidates", "message_id", ("message_id", "clip_id"),
    {
        "message_id": (str,), "message": (str,), "topic": (str, None), "clip_id": (str,),
        "video": (str, None), "rank": (int,), "score": (int, float),
    },
    "their message, its candidates or the ranking",
)  # fmt: skip

_SAME_LENGTH = 1.0  # seconds that two uploads of one clip may differ in
_TELLING = 3  # words from which two equal titles say that two clips are one


@dataclass(frozen=True, slots=True)
class Ranking:
    """Orders candidates and keeps the best.

    Args:
        ranker: gives scores.
        file: of the stage.
        top: candidates of a message that are kept.
        account: of what was left out.
    """

    ranker: Ranker
    file: StageFile
    top: int
    account: Account

    def run(self, groups: Sequence[Group]) -> Units:
        """The rows that people rate, by message."""
        names = _unique_names(groups)
        by_id = {group.message_id: group for group in groups}
        sources = {group.message_id: self._source(group, names) for group in groups}

        def make(ids: Sequence[str]) -> dict[str, list[Row]]:
            some = [by_id[one] for one in ids]
            scored = self.ranker.scores(some)
            return {
                group.message_id: self._rows(group, scores, names)
                for group, scores in zip(some, scored, strict=True)
            }

        self.account.enter("ranked", sum(len(group.candidates) for group in groups))
        units = self.file.settle(sources, make)
        self._note(groups, units, names)
        return units

    def _source(self, group: Group, names: Mapping[int, str]) -> str:
        clips = [
            [
                names[id(one)],
                one.clip.video,
                one.clip.title,
                one.clip.description,
                one.clip.duration,
                one.places,
                *([shown] if (shown := _shown(one)) else []),
            ]
            for one in group.candidates
        ]
        return source_of(group.message, list(group.wanted), clips, dict(self.ranker.settings), self.top)

    def _rows(self, group: Group, scores: Sequence[Score], names: Mapping[int, str]) -> list[Row]:
        scored = [
            (score, one)
            for score, one in zip(scores, group.candidates, strict=True)
            if not isinstance(score, str)
        ]
        scored.sort(key=lambda pair: (-pair[0], -fused(pair[1]), names[id(pair[1])]))
        kept: list[tuple[float, Candidate]] = []
        for score, one in scored:
            if not any(same_clip(one, other) for _, other in kept):
                kept.append((score, one))
        return [
            _row(rank, score, one, names[id(one)])
            for rank, (score, one) in enumerate(kept[: self.top], start=1)
        ]

    def _note(self, groups: Sequence[Group], units: Units, names: Mapping[int, str]) -> None:
        """What does not stand in the file, and as far as that is known, why."""
        for group in groups:
            rows = units.get(group.message_id, [])
            there = {row["clip_id"] for row in rows}
            shown = [one for one in group.candidates if names[id(one)] in there]
            for one in group.candidates:
                name = names[id(one)]
                if name in there:
                    continue
                twin = next((other for other in shown if same_clip(one, other)), None)
                if twin is not None:
                    code, reason = "same clip", f"same clip as {names[id(twin)]}"
                elif len(rows) >= self.top:
                    code, reason = "below the best", f"not among the best {self.top}"
                else:
                    code, reason = "no score", "it has no score, or a person took it out"
                self.account.note(Left("ranked", group.message_id, name, code, reason))


def _shown(candidate: Candidate) -> dict[str, Any]:
    """Which part of its video a clip is, and the words that belong to it."""
    about = candidate.clip.about or {}
    return {name: about[name] for name in ("start", "end", "text", "transcript", "ocr") if name in about}


def _row(rank: int, score: float, candidate: Candidate, name: str) -> Row:
    clip = candidate.clip
    return {
        "message_id": candidate.message.id,
        "message": candidate.message.text,
        "topic": candidate.message.topic,
        "clip_id": name,
        "video": clip.video,
        "title": clip.title,
        "description": clip.description,
        "duration": clip.duration,
        **(clip.about or {}),
        "source": candidate.source,
        "keywords": candidate.keywords,
        "rank": rank,
        "score": round(score, 6),
    }


def same_clip(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates show the same: one video, or a title of some words and a length that agree."""
    about, further = one.clip.about or {}, other.clip.about or {}
    if one.clip.video == other.clip.video:
        return all(about.get(name) == further.get(name) for name in ("start", "end", "text"))
    if one.clip.duration is None or other.clip.duration is None:
        return False
    title = words_of(one.clip.title)
    return (
        len(title) >= _TELLING
        and title == words_of(other.clip.title)
        and abs(one.clip.duration - other.clip.duration) <= _SAME_LENGTH
    )


def _unique_names(groups: Sequence[Group]) -> dict[int, str]:
    """Clip ids that no two videos share: where providers use one id for two, the later names its provider."""
    owner: dict[str, Any] = {}
    names: dict[int, str] = {}
    for group in groups:
        for one in group.candidates:
            shown = one.clip.video or (one.clip.about or {}).get("text")
            free = owner.setdefault(one.clip.id, shown) == shown
            names[id(one)] = one.clip.id if free else f"{one.clip.id}@{one.source}"
    return names
