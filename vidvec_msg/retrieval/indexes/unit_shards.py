"""The shards of a vectors folder as an index takes them: checked, of norm 1, the next one read meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.vectors import Shard, VectorsFolder
from vidvec_msg.retrieval.cosine import unit_vectors


def unit_shards(folder: VectorsFolder, *, verify: bool = True, ahead: int = 1) -> Iterator[Vectors]:
    """Shard by shard, (rows, dim) float32 of norm 1; two are in memory if the caller lets go of each.

    Reading, hashing and checking happen in a thread: numpy and hashlib let FAISS work meanwhile.

    Args:
        folder: the vectors folder.
        verify: compares checksums; a second pass over the same folder need not.
        ahead: shards that are read at once, and held more.

    Raises:
        RefusedRequest: a shard was changed, or a vector is not finite or not of norm 1; it is named.
    """
    waiting: deque[Future[Vectors]] = deque()
    with ThreadPoolExecutor(max_workers=ahead) as reading:
        first = 0
        for shard in folder.files:
            waiting.append(reading.submit(_unit_shard, folder, shard, first, verify))
            first += shard.rows
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _unit_shard(folder: VectorsFolder, shard: Shard, first: int, verify: bool) -> Vectors:
    rows = folder.read(shard, verify=verify)
    return unit_vectors(rows, folder.dim, name=partial(_name, folder, first), in_place=True)


def _name(folder: VectorsFolder, first: int, row: int) -> str:
    return repr(folder.ids[first + row])


def shortened(rows: Vectors, dim: int) -> Vectors:
    """The first dimensions of unit vectors, normalised anew: (rows, dim) float32.

    Right for embedders that were trained for it (Matryoshka); others lose recall, which is measured.

    Raises:
        RefusedRequest: nothing of a vector is left in these dimensions.
    """
    if dim >= rows.shape[1]:
        return rows
    short = np.ascontiguousarray(rows[:, :dim])  # (rows, dim)
    norms = np.linalg.norm(short, axis=1, keepdims=True)
    if not norms.all():
        raise RefusedRequest(
            f"--truncate_dim {dim}: a vector is zero in its first {dim} dimensions; keep more of them"
        )
    unit: Vectors = short / norms
    return unit
