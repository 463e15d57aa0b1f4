"""What is reranked: the lists of one split, the pairs at their top, and those pairs' clips and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality, Pixels
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import ImageError, read_image
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.media.video import VideoError
from vidvec_msg.retrieval.comparison.evaluated_runs import Way
from vidvec_msg.retrieval.evaluation.sides import Sides, kind_of
from vidvec_msg.retrieval.fusing.lists import Lists
from vidvec_msg.retrieval.reranking.contract import Group
from vidvec_msg.retrieval.reranking.judgements import Pair

Prior = Literal["none", "query", "clip", "both"]

DEPTHS = {"zero-shot": 100, "fitted": 10}
"""Candidates of each query that VidVec reranks: of an embedder read without training, and of a fitted one."""

NOTHING = ""
"""Id of the blank clip and of the empty query; no item has it."""

_BLANK_SIDE, _BLANK_FRAMES, _BLANK_FPS = 224, 8, 2.0  # where no clip can be read to take the size from


@dataclass(frozen=True)
class Stage:
    """The lists of one split that are reranked.

    Args:
        sides: who takes part.
        lists: of each direction that is reranked.
    """

    sides: Sides
    lists: Mapping[Way, Lists]

    @property
    def texts_ask(self) -> bool:
        """Whether the texts of the pairs are the queries' side."""
        return _all_texts(self.sides.queries)

    @property
    def clips(self) -> tuple[Item, ...]:
        """The side of the clips."""
        return self.sides.corpus if self.texts_ask else self.sides.queries

    def candidates(self, way: Way) -> tuple[Item, ...]:
        """Of a direction, in the order of the lists' columns."""
        return self.sides.corpus if way == "forward" else self.sides.queries

    def judged(self, way: Way) -> Mapping[str, Mapping[str, int]]:
        """The judgements, in a direction's own sense."""
        return self.sides.qrels if way == "forward" else self.sides.backwards

    def pair(self, way: Way, query: str, candidate: str) -> Pair:
        """The clip and the text of a query and its candidate."""
        text_is_query = self.texts_ask == (way == "forward")
        return (candidate, query) if text_is_query else (query, candidate)

    def top(self, way: Way, depth: int) -> dict[str, list[str]]:
        """The first candidates of each query that has a positive."""
        ids = [item.id for item in self.candidates(way)]
        judged = self.judged(way)
        return {
            query: [ids[column] for column in columns[:depth].tolist()]
            for query, (columns, _) in self.lists[way].of.items()
            if any(grade > 0 for grade in judged.get(query, {}).values())
        }

    def positive(self, pair: Pair) -> bool:
        """Whether the judgements say that a clip and a text belong together."""
        clip, text = pair
        query, document = (text, clip) if self.texts_ask else (clip, text)
        return self.sides.qrels.get(query, {}).get(document, 0) > 0


def refuse_other_kinds(stage: Stage, modalities: Sequence[str], name: str) -> None:
    """Refuses sides of which neither is texts, and clips that the reranker does not read.

    Raises:
        RefusedRequest: see there.
    """
    sides = stage.sides
    if not (_all_texts(sides.queries) or _all_texts(sides.corpus)):
        raise RefusedRequest(
            f"a reranker compares a text with a clip, and neither side is all texts: the queries are "
            f"{kind_of(sides.queries)}, the corpus is {kind_of(sides.corpus)}"
        )
    unread = sorted({clip.modality for clip in stage.clips} - set(modalities))
    if unread:
        raise RefusedRequest(
            f"the reranker {name} reads {', '.join(modalities)}, and clips of this collection are "
            f"{', '.join(unread)}"
        )


