"""The contract of whatever judges whether a text and a clip belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vidvec_msg.formats.items import Item, Modality


@dataclass(frozen=True, slots=True)
class Group:
    """A clip and all texts that it is judged with: what a clip costs is paid once.

    Args:
        clip: of any modality, so that a storyline can stand for a clip.
        texts: messages or captions; one with no words is the empty query of a content-free prior.
    """

    clip: Item
    texts: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a reranker says of one pair.

    Args:
        clip: id.
        text: id.
        yes: logarithm of the probability that they belong together.
        no: logarithm of the probability that they do not. A language model's two need not add up to 1: other
            answers have a probability too.
    """

    clip: str
    text: str
    yes: float
    no: float


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A pair that could not be judged, and why."""

    clip: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of a group: every pair of it is in one of the two lists."""

    judgements: tuple[Judgement, ...]
    failures: tuple[Unjudged, ...] = ()


def judged_group(clip: str, texts: Sequence[Item], found: Sequence[tuple[float, float] | str]) -> Judged:
    """The outcome of a group.

    Args:
        clip: id.
        texts: of the group.
        found: for each of them the logarithms of yes and no, or the reason why there are none.
    """
    both = list(zip(texts, found, strict=True))
    return Judged(
        tuple(Judgement(clip, text.id, *one) for text, one in both if not isinstance(one, str)),
        tuple(Unjudged(clip, text.id, one) for text, one in both if isinstance(one, str)),
    )


@runtime_checkable
class Reranker(Protocol):
    """Anything with this shape can rerank."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever a judgement may change; part of the key of a kept judgement."""
        ...

    @property
    def modalities(self) -> tuple[Modality, ...]:
        """Kinds of clips that it reads."""
        ...

    def judge(self, groups: Sequence[Group]) -> Iterator[Judged]:
        """One outcome per group, in their order, each as soon as it is known.

        A judgement does not depend on the other pairs. What cannot be judged (a clip that does not decode, a
        text that exceeds the context) is recorded and does not end the job.

        Raises:
            JobFailed: the job cannot go on; what was yielded stays.
            RefusedRequest: the reranker cannot judge at all.
        """
        ...
