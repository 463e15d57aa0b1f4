"""What a search wants, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from vidvec_msg.errors import Problems
from vidvec_msg.retrieval.indexes.conditions import Where

Dedupe = Literal["video", "image", "audio"]
Found = list[tuple[str, float]]
"""Ids and scores of one query's results, best first."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result.

    Args:
        rank: 1 is the best.
        score: cosine with the query.
        id: of the item.
        metadata: what the index knows of it: text, video, image, audio, start, end, groups.
    """

    rank: int
    score: float
    id: str
    metadata: dict[str, Any]

    @property
    def path(self) -> str | None:
        """The item's file; None for a text."""
        return file_of(self.metadata)

    @property
    def segment(self) -> tuple[float | None, float | None]:
        """First and last second in the file; None is the file's own beginning or end."""
        return self.metadata.get("start"), self.metadata.get("end")

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form; what is not known is left out."""
        known = {
            name: value for name, value in self.metadata.items() if name != "id" and value not in (None, {})
        }
        return {"rank": self.rank, "score": self.score, "id": self.id, **known}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which results are wanted; the same for every query of a search.

    Args:
        k: results per query.
        where: which items may be found; an empty filter lets all through.
        min_score: results below it are left out.
        dedupe: one result per file of this medium, its best one; items without one all count.

    Raises:
        RefusedRequest: every value that is out of its range, in one message.
    """

    k: int = 10
    where: Where = field(default_factory=dict)
    min_score: float | None = None
    dedupe: Dedupe | None = None

    def __post_init__(self) -> None:
        problems = Problems("the search")
        if self.k < 1:
            problems.add(f"k is {self.k}; it must be at least 1 (results per query)")
        if self.min_score is not None and not -1 <= self.min_score <= 1:
            problems.add(f"min_score is {self.min_score}; it must be a cosine, from -1 to 1")
        if self.dedupe is not None and self.dedupe not in get_args(Dedupe):
            problems.add(f"dedupe is {self.dedupe!r}; it must be one of {', '.join(get_args(Dedupe))}")
        problems.refuse_if_any()


def file_of(metadata: Mapping[str, Any]) -> str | None:
    """The file of an item; None for a text."""
    return next((metadata[name] for name in get_args(Dedupe) if metadata.get(name)), None)
