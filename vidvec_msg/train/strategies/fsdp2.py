"""FSDP2: weights in shards, with nothing but PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.optim import Optimizer

from vidvec_msg.errors import RefusedRequest


def refuse_strangers(strangers: Sequence[str]) -> None:
    """Refuses what trains outside the language model.

    Args:
        strangers: names of such parameters in the module.

    Raises:
        RefusedRequest: there are some.
    """
    if strangers:
        raise RefusedRequest(
            f"{', '.join(strangers)} would train outside the language model, and FSDP2 averages no gradients "
            "there: ranks would drift apart. Use trainer.strategy ddp or deepspeed_stage_2, or fix the "
            "temperature (model.loss.learn_temperature: false)"
        )


class FSDP2(ModelParallelStrategy):
    """FSDP2: every rank holds a share of the weights, of the gradients and of the optimizer's state, with
    nothing but PyTorch. Checkpoints are single files, as without shards, and hold what trains alone.

    Args:
        process_group_backend: of torch.distributed; by default nccl on GPUs and gloo on CPUs.
    """

    def __init__(self, process_group_backend: str | None = None) -> None:
        super().__init__(save_distributed_checkpoint=False, process_group_backend=process_group_backend)

    def setup_environment(self) -> None:
        """Joins the other ranks; all of them share the weights."""
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()

    def shard(self, module: LightningModule) -> None:
        """Cuts the blocks of the language model into shards, and what is outside the blocks; called where
        Lightning configures the model.

        Raises:
            RefusedRequest: something outside the language model trains, whose gradients nobody averages.
        """
        refuse_strangers(
            [
                name
                for name, parameter in module.named_parameters()
                if parameter.requires_grad and not name.startswith("tower.")
            ]
        )
        from torch.distributed.fsdp import fully_shard

        tower: Any = module.tower
        mesh = self.device_mesh["data_parallel"]
        bare = tower.get_base_model() if hasattr(tower, "get_base_model") else tower
        for block in bare.layers:
            fully_shard(block, mesh=mesh)
        fully_shard(bare, mesh=mesh)

    @property
    def _whole_model(self) -> LightningModule:
        if self.lightning_module is None:
            raise RuntimeError("a strategy has no model before a fit begins")
        return self.lightning_module

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The weights that train, whole, on rank 0; nothing on the others."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        return get_model_state_dict(self._whole_model, options=whole)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Its state, whole, on rank 0; nothing on the others."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        bare = getattr(optimizer, "_optimizer", optimizer)
        return get_optimizer_state_dict(self._whole_model, bare, options=whole)

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads a checkpoint on every rank, which keeps its share.

        Raises:
            RefusedRequest: the checkpoint is of another run.
        """
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions,
            set_model_state_dict,
            set_optimizer_state_dict,
        )

        content: dict[str, Any] = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
        self._whole_model.on_load_checkpoint(content)  # refuses, before a weight is touched
        whole = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(self._whole_model, content["state_dict"], options=whole)
        for optimizer, state in zip(self.optimizers, content["optimizer_states"], strict=False):
            set_optimizer_state_dict(self._whole_model, optimizer, state, options=whole)
        return content
