"""What a fit tells of its steps: numbers for the loggers, a few lines for the reader, and how much was done.

All numbers of a step travel between ranks in one collective; they are those of all ranks, whatever their
shares of the batch.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from vidvec_msg.embedders.check import warn_if_collapsed
from vidvec_msg.errors import JobFailed
from vidvec_msg.formats.items import Item
from vidvec_msg.train import gather
from vidvec_msg.train.batches import PairBatch, texts_of
from vidvec_msg.train.losses import Contrast, EncodedPairs, PairLoss
from vidvec_msg.train.losses.temperature import Temperature
from vidvec_msg.train.space import space_numbers, space_sums

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

    from vidvec_msg.train.module import TextContrastive

log = logging.getLogger(__name__)

OF_STEPS = (
    "train/loss",
    "train/accuracy",
    "train/negatives_per_anchor",
    "train/false_negatives",
    "train/cosine_positives",
    "train/cosine_negatives",
    "train/cosine_hard_negatives",
    "train/alignment",
    "train/uniformity",
    "train/embedding_norm",
    "train/embedding_norm_std",
    "train/padding",
    "train/cut_texts",
    "train/gradient_norm",
    "train/temperature",
    "lr",
    "pairs_per_second",
    "tokens_per_second",
    "peak_memory_gb",
)
"""Logged per step, of all ranks: hard negatives if there are any, the temperature if it is learned."""

OF_VALIDATION = ("val/loss", "val/accuracy", "val/negatives_per_anchor", "val/false_negatives")
"""Logged when validation pairs went through the loss."""

STEP = "step"
"""Lightning takes the number of a row from a metric of this name."""

_WINDOW = 10  # seconds that a rate is taken over


def names_of_steps(loss: PairLoss, *, hard_negatives: bool) -> list[str]:
    """Names of what a fit logs of each step.

    Args:
        loss: its learned parameters are logged too.
        hard_negatives: whether any pair has some.
    """
    lacking = {"train/temperature", *([] if hard_negatives else ["train/cosine_hard_negatives"])}
    return [*(name for name in OF_STEPS if name not in lacking), *_learned(loss)]


class NonFiniteLoss(JobFailed):
    """The loss is NaN or infinite; the message names the batch."""


@dataclass(frozen=True, slots=True)
class RunSize:
    """Of a fit, for its account: optimizer steps, pairs and seconds, those before a resumption included."""

    steps: int
    pairs: int
    seconds: float


class StepReport:
    """The account of a fit's steps; what is logged is listed in OF_STEPS and OF_VALIDATION."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds_before = 0.0  # of the run that is resumed
        self._pairs_seen = 0
        self._told_of_cuts = False
        self._step: list[Mapping[str, float]] = []  # of the batches that the next optimizer step accumulates
        self._window: tuple[float, float, float] | None = None  # start, pairs, tokens since the last rate
        self.peak_memory_gb = 0.0
        """Most memory that any rank held so far, see :func:`peak_memory`."""
        self.pairs_per_second: float | None = None
        """Of all ranks, over the last seconds; None before the second step."""

    # ---- how much was done, across resumptions

    def begin(self) -> None:
        """A fit starts now."""
        self._began = time.monotonic()

    def size(self, steps: int) -> RunSize:
        """How much was trained so far."""
        return RunSize(steps, self._pairs_seen, self._seconds_before + time.monotonic() - self._began)

    def state(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"pairs_seen": self._pairs_seen, "seconds": self.size(0).seconds}

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from a checkpoint."""
        self._pairs_seen = int(state.get("pairs_seen", 0))
        self._seconds_before = state.get("seconds", 0.0)

    # ---- the step

    def train(
        self, module: TextContrastive, batch: PairBatch, loss: Tensor, result: Contrast, own: EncodedPairs
    ) -> None:
        """Takes a training batch, and refuses one whose loss is no number; the last one before an optimizer
        step logs the step, which is that of all batches accumulated for it."""
        refuse_non_finite(module, loss, result, batch)
        if self._window is None and not self._step:
            _tell_of_first_batch(module, result, own)
        here, peak = _of_all_ranks(_sums(batch, loss, result, own), peak_memory())
        self.peak_memory_gb = max(self.peak_memory_gb, peak)
        self._tell_of_cuts(module, batch)
        self._step.append(here)
        if not _steps_now(module.trainer):
            return
        batches, self._step = self._step, []
        sums = {name: sum(one[name] for one in batches) for name in here}
        found = {
            "train/loss": sums["loss"] / gather.ranks() / len(batches),
            "train/accuracy": sums["correct"] / sums["pairs"],
            "train/negatives_per_anchor": sums["candidates"] / sums["pairs"],
            "train/false_negatives": sums["false_negatives"],
            "train/cut_texts": sums["cut"],
            "train/padding": 1 - sums["tokens"] / sums["padded"],
            **{f"train/{name}": value for name, value in space_numbers(sums).items()},
            **_learned(module.loss),
            "lr": module.optimizers().param_groups[0]["lr"],  # type: ignore[union-attr]
            "peak_memory_gb": self.peak_memory_gb,
            **self._rates(sums["pairs"], sums["tokens"]),
        }
        for name, value in found.items():
            # every rank holds the same numbers of all ranks: nothing is left to reduce
            module.log(name, value, prog_bar=name in _IN_BAR, sync_dist=False, batch_size=len(batch))

    def validate(self, module: TextContrastive, batch: PairBatch, result: Contrast) -> None:
        """Logs the contrast of validation pairs among themselves, averaged over the pass."""
        shared: dict[str, Any] = {"batch_size": len(batch), "sync_dist": True, "on_epoch": True}
        if module.trainer.state.fn == "fit":
            # the row that Lightning takes otherwise is that of the step before
            module.log(STEP, float(module.trainer.global_step), sync_dist=False, batch_size=len(batch))
        # not `loss`: a rank's term is scaled by its share of the pairs already, and Lightning weighs by it
        module.log("val/loss", result.rows.detach().mean(), prog_bar=True, **shared)
        module.log("val/accuracy", result.correct.float().mean(), prog_bar=True, **shared)
        module.log("val/negatives_per_anchor", result.negatives / max(len(batch), 1), **shared)
        module.log("val/false_negatives", result.masked.float(), reduce_fx="sum", **shared)

    def gradients(self, module: TextContrastive) -> None:
        """Logs the norm of the gradients that the optimizer is about to use, before they are clipped."""
        if _engine(module) is not None:
            return  # see `after_step`
        found = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        if found:
            norm = get_total_norm(found)
            whole = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # FSDP2 shards them
            module.log("train/gradient_norm", whole, sync_dist=False)

    def after_step(self, module: TextContrastive) -> None:
        """Logs the same under DeepSpeed, which moves gradients into partitions of its own and tells their
        norm when the step is done."""
        engine = _engine(module)
        norm = None if engine is None else engine.get_global_grad_norm()
        if norm is not None:
            module.log("train/gradient_norm", float(norm), sync_dist=False)

    def _rates(self, pairs: float, tokens: float) -> dict[str, float]:
        """Pairs and tokens per second of all ranks, over the steps since the last window began."""
        now = time.monotonic()
        self._pairs_seen += int(pairs)
        if self._window is None:
            self._window = (now, 0, 0)  # the first step warms up
            return {}
        start, pairs, tokens = self._window[0], self._window[1] + pairs, self._window[2] + tokens
        seconds = max(now - start, 1e-9)
        self._window = (start, pairs, tokens) if seconds < _WINDOW else (now, 0, 0)
        self.pairs_per_second = pairs / seconds
        return {"pairs_per_second": pairs / seconds, "tokens_per_second": tokens / seconds}

    def _tell_of_cuts(self, module: TextContrastive, batch: PairBatch) -> None:
        if batch.cut and not self._told_of_cuts:
            self._told_of_cuts = True
            pairs = getattr(getattr(module.trainer, "datamodule", None), "training", None)
            log.warning(
                f"batch {batch.number}: {batch.cut} of {len(batch.texts)} distinct texts are longer than "
                f"model.max_tokens {module.max_tokens} and lose their end; the prompt stays whole, and "
                "train/cut_texts counts them. The longest text of all needs --model.max_tokens "
                f"{module.tokenise.needed(texts_of(pairs) if pairs else batch.texts)}"
            )


_IN_BAR = {"train/loss", "train/accuracy", "pairs_per_second"}


def refuse_non_finite(module: TextContrastive, loss: Tensor, result: Contrast, batch: PairBatch) -> None:
    """Raises NonFiniteLoss, with the pairs to look at, unless the loss is a number."""
    if bool(torch.isfinite(loss)):
        return
    bad = [name for name, row in zip(batch.names, result.rows, strict=True) if not bool(torch.isfinite(row))]
    raise NonFiniteLoss(
        f"the loss is {loss.item()} at step {module.trainer.global_step}, batch {batch.number} "
        f"(pairs {', '.join(bad[:8])}{', …' if len(bad) > 8 else ''}). Lower model.optimizer.lr, "
        f"or compute in float32 or bfloat16 (dtype is {module.dtype_name}, "
        f"precision {module.trainer.precision})."
    )


def peak_memory() -> float:
    """Most memory that this process held so far, in GB (10⁹ bytes): what torch allocated on the GPU in use;
    without a GPU the process's resident memory. 0 where the system does not tell."""
    if torch.cuda.is_available() and (allocated := torch.cuda.max_memory_allocated()):
        return allocated / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e9 if sys.platform == "darwin" else most * 1024 / 1e9  # macOS counts bytes, Linux KiB


