"""Where a fit's metrics go: metrics.csv always, TensorBoard or what the config names instead, and the config
itself without its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.loggers import Logger, TensorBoardLogger

from vidvec_msg.extras import require
from vidvec_msg.train import run_folder
from vidvec_msg.train.metrics_file import MetricsFile

PACKAGES = {
    "WandbLogger": ("wandb", "Weights & Biases"),
    "MLFlowLogger": ("mlflow", "MLflow"),
    "CometLogger": ("comet_ml", "Comet"),
    "LitLogger": ("litlogger", "Lightning AI"),
}
"""Import name of what Lightning's loggers need beside Lightning, and where they log to."""

LEFT_OUT = "(left out: looks like a secret)"

_HERE = "."  # what Lightning's loggers take for save_dir unless told otherwise

# ends of option names whose values are secrets; pad_token or max_tokens are none
_SECRET_NAME = re.compile(
    r"(^|[_.-])(api_?key|access_?key|private_?key|secret(_?key)?|password|passwd|credentials?|"
    r"(auth|access|api|bearer|hf|hub|wandb|secret)_?token)$|^token$",
    re.IGNORECASE,
)
# tokens of Hugging Face, OpenAI and kin, GitHub, GitLab, Slack, AWS; JSON web tokens; a URL with a password
_SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
    r"xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)|://[^/\s:@]+:[^/\s@]+@"
)
_WANDB_KEY = re.compile(r"(local-)?[0-9a-f]{40}")  # a commit has this shape too: see `revision` below


def loggers_of(given: Any, run: Path) -> list[Logger]:
    """metrics.csv, and beside it what the config names (``false``: nothing); by default TensorBoard events.

    Args:
        given: trainer.logger, built: a logger, several, a bool, or None.
        run: the run folder.
    """
    always: list[Logger] = [MetricsFile(run / run_folder.METRICS)]
    if given is None or given is True:
        events = TensorBoardLogger(str(run), name="", version=run_folder.TENSORBOARD, default_hp_metric=False)
        return [*always, events]
    return always + ([] if given is False else list(given) if isinstance(given, Sequence) else [given])


def check_loggers(given: Any) -> None:
    """Refuses a logger whose package is not installed.

    Args:
        given: trainer.logger as parsed.

    Raises:
        RefusedRequest: the message holds the pip line.
    """
    for entry in _entries(given):
        name = entry.class_path.rpartition(".")[2]
        if name in PACKAGES:
            module, place = PACKAGES[name]
            require(module, purpose=f"log to {place}")


def place_loggers(given: Any, run: str) -> None:
    """Has loggers write into the run folder unless the config says where.

    Args:
        given: trainer.logger as parsed; changed in place.
        run: the run folder.
    """
    for entry in _entries(given):
        if entry.init_args.get("save_dir") == _HERE:
            entry.init_args.save_dir = run


def without_place(given: Any, run: str) -> None:
    """Undoes :func:`place_loggers`, for the config that is saved: it may reproduce the run elsewhere."""
    for entry in _entries(given):
        if entry.init_args.get("save_dir") == run:
            entry.init_args.save_dir = _HERE


def without_secrets(options: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """A config, flat and dotted, as loggers may have it: what looks like a secret is replaced.

    Args:
        options: nested mappings; a value is known for a secret by its name or by its shape.
        inside: what the names begin with.
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        name = f"{inside}.{key}" if inside else str(key)
        if isinstance(value, Mapping):
            found |= without_secrets(value, name)
        elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            found |= without_secrets({str(row): entry for row, entry in enumerate(value)}, name)
        else:
            found[name] = LEFT_OUT if _is_secret(name, value) else value
    return found


def _is_secret(name: str, value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, float)):
        return False
    last = name.rpartition(".")[2]
    text = str(value)
    commit = last in ("revision", "commit")
    return bool(
        _SECRET_NAME.search(last) or _SECRET_VALUE.search(text) or (_WANDB_KEY.fullmatch(text) and not commit)
    )


def _entries(given: Any) -> Iterator[Namespace]:
    for entry in given if isinstance(given, list) else [given]:
        if isinstance(entry, Namespace) and entry.get("init_args") is not None:
            yield entry
