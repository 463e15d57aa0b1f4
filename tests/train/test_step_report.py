"""What a step logs, on a tiny real model: names, values, memory, rates, and the loss that is no number."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses import InfoNCE
from vidvec_msg.train.metrics_file import MetricsFile
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions
from vidvec_msg.train.step_report import OF_STEPS, OF_VALIDATION, NonFiniteLoss, StepReport, peak_memory


def fit(
    tiny: Path,
    pairs_file: Path,
    folder: Path,
    *callbacks: Callback,
    trainer: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    **options: Any,
) -> list[dict[str, str]]:
    """Rows of metrics.csv of two steps."""
    torch.manual_seed(0)
    made = TextContrastive(str(tiny), lora=LoraOptions(r=4, dropout=0.0), **options)
    settings: dict[str, Any] = {"max_steps": 2, "accelerator": "cpu", **(trainer or {})}
    Trainer(
        **settings,
        logger=MetricsFile(folder / "metrics.csv"),
        log_every_n_steps=1,
        callbacks=list(callbacks),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        num_sanity_val_steps=0,
    ).fit(made, datamodule=PairsData(str(pairs_file), **{"batch_size": 4, **(data or {})}))
    with (folder / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


class Look(Callback):
    """The gradients as the optimizer is about to see them, and what the batch holds."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.batches: list[PairBatch] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: Any) -> None:
        flat = torch.cat([p.grad.flatten() for p in pl_module.parameters() if p.grad is not None])
        self.norms.append(float(flat.norm()))

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: PairBatch, _: int) -> None:
        self.batches.append(batch)


