"""Whether a checkpoint is of the run that is to go on from it, told before that run's weights are read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from jsonargparse import Namespace
from torch import nn

from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train import provenance
from vidvec_msg.train.options import Checked
from vidvec_msg.train.strategies.fsdp2 import FSDP2
from vidvec_msg.train.tuning import tune


class _Trained(nn.Module):
    """What trains of a TextContrastive, under the names that it has there."""

    def __init__(self, tower: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.tower = tower
        self.loss = loss


def refuse_checkpoint_of_another(checkpoint: str, options: Namespace, checked: Checked) -> None:
    """Refuses a checkpoint of another base model, of other weights that train, or of another number of ranks
    where each has its share.

    Args:
        checkpoint: a file, or a folder as DeepSpeed writes them.
        options: of the trainer, the model and the data; nothing is wrong with them.
        checked: what was made of them. Its tower gets the adapter.

    Raises:
        RefusedRequest: the message names what differs.
    """
    try:
        found = _account_in(Path(checkpoint))
        own = expected(options, checked)
        provenance.refuse_another(found, own)
        if Path(checkpoint).is_dir():
            provenance.refuse_other_ranks(found, checked.ranks)
    except RefusedRequest as error:
        raise RefusedRequest(f"--ckpt_path {checkpoint}: {error}") from error


def expected(options: Namespace, checked: Checked) -> dict[str, Any]:
    """What :func:`vidvec_msg.train.provenance.describe` will say of the run of some options."""
    model = options.model
    if checked.tower is None or checked.lora is None or checked.loss is None:
        raise ValueError("the options could not be made: their problems come first")
    width = int(checked.tower.config.hidden_size)
    tower = tune(checked.tower, model.tuning, checked.lora, final_norm=model.layer == FINAL)
    return provenance.account(
        _Trained(tower, checked.loss),
        base_model=model.model,
        revision=model.revision,
        hidden_size=width,
        layout=provenance.layout_of(_class_of(options.trainer.strategy)),
        ranks=checked.ranks,
    )


def _account_in(checkpoint: Path) -> dict[str, Any]:
    if checkpoint.is_dir():
        return provenance.read(checkpoint)
    try:  # mapped: of a file of gigabytes only what it is of is read
        content = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, UnpicklingError, EOFError, KeyError) as error:
        told = str(error).strip().partition("\n")[0]
        raise RefusedRequest(
            f"it cannot be read ({told}); give a checkpoint that a fit wrote, or copy it again"
        ) from error
    return provenance.of_checkpoint(content if isinstance(content, dict) else {})


def _class_of(strategy: Any) -> type:
    """The class of what ``trainer.strategy`` says; of Lightning's names only ours keeps files of its own."""
    if isinstance(strategy, Namespace):
        module, _, name = strategy.class_path.rpartition(".")
        found = getattr(import_module(module), name)
        return found if isinstance(found, type) else object
    return FSDP2 if strategy == "fsdp" else object
