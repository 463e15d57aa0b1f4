"""What the command line and the YAML of a fit say, before anything is built from it.

Every option of the trainer, the model and the data is a key of the YAML file and an option of the command
line, with nothing listed twice; this is where they are parsed without a run, and checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning import Trainer
from pytorch_lightning.cli import LightningArgumentParser

from vidvec_msg.embedders.load import check_spec
from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.errors import Problems, explain_unknown
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.loss_refusals import explain_loss, shipped_losses
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions
from vidvec_msg.train.strategies.asked_for import ranks_asked_for, strategy_problems
from vidvec_msg.train.tuning import check_tuning

DEFAULTS = {"model.loss": {"class_path": "vidvec_msg.train.losses.InfoNCE"}}
"""InfoNCE unless said otherwise, so that its options need no class to be named."""


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
    return explain_loss(message) or explain_unknown(message, known_options(), ending=ending, inside=verb)


def check_options(options: Namespace, problems: Problems, *, trains: bool = True) -> PairsData | None:
    """Notes everything that is wrong with the options of the model and the data; no model is loaded.

    Args:
        options: of the trainer, the model and the data.
        problems: where to note.
        trains: the data must make batches of training too.

    Returns:
        the data, read; None if that failed.
    """
    with collecting(problems):
        loss = made(options.model.loss)
        if loss is not None and loss.guide is not None:
            check_spec(loss.guide)
    with collecting(problems):
        OptimizerOptions(**options.model.optimizer.as_dict())
    with collecting(problems):
        model, lora = options.model, LoraOptions(**options.model.lora.as_dict())
        check_tuning(
            model.tuning,
            lora,
            model.quantization,
            model.dtype,
            strategy=options.trainer.strategy,
            precision=options.trainer.precision,
        )
    for problem in strategy_problems(options.trainer, options.data, options.ckpt_path, trains=trains):
        problems.add(problem)
    with collecting(problems):
        resolve_prompt(options.model.prompt)
    with collecting(problems):
        resolve_model(options.model.model)
    with collecting(problems):
        if options.model.frames is not None:
            FramePolicy(**options.model.frames.as_dict())
    found: list[PairsData] = []
    with collecting(problems):
        data = PairsData(**options.data.as_dict())
        data.read()
        if trains:
            data.checked_plan(ranks_asked_for(options.trainer))
        found.append(data)
    return found[0] if found else None


def made(options: Any) -> Any:
    """What a class_path and its init_args describe; ValueError for values that the class does not take."""
    if not (isinstance(options, Namespace) and "class_path" in options):
        return options
    module, _, name = options.class_path.rpartition(".")
    given = vars(options.get("init_args") or SimpleNamespace())
    return getattr(import_module(module), name)(**{key: made(value) for key, value in given.items()})


@contextmanager
def collecting(problems: Problems) -> Iterator[None]:
    """Turns a refusal into one of several problems."""
    try:
        yield
    except ValueError as error:  # RefusedRequest is one
        problems.add(str(error).replace("\n", "\n  "))  # its own list, one level in
