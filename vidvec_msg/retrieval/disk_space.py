"""Room for the vectors, estimated before a job begins: a disk that fills up at night costs the night."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.errors import JobFailed, RefusedRequest

METADATA_BYTES = 200  # an item in ids.parquet and in the records of unfinished work, texts cut at 200 letters


def refuse_without_room(out: Path, request: Mapping[str, Any]) -> None:
    """Refuses a job whose result cannot fit on the disk; what is there of it already counts.

    Args:
        out: the vectors folder, which may not exist yet.
        request: holds ``count`` (items), ``dim``, ``dtype`` and ``shard_size`` (items per shard).

    Raises:
        RefusedRequest: naming what is needed, what is free, and the ways out.
    """
    count, dim, dtype = request["count"], request["dim"], request["dtype"]
    there = sum(path.stat().st_size for path in out.rglob("*.npy")) if out.is_dir() else 0
    needed = bytes_needed(count, dim, dtype, request["shard_size"]) - there
    free = free_bytes(out)
    if needed <= free:
        return
    advice = "make room or give an --out with more of it"
    if dtype == "float32":
        half = bytes_needed(count, dim, "float16", request["shard_size"])
        advice += f", or store --dtype float16 ({in_words(half)})"
    more = " more" if there else ""
    raise RefusedRequest(
        f"--out {out}: {count:,} vectors of {dim} dimensions in {dtype} need about {in_words(needed)}{more}, "
        f"and the disk has {in_words(free)} free; {advice}."
    )


def refuse_too_large(folder: Path, needed: int, what: str) -> None:
    """Refuses what the disk has no room for.

    Args:
        folder: where it will be written.
        needed: bytes.
        what: the subject of the message: "index I: 3 more vectors".

    Raises:
        RefusedRequest: with what is needed and what is free.
    """
    if (free := free_bytes(folder)) < needed:
        raise RefusedRequest(
            f"{what} need about {in_words(needed)}, and the disk has {in_words(free)} free; make room first."
        )


@contextmanager
def told_when_full(folder: Path, what: str, left: str) -> Iterator[None]:
    """Says what to do when the disk fills up while an index is written, in spite of the estimate.

    Args:
        folder: where it is written.
        what: "--out I".
        left: what there is now, as a sentence.

    Raises:
        JobFailed: the disk was full, a quota used up, or a file as large as the system allows.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise JobFailed(
            f"{what}: {error.strerror} while the index was written ({in_words(free_bytes(folder))} free). "
            f"{left} Make room, then give the same command again."
        ) from error


def bytes_needed(count: int, dim: int, dtype: str, shard_size: int) -> int:
    """Of a vectors folder while it is made: vectors and metadata, and one shard that is joined from parts."""
    row = dim * np.dtype(dtype).itemsize
    return count * (row + METADATA_BYTES) + min(shard_size, count) * row


def free_bytes(path: Path) -> int:
    """What this user may still write where ``path`` is, or will be. A quota is not seen."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def in_words(size: int) -> str:
    """A number of bytes as "3.2 GB", powers of 1000 as disks are sold."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
