"""What the command line and the YAML of a fit say, before anything is built from it.

Every option of the trainer, the model and the data is a key of the YAML file and an option of the command
line, with nothing listed twice; this is where they are parsed without a run, and checked.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from jsonargparse import Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Trainer
from pytorch_lightning.cli import LightningArgumentParser

from vidvec_msg.embedders.language_model import keep_blocks, language_model_outline
from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.embedders.readable import refuse_unreadable
from vidvec_msg.errors import Problems, RefusedRequest, explain_unknown
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.train.datamodule import PairsData, read_sources
from vidvec_msg.train.lora import LoraOptions, targets_of
from vidvec_msg.train.losses import InfoNCE, PairLoss
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions
from vidvec_msg.train.strategies.asked_for import ours, ranks_asked_for, strategy_problems
from vidvec_msg.train.strategies.fsdp2 import refuse_strangers
from vidvec_msg.train.tuning import ADAPTER, check_tuning, sharding_of
from vidvec_msg.train.value_refusals import explain_value, shipped_losses

DEFAULTS = {"model.loss": {"class_path": "vidvec_msg.train.losses.InfoNCE"}}
"""InfoNCE unless said otherwise, so that its options need no class to be named."""

LEAST = {"accumulate_grad_batches": 1, "check_val_every_n_epoch": 1, "log_every_n_steps": 0}
"""Numbers that the trainer takes unseen, to divide by them later; the least of each."""

OF_LIGHTNING = (MisconfigurationException, ValueError, TypeError, ImportError)
"""What Lightning's classes raise for options that they do not take, or for a package that they lack."""


def options_parser() -> LightningArgumentParser:
    """A parser of everything that a fit's YAML may hold. Building it takes seconds."""
    # an abbreviation would change an option that nobody named
    parser = LightningArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--seed_everything", type=int | bool | None, default=True, help="of a run")
    parser.add_lightning_class_args(Trainer, "trainer")
    parser.add_lightning_class_args(TextContrastive, "model")
    parser.add_lightning_class_args(PairsData, "data")
    parser.add_argument("--ckpt_path", type=str | None, default=None, help="of a run")
    parser.set_defaults(DEFAULTS)
    return parser


def known_options() -> Iterable[str]:
    """Every valid key, dotted; a generator, because a parser takes seconds to build."""
    yield from options_parser().get_defaults().keys()
    for kind in shipped_losses().values():  # parsers name their options without a prefix
        yield from signature(kind).parameters


def explained(message: str, *, verb: str) -> str:
    """A parser's complaint about the options of a fit, in our words.

    Args:
        message: what the parser said.
        verb: whose options they are.
    """
    ending = f"`{verb} --help` lists all of them."
    told = explain_value(message, verb=verb)
    return told or explain_unknown(message, known_options(), ending=ending, inside=verb)


@dataclass(frozen=True, slots=True)
class Checked:
    """What the options of a fit describe, as far as it can be made without weights; None where that failed.

    Args:
        data: the data, read.
        loss: the contrast.
        lora: options of the adapter.
        tower: the language model without its weights.
        ranks: processes; 1 if the options do not tell.
    """

    data: PairsData | None
    loss: PairLoss | None
    lora: LoraOptions | None
    tower: Any | None
    ranks: int


def check_options(options: Namespace, problems: Problems, *, trains: bool = True) -> Checked:
    """Notes everything that is wrong with the options of the model and the data; no weights are read.

    Args:
        options: of the trainer, the model and the data.
        problems: where to note.
        trains: the data must make batches of training too.

    Returns:
        what was made of the options on the way.
    """
    model = options.model
    loss: PairLoss | None = None
    lora: LoraOptions | None = None
    with collecting(problems):
        loss = InfoNCE() if model.loss is None else made(model.loss)
        if loss.guide is not None:
            refuse_unreadable(loss.guide)
        if sharding_of(options.trainer.strategy) == "FSDP":
            refuse_strangers([f"loss.{name}" for name, one in loss.named_parameters() if one.requires_grad])
    with collecting(problems):
        OptimizerOptions(**model.optimizer.as_dict())
    with collecting(problems):
        lora = LoraOptions(**model.lora.as_dict())
        check_tuning(
            model.tuning,
            lora,
            model.quantization,
            model.dtype,
            strategy=options.trainer.strategy,
            precision=options.trainer.precision,
        )
    ranks = check_trainer(options, problems, trains=trains)
    with collecting(problems):
        resolve_prompt(model.prompt)
    tower = check_against_model(model, lora, loss, problems)
    with collecting(problems):
        if model.frames is not None:
            FramePolicy(**model.frames.as_dict())
    asked: list[PairsData] = []
    with collecting(problems):
        asked.append(PairsData(**options.data.as_dict()))
    found: list[PairsData] = []
    for data in asked:
        with collecting(problems):
            data.read()
            found.append(data)
            data.check_validation(ranks)
            if trains:
                plan, _ = data.checked_plan(ranks)
                batches = _batches_of_an_epoch(options.trainer, len(plan))
                _refuse_no_batches(options.trainer, batches, of=len(plan))
                _refuse_rare_validation(options.trainer, batches=batches, validates=bool(data.validation))
    if not asked:  # whatever is wrong with its other options, its files are looked at
        with collecting(problems):
            read_sources((options.data.pairs, options.data.validation), options.data.columns)
    return Checked(found[0] if found else None, loss, lora, tower, ranks)


