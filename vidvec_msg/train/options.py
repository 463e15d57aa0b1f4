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

from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.errors import Problems
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses import PairLoss
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions

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
    for kind in PairLoss.__subclasses__():  # parsers name their options without a prefix
        yield from signature(kind).parameters


def check_options(options: Namespace, problems: Problems) -> PairsData | None:
    """Notes everything that is wrong with the options of the model and the data; no model is loaded.

    Returns:
        the data, read; None if that failed.
    """
    with collecting(problems):
        made(options.model.loss)
    for name, kind in (("lora", LoraOptions), ("optimizer", OptimizerOptions)):
        with collecting(problems):
            kind(**options.model[name].as_dict())
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
        data.plan(ranks_asked_for(options.trainer))
        found.append(data)
    return found[0] if found else None


def made(options: Any) -> Any:
    """What a class_path and its init_args describe; ValueError for values that the class does not take."""
    if not (isinstance(options, Namespace) and "class_path" in options):
        return options
    module, _, name = options.class_path.rpartition(".")
    given = vars(options.get("init_args") or SimpleNamespace())
    return getattr(import_module(module), name)(**{key: made(value) for key, value in given.items()})


def ranks_asked_for(trainer: Namespace) -> int:
    """Processes that the options ask for in numbers; 1 where Lightning shall count the devices."""
    devices = trainer.devices
    if isinstance(devices, str):
        devices = int(devices) if devices.isdigit() else 1
    count = len(devices) if isinstance(devices, list) else int(devices)
    return max(count, 1) * int(trainer.num_nodes)


@contextmanager
def collecting(problems: Problems) -> Iterator[None]:
    """Turns a refusal into one of several problems."""
    try:
        yield
    except ValueError as error:  # RefusedRequest is one
        problems.add(str(error).replace("\n", "\n  "))  # its own list, one level in
