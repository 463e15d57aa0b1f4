"""DeepSpeed's ZeRO, on GPUs and on CPUs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import DeepSpeedStrategy
from torch import nn
from torch.optim import Optimizer

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.train import provenance
from vidvec_msg.train.gather import ranks

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine


class DeepSpeed(DeepSpeedStrategy):
    """ZeRO: every rank holds a share of the optimizer's state (stage 1), of the gradients too (2), of the
    weights too (3). Checkpoints are folders, and hold the weights that train alone.

    Lightning's strategy of the same purpose, made to run on CPUs as well, to open its checkpoints without
    unpickling them, and to refuse one that is of another run.

    Args:
        stage: of ZeRO, 1 to 3.
        offload_optimizer: keep the optimizer's state in the memory of the CPU and make its steps there.
        offload_parameters: keep the weights there while they are not needed; stage 3.
        zero: more keys of DeepSpeed's ``zero_optimization``, for example
            ``{stage3_param_persistence_threshold: 10000}``.
        exclude_frozen_parameters: keep frozen weights out of checkpoints; they are read from the base model.
        kwargs: options of Lightning's DeepSpeedStrategy.

    Raises:
        RefusedRequest: DeepSpeed is not installed, there is no such stage, or ``config`` names a file that is
            no JSON.
    """

    def __init__(
        self,
        stage: int = 2,
        offload_optimizer: bool = False,
        offload_parameters: bool = False,
        zero: dict[str, Any] | None = None,
        exclude_frozen_parameters: bool = True,
        **kwargs: Any,
    ) -> None:
        if not 0 <= stage <= 3:
            raise RefusedRequest(f"stage is {stage}; accepted: 1 to 3 (0 cuts nothing)")
        require("deepspeed", purpose="train with ZeRO (trainer.strategy)")
        super().__init__(
            stage=stage,
            offload_optimizer=offload_optimizer,
            offload_parameters=offload_parameters,
            exclude_frozen_parameters=exclude_frozen_parameters,
            **kwargs,
        )
        if zero and self.config is not None:
            self.config.setdefault("zero_optimization", {}).update(zero)
        # DeepSpeed would insist on its own AdamW, which has to be compiled where it runs
        if self.config is not None:
            self.config.setdefault("zero_force_ds_cpu_optimizer", False)

    def _load_config(self, config: Any) -> dict[str, Any] | None:
        """Lightning's, with the name of a file that is no JSON."""
        try:
            return super()._load_config(config)
        except json.JSONDecodeError as error:
            raise RefusedRequest(f"DeepSpeed's config {config} is no JSON: {error}") from error

    # ---- CPUs, which Lightning refuses

    def setup_environment(self) -> None:
        """Joins the other ranks."""
        if not isinstance(self.accelerator, CPUAccelerator):
            super().setup_environment()
            return
        import deepspeed
        from deepspeed.accelerator import set_accelerator
        from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

        set_accelerator(CPU_Accelerator())
        # collectives in shared memory, which would be compiled first for a minute; gloo has them too
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        super(DeepSpeedStrategy, self).setup_environment()

    def setup_distributed(self) -> None:
        """Joins the other ranks; CPUs have no numbers that could be checked."""
        if not isinstance(self.accelerator, CPUAccelerator):
            super().setup_distributed()
            return
        self.set_world_ranks()
        self._init_deepspeed_distributed()

    @contextmanager
    def model_sharded_context(self) -> Iterator[None]:
        """Nothing: the model is whole when it comes here, and the engine cuts it. (Modules that are built in
        Lightning's context would lose the values that they begin with: LoRA's B would not be 0.)"""
        yield

    # ---- the engine

    def _setup_model_and_optimizer(
        self, model: nn.Module, optimizer: Optimizer | None, lr_scheduler: Any = None
    ) -> tuple[DeepSpeedEngine, Optimizer]:
        """Lightning's, with a rank where it has the number of a GPU (the same on GPUs)."""
        import deepspeed

        if optimizer is not None and self._steps_on_the_cpu:
            for group in optimizer.param_groups:
                group.update(fused=True, foreach=False)  # torch's own vectorised AdamW
        with _no_hooks_on(_without_parameters(model)):
            engine, wrapped, _, _ = deepspeed.initialize(
                args=argparse.Namespace(device_rank=self.local_rank),
                config=self.config,
                model=model,
                model_parameters=[parameter for parameter in model.parameters() if parameter.requires_grad],
                optimizer=optimizer,
                lr_scheduler=lr_scheduler,
                dist_init_required=False,
            )
        engine.checkpoint_engine.load = _load_without_unpickling
        return engine, wrapped

    @property
    def _steps_on_the_cpu(self) -> bool:
        zero = (self.config or {}).get("zero_optimization", {})
        return bool(zero.get("offload_optimizer", {}).get("device") == "cpu")

    # ---- checkpoints

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None
    ) -> None:
        """Writes this rank's share, and beside the shares what they are of."""
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if self.is_global_zero:
            provenance.write(Path(filepath), checkpoint)

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads this rank's share.

        Raises:
            RefusedRequest: the checkpoint is of another run, or of another number of ranks.
        """
        found = provenance.read(Path(checkpoint_path))
        provenance.refuse_another(found, provenance.describe(self.lightning_module))  # type: ignore[arg-type]
        provenance.refuse_other_ranks(found, ranks())
        return super().load_checkpoint(checkpoint_path, weights_only)


def _load_without_unpickling(path: str, map_location: Any = None) -> Any:
    """DeepSpeed's own unpickles whatever stands in the file."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    with torch.serialization.safe_globals([DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]):
        return torch.load(path, map_location=map_location, weights_only=True)


def _without_parameters(model: nn.Module) -> list[nn.Module]:
    """Modules beside the language model that have no parameters of their own: a loss, a fixed temperature."""
    tower = set(getattr(model, "tower", model).modules())
    return [
        module
        for module in model.modules()
        if module is not model and module not in tower and not list(module.parameters(recurse=False))
    ]


@contextmanager
def _no_hooks_on(modules: list[nn.Module]) -> Iterator[None]:
    """Removes the hooks that modules get while it lasts.

    ZeRO-3 hangs hooks on every module, to gather its parameters around its forward pass. They look for
    tensors in what it returns, and cannot look into a number or into the account of a loss.
    """
    places = [
        hooks
        for module in modules
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    ]
    before = [set(hooks) for hooks in places]
    yield
    for hooks, kept in zip(places, before, strict=True):
        for number in hooks.keys() - kept:
            del hooks[number]