def _steps_now(trainer: Trainer) -> bool:
    """Whether the optimizer steps after this batch: Lightning also steps on the last one of an epoch."""
    return trainer.is_last_batch or (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches == 0


def _engine(module: TextContrastive) -> Any:
    """DeepSpeed's, where it trains."""
    model = module.trainer.strategy.model
    return model if hasattr(model, "get_global_grad_norm") else None


def _sums(batch: PairBatch, loss: Tensor, result: Contrast, own: EncodedPairs) -> dict[str, Tensor]:
    """One rank's part of a step's numbers, scalars that add up over ranks."""
    counts = {
        "pairs": len(batch),
        "tokens": batch.tokens,
        "padded": sum(passage.input_ids.numel() for passage in batch.passages),
        "cut": batch.cut,
    }
    return {
        **{name: torch.tensor(float(value), device=loss.device) for name, value in counts.items()},
        "loss": loss.detach(),
        "correct": result.correct.sum(),
        "candidates": result.negatives,
        "false_negatives": result.masked,
        **space_sums(own),
    }


def _of_all_ranks(sums: Mapping[str, Tensor], peak: float) -> tuple[dict[str, float], float]:
    """The sums over ranks, and the fullest rank's memory; one collective, and one wait for the device."""
    device = sums["loss"].device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    row = torch.stack(
        [value.to(device, dtype) for value in sums.values()]
        + [torch.tensor(peak, device=device, dtype=dtype)]
    )
    table = torch.stack(gather.all_gather(row)).tolist() if gather.ranks() > 1 else [row.tolist()]
    totals = [sum(column) for column in zip(*table, strict=True)]
    return dict(zip(sums, totals[:-1], strict=True)), max(values[-1] for values in table)


def _learned(loss: PairLoss) -> dict[str, float]:
    """What the loss learns: temperatures as such, anything else by its parameter's name."""
    found = {
        f"train/{name}": float(part.logarithm.detach().exp())
        for name, part in loss.named_modules()
        if isinstance(part, Temperature) and part.logarithm is not None
    }
    others = {
        f"train/loss.{name}": float(value.detach())
        for name, value in loss.named_parameters()
        if value.numel() == 1 and not name.endswith("temperature.logarithm")
    }
    return found | others


def _tell_of_first_batch(module: TextContrastive, result: Contrast, own: EncodedPairs) -> None:
    count = len(own)
    per_anchor = result.negatives.item() / count
    accumulated = module.trainer.accumulate_grad_batches
    note = f"; accumulating {accumulated} batches adds none" if accumulated > 1 else ""
    log.info(f"{per_anchor:.1f} negatives per anchor on {gather.ranks()} rank(s){note}")
    both = torch.cat((own.anchors, own.positives)).detach().float().cpu().numpy()  # (2 · pairs, dim)
    keys = torch.cat((own.keys.anchor, own.keys.positive)).tolist()
    warn_if_collapsed(both, [Item(str(key)) for key in keys], name="in training")
