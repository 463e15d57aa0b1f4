"""How candidates are ordered: by any embedder, by a language model, or as the searches found them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from vidvec_msg.data_synth.benchmark.candidates import Candidate
from vidvec_msg.data_synth.benchmark.providers.contract import Embeds, Provider
from vidvec_msg.data_synth.benchmark.task import Task
from vidvec_msg.data_synth.chat import Reply
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.data_synth.filters.meaning import vectors_of
from vidvec_msg.data_synth.parsing import Unusable, object_of, words_in
from vidvec_msg.embedders.contract import Embedder, Vectors
from vidvec_msg.errors import JobFailed
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.runs import digest_of

RankWith = Literal["message", "story"]
RankClip = Literal["words", "clip"]
_FUSION = 60  # of reciprocal rank fusion: Cormack, Clarke and Büttcher, SIGIR 2009
_MOST_WORDS = 1_500  # characters of a description in a question
_ANY = 10**9  # clips that cannot be embedded: they are left out with the reason


@dataclass(frozen=True, slots=True)
class Group:
    """What is ranked together.

    Args:
        message_id: of the message.
        wanted: texts that a clip should be near to: the message, or its stories.
        message: its words.
        candidates: its clips.
    """

    message_id: str
    wanted: Sequence[str]
    message: str
    candidates: Sequence[Candidate]


Score = float | str
"""The higher the better; or why there is none."""


class Ranker(Protocol):
    """Gives scores."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Whatever decides the scores, beside the message and the candidates."""
        ...

    def scores(self, groups: Sequence[Group]) -> list[list[Score]]:
        """One score per candidate, by group."""
        ...


@dataclass(frozen=True, slots=True)
class BySearch:
    """The order of the searches: reciprocal rank fusion over the queries that found a clip."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`Ranker`."""
        return {"by": "provider"}

    def scores(self, groups: Sequence[Group]) -> list[list[Score]]:
        """Sums of 1 / (60 + place)."""
        return [[fused(one) for one in group.candidates] for group in groups]


def fused(candidate: Candidate) -> float:
    """A candidate's score by the places at which it was found."""
    return sum(1 / (_FUSION + place) for place in candidate.places)


