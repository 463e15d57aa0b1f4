"""What an index will take of memory and disk, told before it is built.

Sizes come from an empty index of the same factory string, so they hold for whatever FAISS understands:
bytes a vector from its codes, its lists and its graph. Tests compare them with files that were written.
"""

from __future__ import annotations

import logging
import math
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.disk_space import METADATA_BYTES, free_bytes, in_words, refuse_too_large
from vidvec_msg.retrieval.indexes.faiss_engine import empty_index, faiss_module, takes_lists, takes_room

log = logging.getLogger(__name__)

_FLOAT, _ID = 4, 8  # bytes
_SHARE = 0.5  # of a machine's memory that an opened index may take if the user names no number
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_GROWTH = 1.3  # of kinds whose room is not made at once: they double it, and a part of that is touched


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a build will take, in bytes.

    Args:
        index: ``index.faiss`` on disk, and about what the opened index takes of memory.
        vectors: ``vectors.npy`` on disk; 0 without rescoring. It is opened memory-mapped.
        ids: ``ids.parquet`` on disk.
        building: memory at the peak of the build: the index while it grows, two shards, or the sample that
            trains it, whichever is more.
    """

    index: int
    vectors: int
    ids: int
    building: int

    @property
    def disk(self) -> int:
        """Of the whole index folder. It is written once: files are renamed into place, not copied."""
        return self.index + self.vectors + self.ids

    def to_dict(self) -> dict[str, int]:
        """As it stands in ``index.json``."""
        return {**asdict(self), "disk": self.disk}


def estimate_build(
    factory: str, count: int, dim: int, *, full_dim: int, rescore: str, sample: int, shard_rows: int
) -> Estimate:
    """What it takes to build an index.

    Args:
        factory: FAISS factory string.
        count: vectors.
        dim: dimensions that the index holds.
        full_dim: dimensions of the vectors, which ``vectors.npy`` keeps.
        rescore: "none", "float16" or "float32".
        sample: vectors that train the index; 0 if it is not trained.
        shard_rows: vectors of the largest shard.
    """
    empty = empty_index(factory, dim)
    index = index_bytes(empty, count)
    stored = {"none": 0, "float16": 2, "float32": 4}[rescore]
    row = full_dim * _FLOAT
    trained = index_bytes(empty, 0)
    filling = int(index * (1 if takes_lists(empty) or takes_room(empty) else _GROWTH)) + 2 * shard_rows * row
    training = trained + 2 * sample * row  # FAISS works on a copy where it shortens or turns
    return Estimate(
        index=index,
        vectors=count * full_dim * stored + 128 if stored else 0,
        ids=count * METADATA_BYTES,
        building=max(filling, training),
    )


def index_bytes(empty: Any, count: int) -> int:
    """Bytes of an index file with so many vectors; the opened index takes about as much memory.

    Args:
        empty: an index of its kind, as ``faiss.index_factory`` makes it.
        count: vectors.
    """
    faiss = faiss_module()
    if isinstance(empty, faiss.IndexPreTransform):
        steps = (faiss.downcast_VectorTransform(empty.chain.at(i)) for i in range(empty.chain.size()))
        matrices = [(step.d_in + 1) * step.d_out * _FLOAT for step in steps if hasattr(step, "A")]
        return int(sum(matrices)) + index_bytes(faiss.downcast_index(empty.index), count)
    if isinstance(empty, faiss.IndexRefine):
        parts = (empty.base_index, empty.refine_index)
        return sum(index_bytes(faiss.downcast_index(part), count) for part in parts)
    if isinstance(empty, faiss.IndexHNSW):
        storage = index_bytes(faiss.downcast_index(empty.storage), count)
        return storage + math.ceil(count * _graph_bytes(empty.hnsw.nb_neighbors(1)))
    if isinstance(empty, faiss.IndexNSG):
        storage = index_bytes(faiss.downcast_index(empty.storage), count)
        return storage + count * (int(empty.nsg.R) + 1) * 4
    lists = faiss.try_extract_index_ivf(empty)
    if lists is not None:
        lists = faiss.downcast_index(lists)
        coarse = index_bytes(faiss.downcast_index(lists.quantizer), lists.nlist)
        code = int(lists.code_size)
        return coarse + int(lists.nlist) * _ID + count * (code + _ID) + _codebook_bytes(lists)
    try:
        code = int(empty.sa_code_size())
    except RuntimeError:  # a kind without codes of its own
        code = int(empty.d) * _FLOAT
    return count * code + _codebook_bytes(empty)


def _graph_bytes(links: int) -> float:
    """Of an HNSW graph per vector: twice ``links`` below, ``links`` on each level above, 12 for its place.

    A vector is on a level above the lowest with a chance of 1/links, on the next with 1/links of that.
    """
    above = 1 / (links - 1) if links > 1 else 1.0  # expected levels, a geometric series
    return 4 * (2 * links + links * above) + 12


def _codebook_bytes(empty: Any) -> int:
    """What the codes are read with: centroids of a product quantiser, ranges of a scalar one."""
    if hasattr(empty, "pq"):
        return int(empty.pq.ksub * empty.d * _FLOAT)
    return int(2 * empty.d * _FLOAT) if hasattr(empty, "sq") else 0


def parse_memory(text: str) -> int:
    """Bytes, from "8GB", "512MB", "1.5 TB" or "8GiB"; powers of 1000, or of 1024 with an i.

    Raises:
        RefusedRequest: it is no such amount.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B", text.strip(), flags=re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise RefusedRequest(f"--memory {text!r} is not an amount of memory; give one such as 8GB or 512MB")
    unit = _UNITS[found[2].upper()]
    if found[3]:
        unit = 1024 ** list(_UNITS).index(found[2].upper())
    return int(float(found[1]) * unit)


