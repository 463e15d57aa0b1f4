"""``fit`` and ``validate``: a LightningCLI around :class:`TextContrastive` and :class:`PairsData`.

Every option of the trainer, the model and the data is a key of the YAML file and an option of the command
line, with nothing listed twice; ``--print_config`` writes them all.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from pytorch_lightning.utilities import rank_zero_only
from transformers.utils.logging import disable_progress_bar

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.train import run_folder
from vidvec_msg.train.artefacts import WriteEmbedder
from vidvec_msg.train.callback_checks import check_callbacks, with_pairs_validation
from vidvec_msg.train.checkpoints import KeepLast
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.ending_together import ending_together
from vidvec_msg.train.loggers import check_loggers, loggers_of, place_loggers, without_place, without_secrets
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.options import DEFAULTS, check_options, collecting, explained
from vidvec_msg.train.resuming import refuse_checkpoint_of_another
from vidvec_msg.train.strategies.asked_for import ours, put_ours_in_place


def main(argv: Sequence[str]) -> int:
    """Runs ``fit`` or ``validate``.

    Args:
        argv: the words of the command line, the verb first.

    Returns:
        0. Anything else leaves as an exception: RefusedRequest (exit code 2), KeyboardInterrupt (130),
        SystemExit after ``--help`` and ``--print_config``.
    """
    _silence()
    words = [re.sub(r"^--print-config\b", "--print_config", word) for word in argv]
    try:
        FitCLI(args=words)
    except ArgumentError as error:
        raise RefusedRequest(explained(str(error), verb=words[0])) from error
    return 0


class FitCLI(LightningCLI):
    """LightningCLI with our run folder, our defaults, and refusals before the slow part."""

    def __init__(self, args: Sequence[str]) -> None:
        self.verb = args[0]
        # an abbreviation would change an option that nobody named
        strict = {"exit_on_error": False, "allow_abbrev": False}
        with warnings.catch_warnings():
            # Lightning warns about words given beside those of the process; ours come from the process
            warnings.filterwarnings("ignore", message=".*args parameter is intended to run.*")
            super().__init__(
                TextContrastive,
                PairsData,
                save_config_callback=SaveConfig,
                trainer_defaults={
                    "use_distributed_sampler": False,
                    "log_every_n_steps": 1,
                    "enable_model_summary": False,  # the module prints what trains
                },
                seed_everything_default=42,
                parser_kwargs={**strict, self.verb: strict},
                subclass_mode_model=False,
                subclass_mode_data=False,
                args=list(args),
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
            )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Defaults that the signatures cannot hold."""
        parser.set_defaults(DEFAULTS)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]  # static in Lightning
        """The verb at hand (a parser takes seconds to build), and what of it is no option."""
        skipped = {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule", "weights_only"},
            "validate": {"model", "dataloaders", "datamodule", "weights_only"},
        }
        return {self.verb: skipped[self.verb]}

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses, and completes what only the whole command line tells."""
        super().parse_arguments(parser, args)
        options = self.config[self.config.subcommand]
        if not sys.stderr.isatty() and options.trainer.enable_progress_bar is None:
            options.trainer.enable_progress_bar = False  # a log file is no place for a bar

    def _parse_ckpt_path(self) -> None:
        """Lightning reads hyper-parameters out of checkpoints here; ours hold none, the config decides."""

    def _set_seed(self) -> None:
        """Lightning's, which lets numpy complain of a seed."""
        try:
            super()._set_seed()
        except ValueError as error:
            raise RefusedRequest(f"{self.subcommand} refused: seed_everything: {error}") from error

    def before_instantiate_classes(self) -> None:
        """All refusals that need no model: folder, checkpoint, options; in one message."""
        verb = str(self.subcommand)
        options = self.config[verb]
        run = options.trainer.default_root_dir
        problems = Problems(f"{verb} refused")
        put_ours_in_place(options.trainer)
        with collecting(problems):
            options.ckpt_path = run_folder.resolve_checkpoint(options.ckpt_path, run)
            run_folder.refuse_damaged(options.ckpt_path)
        # other ranks start when rank 0 has begun to write
        if verb == "fit" and getattr(rank_zero_only, "rank", 0) == 0:
            with collecting(problems):
                run_folder.refuse_bad_run(run, options.ckpt_path)
        checked = check_options(options, problems, trains=verb == "fit")
        with collecting(problems):
            check_loggers(options.trainer.logger)
        data = checked.data
        check_callbacks(options.trainer, data, checked.loss, problems, trains=verb == "fit")
        if verb == "validate" and data and not (data.validation or options.trainer.callbacks):
            problems.add(
                "there is nothing to measure: give pairs (--data.validation, --data.validation_fraction) "
                "or a callback that measures (trainer.callbacks: RetrievalValidation)"
            )
        if options.ckpt_path and not problems.found:  # what is wrong may be why it differs
            with collecting(problems):
                refuse_checkpoint_of_another(options.ckpt_path, options, checked)
        problems.refuse_if_any()
        if data is None:
            raise RuntimeError("the data cannot be read, and no problem was noted")
        self._checked = data
        if verb == "fit":
            place_loggers(options.trainer.logger, run)

    def after_instantiate_classes(self) -> None:
        """The pairs were read for the check above; once is enough."""
        self.datamodule.training, self.datamodule.validation = (
            self._checked.training,
            self._checked.validation,
        )

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer, with the callbacks and loggers of a run folder unless the config brings its own."""
        options = self.config_init[str(self.subcommand)].trainer
        given = options.callbacks or []
        options.strategy = ours(options.strategy)
        options.callbacks = with_pairs_validation(
            given if isinstance(given, list) else [given], validates=bool(self._checked.validation)
        )
        if self.subcommand == "fit" and not options.fast_dev_run:
            run = Path(options.default_root_dir)
            own: list[Callback] = [WriteEmbedder(run)]
            if options.enable_checkpointing is not False:
                own += [KeepLast()] if _keeper(options.callbacks) is None else []
            options.callbacks += own
            if not self._checked.validation:
                kwargs["limit_val_batches"] = 0
            kwargs["logger"] = loggers_of(options.logger, run)
        elif options.logger is None:
            kwargs["logger"] = False
        try:
            return super().instantiate_trainer(**kwargs)
        except MisconfigurationException as error:  # of its callbacks and loggers; of all else: check_options
            raise RefusedRequest(
                f"{self.subcommand} refused, trainer: {' '.join(str(error).split())}"
            ) from error

    def fit(self, **kwargs: Any) -> None:
        """Trains; Ctrl-C leaves a checkpoint to resume from.

        With several ranks it stops at once and the last periodic checkpoint counts: ranks that are
        interrupted at different steps could not save together.
        """
        alone = self.trainer.world_size == 1 and threading.current_thread() is threading.main_thread()
        last = _keeper(self.trainer.callbacks) if alone else None  # type: ignore[attr-defined]
        with nullcontext() if last is None else last.saving_on_interrupt():
            self._interruptible(self.trainer.fit, {**kwargs, "weights_only": True})  # nothing is unpickled

    def validate(self, **kwargs: Any) -> None:
        """Measures."""
        self._interruptible(self.trainer.validate, {**kwargs, "weights_only": True})

    def _interruptible(self, run: Any, kwargs: dict[str, Any]) -> None:
        with ending_together(self.trainer):
            try:
                run(**kwargs)
            except SystemExit as stop:  # Lightning turns Ctrl-C into exit code 1
                if self.trainer.interrupted:
                    raise KeyboardInterrupt from stop
                raise


def _keeper(callbacks: Sequence[Callback]) -> KeepLast | None:
    """The callback that keeps the last checkpoint: one of the config's, or the one that a fit has anyway."""
    return next((callback for callback in callbacks if isinstance(callback, KeepLast)), None)


def _silence() -> None:
    """Leaves out what others print and nobody can act on."""
    # transformers deprecates a property that Lightning touches when it lists a model's attributes
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\..*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")
    if getattr(rank_zero_only, "rank", 0):  # one rank speaks for all
        logging.getLogger("vidvec_msg").setLevel(logging.WARNING)
    if not sys.stderr.isatty():
        disable_progress_bar()
    advertising = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    advertising.addFilter(lambda record: "Tip: For seamless" not in record.getMessage())


class SaveConfig(SaveConfigCallback):
    """Writes config.yaml into the run folder: the options that reproduce the run."""

    def __init__(self, parser: LightningArgumentParser, config: Namespace, **kwargs: Any) -> None:
        super().__init__(parser, config, **{**kwargs, "save_to_log_dir": False})

    def save_config(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Called on rank 0 when a stage begins; a resumed run keeps the config that it began with."""
        if stage != "fit":
            return
        without_place(self.config.trainer.logger, trainer.default_root_dir)
        for logger in trainer.loggers:
            logger.log_hyperparams(without_secrets(self.config.as_dict()))
        path = Path(trainer.default_root_dir) / run_folder.CONFIG
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.parser.save(self.config, str(path), skip_none=False, overwrite=False, multifile=False)
