"""Vectors of a grid's cells: each side is embedded once for what changes it, and not once a cell.

A side of texts alone does not care about frames, transcripts or the words around a clip; a side is worded for
one role at a time. So each cell asks for *plain* embedders, one a side, in which everything that does not
reach this side is as in the embedder given; cells whose plain embedders have one fingerprint share a folder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from vidvec_msg.embedders.chat import Placement
from vidvec_msg.embedders.contract import Role
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.prompts import PromptTemplate, worded_for
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.retrieval.disk_space import bytes_needed, free_bytes, in_words
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.evaluation.ranked import Embedded
from vidvec_msg.retrieval.evaluation.sides import Made
from vidvec_msg.retrieval.probing.grid import Cell
from vidvec_msg.retrieval.probing.halves import Halves

log = logging.getLogger(__name__)

_SHARD = 50_000


class CellVectors:
    """Vectors of both sides in every cell.

    Args:
        embedder: as given.
        cells: of the grid.
        halves: whose items are embedded.
        folder: where the vectors are kept; what an interrupted run left there is taken up.
        batch_size: items per call; 0 as in ``embed``.
        spec: of the embedder, recorded.
    """

    def __init__(
        self,
        embedder: MultimodalLLM,
        cells: Sequence[Cell],
        halves: Halves,
        folder: Path,
        *,
        batch_size: int,
        spec: str,
    ) -> None:
        self.embedder, self.cells, self.folder = embedder, tuple(cells), folder
        self.batch_size, self.spec = batch_size, spec
        self._sides: dict[str, Sequence[Item]] = {"corpus": halves.corpus, "queries": halves.queries}
        self._complete: set[Path] = set()  # in this run
        self.variants = [variant_of(embedder, cell) for cell in cells]
        asked = any(variant.card.role_prompts for variant in self.variants)
        # side, the role in which it is worded; the other roles are those of the reverse direction
        self._asked: list[tuple[str, Role]] = [("corpus", "document"), ("queries", "query")]
        if asked:
            self._asked += [("corpus", "query"), ("queries", "document")]

    def distinct(self) -> dict[str, int]:
        """How many times each side is embedded."""
        return {
            side: len({self._plain(number, one, role).card.fingerprint for number in range(len(self.cells))
                       for one, role in self._asked if one == side})
            for side in self._sides
        }  # fmt: skip

    def refuse_without_room(self) -> None:
        """Refuses what cannot fit on the disk; what is there of it already counts.

        Raises:
            RefusedRequest: with what is needed and what is free.
        """
        there = sum(path.stat().st_size for path in self.folder.rglob("*.npy")) if self.folder.is_dir() else 0
        dim, times = self.embedder.card.dim, self.distinct()
        needed = sum(
            times[side] * bytes_needed(len(items), dim, "float32", _SHARD)
            for side, items in self._sides.items()
        )
        if (free := free_bytes(self.folder)) < needed - there:
            raise RefusedRequest(
                f"the vectors of {len(self.cells)} cells ({times['corpus']} × {len(self._sides['corpus']):,} "
                f"documents, {times['queries']} × {len(self._sides['queries']):,} queries) need about "
                f"{in_words(needed - there)} in {self.folder}, and the disk has {in_words(free)} free; make "
                "room or leave values out"
            )

    def make(self) -> None:
        """Embeds what is missing, cell by cell."""
        for number, cell in enumerate(self.cells):
            log.info("cell %d of %d: %s", number + 1, len(self.cells), cell.name)
            for side, role in self._asked_by(number):
                self._made(number, side, role)

    def of(self, number: int) -> Made:
        """The vectors of one cell."""
        corpus, queries = (self._read(number, *one) for one in self._asked[:2])
        if not self.variants[number].card.role_prompts:
            return Made(queries, corpus, queries, corpus, {})
        as_queries, as_documents = (self._read(number, *one) for one in self._asked[2:])
        return Made(queries, corpus, as_documents, as_queries, {})

    def failed(self, number: int) -> int:
        """Items of both sides that have no vector in a cell."""
        made = self.of(number)
        return len(made.corpus.failures) + len(made.queries.failures)

    def _asked_by(self, number: int) -> list[tuple[str, Role]]:
        return self._asked if self.variants[number].card.role_prompts else self._asked[:2]

    def _plain(self, number: int, side: str, role: Role) -> MultimodalLLM:
        return plain_for(self.variants[number], self.embedder, self._sides[side], role)

    def _place(self, plain: MultimodalLLM, side: str) -> Path:
        return self.folder / f"{side}-{plain.card.fingerprint}"

    def _read(self, number: int, side: str, role: Role) -> Embedded:
        made = VectorsFolder.open(self._place(self._plain(number, side, role), side))
        return Embedded(list(made.ids), made.matrix(), list(made.failures))

    def _made(self, number: int, side: str, role: Role) -> None:
        plain, items = self._plain(number, side, role), self._sides[side]
        place = self._place(plain, side)
        if place in self._complete:
            return
        embed_items(
            items,
            plain,
            role="document" if side == "corpus" else "query",
            out=place,
            batch_size=self.batch_size,
            shard_size=_SHARD,
            max_failures=len(items),  # counted at the end, when the report has been written
            spec=self.spec,
        )
        self._complete.add(place)


def variant_of(embedder: MultimodalLLM, cell: Cell) -> MultimodalLLM:
    """The embedder of a cell, both roles in it.

    Raises:
        RefusedRequest: the model cannot be worded like this.
    """
    card = embedder.card
    template = cell.template(card.prompt or PromptTemplate())
    frames = card.frames
    if frames is not None:
        frames = FramePolicy(
            fps=frames.fps if cell.fps is None else cell.fps,
            max_frames=frames.max_frames if cell.max_frames is None else cell.max_frames,
            max_pixels=frames.max_pixels,
        )
    try:
        return embedder.variant(
            prompt=template,
            role_prompts={**card.role_prompts, **(cell.instructions or {})},
            transcript=cast(Placement, cell.transcript) if cell.transcript is not None else None,
            frames=frames,
        )
    except ValueError as error:
        raise RefusedRequest(f"cell {cell.name!r}: {error}") from error


def plain_for(
    variant: MultimodalLLM, given: MultimodalLLM, items: Sequence[Item], role: Role
) -> MultimodalLLM:
    """An embedder that gives the variant's vectors of these items in this role, without what they do not see.

    Args:
        variant: of a cell.
        given: whatever does not reach the items is as here.
        items: of one side.
        role: in which they are worded.
    """
    card, own = variant.card, given.card
    template = card.prompt or PromptTemplate()
    if role in card.role_prompts:
        template = worded_for(template, card.role_prompts[role])
    kinds = {item.modality for item in items}
    # the words of media that no item of the side has: those of the embedder given
    unseen = {
        kind: getattr(own.prompt or PromptTemplate(), kind)
        for kind in ("text", "video", "image", "audio")
        if kind not in kinds
    }
    spoken = any(item.transcript for item in items if item.modality != "text")
    return variant.variant(
        prompt=replace(template, **unseen),
        role_prompts={},
        transcript=card.transcript if spoken else own.transcript,
        frames=card.frames if "video" in kinds else own.frames,
    )
