"""The folder of a fit: checked before a model is built, and what goes into it."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import refuse_unwritable

OPTION = "--trainer.default_root_dir"
CONFIG = "config.yaml"
METRICS = "metrics.csv"
TENSORBOARD = "tensorboard"
CHECKPOINTS = "checkpoints"
LAST, BEST = "last", "best"


def last_checkpoint(run: Path) -> Path:
    """Where a run keeps the checkpoint to resume from."""
    return run / CHECKPOINTS / "last.ckpt"


def best_checkpoint(run: Path) -> Path:
    """Where a run keeps the checkpoint of its best measurement, if it has one kept."""
    return run / CHECKPOINTS / "best.ckpt"


def before_replacement(checkpoint: Path) -> Path:
    """Where a checkpoint that is a folder waits while a newer one takes its place."""
    return checkpoint.with_name(f".{checkpoint.name}.before")


def refuse_bad_run(run: str | None, checkpoint: str | None) -> None:
    """Refuses a fit that has no folder, one that cannot be written, or that of another run.

    Args:
        run: the folder.
        checkpoint: what is resumed; None for a fit from the start. A folder that holds a run goes on from
            its own checkpoints alone.

    Raises:
        RefusedRequest: the message names the option to change.
    """
    if run is None:
        raise RefusedRequest(f"a fit needs a folder to write to: give {OPTION} RUN")
    folder = Path(run)
    refuse_unwritable(folder, option=OPTION)
    if folder.is_file():
        raise RefusedRequest(f"{OPTION} {run} is a file; give a folder that is new or empty.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if checkpoint is None:
        resume = " or continue it with --ckpt_path last" if last_checkpoint(folder).exists() else ""
        raise RefusedRequest(f"{OPTION} {run} already holds a run: give another folder{resume}.")
    own = checkpoint in (LAST, BEST) or Path(checkpoint).resolve().is_relative_to(folder.resolve())
    if not own:
        raise RefusedRequest(
            f"{OPTION} {run} already holds a run, and --ckpt_path {checkpoint} is of another, which would "
            "overwrite it: give a new folder, or a checkpoint of that run."
        )


def resolve_checkpoint(checkpoint: str | None, run: str | None) -> str | None:
    """The file that ``--ckpt_path`` means; "last" and "best" are the run folder's own.

    Raises:
        RefusedRequest: there is no such file (Lightning would warn and start anew).
    """
    if checkpoint is None:
        return None
    if checkpoint in (LAST, BEST):
        if run is None:
            raise RefusedRequest(f"--ckpt_path {checkpoint} needs {OPTION} RUN, the run to take it from")
        path = last_checkpoint(Path(run)) if checkpoint == LAST else best_checkpoint(Path(run))
    else:
        path = Path(checkpoint)
    if not path.exists() and before_replacement(path).is_dir():
        path = before_replacement(path)  # killed between two renames
    if not path.exists():  # a DeepSpeed checkpoint is a folder
        raise RefusedRequest(
            f"--ckpt_path {checkpoint}: there is no {path}; give a checkpoint, or leave it out to start anew"
        )
    return str(path)


def refuse_damaged(checkpoint: str | None) -> None:
    """Refuses a checkpoint that is no whole file of torch's, before a model is loaded for it.

    Args:
        checkpoint: what :func:`resolve_checkpoint` gave; a folder is left to the strategy.

    Raises:
        RefusedRequest: it was cut off while it was copied, or is something else.
    """
    if checkpoint is not None and Path(checkpoint).is_file() and not zipfile.is_zipfile(checkpoint):
        raise RefusedRequest(
            f"--ckpt_path {checkpoint} is no checkpoint, or a part of one: give one that a fit wrote, or "
            "copy it again"
        )


def start_again(run: Path) -> None:
    """Removes what an earlier end of this run wrote, so that its presence means complete again."""
    (run / "summary.json").unlink(missing_ok=True)
    shutil.rmtree(run / "embedder", ignore_errors=True)
