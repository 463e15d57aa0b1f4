"""Loading the language model alone, beside loading the full model: memory of the weights, and time.

    python benchmarks/bench_text_only.py           about two minutes
    python benchmarks/bench_text_only.py --quick   without the measured load of a model of 256M

Three kinds of lines. Published shapes of 2 to 8 billion parameters, built without memory (torch's meta
device): bytes of what fit holds beside what the full model holds, in bfloat16. A random model in the shape of
SmolVLM-256M, written to disk and loaded in processes of their own: the peak of what it holds in memory and
seconds. And the tiny models of the tests, one per family: bytes of the weights, and milliseconds in the note
(for a model this small they tell what looking for the tower costs, not what it saves).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from resident import megabytes_now, peak_megabytes, reset_peak
from torch import nn

from vidvec_msg.embedders.backbone import multimodal_class, quiet_progress
from vidvec_msg.embedders.language_model import language_model_of, load_language_model

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SIGLIP = {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16, "intermediate_size": 4304}
QWEN2_7B = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}
QWEN3_8B = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
SMALL = {  # the text part of SmolVLM-256M
    "vocab_size": 49280,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "model_type": "llama",
}
# config class, text, vision, the rest: as in the config.json of the published checkpoints
PUBLISHED: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "VideoLLaMA3-7B": (
        "VideoLlama3Config",
        {**QWEN2_7B, "model_type": "qwen2"},
        {**SIGLIP, "patch_size": 14},
        {"tie_word_embeddings": False},
    ),
    "Qwen2.5-VL-7B": (
        "Qwen2_5_VLConfig",
        QWEN2_7B,
        {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
        {"tie_word_embeddings": False},
    ),
    "Qwen3-VL-8B": (
        "Qwen3VLConfig",
        QWEN3_8B,
        {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "out_hidden_size": 4096,
            "deepstack_visual_indexes": [8, 16, 24],
        },
        {"tie_word_embeddings": False},
    ),
    "InternVL3-8B": (
        "InternVLConfig",
        {**QWEN2_7B, "vocab_size": 151674, "model_type": "qwen2"},
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
        {"tie_word_embeddings": False},
    ),
    "LLaVA-OneVision-7B": (
        "LlavaOnevisionConfig",
        {**QWEN2_7B, "vocab_size": 152000, "model_type": "qwen2"},
        {
            **SIGLIP,
            "num_hidden_layers": 26,
            "model_type": "siglip_vision_model",
            "image_size": 384,
            "patch_size": 14,
        },
        {"tie_word_embeddings": False},
    ),
    "SmolVLM2-2.2B": (
        "SmolVLMConfig",
        {
            "vocab_size": 49280,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "model_type": "llama",
        },
        {**SIGLIP, "image_size": 384, "patch_size": 14},
        {"scale_factor": 3, "tie_word_embeddings": False},
    ),
}


def published(name: str) -> nn.Module:
    """A published model without memory."""
    import transformers

    kind, text, vision, rest = PUBLISHED[name]
    config = getattr(transformers, kind)(text_config=text, vision_config=vision, **rest)
    return on_meta(config)


def on_meta(config: Any) -> nn.Module:
    """The full model of a configuration, without memory."""
    kind = multimodal_class(config)
    if kind is None:
        raise SystemExit(f"{type(config).__name__} is no multimodal configuration that transformers knows")
    with torch.device("meta"):
        made: nn.Module = kind.from_config(config)
    return made


def parameters(module: nn.Module) -> int:
    """How many; shared ones once."""
    return sum(parameter.numel() for parameter in module.parameters())


def load_full(folder: Path, dtype: str) -> nn.Module:
    """What a full load is: the Auto class."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind = multimodal_class(AutoConfig.from_pretrained(folder)) or AutoModelForCausalLM
    with quiet_progress():
        made: nn.Module = kind.from_pretrained(folder, dtype=getattr(torch, dtype))
    return made


def milliseconds(load: Callable[[], nn.Module]) -> tuple[float, nn.Module]:
    """Best of three, and what was loaded."""
    best, made = float("inf"), None
    for _ in range(3):
        began = time.perf_counter()
        made = load()
        best = min(best, 1000 * (time.perf_counter() - began))
    if made is None:
        raise RuntimeError("nothing was loaded")
    return best, made


