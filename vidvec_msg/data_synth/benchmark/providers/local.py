"""Clips of one's own: an index, a collection or a folder of files, searched by any embedder."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.data_synth.benchmark.providers.contract import Clip, Wanted, too_long
from vidvec_msg.data_synth.embedding import MessageVectors
from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.runs import digest_of, file_digest

log = logging.getLogger(__name__)

Source = Literal["index", "collection", "files"]
_SLACK = 4  # clips per wanted one that are fetched first, since some are too long
_ANY = 10**9  # broken files: the search goes on with the others


def source_kind(folder: Path, problems: Problems) -> Source | None:
    """What a folder is; None if it is nothing to search, which is noted."""
    if not folder.is_dir():
        problems.add(
            f"provider local:{folder}: no such folder; give an index, a collection, or a folder of clips"
        )
        return None
    if (folder / "index.json").is_file():
        return "index"
    corpus = folder / "corpus.jsonl"
    if corpus.is_file():
        if not corpus.read_bytes().strip():
            problems.add(f"provider local:{folder}: the collection is empty: {corpus} holds no row")
            return None
        return "collection"
    if not any(path.is_file() and not path.name.startswith(".") for path in folder.rglob("*")):
        problems.add(f"provider local:{folder}: the folder is empty; it should hold clips")
        return None
    return "files"


@dataclass(slots=True)
class Local:
    """Searches clips on this machine. An index of them is built at the first search, unless they are one.

    Args:
        folder: of the clips.
        kind: what it is.
        vectors: holds the embedder; an index knows its own.
        work: where the index is built.
    """

    folder: Path
    kind: Source
    vectors: MessageVectors
    work: Path
    name: str = field(init=False, default="local")
    _searcher: Any = field(init=False, repr=False, default=None)
    _items: dict[str, Item] = field(init=False, repr=False, default_factory=dict)
    _lengths: dict[str, float] = field(init=False, repr=False, default_factory=dict)
    _state: str = field(init=False, repr=False, default="")

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`."""
        return {"state": self.state, "embedder": self.vectors.identity}

    @property
    def state(self) -> str:
        """A digest of what there is to search."""
        if not self._state:
            if self.kind == "files":
                files = sorted(path for path in self.folder.rglob("*") if path.is_file())
                facts = [
                    [path.relative_to(self.folder).as_posix(), path.stat().st_size, path.stat().st_mtime_ns]
                    for path in files
                ]
                self._state = digest_of(facts)
            else:
                name = "index.json" if self.kind == "index" else "corpus.jsonl"
                self._state = file_digest(self.folder / name)
        return self._state

    def search(self, wanted: Wanted) -> Sequence[Clip]:
        """The nearest clips to the query.

        See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Provider`.
        """
        searcher = self._opened()
        asked = wanted.limit * _SLACK
        while True:
            [hits] = searcher.search([Item("query", text=wanted.query)], asked)
            clips: list[Clip] = []
            usable = 0
            for hit in hits:
                clip = self._clip(hit.id, hit.metadata, wanted.max_seconds)
                clips.append(clip)
                usable += not clip.left_out
                if usable == wanted.limit:
                    return clips
            if len(hits) < asked or asked >= len(searcher.index):
                return clips
            asked *= _SLACK

    def vector(self, clip: Clip) -> Vectors | None:
        """What the index holds of a clip.

        See :class:`~vidvec_msg.data_synth.benchmark.providers.contract.Embeds`.
        """
        from vidvec_msg.retrieval.indexes.vector_index import VectorIndex

        index = self._opened().index
        if isinstance(index, VectorIndex) and not all(
            one.stored is not None or (one.is_exact and one.entry.truncate_dim is None)
            for one in index.segments
        ):
            return None
        try:
            known, about = index.metadata(clip.id), clip.about or {}
            video = known.get("video")
            same = bool(video) and str(Path(str(video)).resolve()) == clip.video
            if not same or any(known.get(name) != about.get(name) for name in ("start", "end")):
                return None  # a person has put another clip, or another part of it, in its place
            found: Vectors = index.vector(clip.id)
        except RefusedRequest:  # a candidate that a person added, or lists that give nothing back
            return None
        return found

    def most(self, searches: int) -> str:
        """Nothing."""
        return ""

    def close(self) -> None:
        """Closes the index."""
        if self._searcher is not None:
            self._searcher.index.close()
            self._searcher = None

    def _clip(self, identity: str, known: Mapping[str, Any], max_seconds: float) -> Clip:
        item = self._items.get(identity)
        video = known.get("video")
        start, end = known.get("start"), known.get("end")
        last = self._lengths.get(str(Path(video).resolve())) if video and end is None else end
        length = None if last is None else last - (start or 0.0)
        words = [item.text, item.transcript, item.ocr] if item is not None else [known.get("text")]
        about: dict[str, Any] = {
            name: value for name, value in (("start", start), ("end", end)) if value is not None
        }
        if item is not None:
            about |= {name: said for name in ("transcript", "ocr") if (said := getattr(item, name))}
        reason = too_long(length, max_seconds)
        if not video and words[0]:
            about["text"] = words[0]  # stands for a clip, and is what people judge
        elif not video:
            reason = "no clip: it has neither a video nor a text that people could judge"
        return Clip(
            identity,
            str(Path(video).resolve()) if video else None,
            (item.title or "") if item is not None else "",
            "\n".join(one for one in words if one),
            length,
            about or None,
            reason,
        )

    def _opened(self) -> Any:
        if self._searcher is None:
            from vidvec_msg.retrieval.searching.searcher import Searcher

            folder = self.folder if self.kind == "index" else self._built()
            known = self.vectors.vectors()
            self._searcher = Searcher.open(folder, embedder=None if known is None else known.embedder)
            if not len(self._searcher.index):
                raise RefusedRequest(f"provider local:{self.folder}: the index is empty")
        return self._searcher

    def _built(self) -> Path:
        """An index of the clips, in a folder that is called after what there was to search."""
        from vidvec_msg.formats.collections import load_side
        from vidvec_msg.retrieval.collect.verb import PROBES, collect
        from vidvec_msg.retrieval.embed import embed_items
        from vidvec_msg.retrieval.indexes.build import build_index

        name = digest_of([self.state, self.vectors.identity])[:12]
        place = self.work / name
        for old in self.work.glob("*"):
            if old != place and old.is_dir():
                shutil.rmtree(old)  # of clips, or an embedder, that are no longer asked for
        collection = self.folder.resolve()
        if self.kind == "files":
            collection = (place / "collection").resolve()
            if not (collection / "collect.json").is_file():
                collect([self.folder], collection, max_failures=_ANY)
        items = load_side(collection, "corpus")
        self._items = {item.id: item for item in items}
        self._lengths = _lengths(collection / PROBES)
        if not (place / "index" / "index.json").is_file():
            known = self.vectors.vectors()
            if known is None:
                raise ValueError("searching clips needs an embedder")
            embed_items(
                items, known.embedder, role="document", out=place / "vectors", max_failures=_ANY,
                spec=self.vectors.spec,
            )  # fmt: skip
            build_index(place / "vectors", place / "index")
        return place / "index"


def _lengths(probes: Path) -> dict[str, float]:
    """Seconds by file, as far as somebody has looked."""
    lengths: dict[str, float] = {}
    if probes.is_file():
        for line in probes.read_text(encoding="utf-8").split("\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            facts = row.get("facts") if isinstance(row, dict) else None
            if isinstance(facts, dict) and isinstance(facts.get("duration"), int | float):
                lengths[str((probes.parent / str(row.get("path"))).resolve())] = float(facts["duration"])
    return lengths
