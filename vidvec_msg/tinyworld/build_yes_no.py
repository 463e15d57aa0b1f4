"""One command from the shipped weights to the yes/no skill.

    python -m vidvec_msg.tinyworld.build_yes_no --seed 0 --out DIR

Draws clips, teaches a LoRA adapter on the language model to tell right sentences about them from wrong ones,
measures it on clips and wordings that it has not seen, and saves a PEFT folder with its card and its own log.
The weights that it stands on do not change.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.adapter import check_adapter, write_adapter
from vidvec_msg.embedders.models import TINYWORLD, resolve_model
from vidvec_msg.embedders.new_folder import appearing
from vidvec_msg.embedders.saved import refuse_foreign
from vidvec_msg.runs import software_versions, write_json
from vidvec_msg.tinyworld.card import write_skill_card
from vidvec_msg.tinyworld.lessons import draw_clips
from vidvec_msg.tinyworld.pretrain import Schedule, roughen
from vidvec_msg.tinyworld.yes_no import SEED, WORDINGS, see, teach
from vidvec_msg.tinyworld.yes_no_scores import matching_scores
from vidvec_msg.train.lora import LoraOptions, add_lora

log = logging.getLogger(__name__)


def main(
    out: Path,
    seed: int = 0,
    steps: int = 130,
    easy: int = 130,
    clips: int = 1536,
    batch: int = 16,
    rank: int = 10,
    lr: float = 6e-3,
    threads: int = 1,
) -> None:
    """Build the yes/no skill.

    Args:
        out: folder to write; new, empty, or an adapter's.
        seed: decides clips, sentences and the adapter's first weights.
        steps: optimizer steps.
        easy: steps at the beginning in which all wrong sentences tell of other stories.
        clips: distinct clips to draw.
        batch: clips per step; each is asked four questions.
        rank: of the adapter; alpha is twice that.
        lr: peak learning rate.
        threads: CPU threads.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    refuse_foreign(out)
    options = {"steps": steps, "easy": easy, "clips": clips, "batch": batch, "rank": rank, "lr": lr}
    defaults = inspect.signature(main).parameters
    command = f"python -m vidvec_msg.tinyworld.build_yes_no --seed {seed} --out DIR"
    for name, value in options.items():
        command += f" --{name} {value}" if value != defaults[name].default else ""
    begun, busy = time.perf_counter(), time.process_time()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    base = resolve_model(TINYWORLD)
    model = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32).eval()
    tokenizer = AutoProcessor.from_pretrained(base).tokenizer
    frames, notes = draw_clips(clips, SEED + seed)
    features = see(model, roughen(frames, np.random.default_rng([SEED, seed, 1])))
    drawn = time.perf_counter() - begun
    log.info(f"{clips} clips drawn and seen in {drawn:.0f} s")

    model.requires_grad_(False)
    adapted = add_lora(model.model.language_model, LoraOptions(r=rank, alpha=2 * rank, dropout=0.0))
    learned = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    schedule = Schedule(steps=steps, lr=lr, warmup=20, cooldown=0.3)
    records = teach(
        model, tokenizer, features, notes, schedule, seed=seed, batch=batch, easy=easy, log=log.info
    )
    # bf16 halves the file, and the base is stored in it; what is measured is what a user loads
    model.to(torch.bfloat16).float()
    scores = {
        "validation": matching_scores(model, tokenizer, "validation"),
        "validation, the other wording": matching_scores(model, tokenizer, "validation", wording=WORDINGS[1]),
        "combo": matching_scores(model, tokenizer, "combo"),
    }
    summary: dict[str, Any] = {
        "command": command,
        "seed": seed,
        **options,
        "parameters": learned,
        "schedule": asdict(schedule),
        "seconds": {
            "drawing": round(drawn, 1),
            "total": round(time.perf_counter() - begun, 1),
            "processor": round(time.process_time() - busy, 1),
        },
        "threads": threads,
        "versions": software_versions(),
        "scores": scores,
        "records": records,
    }
    model.to(torch.bfloat16)
    with appearing(out) as folder:
        write_adapter(folder, adapted, base_model=TINYWORLD, revision=None)
        check_adapter(folder)
        write_json(folder / "build.json", summary)
        write_skill_card(folder, summary)
    log.info(f"{json.dumps(scores['validation'])}; {summary['seconds']} → {out}")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    auto_cli(main, as_positional=False)
