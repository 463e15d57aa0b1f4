"""LoRA adapters on disk: written, reopened and checked, put onto a model and checked again.

An adapter of 40 bytes, of empty tensors, or with keys that match nothing loads without a word and changes
nothing. Everything here exists to notice.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

_PREFIX = "base_model.model."


def write_adapter(
    folder: Path,
    model: Any,
    *,
    base_model: str,
    revision: str | None,
    state_dict: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes a PEFT directory that names its base model.

    Args:
        folder: existing and empty.
        model: a ``PeftModel``.
        base_model: what ``base_model_name_or_path`` shall say.
        revision: commit of a hub model.
        state_dict: gathered weights, where the model's own are sharded over ranks (ZeRO-3).
    """
    for config in model.peft_config.values():
        config.base_model_name_or_path = base_model
        config.revision = revision
    # PEFT would otherwise ask the hub whether the base model's vocabulary was resized
    model.save_pretrained(
        folder,
        safe_serialization=True,
        save_embedding_layers=False,
        state_dict=None if state_dict is None else dict(state_dict),
    )
    # PEFT's empty model card; embedder.json says what there is
    (folder / "README.md").unlink(missing_ok=True)


def check_adapter(
    folder: Path, *, expected: Mapping[str, torch.Size] | None = None, allow_untrained: bool = False
) -> dict[str, Tensor]:
    """Reads an adapter back and refuses one that cannot do anything.

    Args:
        folder: a PEFT directory.
        expected: shape of every tensor, by name; None takes the file's word.
        allow_untrained: accepts LoRA B matrices that are all zero, as they are before the first step.

    Returns:
        the tensors, by name.

    Raises:
        RefusedRequest: files missing or unreadable, tensors missing or of another shape, empty, not finite,
            or every LoRA B zero.
    """
    read_json(folder / ADAPTER_CONFIG, what="adapter", made_by="vidvec-msg fit")
    path = folder / ADAPTER_WEIGHTS
    if not path.is_file():
        raise RefusedRequest(f"adapter {folder} holds no {ADAPTER_WEIGHTS}; pickled adapters are not opened")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise RefusedRequest(
            f"adapter {path} ({path.stat().st_size} bytes) cannot be read: {error}"
        ) from error
    if not tensors:
        raise RefusedRequest(
            f"adapter {path} ({path.stat().st_size} bytes) holds no tensors; a run under ZeRO-3 has to "
            "gather the weights before they are saved"
        )
    for name, tensor in tensors.items():
        if tensor.numel() == 0:
            raise RefusedRequest(
                f"adapter {path}: {name} is empty, shape {tuple(tensor.shape)}; a run under ZeRO-3 has to "
                "gather the weights before they are saved"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise RefusedRequest(f"adapter {path}: {name} is not finite; the training diverged")
    for name, shape in (expected or {}).items():
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        if found != tuple(shape):
            raise RefusedRequest(f"adapter {path}: {name} is {found} in the file, expected {tuple(shape)}")
    ups = [tensor for name, tensor in tensors.items() if "lora_B" in name or "lora_embedding_B" in name]
    if ups and not allow_untrained and not any(bool(up.any()) for up in ups):
        raise RefusedRequest(
            f"adapter {path}: every lora_B is zero, so the adapter changes nothing; it was saved before the "
            "first step, or its weights were lost on the way"
        )
    return tensors


def put_adapter_on(full: nn.Module, tower: nn.Module, folder: Path) -> None:
    """Puts an adapter onto a loaded model, in place.

    Adapters trained on the language model alone fit its tower key for key; those of other tools that were
    trained on the full model are put onto the full model.

    Args:
        full: the whole model.
        tower: its language model, a part of ``full``.
        folder: a PEFT directory.

    Raises:
        RefusedRequest: the adapter cannot do anything, or its keys fit neither.
    """
    from peft import PeftModel, get_peft_model_state_dict

    tensors = check_adapter(folder, allow_untrained=True)
    target = _fitting(tensors, tower=tower, full=full, folder=folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PEFT only warns of keys that match nothing; below, an error
            model = PeftModel.from_pretrained(target, str(folder))
    except (RuntimeError, ValueError, TypeError) as error:  # other shapes; a configuration of a newer PEFT
        first = "; ".join(str(error).split("\n\t")[:2])
        raise RefusedRequest(f"adapter {folder} does not fit the model: {first}") from error
    loaded = get_peft_model_state_dict(model, save_embedding_layers=False)
    for name, tensor in tensors.items():
        if name not in loaded or not torch.equal(loaded[name].cpu().float(), tensor.float()):
            raise RefusedRequest(f"adapter {folder}: {name} did not arrive in the model")


def _fitting(tensors: Mapping[str, Tensor], *, tower: nn.Module, full: nn.Module, folder: Path) -> nn.Module:
    modules = {name.removeprefix(_PREFIX).split(".lora_")[0] for name in tensors if ".lora_" in name}
    for candidate in (tower, full):
        known = {name for name, _ in candidate.named_modules()}
        if modules <= known:
            return candidate
    known = {name for name, _ in tower.named_modules()}
    strangers = sorted(modules - known)
    example = next((name for name in known if name.endswith("q_proj")), "layers.0.self_attn.q_proj")
    raise RefusedRequest(
        f"adapter {folder}: {len(strangers)} of {len(modules)} adapted modules are not in the model, for "
        f"example {strangers[0]!r} where this model has {example!r}; it belongs to another base model, or "
        "its keys carry another prefix"
    )