@dataclass(frozen=True, slots=True)
class ByEmbedder:
    """Cosine of the message (or the nearest of its stories) and the clip, or the words that are known of it.

    Args:
        vectors: holds the embedder.
        clip: whether clips are embedded themselves; then all of them are files.
        work: folder of the clips' vectors, which a killed run goes on with.
        providers: that found the clips; those that have embedded theirs are asked for the vectors.
    """

    vectors: MessageVectors
    clip: RankClip
    work: Path
    providers: Sequence[Provider] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`Ranker`."""
        return {"by": "embedder", "embedder": self.vectors.identity, "clip": self.clip}

    def scores(self, groups: Sequence[Group]) -> list[list[Score]]:
        """Cosines; each clip is embedded once, whatever messages it is a candidate of."""
        items: dict[str, Item] = {}
        rows: dict[str, Vectors] = {}
        for one in (one for group in groups for one in group.candidates):
            if _key(one) in rows or _key(one) in items:
                continue
            known = self._known(one)
            if known is None:
                items[_key(one)] = self._item(one)
            else:
                rows[_key(one)] = known
        made, failures = self._embedded(list(items.values())) if items else ({}, {})
        rows |= made
        embedder = self._embedder()
        result: list[list[Score]] = []
        for group in groups:
            wanted = vectors_of(group.wanted, embedder)  # (wanted, dim)
            scores: list[Score] = []
            for one in group.candidates:
                vector = rows.get(_key(one))  # (dim,)
                if vector is None:
                    scores.append(f"cannot be embedded: {failures.get(_key(one), 'no vector')}")
                else:
                    scores.append(float((wanted @ vector).max()))
            result.append(scores)
        return result

    def _embedder(self) -> Embedder:
        found = self.vectors.vectors()
        if found is None:
            raise ValueError("ranking by an embedder needs one")
        return found.embedder

    def _known(self, candidate: Candidate) -> Vectors | None:
        """A clip's vector from the provider that found it."""
        if self.clip == "words":
            return None
        by = next((one for one in self.providers if one.name == candidate.source), None)
        return by.vector(candidate.clip) if isinstance(by, Embeds) else None

    def _item(self, candidate: Candidate) -> Item:
        clip = candidate.clip
        if self.clip == "words" or (clip.video is None and clip.about and "text" in clip.about):
            return Item(_key(candidate), text=words_of_clip(candidate))
        path = Path(clip.video or "")
        if not path.is_file():
            raise JobFailed(
                f"rank_clip is 'clip', and candidate {clip.id!r} is no file: {clip.video}. Give --rank_clip "
                "words, or candidates that are files."
            )
        about = clip.about or {}
        known: dict[str, Any] = {name: about.get(name) for name in ("start", "end", "transcript", "ocr")}
        return Item(_key(candidate), video=path, **known)

    def _embedded(self, items: Sequence[Item]) -> tuple[dict[str, Vectors], dict[str, str]]:
        """Vectors by key, and why the others have none."""
        from vidvec_msg.retrieval.embed import embed_items

        embedder = self._embedder()
        out = self.work / digest_of([self.vectors.identity, self.clip, *map(item_digest, items)])[:12]
        for old in self.work.glob("*"):
            if old != out and old.is_dir():
                shutil.rmtree(old)  # of other candidates
        folder = embed_items(
            items, embedder, role="document", out=out, max_failures=_ANY, spec=self.vectors.spec
        )
        matrix = np.asarray(folder.matrix(), np.float32)  # (clips, dim)
        failures = {failure.item: failure.reason for failure in folder.failures}
        return dict(zip(folder.ids, matrix, strict=True)), failures


@dataclass(frozen=True, slots=True)
class ByModel:
    """A language model's number from 0 to 100, clip by clip, from title, length and description.

    Args:
        task: asks for it.
    """

    task: Task

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`Ranker`."""
        return {"by": "llm", "model": self.task.kind.model, "template": self.task.template.sha}

    def scores(self, groups: Sequence[Group]) -> list[list[Score]]:
        """Numbers; a clip without an answer has none."""
        questions = {
            f"{group.message_id} {_key(one)}": self.task.question(
                f"{group.message_id} {_key(one)}",
                message=group.message,
                title=one.clip.title or "unknown",
                length="unknown" if one.clip.duration is None else f"{one.clip.duration:g} s",
                description=one.clip.description[:_MOST_WORDS] or "nothing",
            )
            for group in groups
            for one in group.candidates
        }
        answers = self.task.answers(list(questions.values()))
        self.task.refuse_to_go_on()
        return [
            [self._score(f"{group.message_id} {_key(one)}", answers) for one in group.candidates]
            for group in groups
        ]

    def _score(self, identity: str, answers: Mapping[str, Mapping[str, Any]]) -> Score:
        if identity in answers:
            return float(answers[identity]["score"])
        return f"no score: {self.task.failed.get(identity, ('', 'no answer'))[1]}"


def read_score(reply: Reply) -> Mapping[str, Any]:
    """The number of an answer.

    Raises:
        Unusable: there is none from 0 to 100.
    """
    value = object_of(reply, ("score",))["score"]
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise Unusable("fields", f"score is {value!r}, not a number from 0 to 100")
    return {"score": value, "why": words_in(reply, "why")}


def words_of_clip(candidate: Candidate) -> str:
    """What is known of a clip in words; its id, if nothing is."""
    clip = candidate.clip
    return f"{clip.title}\n{clip.description}".strip() or clip.id


def _key(candidate: Candidate) -> str:
    return f"{candidate.source}:{candidate.clip.id}"
