"""A question in any modality → the nearest items of an index; the verb ``search``."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.index import VectorIndex
from vidvec_msg.retrieval.index_folder import refuse_foreign_embedder

_WIDE = 1000  # columns where nobody looks at a terminal: ids and texts are not wrapped


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

    def to_dict(self) -> dict[str, Any]:
        """JSON-like form; what is not known is left out."""
        known = {
            name: value for name, value in self.metadata.items() if name != "id" and value not in (None, {})
        }
        return {"rank": self.rank, "score": self.score, "id": self.id, **known}


def search(
    index: Path,
    *,
    text: str | None = None,
    video: Path | None = None,
    image: Path | None = None,
    id: str | None = None,
    k: int = 10,
    embedder: str | None = None,
    search_parameters: str = "",
    json: bool = False,
) -> None:
    """Searches an index with a text, a clip or an image, or for more like one of its items.

    Give exactly one of text, video, image and id. The table, or one JSON object a line, goes to stdout.

    Args:
        index: an index folder, made by the verb index.
        text: words to search with.
        video: a clip to search with.
        image: a picture to search with.
        id: an item of the index; the result is what is most like it, without itself.
        k: number of results.
        embedder: what embeds the query; by default what the index was made with. Another one than that is
            refused, wherever it lies.
        search_parameters: FAISS's names and values for an approximate index, such as nprobe=64 (more is
            slower and misses less); by default what the index was built with.
        json: prints JSON lines: rank, score, id, and what is known of the item.

    Raises:
        RefusedRequest: not exactly one question, or the index or the embedder does not take it.
    """
    question = _the_question(text=text, video=video, image=image, id=id)
    refuse_bad_k(k)
    searcher = Searcher.open(index, embedder=embedder, search_parameters=search_parameters)
    hits = searcher.more_like(question, k) if isinstance(question, str) else searcher.search([question], k)[0]
    if json:
        sys.stdout.writelines(dumps(hit.to_dict(), ensure_ascii=False) + "\n" for hit in hits)
    else:
        sys.stdout.write(_drawn(_table(hits)))


class Searcher:
    """An index and the embedder of its queries, opened once and used many times.

    Args:
        index: the index.
        embedder: makes the queries' vectors; a spec is loaded at the first query that needs it, and without
            one the spec that the index was built with.
    """

    def __init__(self, index: VectorIndex, embedder: Embedder | str | None = None) -> None:
        self.index = index
        self._embedder = embedder
        if embedder is not None and not isinstance(embedder, str):
            refuse_foreign_embedder(index.folder, index.card, embedder.card)

    @classmethod
    def open(
        cls, folder: Path, *, embedder: Embedder | str | None = None, search_parameters: str = ""
    ) -> Searcher:
        """Opens an index folder.

        Raises:
            RefusedRequest: the index is not complete, damaged, or of another embedder.
        """
        return cls(VectorIndex.open(folder, search_parameters=search_parameters), embedder)

    def search(self, items: Sequence[Item], k: int = 10) -> list[list[Hit]]:
        """The k nearest items of the index to each of these.

        Args:
            items: queries of any modality that the embedder takes; embedded in role "query".
            k: results per query.

        Raises:
            RefusedRequest: a query cannot be embedded, or the embedder is not the index's own.
        """
        refuse_bad_k(k)
        self._refuse_other_media(items)
        embedder = self.embedder
        try:
            vectors = check_vectors(embedder.encode(items, role="query"), items, embedder.card)
        except ItemError as error:
            raise RefusedRequest(f"the query cannot be embedded: {error}") from error
        scores, found = self.index.search(vectors, k)  # (queries, k)
        return [self._hits(row.tolist(), ids) for row, ids in zip(scores, found, strict=True)]

    def more_like(self, item: str, k: int = 10) -> list[Hit]:
        """The k items most like one of the index, itself left out; needs no embedder.

        Raises:
            RefusedRequest: there is no such item, or the index cannot give vectors back.
        """
        refuse_bad_k(k)
        scores, found = self.index.search(self.index.vector(item)[None], k + 1)
        others = [
            (score, name) for score, name in zip(scores[0].tolist(), found[0], strict=False) if name != item
        ]
        return self._hits([score for score, _ in others[:k]], [name for _, name in others[:k]])

    @property
    def embedder(self) -> Embedder:
        """What embeds the queries; loaded when it is first asked for.

        Raises:
            RefusedRequest: it is not known, cannot be loaded, or is not the index's own.
        """
        known: Embedder | str | None = self._embedder or self.index.manifest.get("embedder")
        if known is None:
            raise RefusedRequest(
                f"index {self.index.folder} does not say how to load its embedder ({self.index.card.name}): "
                "give --embedder SPEC."
            )
        if isinstance(known, str):
            known = self._load(known)
            refuse_foreign_embedder(self.index.folder, self.index.card, known.card)
            self._embedder = known
        return known

    def _load(self, spec: str) -> Embedder:
        try:
            return load_embedder(spec)
        except RefusedRequest as error:
            if self._embedder is not None:
                raise
            raise RefusedRequest(
                f"index {self.index.folder} was made with {spec!r}, which cannot be loaded here: {error}\n"
                "Say where it is: --embedder SPEC."
            ) from error

    def _refuse_other_media(self, items: Sequence[Item]) -> None:
        known = self.index.card.modalities  # the same as the embedder's, and here before it is loaded
        for item in items:
            if item.modality not in known:
                raise RefusedRequest(
                    f"the query is of modality {item.modality!r}; {self.index.card.name}, which made index "
                    f"{self.index.folder}, takes {', '.join(known)}."
                )

    def _hits(self, scores: Sequence[float], ids: Sequence[str]) -> list[Hit]:
        # an approximate index may find fewer than there are scores
        pairs = zip(scores, ids, strict=False)
        return [
            Hit(rank, score, name, self.index.metadata(name)) for rank, (score, name) in enumerate(pairs, 1)
        ]


def refuse_bad_k(k: int) -> None:
    """Refuses a number of results below 1.

    Raises:
        RefusedRequest: with what was given.
    """
    if k < 1:
        raise RefusedRequest(f"k is {k}; it must be at least 1 (results per query)")


def _the_question(**given: str | Path | None) -> Item | str:
    """The one question that was asked, checked: an item, or the id of one in the index."""
    asked = {name: value for name, value in given.items() if value is not None}
    if len(asked) != 1:
        named = ", ".join(f"--{name}" for name in asked) or "none"
        raise RefusedRequest(
            f"a search takes exactly one of --text, --video, --image and --id; given: {named}."
        )
    [(name, value)] = asked.items()
    if name == "id":
        return str(value)
    if name == "text":
        if not str(value).strip():
            raise RefusedRequest("--text is empty; give words to search with.")
        return Item("query", text=str(value))
    path = Path(str(value))
    if not path.is_file():
        raise RefusedRequest(f"--{name} {path} does not exist; give a file.")
    return Item("query", video=path) if name == "video" else Item("query", image=path)


def _table(hits: Sequence[Hit]) -> Table:
    table = Table("rank", "score", "id", "what", box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "score"):
        next(column for column in table.columns if column.header == name).justify = "right"
    for hit in hits:
        # Text: brackets in an id or a text are no markup
        table.add_row(str(hit.rank), f"{hit.score:.4f}", Text(hit.id), Text(_what(hit.metadata)))
    return table


def _drawn(table: Table) -> str:
    """A table as wide as the terminal; in a file or a pipe as wide as it needs, one result a line."""
    if sys.stdout.isatty():
        console = Console()
    else:
        console = Console(file=io.StringIO(), width=_WIDE)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _what(metadata: dict[str, Any]) -> str:
    """The file and its seconds if there is one, then the words."""
    parts = [_near(metadata[name]) for name in ("video", "image", "audio") if metadata.get(name)]
    if metadata.get("start") is not None or metadata.get("end") is not None:
        end = "end" if metadata.get("end") is None else f"{metadata['end']:g}"
        parts.append(f"{metadata.get('start') or 0:g}–{end} s")
    return "  ".join(part for part in [*parts, metadata.get("text")] if part)


def _near(path: str) -> str:
    """A path below the current folder as a person would type it; others as they are."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
