"""A training step of a 7B language model on one GPU: tokens per second, MFU, peak memory.

    python benchmarks/bench_gpu_train.py                 about ten minutes on an H200-class GPU
    python benchmarks/bench_gpu_train.py --quick         two steps of each way
    python benchmarks/bench_gpu_train.py --shape tiny    anywhere: shows that it runs, measures nothing

The language model of Qwen2.5-7B in shape, random bfloat16 weights made on the GPU; LoRA of rank 64 on all its
linears; the real step of TextContrastive (loss, gradients, clipping, AdamW) over texts of random tokens, a
pair of 250: storylines of 160 to 240 and messages of 30 to 70. Ways: plain, gradient checkpointing, and
GradCache with passages of ``--passage-tokens``; each with SDPA, and with FlashAttention 2 where flash_attn is
installed.

MFU = useful floating point operations a second / the GPU's dense bfloat16 peak. Useful, per token:

    4 · N       through the N frozen weights of the blocks' linears: 2 forward, 2 for the gradient of their
                input; their own gradients, the third third of full fine-tuning, are not computed
    6 · A       through the A weights of the adapter
    6 · L · w · t   attention over half of t tokens, L blocks of width w

What checkpointing and GradCache compute again is not useful and not counted. Padding is not counted either.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch, Tokens
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions, make_optimizer

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SHAPES: dict[str, dict[str, int]] = {
    "7b": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
# dense bfloat16, floating point operations a second, from the makers' data sheets; first match counts
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}
MFU_BAR = 0.45
GOAL_PAIRS, GOAL_MINUTES = 70_000, 30
STORYLINE, MESSAGE = (160, 240), (30, 70)  # tokens, prompt included


@dataclass(frozen=True)
class Way:
    """How a step runs.

    Args:
        name: for the table.
        pairs: of a step. Without GradCache or checkpointing all activations are in memory: some 8 MB a token.
        options: of TextContrastive.
        passage_tokens: of a passage at most; 0 cuts in two.
    """

    name: str
    pairs: int
    options: dict[str, bool]
    passage_tokens: int = 0


@dataclass(frozen=True)
class Found:
    """Tokens and pairs per second, useful operations per second, peak bytes."""

    tokens: float
    pairs: float
    operations: float
    memory: int


def ways(given: argparse.Namespace) -> list[Way]:
    """What is measured."""
    return [
        Way("plain", given.pairs, {}),
        Way("gradient checkpointing", given.pairs, {"gradient_checkpointing": True}),
        Way("GradCache", given.many_pairs, {"grad_cache": True}, given.passage_tokens),
    ]


def attentions(shape: str) -> list[str]:
    """Kernels that are installed."""
    return ["sdpa", "flash_attention_2"] if shape == "7b" and find_spec("flash_attn") else ["sdpa"]


def random_module(shape: str, attention: str, device: torch.device, way: Way) -> TextContrastive:
    """TextContrastive around a tower of random weights, made where it runs; the tokenizer is a tiny one."""
    from tiny_models import build_tiny_mllm
    from transformers import AutoModel, Qwen2Config

    def random_tower(*_: Any, **__: Any) -> Any:
        config = Qwen2Config(**SHAPES[shape], attn_implementation=attention)
        with device:
            tower = AutoModel.from_config(config, dtype=torch.bfloat16)
        tower.config.use_cache = False
        return tower.eval()

    with tempfile.TemporaryDirectory() as folder:
        words = build_tiny_mllm(Path(folder) / "words", "text")
        with patch("vidvec_msg.train.module.load_language_model", random_tower):
            made = TextContrastive(
                str(words),
                lora=LoraOptions(r=64 if shape == "7b" else 4, alpha=128, dropout=0.05),
                dtype="bfloat16",
                **way.options,  # type: ignore[arg-type]  # switches
            )
    return made.to(device)


def batches(way: Way, vocabulary: int, count: int) -> Iterator[PairBatch]:
    """Batches of random tokens."""
    for number in range(count):
        choose = random.Random(number)
        ids: dict[str, list[int]] = {}

        def text(span: tuple[int, int], name: str, choose: Any = choose, ids: Any = ids) -> str:
            ids[name] = [choose.randrange(vocabulary) for _ in range(choose.randint(*span))]
            return name

        pairs = [
            Pair(text(STORYLINE, f"storyline {i}"), text(MESSAGE, f"message {i}")) for i in range(way.pairs)
        ]
        collate = Collate(lambda name, ids=ids: Tokens(ids[name]), passage_tokens=way.passage_tokens)  # type: ignore[misc]
        yield collate(list(enumerate(pairs)))


def useful(module: TextContrastive, lengths: Sequence[int]) -> float:
    """Floating point operations of a step over texts of so many tokens; the formula stands at the top."""
    tower = module.tower.get_base_model()
    frozen = sum(
        parameter.numel()
        for name, parameter in tower.layers.named_parameters()
        if parameter.ndim == 2 and not parameter.requires_grad
    )
    adapter = sum(parameter.numel() for parameter in tower.parameters() if parameter.requires_grad)
    config = tower.config
    width = config.num_attention_heads * getattr(
        config, "head_dim", config.hidden_size // config.num_attention_heads
    )
    attention = 6 * config.num_hidden_layers * width * sum(length**2 for length in lengths)
    return float((4 * frozen + 6 * adapter) * sum(lengths) + attention)


def measure(shape: str, attention: str, way: Way, device: torch.device, steps: int) -> Found:
    """Steps after a first one that warms up."""
    module = random_module(shape, attention, device, way)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer, _ = make_optimizer(trained, OptimizerOptions(), steps + 1)
    tokens = operations = began = 0.0
    cuda = device.type == "cuda"
    for number, batch in enumerate(batches(way, SHAPES[shape]["vocab_size"], steps + 1)):
        if number == 1:
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
        module.contrast(batch.to(device))[0].backward()  # type: ignore[no-untyped-call]  # torch's own
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if number:
            lengths = [int(n) for passage in batch.passages for n in passage.attention_mask.sum(1)]
            tokens += sum(lengths)
            operations += useful(module, lengths)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    memory = torch.cuda.max_memory_allocated() if cuda else 0
    return Found(tokens / seconds, way.pairs * steps / seconds, operations / seconds, memory)


def report(found: Found, peak: float | None, name: str, *, steps: int, pairs: int) -> None:
    """The lines of one way."""
    about = (
        f"{found.tokens:,.0f} tokens/s, {found.pairs:.1f} pairs/s, peak {found.memory / 1e9:.1f} GB; "
        f"{steps} steps of {pairs} pairs"
    )
    if peak is None:
        print_line(f"MFU, {name}", None, "%", None, f"not measured: the peak of this GPU is unknown; {about}")
    else:
        mfu = found.operations / peak
        print_line(f"MFU, {name}", 100 * mfu, "%", mfu >= MFU_BAR, f"target {MFU_BAR:.0%}; {about}")
    minutes = GOAL_PAIRS / found.pairs / 60
    print_line(
        f"{GOAL_PAIRS:,} pairs of 250 tokens, {name}",
        minutes,
        "min",
        minutes <= GOAL_MINUTES,
        f"target {GOAL_MINUTES} min; {about}",
    )


def print_line(claim: str, value: float | None, unit: str, ok: bool | None, note: str) -> None:
    """One result; there is no peer."""
    line = {
        "claim": claim,
        "ours": None if value is None else round(value, 2),
        "peer": None,
        "unit": unit,
        "ratio": None,
        "bar": None,
        "ok": ok,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main(words: Sequence[str] | None = None) -> None:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(SHAPES), default="7b", help="of the language model")
    parser.add_argument("--pairs", type=int, default=40, help="of a step without GradCache")
    parser.add_argument("--many-pairs", type=int, default=288, help="of a step with GradCache")
    parser.add_argument("--passage-tokens", type=int, default=8192, help="of a GradCache passage")
    parser.add_argument("--steps", type=int, default=10, help="that are measured, of each way")
    parser.add_argument("--peak-tflops", type=float, help="dense bfloat16 peak of a GPU that PEAKS lacks")
    parser.add_argument("--quick", action="store_true", help="two steps of each way")
    given = parser.parse_args(words)
    if given.quick:
        given.steps = 2
    tiny = given.shape == "tiny"
    if tiny:
        given.pairs, given.many_pairs, given.passage_tokens, given.steps = 2, 4, 512, 1
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu and not tiny else "cpu")
    card = torch.cuda.get_device_name() if gpu else ""
    peak = next((flops for name, flops in PEAKS.items() if name in card), None)
    peak = given.peak_tflops * 1e12 if given.peak_tflops else peak
    for attention in attentions(given.shape):
        for way in ways(given):
            name = f"LoRA on a {given.shape} language model, {way.name}, {attention}"
            if not (gpu or tiny):
                for claim, unit in (
                    (f"MFU, {name}", "%"),
                    (f"{GOAL_PAIRS:,} pairs of 250 tokens, {name}", "min"),
                ):
                    print_line(claim, None, unit, None, "not measured: there is no GPU here")
                continue
            try:
                found = measure(given.shape, attention, way, device, given.steps)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                print_line(
                    f"MFU, {name}", None, "%", None, f"not measured: out of memory at {way.pairs} pairs"
                )
                continue
            if tiny:
                print_line(
                    f"MFU, {name}", None, "%", None, "not measured: a tiny model says nothing of speed"
                )
            else:
                report(found, peak, name, steps=given.steps, pairs=way.pairs)


if __name__ == "__main__":
    main()
