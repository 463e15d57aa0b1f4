"""What a reader finds in a benchmark's annotations, and what a benchmark is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.runs import digest_of

_CAPTION_CHARS = 8  # of a digest; a clip has some dozens of captions


@dataclass(slots=True)
class Material:
    """A benchmark's annotations, before anybody has looked for its clips.

    Args:
        clips: id → further fields of the row.
        names: clip id → what its file may be called, with or without a suffix, the likeliest first.
        texts: id → row of the other side.
        qrels: split → text id → clip id → grade.
        questions: multiple-choice questions that the benchmark brings, as rows of ``questions.jsonl``.
        sizes: what else is counted, to be compared with what is published.
        remarks: what a user of the numbers has to know.
        complete: whether all is there that published numbers were made with.
    """

    clips: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    qrels: dict[str, Qrels] = field(default_factory=dict)
    questions: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    complete: bool = True

    def add_clip(self, name: str, *files: str, **fields: Any) -> None:
        """A clip; fields that are None or empty are left out.

        Raises:
            RefusedRequest: the id stands twice with other fields.
        """
        row = {key: value for key, value in fields.items() if value not in (None, "", {})}
        if self.clips.setdefault(name, row) != row:
            raise RefusedRequest(f"clip {name!r} stands twice in the annotations, with different fields")
        self.names.setdefault(name, files or (name,))

    def add_text(self, name: str, text: str, *, groups: Mapping[str, str] | None = None) -> None:
        """A text that asks for clips.

        Raises:
            RefusedRequest: it is empty, or the id stands twice with another text.
        """
        text = " ".join(text.split())
        if not text:
            raise RefusedRequest(f"text {name!r} is empty in the annotations")
        row: dict[str, Any] = {"text": text} | ({"groups": dict(groups)} if groups else {})
        if self.texts.setdefault(name, row) != row:
            raise RefusedRequest(f"text {name!r} stands twice in the annotations, with different words")

    def add_caption(
        self,
        clip: str,
        text: str,
        *,
        kind: str = "",
        split: str = "test",
        groups: Mapping[str, str] | None = None,
    ) -> None:
        """A text without an id of its own that is right for a clip.

        Its id is made of the clip and the words, so that it stays when others come before it. The same words
        a second time for one clip are a text of their own, ``…-2``.

        Args:
            clip: id of the clip.
            text: the words.
            kind: of caption, where clips have several kinds.
            split: whose judgement it is.
            groups: of the text.

        Raises:
            RefusedRequest: it is empty.
        """
        own = f"{clip}#{kind}{digest_of(' '.join(text.split()))[:_CAPTION_CHARS]}"
        names = itertools.chain([own], (f"{own}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name not in self.texts)
        self.add_text(name, text, groups=groups)
        self.judge(name, clip, split=split)

    def judge(self, text: str, clip: str, *, split: str = "test") -> None:
        """Says that a clip is right for a text."""
        self.qrels.setdefault(split, {}).setdefault(text, {})[clip] = 1

    @property
    def counted(self) -> dict[str, int]:
        """Sizes of the annotations."""
        return {"clips": len(self.clips), "texts": len(self.texts), **self.sizes}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark.

    Args:
        name: for ``--name``.
        title: for tables.
        source: where its owner got it, in one line.
        licence: as its authors state it.
        layout: the files that the reader looks for, in one line.
        layout_published: whether that is the layout in which it is given out, or one of ours.
        parts: part → published sizes (:attr:`Material.counted`); the first part is the default.
        read: folder, part → what was found.
        looked_up: whether source, licence and sizes are those of a paper that was read for this. Of the older
            benchmarks they were written down from memory, and the owner's page decides.
    """

    name: str
    title: str
    source: str
    licence: str
    layout: str
    layout_published: bool
    parts: Mapping[str, Mapping[str, int]]
    read: Callable[[Path, str], Material]
    looked_up: bool = True

    def part(self, asked: str | None) -> str:
        """The part that is meant.

        Raises:
            RefusedRequest: there is no such part.
        """
        if asked is None:
            return next(iter(self.parts))
        if asked not in self.parts:
            raise RefusedRequest(
                f"{self.title} has no part {asked!r}{did_you_mean(asked, self.parts)}; "
                f"it has: {', '.join(self.parts)}"
            )
        return asked
