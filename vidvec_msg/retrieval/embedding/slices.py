"""One job on several processes or machines: each takes a slice of the items, and the slices are joined.

A slice is a run of whole shards, so the joined folder has the bytes of a job that one process did alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.kept_digests import DIGESTS
from vidvec_msg.formats.vectors import MANIFEST, VectorsFolder
from vidvec_msg.retrieval.embedding.shard_files import Record, shard_name
from vidvec_msg.retrieval.embedding.writing import WORK, refuse_other_request
from vidvec_msg.runs import read_json, write_json

SLICES = "slices"
_NAME = re.compile(r"(\d+)-of-(\d+)")
_SHARED = ("fingerprint", "role", "side", "dim", "dtype", "shard_size")


def parse_slice(text: str) -> tuple[int, int]:
    """Number and count of a slice, from words such as "3/16"; the first is 1.

    Raises:
        RefusedRequest: other words.
    """
    number, _, count = text.partition("/")
    if number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise RefusedRequest(f"shard {text!r} is not accepted; give NUMBER/COUNT, from 1/16 to 16/16")


def bounds(number: int, count: int, *, items: int, shard_size: int) -> tuple[int, int]:
    """First position of a slice's items and the one after its last; whole shards, as evenly as it goes.

    Raises:
        RefusedRequest: there are fewer shards than slices.
    """
    shards = -(-items // shard_size)
    if shards < count:
        best = max(items // count, 1)
        raise RefusedRequest(
            f"{items:,} items in shards of {shard_size:,} are {shards} shards, too few for {count} slices: "
            f"give all of them --shard_size {best}, or take fewer slices"
        )
    first, last = (shards * n // count * shard_size for n in (number - 1, number))
    return first, min(last, items)


def folder_of(out: Path, number: int, count: int) -> Path:
    """Where a slice is written: ``OUT/slices/00003-of-00016``, a vectors folder of its own."""
    return out / SLICES / f"{number:05d}-of-{count:05d}"


def adopt(
    out: Path,
    items: Sequence[Item],
    request: Mapping[str, Any],
    digest_of_slice: Callable[[Sequence[Item]], str],
) -> None:
    """Takes the slices of a folder, if it has any, as finished work of the whole; a writer then goes on
    from there, which has nothing left to do but the manifest.

    Args:
        out: the whole folder.
        items: all of them.
        request: of the whole.
        digest_of_slice: the digest that a slice's request holds, of some of the items.

    Raises:
        RefusedRequest: slices are missing, incomplete or of another request; each is named, with the
            command that makes it.
    """
    found = sorted((out / SLICES).glob("*-of-*"))
    if not found:
        return
    counts = {int(match[2]) for path in found if (match := _NAME.fullmatch(path.name))}
    if len(counts) != 1:
        told = ", ".join(map(str, sorted(counts)))
        raise RefusedRequest(f"{out / SLICES} holds slices of jobs of {told} slices; remove those of one")
    count = counts.pop()
    problems = Problems(f"the slices in {out / SLICES} cannot be joined")
    whole = []
    for number in range(1, count + 1):
        path = folder_of(out, number, count)
        if not (path / MANIFEST).is_file():
            state = "was begun and is not complete" if path.is_dir() else "is missing"
            problems.add(f"slice {number}/{count} {state}: the same command with --shard {number}/{count}")
            continue
        first, last = bounds(number, count, items=len(items), shard_size=request["shard_size"])
        expected = {name: request[name] for name in _SHARED}
        expected |= {"count": last - first, "items": digest_of_slice(items[first:last])}
        try:
            refuse_other_request(
                path, read_json(path / MANIFEST, what="slice", made_by="")["request"], expected
            )
            whole.append((first, VectorsFolder.open(path)))
        except RefusedRequest as error:
            problems.add(str(error).replace("\n", "\n  "))
    problems.refuse_if_any()
    work = out / WORK
    shutil.rmtree(work, ignore_errors=True)  # of a kill during what follows
    work.mkdir(parents=True)
    for first, folder in whole:
        _take(folder, first, request["shard_size"], work)
    write_json(work / "request.json", dict(request))  # last: without it nothing here counts


def discard(out: Path) -> None:
    """Removes the slices of a folder that is complete; their digests of clips become the folder's."""
    for part in sorted((out / SLICES).glob(f"*/{DIGESTS}/*")):
        (out / DIGESTS).mkdir(exist_ok=True)
        part.replace(out / DIGESTS / part.name)
    shutil.rmtree(out / SLICES, ignore_errors=True)


def _take(folder: VectorsFolder, first: int, size: int, work: Path) -> None:
    """Links a slice's shards into the unfinished work of the whole, each with what the writer records."""
    failures = folder.read_failures()
    stop = first + folder.count + folder.manifest["failed"]
    for number, (shard, ids) in enumerate(zip(folder.files, folder.ids_by_shard(), strict=True)):
        begin = first + number * size
        end = min(begin + size, stop)
        target = work / f"{shard_name(begin // size)}.npy"
        try:
            os.link(folder.path / shard.file, target)
        except OSError:  # a file system without links
            shutil.copyfile(folder.path / shard.file, target)
        failed = islice(failures, end - begin - shard.rows)  # in item order, as the shards are
        expected = shard.checksum or checksum(target)
        Record(begin, end, tuple(ids), tuple(failed), target.name, expected).write(work)
