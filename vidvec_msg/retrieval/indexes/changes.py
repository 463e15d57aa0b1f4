"""How a change of an index becomes the index: new files, then the manifest, then the old files go.

The manifest is replaced in one step, which is the commit: whoever opens the folder sees the index before the
change or after it, also if the writer is killed. Files of generation 3 are called ``index.g3.faiss``,
``ids.g3.parquet`` and so on. Where one segment is left, its files take the plain names afterwards, so that
``index.faiss`` is the index for every tool; a reader that finds such a file gone looks for the plain name.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.disk_space import told_when_full
from vidvec_msg.retrieval.embedding.shard_files import save_matrix
from vidvec_msg.retrieval.indexes.folder import (
    DELETED,
    MANIFEST,
    REMAKE,
    described,
    files_of,
    read_manifest,
    refuse_damaged,
    segments_of,
)
from vidvec_msg.retrieval.indexes.items import ItemTable, Mask, live_positions
from vidvec_msg.runs import only_writer, software_versions, write_json

log = logging.getLogger(__name__)

SEGMENTS = 16  # from so many on, a change says that compacting would help
DELETED_SHARE = 0.25  # and from this share of deleted positions on
_NAME = re.compile(r"(?P<stem>index|ids|vectors|deleted)(?P<mark>\.[gs]\d+)?\.(?P<ending>faiss|parquet|npy)")
_LEFTOVER = re.compile(r"\.(index|ids|vectors|deleted|\.writer)\..*\.partial")


def of_generation(name: str, generation: int) -> str:
    """Name of a file of a later generation: index.faiss, 3 → index.g3.faiss."""
    stem, _, ending = name.partition(".")
    return f"{stem}.g{generation}.{ending}"


def plain_name(name: str) -> str:
    """The name without its generation: index.g3.faiss → index.faiss."""
    found = _NAME.fullmatch(name)
    return name if found is None else f"{found['stem']}.{found['ending']}"


def places_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Path]:
    """Where the files of a manifest lie: under their names, or under the plain ones that they took since."""
    paths = {}
    for name in files_of(manifest):
        path = folder / name
        paths[name] = path if path.is_file() else folder / plain_name(name)
    return paths


def open_items(folder: Path, manifest: Mapping[str, Any]) -> tuple[ItemTable, Mask | None]:
    """Ids and metadata of an index, and which positions are not deleted (None: all); FAISS's files stay shut.

    Raises:
        RefusedRequest: a file is damaged or is not what the manifest says.
    """
    paths, entries = places_of(folder, manifest), segments_of(manifest)
    names = [entry.ids for entry in entries] + ([manifest["deleted"]["file"]] if manifest["deleted"] else [])
    for name in names:
        refuse_damaged(paths[name], manifest["checksums"][name])
    items = ItemTable([paths[entry.ids] for entry in entries])
    if items.counts != [entry.count for entry in entries]:
        raise RefusedRequest(
            f"index {folder}: the files with ids hold {items.counts} rows and {MANIFEST} says "
            f"{[entry.count for entry in entries]}; the files are not of one index. Make it again: "
            f"`{REMAKE}`."
        )
    return items, live_positions(paths, manifest, items.num_rows)


def write_deleted(folder: Path, manifest: Mapping[str, Any], live: Mask) -> dict[str, Any]:
    """Writes which positions are deleted, for the next generation.

    Returns:
        what becomes of the manifest: ``count``, ``deleted``, ``checksums`` and ``sizes``.
    """
    positions = np.flatnonzero(~live).astype(np.int64)
    content: dict[str, Any] = {"count": int(live.sum()), "deleted": None}
    if len(positions):
        name = of_generation(DELETED, manifest["generation"] + 1)
        save_matrix(folder / name, positions)
        content["deleted"] = {"file": name, "count": len(positions)}
        return {**manifest, **content, **joined(manifest, described(folder, [name]))}
    return {**manifest, **content}


def joined(manifest: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Checksums and sizes of a manifest with those of further files."""
    return {kind: {**manifest.get(kind, {}), **more[kind]} for kind in ("checksums", "sizes")}