def test_every_step_logs_what_is_promised(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    look = Look()
    rows = fit(
        tiny,
        pairs_file,
        tmp_path,
        look,
        loss=InfoNCE(0.05, learn_temperature=True),
        trainer={"gradient_clip_val": 1e-3, "max_steps": 4},
        data={"validation_fraction": 0.25, "batch_size": 6},
    )
    of_steps = set(OF_STEPS) - {"train/cosine_hard_negatives"}  # these pairs have none
    named = {name for row in rows for name, cell in row.items() if cell} - {"step", "epoch"}
    assert named == of_steps | set(OF_VALIDATION)
    for row, norm, batch in zip(rows, look.norms, look.batches, strict=False):
        assert float(row["train/gradient_norm"]) == pytest.approx(norm, rel=1e-4)  # before it is clipped
        padded = sum(passage.input_ids.numel() for passage in batch.passages)
        assert float(row["train/padding"]) == pytest.approx(1 - batch.tokens / padded, abs=1e-6)
    assert float(rows[0]["train/temperature"]) == pytest.approx(0.05, rel=1e-5)
    assert float(rows[0]["train/embedding_norm"]) > 1.5  # before normalisation; after it would be 1
    assert float(rows[0]["train/alignment"]) == pytest.approx(
        2 - 2 * float(rows[0]["train/cosine_positives"]), abs=1e-5
    )
    # three batches an epoch: validation after the third step stands in row 3, beside the fourth batch's loss
    assert [row["step"] for row in rows if row["val/loss"]] == ["3"]


def test_a_step_that_accumulates_is_logged_whole(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    """The mean of its batches: next to nothing trains here, so that both runs compute the same losses."""
    still = {"optimizer": OptimizerOptions(lr=1e-12)}
    data = {"batch_size": 6}  # 24 pairs are four batches, and an epoch ends with a step of one
    single = fit(tiny, pairs_file, tmp_path / "1", trainer={"max_steps": 4}, data=data, **still)
    whole = fit(
        tiny,
        pairs_file,
        tmp_path / "3",
        trainer={"max_steps": 2, "accumulate_grad_batches": 3},
        data=data,
        **still,
    )
    losses = [float(row["train/loss"]) for row in single]
    assert len({round(loss, 4) for loss in losses}) == 4  # or the mean would say nothing
    found = [float(row["train/loss"]) for row in whole]
    assert found == pytest.approx([np.mean(losses[:3]), losses[3]], rel=1e-5)
    counted = [float(row["train/false_negatives"]) for row in whole]
    assert counted[0] == sum(float(row["train/false_negatives"]) for row in single[:3])


def test_cells_that_are_no_negatives_are_counted_in_both_directions(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    rows = fit(tiny, pairs_file, tmp_path, data={"batch_size": 24}, trainer={"max_steps": 1})
    # 12 groups of two: each pair has one other of its group, as anchor and as positive
    assert float(rows[0]["train/false_negatives"]) == 24 * 2
    assert float(rows[0]["train/negatives_per_anchor"]) == 22


@pytest.mark.parametrize("options", [{}, {"grad_cache": True}], ids=["plain", "grad_cache"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_that_is_no_number_stops_and_names_the_batch(
    tiny: Path, pairs_file: Path, tmp_path: Path, options: dict[str, Any], accumulate: int
) -> None:
    class Poison(Callback):
        """After the second batch, whether or not a step is whole then."""

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 1:
                with torch.no_grad():
                    next(p for n, p in pl_module.named_parameters() if "lora_A" in n).fill_(torch.nan)

    done = 2 // accumulate
    with pytest.raises(NonFiniteLoss, match=rf"the loss is nan at step {done}, batch 2 \(pairs pair-\d+, "):
        fit(
            tiny,
            pairs_file,
            tmp_path,
            Poison(),
            trainer={"accumulate_grad_batches": accumulate, "max_steps": 4},
            **options,
        )


def test_only_the_pairs_without_a_loss_are_named(tiny: Path) -> None:
    from types import SimpleNamespace

    from vidvec_msg.train.losses.cells import Contrast
    from vidvec_msg.train.step_report import refuse_non_finite

    torch.manual_seed(0)
    made = TextContrastive(str(tiny), lora=LoraOptions(r=4))
    batch = Collate(made.tokenise)([(row, Pair(f"a{row}", f"p{row}")) for row in range(3)])
    rows = torch.tensor([1.0, torch.inf, 2.0])
    result = Contrast(rows, rows > 0, torch.tensor(0), torch.tensor(6))
    module: Any = SimpleNamespace(
        dtype_name="float16", trainer=SimpleNamespace(global_step=7, precision="16-mixed")
    )
    with pytest.raises(NonFiniteLoss) as stop:
        refuse_non_finite(module, rows.sum(), result, batch)
    assert str(stop.value) == (
        "the loss is inf at step 7, batch 0 (pairs pair 2). Lower model.optimizer.lr, or compute in float32 "
        "or bfloat16 (dtype is float16, precision 16-mixed)."
    )


def test_ranks_with_unequal_shares_give_the_mean_loss_of_all_validation_pairs() -> None:
    from types import SimpleNamespace

    from vidvec_msg.train.losses.cells import Contrast

    weighted: list[tuple[float, int]] = []

    def logged(name: str, value: Any, *, batch_size: int, **_: Any) -> None:
        if name == "val/loss":
            weighted.append((float(value), batch_size))

    module: Any = SimpleNamespace(log=logged, trainer=SimpleNamespace(state=SimpleNamespace(fn="validate")))
    shares = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([6.0])]
    for rows in shares:
        batch: Any = [None] * len(rows)
        StepReport().validate(module, batch, Contrast(rows, rows > 0, torch.tensor(0), torch.tensor(12)))
    assert sum(value * size for value, size in weighted) / 4 == 3.0  # as Lightning weighs


def test_peak_memory_is_that_of_the_process_in_gigabytes() -> None:
    before = peak_memory()
    assert 0.05 < before < 500  # torch alone takes more than 50 MB
    block = torch.ones(int(before * 1e9 / 4) + 25_000_000)  # float32: as much again, and 100 MB
    assert peak_memory() > before + 0.05
    del block


def test_rates_count_from_the_second_step_and_state_goes_on() -> None:
    report = StepReport()
    assert report._rates(8, 100) == {}
    rates = report._rates(8, 100)
    assert rates["tokens_per_second"] == pytest.approx(rates["pairs_per_second"] * 100 / 8)
    again = StepReport()
    again.restore(report.state())
    assert again.size(2).pairs == 16
    assert again.size(2).seconds >= report.state()["seconds"] - 1
