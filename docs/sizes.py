"""Writes the tables of docs/scale.md: what `index --factory auto` plans, and what it takes.

python docs/sizes.py           rewrite them between the markers
python docs/sizes.py --check   exit 1 if they are out of date (a test calls this)
"""

from __future__ import annotations

import sys
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.indexes.build import sample_size
from vidvec_msg.retrieval.indexes.estimate import estimate_build, parse_memory
from vidvec_msg.retrieval.indexes.factories import plan_index

PAGE = Path(__file__).parent / "scale.md"
BEGIN, END = "<!-- sizes: begin -->", "<!-- sizes: end -->"
CORPORA = (1_000_000, 100_000_000, 1_000_000_000)
DIMS = (384, 1024, 3584)  # MiniLM; many embedders, or a 7B model shortened; a 7B model whole
MACHINES = ("16GB", "256GB", "2TB")  # memory for the opened index
SHARD = 50_000  # rows, the default


def table() -> str:
    lines = [
        "| clips | dimensions | vectors, float16 | memory | `auto` plans | index | peak of the build |",
        "| ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for count in CORPORA:
        for dim in DIMS:
            planned = [(memory, _planned(count, dim, memory)) for memory in MACHINES]
            for number, (memory, plan) in enumerate(planned):
                if number and plan == planned[number - 1][1]:
                    continue  # more memory changes nothing
                start = (
                    f"| {_count(count)} | {dim:,} | {_bytes(count * dim * 2)} | {memory[:-2]} {memory[-2:]} |"
                )
                lines.append(f"{start} {plan} |")
    return "\n".join(lines)


def _planned(count: int, dim: int, memory: str) -> str:
    try:
        plan = plan_index("auto", count, dim, memory=parse_memory(memory), recall=0.95)
    except RefusedRequest:
        return "refused: too little | | "
    size = estimate_build(
        plan.factory,
        count,
        dim,
        full_dim=dim,
        rescore="none",
        sample=sample_size(plan.factory, count),
        shard_rows=SHARD,
    )
    return f"`{plan.factory}` | {_bytes(size.index)} | {_bytes(size.building)}"


def _count(number: int) -> str:
    return f"{number // 10**6} M" if number < 10**9 else f"{number // 10**9} billion"


def _bytes(size: float) -> str:
    return f"{size / 1e12:.3g} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--check" in sys.argv:
        return int(written != page)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
