"""Several indexes of one embedder become one; the verb ``index-merge``."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vidvec_msg.checksums import named
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.retrieval.disk_space import refuse_too_large, told_when_full
from vidvec_msg.retrieval.embedding.shard_files import save_matrix
from vidvec_msg.retrieval.indexes.changes import open_items, places_of, tell_state
from vidvec_msg.retrieval.indexes.folder import (
    DELETED,
    MANIFEST,
    SegmentEntry,
    described,
    put_in_place,
    read_manifest,
    segments_of,
)
from vidvec_msg.retrieval.indexes.items import ItemTable, Mask, first_with_id
from vidvec_msg.runs import require_new, software_versions, write_json

log = logging.getLogger(__name__)

Collision = Literal["refuse", "first", "last"]


def index_merge(indexes: list[Path], out: Path, *, existing: Collision = "refuse") -> Path:
    """Joins indexes of one embedder into a new one; those that are joined stay as they are.

    Their segments are copied, whatever their kinds, so that nothing is trained or rounded again; the verb
    index-compact makes one segment of them.

    Args:
        indexes: two or more index folders.
        out: the index folder to make.
        existing: an id that several have: "refuse" merges nothing and names it, "first" keeps the item of the
            index that is named first, "last" the one of the last.

    Returns:
        the new index folder.

    Raises:
        RefusedRequest: other embedders or dimensions, ids that collide, or an index that is damaged; nothing
            was written.
    """
    if len(indexes) < 2:
        raise RefusedRequest(f"--indexes names {len(indexes)} index; a merge takes two or more.")
    require_new(out, option="--out")
    manifests = [read_manifest(folder) for folder in indexes]
    refuse_other_embedders(indexes, manifests)
    opened = [open_items(folder, manifest) for folder, manifest in zip(indexes, manifests, strict=True)]
    live = [np.ones(items.num_rows, np.bool_) if mask is None else mask.copy() for items, mask in opened]
    tables = [items for items, _ in opened]
    _settle_collisions(indexes, tables, live, existing)
    sizes = [
        path.stat().st_size
        for folder, manifest in zip(indexes, manifests, strict=True)
        for path in places_of(folder, manifest).values()
    ]
    refuse_too_large(out, sum(sizes), f"--out {out}: the copies of {len(indexes)} indexes")
    left = "Nothing of it was kept."
    with put_in_place(out) as staged, told_when_full(out, f"--out {out}", left):
        entries: list[SegmentEntry] = []
        for folder, manifest in zip(indexes, manifests, strict=True):
            for entry in segments_of(manifest):
                entries.append(_copied(folder, manifest, entry, staged, len(entries)))
        copies = _copies(indexes, manifests, entries)
        names = list(copies)
        deleted = np.flatnonzero(~np.concatenate(live))
        if len(deleted):
            save_matrix(staged / DELETED, deleted.astype(np.int64))
            names.append(DELETED)
        first = manifests[0]
        merged: dict[str, Any] = {
            **first,
            "generation": 1,
            "factory": entries[0].factory,
            "factory_reason": f"merged of {len(indexes)} indexes",
            "search_parameters": entries[0].search_parameters,
            "count": int(sum(mask.sum() for mask in live)),
            "scores": "cosine" if {_scores(one) for one in manifests} == {"cosine"} else "approximate",
            "segments": [entry.to_dict() for entry in entries],
            "deleted": {"file": DELETED, "count": len(deleted)} if len(deleted) else None,
            "recall": None,  # none was measured of this one
            "merged_from": [str(folder.resolve()) for folder in indexes],
            "key": "",
            **described(staged, names, like={copy: one.expected for copy, one in copies.items()}),
            "versions": software_versions(),
        }
        merged.pop("estimate", None)
        _refuse_changed(copies, merged["checksums"])
        write_json(staged / MANIFEST, merged)
    log.info("merged %d indexes into %s", len(indexes), out)
    tell_state(out, merged)
    return out


def refuse_other_embedders(indexes: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> None:
    """Refuses indexes whose vectors are not comparable with the first one's, all reasons in one message.

    Raises:
        RefusedRequest: another embedder, dimension or role, or an index that is named twice.
    """
    problems = Problems("indexes cannot be merged")
    first, own = indexes[0], manifests[0]
    for folder, times in Counter(path.resolve() for path in indexes).items():
        if times > 1:
            problems.add(f"{folder} is named {times} times")
    for folder, manifest in zip(indexes[1:], manifests[1:], strict=True):
        card, other = own["card"], manifest["card"]
        if card["dim"] != other["dim"]:
            problems.add(f"{folder} has {other['dim']} dimensions, {first} has {card['dim']}")
        if card.get("fingerprint") != other.get("fingerprint"):
            problems.add(
                f"{folder} was made with {other['name']} (fingerprint {other.get('fingerprint')}), {first} "
                f"with {card['name']} (fingerprint {card.get('fingerprint')})"
            )
        if own.get("role") != manifest.get("role"):
            problems.add(
                f"{folder} was embedded in role {manifest.get('role')!r}, {first} in {own.get('role')!r}"
            )
    for folder, manifest in zip(indexes, manifests, strict=True):
        if _scores(manifest) == "transformed":
            problems.add(
                f"{folder} ({manifest['factory']}) scores by transformed vectors, which compare with no "
                "other index's; build it with --rescore float16, or without PCA"
            )
    problems.refuse_if_any()


def _scores(manifest: dict[str, Any]) -> str:
    """What the scores of a search are; manifests of format 1 do not say it."""
    return str(manifest.get("scores", "transformed" if "PCA" in manifest["factory"] else "approximate"))


def _settle_collisions(
    indexes: Sequence[Path], tables: Sequence[ItemTable], live: list[Mask], existing: Collision
) -> None:
    """Deletes from ``live`` what another index has too, or refuses it."""
    bounds = np.cumsum([0, *(items.num_rows for items in tables)])  # rows are counted through the tables
    rows = np.flatnonzero(np.concatenate(live))
    rows = rows if existing != "last" else rows[::-1]
    kept = first_with_id(tables, rows)  # (rows,)
    gone = rows != kept
    if existing == "refuse":
        problems = Problems("indexes cannot be merged (--existing first or last decides)")
        for pair in zip(kept[gone].tolist(), rows[gone].tolist(), strict=True):
            earlier, later = (np.searchsorted(bounds, row, side="right") - 1 for row in pair)
            name = tables[later].names(np.array([pair[1] - bounds[later]]))[0]
            problems.add(f"{indexes[earlier]} and {indexes[later]} have an item {name!r}")
        problems.refuse_if_any()
    for number, mask in enumerate(live):
        here = (rows >= bounds[number]) & (rows < bounds[number + 1]) & gone
        mask[rows[here] - bounds[number]] = False


def _copied(
    folder: Path, manifest: dict[str, Any], entry: SegmentEntry, staged: Path, number: int
) -> SegmentEntry:
    """Copies the files of a segment and gives them the names of the merged index's segment ``number``."""
    paths, names = places_of(folder, manifest), {}
    for kind, name in (("index", entry.index), ("ids", entry.ids), ("vectors", entry.vectors)):
        if name is not None:
            ending = name.rpartition(".")[2]
            names[kind] = f"{kind}.{ending}" if not number else f"{kind}.s{number + 1}.{ending}"
            try:
                shutil.copyfile(paths[name], staged / names[kind])
            except FileNotFoundError as error:
                raise RefusedRequest(
                    f"index {folder} was changed while it was being merged; merge again when it is not."
                ) from error
    return SegmentEntry.from_dict({**entry.to_dict(), **names})


class _Source(NamedTuple):
    """What a file was copied from: index folder, name there, and the checksum that its manifest says."""

    folder: Path
    name: str
    expected: str


def _copies(
    indexes: Sequence[Path], manifests: Sequence[dict[str, Any]], entries: Sequence[SegmentEntry]
) -> dict[str, _Source]:
    """The files of the copied segments, in order, and what each was copied from."""
    copied = iter(entries)
    return {
        copy: _Source(folder, name, manifest["checksums"][name])
        for folder, manifest in zip(indexes, manifests, strict=True)
        for entry in segments_of(manifest)
        for name, copy in zip(entry.files, next(copied).files, strict=True)
    }


def _refuse_changed(copies: Mapping[str, _Source], checksums: Mapping[str, str]) -> None:
    """Refuses copies that are not what their manifests said: damaged, or changed while they were made."""
    problems = Problems("indexes cannot be merged")
    for copy, (folder, name, expected) in copies.items():
        if checksums[copy] != named(expected):
            problems.add(
                f"{folder}: {name} is damaged, or was changed meanwhile: found {checksums[copy]}, expected "
                f"{named(expected)}"
            )
    problems.refuse_if_any()
