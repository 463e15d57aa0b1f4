"""The verb ``probe-prompts``: a small grid of wordings and frames → the cell that retrieves best."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.embedders.saved import save_reading
from vidvec_msg.errors import Problems
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.config_file import claim
from vidvec_msg.retrieval.evaluation.directions import Pool
from vidvec_msg.retrieval.probing import account
from vidvec_msg.retrieval.probing.cell_vectors import CellVectors
from vidvec_msg.retrieval.probing.grid import AXES, Cell, read_grid
from vidvec_msg.retrieval.probing.halves import read_halves
from vidvec_msg.retrieval.probing.opening import (
    FORMAT,
    FREE,
    finish,
    opened,
    refuse_early,
    refuse_other_kinds,
)
from vidvec_msg.retrieval.probing.pictures import draw_cells, ranked
from vidvec_msg.retrieval.probing.trial import Outcome, Rule, compared
from vidvec_msg.runs import software_versions

log = logging.getLogger(__name__)

HOW_TO_READ = (
    "A cell is one combination of the values asked for; what is not named is as in the embedder given. The "
    "validation queries choose; the test is told once, for the chosen cell and for the embedder as given. An "
    "interval is a 95% bootstrap over queries; p is of a paired randomisation test on the test queries. The "
    "two directions have different candidates and are never averaged."
)


def probe_prompts(
    collection: Path,
    embedder: str,
    out: Path,
    *,
    prompts: list[str] | None = None,
    prefixes: list[str] | None = None,
    query_instructions: list[str] | None = None,
    document_instructions: list[str] | None = None,
    transcripts: list[str] | None = None,
    fps: list[float] | None = None,
    max_frames: list[int] | None = None,
    max_cells: int = 64,
    test: str = "test",
    validation: str | None = None,
    validation_share: float = 0.5,
    keep_together: str | None = None,
    choose_by: str = "forward/map",
    metrics: list[str] | None = None,
    pool: Pool = "corpus",
    vectors: Path | None = None,
    batch_size: int = 0,
    max_failures: float = 0,
    seed: int = 0,
    json: bool = False,
) -> Path:
    """Finds the wording of a multimodal LLM that retrieves best, and writes it as an embedder.

    All combinations of the values given are compared, and the embedder as it is. Validation queries choose;
    the chosen cell and the embedder as given are told on the test. An interrupted run goes on where it
    stopped.

    Args:
        collection: folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv (any BEIR folder is one).
        embedder: a multimodal LLM: an embedder folder, mllm:NAME, or tinyworld.
        out: the folder to make: probe.html, probe.json, probe.md, cells.png, embedder/.
        prompts: presets (vidvec, e5v, plain, ...) or YAML files with the fields text, video, image.
        prefixes: words before a clip, image or sound, on a line of their own; "" for none.
        query_instructions: system turns of whatever asks; "" for none.
        document_instructions: system turns of whatever is searched; "" for none.
        transcripts: places of a clip's transcript: "before", "after", "none".
        fps: frames per second of clip.
        max_frames: frames per clip at most.
        max_cells: cells that may be compared, the embedder as given included.
        test: the split whose numbers are reported.
        validation: the split that chooses; it may share neither queries nor relevant items with the test.
            Without it, the split is halved by queries, so that the halves share neither.
        validation_share: of the queries that choose, where the split is halved.
        keep_together: a group of the queries (topic, story) that stays in one half.
        choose_by: direction and metric that choose: forward/map, reverse/mrr, forward/recall@10, ...
        metrics: further ones that are told; by default map, hit_rate@1, recall@10 and mrr.
        pool: candidates of the forward direction: the whole "corpus", or only the documents that the "split"
            names.
        vectors: folder for the vectors, to be used again with other values; by default OUT/vectors.
        batch_size: items per call of the model; 0: 1024 texts, or 32 items of a side with media.
        max_failures: items that may fail in the chosen cell: a count, or a share of all items if below 1.
        seed: of halves, resamples and sign patterns.
        json: print probe.json instead of the tables.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        TooManyFailures: the folder was written, with more failed items than allowed.
    """
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in locals().items()}

    # 1. everything that can be wrong, before a model is loaded
    refuse_other_kinds(embedder, "probe-prompts")
    axes = {name: settings[name] for name in AXES}
    grid = read_grid(axes, max_cells=max_cells)
    rule = Rule.of(choose_by, metrics)
    halves = read_halves(
        collection, test=test, validation=validation, share=validation_share, keep_together=keep_together,
        pool=pool, seed=seed, what="the prompt",
    )  # fmt: skip
    items = [*halves.corpus, *halves.queries]
    _refuse_idle_axes(axes, items)
    free = (*FREE, "max_cells")
    refuse_early(halves, out, settings, free)

    # 2. vectors, each side once for what changes it
    loaded = opened(embedder, "probe-prompts")
    many = CellVectors(
        loaded, grid.cells, halves, vectors or out / "vectors", batch_size=batch_size, spec=embedder
    )
    many.refuse_without_room()
    claim(out, settings, account.REPORT)
    times = many.distinct()
    log.info(
        "%s; %d cells: the corpus is embedded %d times, the queries %d times",
        halves.how, len(grid.cells), times["corpus"], times["queries"],
    )  # fmt: skip
    many.make()

    # 3. numbers
    outcome = compared([cell.name for cell in grid.cells], many.of, halves, rule, seed=seed)
    best = grid.cells[outcome.best]

    # 4. the folder
    note = (
        f"`{loaded.card.name}` worded with {best.name}, chosen by `vidvec-msg probe-prompts` among "
        f"{len(grid.cells)} cells on the validation queries of `{collection.name}` ({choose_by})."
    )
    chosen = many.variants[outcome.best]
    name = loaded.card.name if outcome.best == 0 else f"{loaded.card.name}@{best.name}"
    card = save_reading(out / "embedder", embedder=chosen, name=name, note=note)
    content = {
        "format": FORMAT,
        **{key: value for key, value in settings.items() if key not in free},
        "model": {"name": loaded.card.name, "fingerprint": loaded.card.fingerprint},
        "halves": halves.to_dict(),
        "chosen": {"name": best.name, "fingerprint": card.fingerprint, "embedder": "embedder"},
        **outcome.to_dict(),
        "cells": [
            {
                "name": cell.name,
                "fingerprint": many.variants[number].card.fingerprint,
                "same_as": _same_as(number, many.variants),
                **outcome.candidate(number),
            }
            for number, cell in enumerate(grid.cells)
        ],
        "left_out": [{"cell": cell, "reason": reason} for cell, reason in grid.left_out],
        "embedded": times,
        "failed": many.failed(outcome.best),
        "versions": software_versions(),
    }
    told = _write(out, content, outcome, grid.cells)
    finish(out, content, told, settings, failed=content["failed"], items=len(items))
    return out


def _refuse_idle_axes(axes: dict[str, Sequence[Any] | None], items: Sequence[Item]) -> None:
    """Refuses values that could change nothing: their cells would be others with the same vectors."""
    problems = Problems("probe-prompts")
    kinds = {item.modality for item in items}
    for name in ("fps", "max_frames"):
        if axes[name] is not None and "video" not in kinds:
            problems.add(f"{name} changes nothing: no item of this collection is a clip")
    if axes["prefixes"] is not None and kinds == {"text"}:
        problems.add(
            "prefixes change nothing: they stand before clips, images and sounds, and all items are texts"
        )
    if axes["transcripts"] is not None and not any(
        item.transcript for item in items if item.modality != "text"
    ):
        problems.add("transcripts changes nothing: no clip of this collection has a transcript")
    problems.refuse_if_any()


def _same_as(number: int, variants: Sequence[Any]) -> int | None:
    """The first cell of the same vectors, if it is another."""
    mine = variants[number].card.fingerprint
    first = next(n for n, variant in enumerate(variants) if variant.card.fingerprint == mine)
    return None if first == number else first


def _write(out: Path, content: dict[str, Any], outcome: Outcome, cells: Sequence[Cell]) -> str:
    """Writes what people read, and the report last; returns the Markdown."""
    sure = f"in {outcome.choice.shares[outcome.best]:.0%} of resamples"
    head = account.head_of(content, outcome, among=f"{len(cells)} cells", sure=sure)
    if content["left_out"]:
        listed = "; ".join(f"{one['cell']} ({one['reason']})" for one in content["left_out"][:3])
        head.append(f"{len(content['left_out'])} combinations cannot be and were left out: {listed}")
    draw_cells(out / "cells.png", outcome)
    table = (
        account.headings_of(outcome, "cell, on validation"),
        account.cells_of(outcome, ranked(outcome)),
    )
    return account.write(
        out,
        content,
        outcome,
        head,
        short={"cells": table},
        whole={"Every cell, on validation": table},
        picture="cells.png",
        how_to_read=HOW_TO_READ,
    )
