"""Which weights of the language model train: an adapter's, or its own.

Whatever the choice, nothing but the language model is in memory
(:mod:`vidvec_msg.embedders.language_model`), so no parameter of a vision or audio tower, a projector or a
vocabulary head can train.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from vidvec_msg.embedders.language_model import Dtype, Quantization
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.train.lora import LoraOptions, add_lora

Tuning = Literal["lora", "full", "full-with-embeddings"]
"""An adapter; every weight of the blocks and the final norm; those and the token embeddings."""

ADAPTER: Tuning = "lora"

ROUNDING = ("bf16-true", "16-true")
"""Values of ``trainer.precision`` under which Lightning casts the weights themselves."""


def check_tuning(
    tuning: Tuning,
    lora: LoraOptions,
    quantization: Quantization | None,
    dtype: Dtype,
    *,
    strategy: object = None,
    precision: object = None,
) -> None:
    """Refuses combinations that cannot train, before any weight is read.

    Args:
        tuning: what trains.
        lora: options of the adapter.
        quantization: of the frozen weights.
        dtype: of the weights.
        strategy: what ``trainer.strategy`` says: a name, or class_path and init_args.
        precision: what ``trainer.precision`` says.

    Raises:
        RefusedRequest: with every problem in one message.
    """
    found = list(_problems(tuning, lora, quantization, dtype, sharding_of(strategy)))
    if precision in ROUNDING:
        found.append(
            f"trainer.precision {precision} rounds the weights that train to half precision, and most steps "
            "away: use --trainer.precision bf16-mixed, which computes in half precision and keeps them"
        )
    if len(found) == 1:
        raise RefusedRequest(found[0])
    problems = Problems("model", found=found)
    problems.refuse_if_any()
    if quantization is not None:
        require("bitsandbytes", purpose=f"train over 4-bit weights (model.quantization {quantization})")


def _problems(
    tuning: Tuning, lora: LoraOptions, quantization: Quantization | None, dtype: Dtype, sharding: str
) -> Iterator[str]:
    if tuning not in get_args(Tuning):
        yield f"model.tuning is {tuning!r}; accepted: {', '.join(get_args(Tuning))}"
        return
    if quantization is not None and quantization not in get_args(Quantization):
        yield f"model.quantization is {quantization!r}; accepted: {', '.join(get_args(Quantization))}, null"
    if tuning != ADAPTER:
        if lora != LoraOptions():
            yield (
                f"model.tuning {tuning} makes no adapter, and model.lora has options: remove the block lora "
                "from the config, or train an adapter (model.tuning lora)"
            )
        if quantization is not None:
            yield (
                f"model.tuning {tuning} trains the weights themselves, and model.quantization {quantization} "
                "leaves 4 bits of each, too few to take a step: use model.tuning lora, or leave out the "
                "quantization"
            )
        elif dtype != "float32":
            yield (
                f"model.tuning {tuning} with model.dtype {dtype}: weights that train need float32, because "
                f"{dtype} rounds most steps away; --trainer.precision bf16-mixed computes in half precision"
            )
    if quantization is not None and sharding:
        yield (
            f"model.quantization {quantization} with {sharding}: 4-bit weights cannot be cut into shards. "
            "They take a quarter of the memory as they are: use --trainer.strategy ddp or deepspeed_stage_2"
        )
    if tuning == ADAPTER and lora.dora and sharding == "ZeRO-3":
        yield (
            "model.lora.dora with ZeRO-3: DoRA needs whole weights where ZeRO-3 holds shards of them; use "
            "--trainer.strategy ddp or deepspeed_stage_2, or leave out dora"
        )


def sharding_of(strategy: object) -> str:
    """How a strategy cuts the weights into shards: "ZeRO-3", "FSDP", or nothing.

    Args:
        strategy: a name of Lightning's ("deepspeed_stage_3"), a mapping with class_path and init_args, or
            None.
    """
    if strategy is None or isinstance(strategy, str):
        name, arguments = strategy or "", {}
    else:
        content: Any = strategy.as_dict() if hasattr(strategy, "as_dict") else strategy
        name, arguments = str(content.get("class_path", "")), dict(content.get("init_args") or {})
    low = name.rpartition(".")[2].lower()
    if "fsdp" in low or "modelparallel" in low:
        return "FSDP"
    if "deepspeed" not in low:
        return ""
    stage = arguments.get("stage", 3 if "stage_3" in low else 2)
    if (config := arguments.get("config")) is not None:  # DeepSpeed's own file goes before the other options
        if isinstance(config, str | Path) and Path(config).is_file():
            with suppress(json.JSONDecodeError):  # the strategy itself refuses such a file
                config = json.loads(Path(config).read_text(encoding="utf-8"))
        if isinstance(config, dict):
            stage = config.get("zero_optimization", {}).get("stage", 0)
    return "ZeRO-3" if int(stage) == 3 else ""


def tune(tower: Any, tuning: Tuning, lora: LoraOptions, *, final_norm: bool) -> Any:
    """The tower, ready to train.

    Args:
        tower: of :func:`vidvec_msg.embedders.language_model.load_language_model`.
        tuning: what trains.
        lora: options of the adapter.
        final_norm: whether the final norm is part of what is read; if not, it has no gradient to train by.

    Returns:
        a ``PeftModel`` around the tower, or the tower itself.

    Raises:
        RefusedRequest: LoRA's targets match nothing, or the weights cannot train.
    """
    if tuning == ADAPTER:
        return add_lora(tower, lora)
    tower.requires_grad_(False)
    embeddings = {id(parameter) for parameter in tower.get_input_embeddings().parameters()}
    for name, parameter in tower.named_parameters():
        trains = (
            name.startswith("layers.")
            or (id(parameter) in embeddings and tuning == "full-with-embeddings")
            or (id(parameter) not in embeddings and final_norm)
        )
        if trains and not parameter.is_floating_point():
            raise RefusedRequest(
                f"model.tuning {tuning}: {name} is stored as {parameter.dtype}, in a quantised checkpoint; "
                "train an adapter over it (model.tuning lora), or take the checkpoint that it was made from"
            )
        parameter.requires_grad_(trains)
    return tower


def account(model: Any) -> str:
    """One line on what trains: how many parameters, in which way, and where.

    Args:
        model: what :func:`tune` gave.
    """
    sizes = {name: _size(module, parameter) for name, module, parameter in _parameters(model)}
    trains = {name for name, _, parameter in _parameters(model) if parameter.requires_grad}
    trained, total = sum(sizes[name] for name in trains), sum(sizes.values())
    share = 100 * trained / max(total, 1)
    counts = f"{trained:,} of {total:,} parameters train ({share:.2f}%)"
    adapters = getattr(model, "peft_config", None)
    if adapters is None:
        frozen = _kinds(sizes.keys() - trains)
        return f"{counts}: in full, {_kinds(trains)}; frozen: {frozen}"
    options = next(iter(adapters.values()))
    way = f"{'rank-stabilised ' if options.use_rslora else ''}{'DoRA' if options.use_dora else 'LoRA'}"
    on = _kinds({name.partition(".lora_A")[0] + "." for name in trains if ".lora_A." in name})
    packed = {state.quant_type for _, module, p in _parameters(model) if (state := _four_bits(module, p))}
    return f"{counts}: {way} on {on}{f', kept in {min(packed)}' if packed else ''}"


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Name, owner and tensor of every parameter, each once."""
    owners = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        yield name, owners[name.rpartition(".")[0]], parameter


def _size(module: nn.Module, parameter: nn.Parameter) -> int:
    """How many numbers a parameter stands for, wherever they lie and however they are packed."""
    if (state := _four_bits(module, parameter)) is not None:
        return math.prod(state.shape)
    return int(getattr(parameter, "ds_numel", parameter.numel()))  # ZeRO-3 leaves an empty tensor behind


def _four_bits(module: nn.Module, parameter: nn.Parameter) -> Any | None:
    """The state of a 4-bit weight; the layer keeps one too, because a move to another device loses it."""
    if parameter.is_floating_point():
        return None
    return getattr(parameter, "quant_state", None) or getattr(module, "quant_state", None)


def _kinds(names: Any) -> str:
    """Modules that own some parameters, by their last name and number."""
    kinds = Counter(path.rpartition(".")[2] for path in {name.rpartition(".")[0] for name in names})
    return ", ".join(f"{kind} ×{count}" for kind, count in sorted(kinds.items())) or "nothing"
