"""What the options of the trainer say about processes, and what cannot go together; no model is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from pytorch_lightning.strategies import Strategy, StrategyRegistry

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.extras import require
from vidvec_msg.train.strategies.fsdp2 import FSDP2
from vidvec_msg.train.strategies.zero import DeepSpeed
from vidvec_msg.train.tuning import sharding_of

OURS = {
    "DeepSpeedStrategy": "vidvec_msg.train.strategies.DeepSpeed",
    "FSDPStrategy": "vidvec_msg.train.strategies.FSDP2",
    "ModelParallelStrategy": "vidvec_msg.train.strategies.FSDP2",
}
"""Lightning's classes that do not run here as they are, and ours in their place."""

OF_DEEPSPEED = [name for name in StrategyRegistry.available_strategies() if name.startswith("deepspeed")]

NAMES = ["auto", "ddp", "ddp_find_unused_parameters_true", "fsdp", *OF_DEEPSPEED]
"""Strategies by name that make sense here; Lightning has more, for notebooks and for other processors."""

PASSAGES_IN_SHARDS = 2
"""Forward passes that a batch always has on every rank: a pair has two texts."""


def ranks_asked_for(trainer: Namespace) -> int:
    """Processes that the options of a trainer ask for.

    Raises:
        RefusedRequest: devices that are no number of them, and no numbers of theirs.
    """
    return max(_devices(trainer.devices, trainer.accelerator), 1) * int(trainer.num_nodes)


def _devices(asked: int | str | list[int], accelerator: str) -> int:
    """Devices of one node: a number, their numbers ("0,1" or a list), or all that there are (-1, "auto")."""
    if isinstance(asked, list):
        return len(asked)
    words = [word for word in str(asked).split(",") if word.strip()]
    if len(words) > 1 or str(asked).endswith(","):
        return len(words)
    if words in (["-1"], ["auto"]):
        on_gpus = accelerator in ("auto", "gpu", "cuda")
        return torch.cuda.device_count() if on_gpus else 1
    if not (words and words[0].strip().isdecimal() and int(words[0])):
        raise RefusedRequest(
            f"trainer.devices is {asked!r}; accepted: how many, from 1; their numbers (0,1 or [0, 1]); auto "
            "or -1, all that there are"
        )
    return int(words[0])


def ours(strategy: Any) -> Strategy | Any:
    """The strategy that a name of Lightning's means here; anything else itself."""
    if isinstance(strategy, str) and strategy.startswith("deepspeed"):
        return DeepSpeed(**StrategyRegistry[strategy]["init_params"])
    return FSDP2() if strategy == "fsdp" else strategy


def put_ours_in_place(trainer: Namespace) -> None:
    """Replaces Lightning's DeepSpeedStrategy, given with class_path and init_args, by ours."""
    if isinstance(trainer.strategy, Namespace):
        name = trainer.strategy.class_path.rpartition(".")[2]
        if name == "DeepSpeedStrategy":
            trainer.strategy.class_path = OURS[name]
            trainer.strategy.init_args.exclude_frozen_parameters = True


def strategy_problems(
    trainer: Namespace, data: Namespace, checkpoint: str | None, *, ranks: int, trains: bool = True
) -> Iterator[str]:
    """What cannot go together, each with what to do.

    Args:
        trainer: options of the trainer.
        data: options of the data.
        checkpoint: what is resumed or measured; None for a fit from the start.
        ranks: processes.
        trains: False where a checkpoint is measured alone.
    """
    strategy = trainer.strategy
    name = str(strategy if isinstance(strategy, str) else strategy.class_path.rpartition(".")[2])
    deepspeed = "deepspeed" in name.lower()
    lightnings = [*StrategyRegistry.available_strategies(), "auto"]
    if isinstance(strategy, str) and (name not in lightnings or name.startswith("fsdp_")):
        hint = did_you_mean(_in_lightnings_words(name), NAMES)
        yield f"trainer.strategy is {name!r}{hint}; accepted: {', '.join(NAMES)}"
        return
    if name in OURS and not deepspeed:
        yield f"trainer.strategy {name} is not made for adapters: use {OURS[name]}, or its name, fsdp"
    if deepspeed and not trains:
        yield (
            f"trainer.strategy {name}: DeepSpeed's checkpoints open for training alone. Measure the embedder "
            "that the fit made (vidvec-msg evaluate --embedder RUN/embedder), or while it trains "
            "(trainer.callbacks: RetrievalValidation)"
        )
        return
    if deepspeed:
        try:
            require("deepspeed", purpose=f"train with trainer.strategy {name}")
        except RefusedRequest as error:
            yield str(error)
    shards = sharding_of(strategy)
    if shards and ranks > 1:
        whole = "; ranks take their forward passes together then, and all need as many of them"
        if data.passage_tokens:
            yield (
                f"data.passage_tokens {data.passage_tokens} gives ranks different numbers of passages, and "
                f"{shards} cuts the weights into shards{whole}. Use data.passages, or a strategy that keeps "
                "the weights whole (ddp, deepspeed_stage_2)"
            )
        elif data.passages > PASSAGES_IN_SHARDS:
            yield (
                f"data.passages is {data.passages}, and {shards} cuts the weights into shards{whole}; a rank "
                f"with a single pair has two texts: give at most {PASSAGES_IN_SHARDS}"
            )
    if checkpoint is not None and Path(checkpoint).is_dir() != deepspeed:
        kind, other = ("a folder, as DeepSpeed writes them", "another strategy")
        if not Path(checkpoint).is_dir():
            kind, other = "a file, as DeepSpeed does not write them", "DeepSpeed"
        yield (
            f"--ckpt_path {checkpoint} is {kind}, and trainer.strategy {name} is of {other}: continue it "
            "with the strategy that it was written with"
        )


def _in_lightnings_words(name: str) -> str:
    """A strategy's name with ZeRO or a stage of it ("zero", "zero3", "deepspeed-3") as Lightning calls it,
    and without the ending of its classes: in spelling alone they lie near other strategies, or near none."""
    staged = re.sub(r"(?:(?:deepspeed|zero|stage)[\W_]*)+(?=\d)", "deepspeed_stage_", name.casefold())
    named = re.sub(r"(?:deepspeed[\W_]*)?zero", "deepspeed", staged)
    return named.removesuffix("strategy")