def memory_for_index(given: str) -> tuple[int, str]:
    """Bytes that the opened index may take, and where the number comes from.

    Args:
        given: the option; empty: half of what this machine or its container has.

    Raises:
        RefusedRequest: the option is not understood.
    """
    if given:
        return parse_memory(given), f"--memory {given}"
    share = int(machine_memory() * _SHARE)
    return share, f"half of this machine's memory, {in_words(share)}"


def machine_memory() -> int:
    """Bytes that this process may use: the machine's, or less in a container with a limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return min(limits)


def free_memory() -> int:
    """Bytes that can be had now without swapping; all of the machine's where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return machine_memory()
    return min(kilobytes * 1024, machine_memory())


def refuse_without_room(out: Path, estimate: Estimate) -> None:
    """Refuses a build whose result cannot fit on the disk; warns of one that may not fit in memory.

    Args:
        out: the index folder, which may not exist yet.
        estimate: of the index.

    Raises:
        RefusedRequest: what is needed, what is free, and where.
    """
    free = free_bytes(out)
    if estimate.disk > free:
        parts = [f"index.faiss {in_words(estimate.index)}", f"ids.parquet {in_words(estimate.ids)}"]
        parts += [f"vectors.npy {in_words(estimate.vectors)}"] if estimate.vectors else []
        raise RefusedRequest(
            f"--out {out}: the index needs about {in_words(estimate.disk)} ({', '.join(parts)}), and the "
            f"disk has {in_words(free)} free; make room, give an --out with more, or choose a smaller index: "
            "--memory for auto, --truncate_dim, or a factory with codes such as IVF1024,SQ8."
        )
    warn_of_memory(estimate)


def refuse_segment_without_room(index: Path, estimate: Estimate, what: str) -> None:
    """Refuses a further segment that cannot fit on the disk; warns of one that may not fit in memory.

    Args:
        index: the index folder.
        estimate: of the segment.
        what: the subject of the message: "3 more vectors".

    Raises:
        RefusedRequest: with what is needed and what is free.
    """
    refuse_too_large(index, estimate.disk, f"index {index}: {what}")
    warn_of_memory(estimate)


def warn_of_memory(estimate: Estimate) -> None:
    """Says so if building may not fit in memory."""
    if estimate.building > (available := free_memory()):
        log.warning(
            "building will take about %s of memory and %s is available: the system may swap or end it",
            in_words(estimate.building),
            in_words(available),
        )