def check_against_model(
    model: Namespace, lora: LoraOptions | None, loss: PairLoss | None, problems: Problems
) -> Any | None:
    """Notes what the options ask of a model that it does not have: blocks, linears, dimensions. Its
    configuration is read, and none of its weights.

    Args:
        model: options of the model.
        lora: options of the adapter; None if they are wrong in themselves.
        loss: the same of the loss.
        problems: where to note.

    Returns:
        the language model without its weights; None if it cannot be told.
    """
    outlines: list[Any] = []
    with collecting(problems):
        outlines.append(
            language_model_outline(
                resolve_model(model.model), revision=model.revision, trust_remote_code=model.trust_remote_code
            )
        )
    for tower in outlines:
        with collecting(problems):
            keep_blocks(tower, model.layer)
        with collecting(problems):
            if lora is not None and model.tuning == ADAPTER:
                targets_of(tower, lora)
        with collecting(problems):
            if loss is not None:
                loss.check_width(int(tower.config.hidden_size))
    return outlines[0] if outlines else None


def check_trainer(options: Namespace, problems: Problems, *, trains: bool) -> int:
    """Notes what Lightning's trainer refuses, by making one of the options that ask nothing of a model.

    Args:
        options: of the trainer, the model and the data.
        problems: where to note.
        trains: False where a checkpoint is measured alone.

    Returns:
        processes that it asks for; 1 if that cannot be told.
    """
    trainer, before, ranks = options.trainer, len(problems.found), 1
    with collecting(problems):
        ranks = ranks_asked_for(trainer)
    told = strategy_problems(trainer, options.data, options.ckpt_path, ranks=ranks, trains=trains)
    for problem in told:
        problems.add(problem)
    for name, least in LEAST.items():
        if (value := trainer.get(name)) is not None and value < least:
            problems.add(f"trainer.{name} is {value}; it must be at least {least}")
    for name in ("max_steps", "max_epochs"):
        if trains and not trainer.fast_dev_run and trainer.get(name) == 0:
            problems.add(f"trainer.{name} is 0, and a fit without a step makes nothing: give at least 1")
    given = {name: value for name, value in vars(trainer).items() if not _is_made(value)}
    found: dict[str, None] = {}
    if len(problems.found) == before and (refusal := _refusal(given, trainer.strategy)):
        found[refusal] = None
    if found or len(problems.found) > before:  # what it says of its processes hides all else
        one = {"accelerator": "cpu", "devices": 1, "num_nodes": 1}
        if refusal := _refusal({**given, **one}, "auto"):
            found[refusal] = None
    for refusal in found:
        problems.add(f"trainer: {refusal}{_on_a_cpu(refusal)}")
    return ranks


def _batches_of_an_epoch(trainer: Namespace, planned: int) -> int:
    """Batches that the trainer takes of those that are planned."""
    limits = (trainer.overfit_batches or None, trainer.limit_train_batches)
    limit = next((one for one in limits if one is not None), 1.0)
    return min(limit, planned) if isinstance(limit, int) else int(limit * planned)


def _refuse_no_batches(trainer: Namespace, batches: int, *, of: int) -> None:
    """Refuses a share of the batches that is none."""
    if batches or trainer.fast_dev_run:
        return
    name = "overfit_batches" if trainer.overfit_batches else "limit_train_batches"
    raise RefusedRequest(
        f"trainer.{name} is {trainer[name]:g}, which leaves none of an epoch's {of} batches: give at least "
        "1, or a larger share (of 1.0)"
    )


def _refuse_rare_validation(trainer: Namespace, *, batches: int, validates: bool) -> None:
    """Refuses an interval of validations that no epoch is long enough for."""
    every = trainer.val_check_interval
    counted = isinstance(every, int) and trainer.check_val_every_n_epoch is not None
    if not (validates and counted) or trainer.fast_dev_run or trainer.limit_val_batches == 0:
        return
    if every > batches:
        raise RefusedRequest(
            f"trainer.val_check_interval is {every}, and an epoch has {batches} batches: give at most as "
            "many, or count the batches of all epochs (trainer.check_val_every_n_epoch null)"
        )


def _refusal(trainer: dict[str, Any], strategy: Any) -> str:
    """What Lightning's trainer says to some options; nothing if it takes them."""
    try:
        with _unheard():
            Trainer(**{**trainer, "callbacks": None, "logger": False, "strategy": ours(made(strategy))})
    except OF_LIGHTNING as error:
        return " ".join(str(error).split())
    return ""


def _is_made(value: Any) -> bool:
    """Whether an option names classes."""
    return any(isinstance(one, Namespace) for one in (value if isinstance(value, list) else [value]))


@contextmanager
def _unheard() -> Iterator[None]:
    """Nothing that Lightning says of a trainer is heard: the real one says it again."""
    speaker = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = speaker.disabled
    speaker.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        speaker.disabled = before


def _on_a_cpu(told: str) -> str:
    """What helps where Lightning finds no GPU."""
    lacking = "CUDAAccelerator" in told or "No supported gpu" in told
    return " On a machine without one: --trainer.accelerator cpu --trainer.devices 1" if lacking else ""


def made(options: Any) -> Any:
    """What a class_path and its init_args describe; ValueError for values that the class does not take."""
    if not (isinstance(options, Namespace) and "class_path" in options):
        return options
    module, _, name = options.class_path.rpartition(".")
    given = vars(options.get("init_args") or SimpleNamespace())
    return getattr(import_module(module), name)(**{key: made(value) for key, value in given.items()})


@contextmanager
def collecting(problems: Problems, *, about: str = "") -> Iterator[None]:
    """Turns a refusal, ours or Lightning's, into one of several problems.

    Args:
        problems: where to note.
        about: stands before what does not say itself what it is about, as Lightning's classes do not.
    """
    refusals = OF_LIGHTNING if about else (ValueError, MisconfigurationException)  # RefusedRequest is one
    try:
        yield
    except refusals as error:
        problems.add(about + str(error).replace("\n", "\n  "))  # its own list, one level in