def tell_state(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Logs what an index holds after a change, and when it would gain from being compacted."""
    entries = segments_of(manifest)
    rows, live = sum(entry.count for entry in entries), manifest["count"]
    segments = "1 segment" if len(entries) == 1 else f"{len(entries)} segments"
    log.info("index %s: %d items in %s, %d deleted", folder, live, segments, rows - live)
    if len(entries) >= SEGMENTS or rows - live > DELETED_SHARE * rows:
        log.info(
            "each search goes through every segment and past every deleted item: "
            "`vidvec-msg index-compact --index %s` makes one segment of them, without the deleted ones",
            folder,
        )


@contextmanager
def changing(folder: Path, *, wait: float = 0) -> Iterator[dict[str, Any]]:
    """The manifest of an index that this process alone may change until the block ends.

    What an interrupted change left is put in order first, and what a failed one wrote is removed.

    Args:
        folder: the index folder.
        wait: seconds to wait for another writer.

    Raises:
        RefusedRequest: it is no index, or another process is changing it.
        JobFailed: the disk was full on the way.
    """
    read_manifest(folder)  # before a lock file lies in a folder that is none
    with only_writer(folder, what=f"index {folder}", wait=wait, otherwise="or give --wait SECONDS"):
        settle(folder)
        try:
            with told_when_full(folder, f"index {folder}", "It is as it was."):
                yield read_manifest(folder)
        except BaseException:
            with suppress(OSError, RefusedRequest):  # what went wrong says more than this could
                settle(folder)
            raise


def commit(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Makes a change the index; its files lie in the folder already.

    Args:
        folder: the index folder.
        manifest: all of the new one but ``generation`` and the keys that follow from the change itself.
    """
    key = ""  # it is no longer what the verb index made of one vectors folder
    content = {
        **manifest,
        "generation": manifest["generation"] + 1,
        "key": key,
        "versions": software_versions(),
    }
    names, before = files_of(content), files_of(read_manifest(folder))
    for name in names:
        if name not in before:  # the old files go: the new ones must be on the disk by then
            _sync(folder / name)
    for kind in ("checksums", "sizes"):
        content[kind] = {name: content.get(kind, {})[name] for name in names if name in content.get(kind, {})}
    write_json(folder / MANIFEST, content)
    settle(folder)


def settle(folder: Path) -> None:
    """Gives a single segment its plain names and removes the files that no manifest names.

    Does again what an interrupted writer did not end; only the one writer calls it.
    """
    manifest = read_manifest(folder)
    entries = segments_of(manifest)
    if len(entries) == 1:
        renamed = {name: plain_name(name) for name in entries[0].files if plain_name(name) != name}
        for name, plain in renamed.items():
            if (folder / name).is_file():  # else it was renamed before a kill
                (folder / name).replace(folder / plain)
        if renamed:
            write_json(folder / MANIFEST, _renamed(manifest, renamed))
    _sync(folder)
    named = set(files_of(read_manifest(folder)))
    for path in folder.iterdir():
        ours = _NAME.fullmatch(path.name) or _LEFTOVER.fullmatch(path.name)
        if ours and path.name not in named and path.is_file():
            path.unlink()


def _renamed(manifest: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    segments = [
        {
            **entry,
            **{key: names.get(entry[key], entry[key]) for key in ("index", "ids", "vectors") if key in entry},
        }
        for entry in manifest["segments"]
    ]
    described = {
        kind: {names.get(name, name): value for name, value in manifest[kind].items()}
        for kind in ("checksums", "sizes")
        if kind in manifest
    }
    return {**manifest, "segments": segments, **described}


def _sync(path: Path) -> None:
    """Makes a file, or the names in a folder, outlast a loss of power, where the system can."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