def compare_published() -> None:
    """Arithmetic on shapes."""
    for name in PUBLISHED:
        full = published(name)
        tower, whole = parameters(language_model_of(full)), parameters(full)
        head = whole - parameters(full.model)  # type: ignore[arg-type]  # the model below its head
        note = (
            f"{tower / 1e9:.2f} of {whole / 1e9:.2f} billion parameters; vocabulary logits {head / 1e9:.2f}"
        )
        print_line(
            f"weights in memory, {name} (bfloat16), beside the full model",
            tower * 2e-9,
            whole * 2e-9,
            "GB",
            note,
        )


def compare_tiny() -> None:
    """The families of the tests."""
    from tiny_models import FAMILIES, build_tiny_mllm

    with tempfile.TemporaryDirectory() as temporary:
        for family in FAMILIES:
            folder = build_tiny_mllm(Path(temporary) / family, family)
            took, tower = milliseconds(lambda folder=folder: load_language_model(folder))  # type: ignore[misc]
            full_took, full = milliseconds(lambda folder=folder: load_full(folder, "float32"))  # type: ignore[misc]
            note = f"loaded in {took:.0f} ms, the full model in {full_took:.0f} ms"
            mine, theirs = parameters(tower) * 4e-3, parameters(full) * 4e-3
            print_line(
                f"weights in memory, tiny {family} (float32), beside the full model", mine, theirs, "kB", note
            )


def compare_measured() -> None:
    """A model of 256 million parameters, from disk."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    vision = {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    }
    config = SmolVLMConfig(
        text_config=SMALL, vision_config={**vision, "image_size": 512, "patch_size": 16}, scale_factor=4
    )
    with tempfile.TemporaryDirectory() as temporary:
        with quiet_progress():
            SmolVLMForConditionalGeneration(config).save_pretrained(temporary)
        tower, full = (measured(way, Path(temporary)) for way in ("text", "full"))
    about = "float32, random weights in its shape, best of three processes"
    name = "loading SmolVLM-256M's language model, beside the full model"
    print_line(f"peak memory of {name}", tower["MB"], full["MB"], "MB", about)
    print_line(f"time of {name}", tower["seconds"], full["seconds"], "s", about)


def measured(way: str, folder: Path) -> dict[str, float]:
    """Peak megabytes and seconds of a load, in processes of their own."""
    found = []
    for _ in range(3):
        command = [sys.executable, __file__, "--load", way, str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: min(run[name] for run in found) for name in ("MB", "seconds")}


def load_here(way: str, folder: Path) -> dict[str, float]:
    """Loads in this process; importing is not counted."""
    import transformers.models.smolvlm.modeling_smolvlm  # noqa: F401 - imported before the clock starts

    with tempfile.TemporaryDirectory() as temporary:  # whatever a first load brings in
        from tiny_models import build_tiny_mllm

        tiny = build_tiny_mllm(Path(temporary) / "tiny", "smolvlm")
        load_language_model(tiny)
        load_full(tiny, "float32")

    reset_peak()
    before, began = megabytes_now(), time.perf_counter()
    model = load_language_model(folder) if way == "text" else load_full(folder, "float32")
    seconds = time.perf_counter() - began
    sum(float(parameter.detach().float().sum()) for parameter in model.parameters())  # all pages are there
    return {"MB": peak_megabytes() - before, "seconds": seconds}


def print_line(claim: str, mine: float, theirs: float, unit: str, note: str) -> None:
    """One result; less is better, and nothing is promised of how much."""
    line = {
        "claim": claim,
        "ours": round(mine, 3),
        "peer": round(theirs, 3),
        "unit": unit,
        "ratio": round(theirs / mine, 3),
        "bar": None,
        "ok": True,
        "note": note,
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads the command line and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out the model of 256M")
    parser.add_argument(
        "--load", nargs=2, metavar=("WAY", "FOLDER"), help="text or full: load in this process"
    )
    given = parser.parse_args()
    if given.load:
        print(json.dumps(load_here(given.load[0], Path(given.load[1]))))
        return
    compare_published()
    if not given.quick:
        compare_measured()
    compare_tiny()


if __name__ == "__main__":
    main()
