"""Which FAISS index for how many vectors: the written rule behind ``factory: auto``. Needs no FAISS.

In this order, the first that fits into the memory for the opened index:

1. Flat, exact, while a query compares at most :data:`FLAT` numbers (vectors × dimensions).
2. HNSW32,Flat up to :data:`HNSW` numbers: the fastest search, the slowest build.
3. Inverted lists, IVF, with the vectors as they are (Flat) or in codes, the longest that fit: :data:`CODES`.

Below :data:`FLAT` codes are scanned without lists. How far the lists are probed is measured after the build,
by the recall target, not chosen here; a target that codes alone will not reach is told, with what would.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.disk_space import in_words

FLAT = 100_000 * 384  # numbers compared per query; 15 ms on one core, measured
HNSW = 1_000_000 * 384  # numbers; building takes minutes to an hour on a few cores
GRAPH_BYTES = 273  # of HNSW32 per vector beside the vector: 64 links below, 1 above, its place
LIST_BYTES = 8  # of an inverted list per vector beside the code: its position
POINTS_PER_LIST = 39  # FAISS's own lower bound of training points per centroid (ClusteringParameters)
COARSE_GRAPH = 10_000_000  # vectors; from here on lists are found by a graph, as FAISS's guidelines have it
REFINED = 4  # candidates per wanted result where a factory refines
_PROBED = 16  # one list in 16 is probed until a measurement says otherwise


@dataclass(frozen=True, slots=True)
class Code:
    """A way to store vectors.

    Args:
        name: FAISS's; ``{m}`` stands for the number of sub-quantisers.
        shared: dimensions that share one sub-quantiser of 4 bits; 0 for codes without any.
        bytes_per_dim: of codes without sub-quantisers.
        recall: recall@10 that the codes alone reached, all lists probed; 1 for exact ones. Measured on 7,424
            vectors of all-MiniLM-L6-v2 (384 dimensions); with 4 candidates per wanted result rescored all but
            the last two reached 1.000, these 0.977 and 0.881. Among more vectors neighbours lie nearer.
    """

    name: str
    shared: int
    bytes_per_dim: int
    recall: float

    def fits(self, dim: int) -> bool:
        """Whether vectors of so many dimensions divide into such codes."""
        return not self.shared or dim % self.shared == 0

    def factory(self, dim: int) -> str:
        """FAISS's name for vectors of so many dimensions."""
        return self.name.format(m=dim // self.shared) if self.shared else self.name

    def size(self, dim: int) -> int:
        """Bytes of a vector."""
        return math.ceil(dim / self.shared / 2) if self.shared else self.bytes_per_dim * dim


# Longest first. Of the codes that were tried at each length these won (see docs/index.md): RaBitQ comes near
# in recall and is searched 4 to 20 times slower, PQ of 8 bits loses in both, and OPQ takes minutes to train.
CODES = (
    Code("Flat", 0, 4, 1.0),
    Code("SQ8", 0, 1, 0.99),
    Code("PQ{m}x4fs", 1, 0, 0.93),
    Code("PQ{m}x4fs", 2, 0, 0.85),
    Code("PQ{m}x4fs", 4, 0, 0.71),
    Code("PQ{m}x4fs", 8, 0, 0.57),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be built.

    Args:
        factory: FAISS factory string.
        reason: why this one, for the log and for ``index.json``.
        search_parameters: FAISS's names and values, such as "nprobe=64"; empty for none. They are stored
            in the index, since FAISS's own default for IVF probes a single list; a measurement after the
            build replaces them.
        truncate_dim: the index holds so many leading dimensions, normalised anew; 0: all.
    """

    factory: str
    reason: str
    search_parameters: str = ""
    truncate_dim: int = 0


def plan_index(
    factory: str,
    count: int,
    dim: int,
    *,
    memory: float = math.inf,
    recall: float = 0.95,
    rescored: bool = False,
    allowed: str = "the memory allowed",
) -> Plan:
    """Decides what to build.

    Args:
        factory: "auto", or a FAISS factory string.
        count: number of vectors.
        dim: dimensions that the index holds.
        memory: bytes that the opened index may take; only "auto" goes by it.
        recall: recall@10 that is wanted.
        rescored: whether full vectors will be kept for exact scores.
        allowed: where ``memory`` comes from, for the reason.

    Raises:
        RefusedRequest: "auto" finds nothing that fits into the memory.
    """
    if factory == "auto":
        return _plan_automatically(count, dim, memory, recall, rescored, allowed)
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


def _plan_automatically(
    count: int, dim: int, memory: float, recall: float, rescored: bool, allowed: str
) -> Plan:
    numbers = count * dim
    if (numbers <= FLAT or recall == 1) and count * CODES[0].size(dim) <= memory:
        why = "nothing else is exact" if numbers > FLAT else "exact search is fast enough"
        return Plan("Flat", f"{count:,} vectors of {dim} dimensions: {why}")
    if recall == 1:
        raise RefusedRequest(
            f"--recall 1 is exact search, and Flat takes {in_words(count * CODES[0].size(dim))} of memory, "
            f"more than {allowed}; give more --memory, or a lower --recall with --rescore float16."
        )
    if FLAT < numbers <= HNSW and count * (CODES[0].size(dim) + GRAPH_BYTES) <= memory:
        return Plan(
            "HNSW32,Flat",
            f"{count:,} vectors of {dim} dimensions, too many to compare with all: a graph",
            "efSearch=128",
        )
    lists = _lists(count) if numbers > FLAT else ""
    codes = [code for code in CODES if code.fits(dim)]
    for code in codes:
        factory = f"{lists},{code.factory(dim)}" if lists else code.factory(dim)
        size = count * (code.size(dim) + (LIST_BYTES if lists else 0))
        if size <= memory and count >= training_points(factory):
            reason = f"{count:,} vectors of {dim} dimensions: {_why(lists, code, size, allowed)}"
            if code.recall < recall and not rescored:
                reason += (
                    f"; such codes alone reach about {code.recall:g} of recall@10, --rescore float16 more"
                )
            return Plan(factory, reason, _probes(factory))
    raise RefusedRequest(
        f"no index of {count:,} vectors of {dim} dimensions fits into {allowed}: the smallest, "
        f"{codes[-1].factory(dim)}, takes {in_words(count * codes[-1].size(dim))}; give more --memory, "
        "shorten the vectors (--truncate_dim), or divide them among several indexes."
    )


def _why(lists: str, code: Code, size: int, allowed: str) -> str:
    number = lists.removeprefix("IVF").partition("_")[0]
    lead = f"{number} inverted lists" if lists else "few enough to compare all"
    if code.name == "Flat":
        return lead
    return f"{lead}, in codes, since longer ones exceed {allowed} (these take {in_words(size)})"


def _lists(count: int) -> str:
    """FAISS's guidelines: 4 to 16 times the root of the count; where there are many, a graph finds them.

    The lower end, rounded to the nearest power of two, keeps k-means to minutes on a CPU; the upper end
    where a graph finds the lists.
    """
    graph = count >= COARSE_GRAPH
    lists = 1 << round(math.log2((16 if graph else 4) * count**0.5))
    while lists > 1 and lists * POINTS_PER_LIST > count:
        lists //= 2
    return f"IVF{lists}_HNSW32" if graph else f"IVF{lists}"


def _probes(factory: str) -> str:
    """Search parameters to begin with; FAISS's own probe one list, and refine only what is returned."""
    lists = re.search(r"IVF(\d+)", factory)
    found = [f"nprobe={max(int(lists[1]) // _PROBED, 1)}"] if lists else []
    if re.search(r",(RFlat|Refine)", factory):
        found.append(f"k_factor_rf={REFINED}")
    return ",".join(found)
