"""Which FAISS index for how many vectors: the written rule behind ``factory: auto``.

Nothing here needs FAISS. Searching all vectors is exact, and fast enough up to :data:`FLAT`. A graph (HNSW)
is the fastest above it and costs about 270 bytes a vector more. Above :data:`HNSW` its building time hurts,
and inverted lists (IVF) take over, trained on a sample.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FLAT = 100_000  # vectors; at 384 dimensions 15 ms a query on one core, measured
HNSW = 1_000_000  # vectors; building takes minutes on a few cores
POINTS_PER_LIST = 39  # FAISS's own lower bound of training points per centroid (ClusteringParameters)
_PROBED = 16  # one list in 16 is probed: a few per cent of the vectors are compared


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be built.

    Args:
        factory: FAISS factory string.
        reason: why this one, for the log and for ``index.json``.
        search_parameters: FAISS's names and values, such as "nprobe=64"; empty for none. They are stored
            in the index, since FAISS's own default for IVF probes a single list.
    """

    factory: str
    reason: str
    search_parameters: str = ""


def plan_index(factory: str, count: int) -> Plan:
    """Decides what to build.

    Args:
        factory: "auto", or a FAISS factory string.
        count: number of vectors.
    """
    if factory == "auto":
        return _plan_by_size(count)
    needed = training_points(factory)
    if count < needed:
        reason = f"{factory} wants {needed} vectors to be trained and there are {count}: exact search instead"
        return Plan("Flat", reason)
    return Plan(factory, "as asked", _probes(factory))


def training_points(factory: str) -> int:
    """Vectors that a factory string needs to be trained well; 0 for those that are not trained."""
    lists = [int(number) for number in re.findall(r"IVF(\d+)", factory)]
    multi = [1 << int(bits) for bits in re.findall(r"IMI\d+x(\d+)", factory)]
    codes = [1 << int(bits or 8) for bits in re.findall(r"(?<![A-Z])PQ\d+(?:x(\d+))?", factory)]
    return POINTS_PER_LIST * max([0, *lists, *multi, *codes])


def _plan_by_size(count: int) -> Plan:
    if count <= FLAT:
        return Plan("Flat", f"{count} vectors, at most {FLAT}: exact search is fast enough")
    if count <= HNSW:
        return Plan("HNSW32,Flat", f"{count} vectors, more than {FLAT}: a graph", "efSearch=128")
    lists = _power_of_two(4 * count**0.5)  # FAISS's guidelines: 4 to 16 times the root of the count
    factory = f"IVF{lists},Flat"
    return Plan(factory, f"{count} vectors, more than {HNSW}: {lists} inverted lists", _probes(factory))


def _power_of_two(number: float) -> int:
    return 1 << max(int(number).bit_length() - 1, 0)


def _probes(factory: str) -> str:
    lists = re.search(r"IVF(\d+)", factory)
    return f"nprobe={max(int(lists[1]) // _PROBED, 1)}" if lists else ""