def depth_of(depth: int | str, stage: Stage, *, exclude_self: bool = False) -> int:
    """How many candidates of each query are reranked.

    Args:
        depth: a number, or a name of :data:`DEPTHS`.
        stage: whose lists must be as long, where there are as many candidates.
        exclude_self: a query that is a candidate too is none of its own.

    Raises:
        RefusedRequest: no such name, a number below 1, or lists that are shorter.
    """
    named = isinstance(depth, str)
    if named and depth not in DEPTHS:
        raise RefusedRequest(f"depth is {depth!r}; it is a number of candidates, or {' or '.join(DEPTHS)}")
    wanted = DEPTHS[depth] if isinstance(depth, str) else depth
    if wanted < 1:
        raise RefusedRequest(f"depth is {wanted}; it must be at least 1 candidate")
    for way, lists in stage.lists.items():
        ids = {item.id for item in stage.candidates(way)}
        for query, (columns, _) in lists.of.items():
            most = len(ids) - int(exclude_self and query in ids)
            if len(columns) < min(wanted, most):
                raise RefusedRequest(
                    f"depth is {wanted}{f' ({depth})' if named else ''}, and the {way} run lists "
                    f"{len(columns)} of {most} candidates for query {query!r}; give a smaller --depth, or "
                    "evaluate again with a greater one"
                )
    return wanted


def groups_of(stage: Stage, depth: int, prior: Prior, blank: Item | None) -> list[Group]:
    """The pairs at the top of all lists, grouped by clip, each pair once; and those of the priors.

    Args:
        stage: of one split.
        depth: candidates of each query.
        prior: which content-free pairs are added: every text with a blank clip ("query"), every clip with an
            empty query ("clip"), or "both".
        blank: the blank clip, from :func:`blank_clip`; needed for "query" and "both".
    """
    texts = {item.id: item for item in (stage.sides.queries if stage.texts_ask else stage.sides.corpus)}
    clips = {item.id: item for item in stage.clips}
    wanted: dict[str, dict[str, None]] = {}
    for way in stage.lists:
        for query, candidates in stage.top(way, depth).items():
            for candidate in candidates:
                clip, text = stage.pair(way, query, candidate)
                wanted.setdefault(clip, {})[text] = None
    nothing = (Item(NOTHING, text=""),) if prior in ("clip", "both") else ()
    groups = [
        Group(clips[clip], (*(texts[text] for text in mine), *nothing)) for clip, mine in wanted.items()
    ]
    if blank is not None and groups:
        used = dict.fromkeys(text for mine in wanted.values() for text in mine)
        groups.append(Group(blank, tuple(texts[text] for text in used)))
    return groups


def blank_clip(clips: Sequence[Item]) -> Item:
    """A clip of the same kind without content: black frames, a black image, no words.

    Frames have the size and number of those of the first clip that can be read: a processor makes more tokens
    of larger frames.

    Raises:
        RefusedRequest: the clips are of several kinds, or sound, of which nothing is blank.
    """
    kind = blank_kind(clips)
    if kind == "text":
        return Item(NOTHING, text="")
    if kind == "image":
        return Item(NOTHING, image=_black_image(clips))
    return Item(NOTHING, video=_black_frames(clips), fps=_BLANK_FPS)


def blank_kind(clips: Sequence[Item]) -> Modality:
    """The kind of clips of which a blank one can be made.

    Raises:
        RefusedRequest: they are of several kinds, or sound.
    """
    kinds = {clip.modality for clip in clips}
    if len(kinds) > 1 or "audio" in kinds:
        raise RefusedRequest(
            f"a prior of the query needs a blank clip, and the clips are {', '.join(sorted(kinds))}; use "
            "--prior clip or none"
        )
    (kind,) = kinds
    return kind


def _black_frames(clips: Sequence[Item]) -> Pixels:
    policy = FramePolicy(fps=_BLANK_FPS)
    for clip in clips:
        if isinstance(clip.video, np.ndarray):
            return np.zeros_like(clip.video)
        if clip.video is None:
            continue
        try:
            frames = shared_pool(1, 120.0).read(clip.video, policy, start=clip.start, end=clip.end)
        except VideoError:
            continue
        return np.zeros_like(frames.pixels)
    return np.zeros((_BLANK_FRAMES, _BLANK_SIDE, _BLANK_SIDE, 3), dtype=np.uint8)


def _black_image(clips: Sequence[Item]) -> Pixels:
    for clip in clips:
        if isinstance(clip.image, np.ndarray):
            return np.zeros_like(clip.image)
        try:
            return np.zeros_like(read_image(clip.image))  # type: ignore[arg-type]  # a path: it is an image
        except ImageError:
            continue
    return np.zeros((_BLANK_SIDE, _BLANK_SIDE, 3), dtype=np.uint8)


def _all_texts(items: Sequence[Item]) -> bool:
    return all(item.modality == "text" for item in items)
