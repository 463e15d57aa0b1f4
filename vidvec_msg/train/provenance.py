"""What a checkpoint is of: the base model and the weights that train. One of another run is refused by name.

A checkpoint holds the weights that train alone and is loaded without strictness, so that nothing else would
notice: an adapter of another base model of the same size loads without a word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from vidvec_msg.embedders.models import local_folder, resolve_model
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json, write_json
from vidvec_msg.train.gather import ranks

if TYPE_CHECKING:
    from vidvec_msg.train.module import TextContrastive

KEY = "of"
"""Of a checkpoint's content; checkpoints that are folders hold the same in a file, to be read first."""

FILE = "of.json"

_SAMPLES, _SAMPLE = 16, 1 << 16  # places of a weights file, and bytes at each


def describe(module: TextContrastive) -> dict[str, Any]:
    """The base model and the names and shapes of what trains."""
    strategy = None if module._trainer is None else module._trainer.strategy
    return account(
        module,
        base_model=module.base_model,
        revision=module.revision,
        hidden_size=int(module.tower.config.hidden_size),
        layout=layout_of(type(strategy)),
        ranks=ranks(),
    )


def account(
    module: nn.Module,
    *,
    base_model: str,
    revision: str | None,
    hidden_size: int,
    layout: str,
    ranks: int,
) -> dict[str, Any]:
    """What a checkpoint says that it is of.

    Args:
        module: holds the language model as ``tower`` and the loss as ``loss``, with weights or without.
        base_model: as it was given.
        revision: its commit.
        hidden_size: its width.
        layout: see :func:`layout_of`.
        ranks: processes that train together.
    """
    return {
        "base_model": base_model,
        "revision": revision,
        "hidden_size": hidden_size,
        "base_digest": _base_digest(base_model, revision),
        "ranks": ranks,
        "layout": layout,
        "weights": {
            # under ZeRO-3 a shard's own shape is (0,); DeepSpeed keeps the whole shape beside it
            name: list(getattr(weight, "ds_shape", weight.shape))
            for name, weight in module.named_parameters()
            if weight.requires_grad
        },
    }


def of_checkpoint(content: Mapping[str, Any]) -> dict[str, Any]:
    """What the content of a checkpoint says that it is of.

    Raises:
        RefusedRequest: it says nothing.
    """
    if KEY not in content:
        raise RefusedRequest(
            "the checkpoint does not say what it is of: it is not one of this version of vidvec-msg fit"
        )
    found: dict[str, Any] = content[KEY]
    return found


def refuse_another(found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuses to continue a run of another base model or with other weights that train.

    Args:
        found: what :func:`describe` said when the checkpoint was written.
        own: the same of what is to be continued.

    Raises:
        RefusedRequest: the message names what differs.
    """
    if found.get("layout", "") != own["layout"]:
        there, here = (account.get("layout") or "whole weights" for account in (found, own))
        raise RefusedRequest(
            f"the checkpoint is of a run with {there}, and this one has {here}, whose optimizer is kept in "
            "another form: continue it with the trainer.strategy that it was written with"
        )
    if not _same_base(found, own):
        raise RefusedRequest(
            f"the checkpoint is of another base model: {_base(found)} in it, {_base(own)} in this run. "
            "Use the model that it was trained with (its run's config.yaml)."
        )
    there, here = found["weights"], own["weights"]
    differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differing:
        name = differing[0]
        raise RefusedRequest(
            f"the checkpoint is of another adapter: {len(differing)} weights differ, for example {name} is "
            f"{_shape(there.get(name))} in it and {_shape(here.get(name))} in this model. "
            "Use the model and lora options that it was trained with (its run's config.yaml)."
        )


def refuse_other_ranks(found: Mapping[str, Any], own: int) -> None:
    """Refuses a checkpoint whose shards were written by another number of ranks.

    Args:
        found: what :func:`describe` said when the checkpoint was written.
        own: ranks of this run.

    Raises:
        RefusedRequest: it was.
    """
    if found["ranks"] != own:
        raise RefusedRequest(
            f"the checkpoint was written by {found['ranks']} ranks and holds a share for each; this run has "
            f"{own}. Continue it with as many (--trainer.devices, --trainer.num_nodes)."
        )


def write(folder: Path, checkpoint: Mapping[str, Any]) -> None:
    """Puts the account of a checkpoint beside its shards."""
    if KEY in checkpoint:
        write_json(folder / FILE, checkpoint[KEY])


def read(folder: Path) -> dict[str, Any]:
    """The account of a checkpoint that is a folder.

    Raises:
        RefusedRequest: there is none.
    """
    return read_json(folder / FILE, what="checkpoint", made_by="vidvec-msg fit")


def layout_of(strategy: type) -> str:
    """The strategy, where it keeps the optimizer's state in a file of another form than plain training."""
    return strategy.__name__ if hasattr(strategy, "shard") else ""


def _base_digest(base_model: str, revision: str | None) -> str:
    """Tells weights of a base model from others, wherever they lie; empty where they are not files here.

    Every weights file counts with its size and bytes from 16 places: two trainings of a model differ
    everywhere, and a checkpoint shall not wait for 15 GB to be read.
    """
    folder = local_folder(resolve_model(base_model), revision=revision)
    if folder is None:
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as stream:
            for place in range(_SAMPLES):
                stream.seek(max(size - _SAMPLE, 0) * place // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()


def _same_base(found: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    if found["base_digest"] and own["base_digest"]:  # a folder may have moved
        return bool(found["base_digest"] == own["base_digest"])
    return all(found[key] == own[key] for key in ("base_model", "revision", "hidden_size"))


def _base(account: Mapping[str, Any]) -> str:
    revision = f" at {account['revision']}" if account["revision"] else ""
    weights = f", weights {account['base_digest'][:8]}" if account["base_digest"] else ""
    return f"{account['base_model']}{revision} (hidden size {account['hidden_size']}{weights})"


def _shape(shape: list[int] | None) -> str:
    return "not there" if shape is None else str(tuple(shape))
