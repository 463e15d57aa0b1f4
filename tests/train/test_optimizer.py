"""AdamW's options and the schedule's shape."""

from __future__ import annotations

import math

import pytest
import torch

from vidvec_msg.train.optimizer import OptimizerOptions, lr_share, make_optimizer


def test_it_rises_then_falls_to_nearly_nothing() -> None:
    options = OptimizerOptions(warmup_ratio=0.2)
    shares = [lr_share(step, 10, options) for step in range(10)]
    assert shares[:3] == [1 / 3, 2 / 3, 1.0]
    assert shares[2:] == sorted(shares[2:], reverse=True)
    assert 0 < shares[-1] < 0.05
    assert lr_share(6, 10, options) == pytest.approx(0.5)
    assert lr_share(11, 10, options) == pytest.approx(0.0)


def test_constant_stays_after_the_warm_up() -> None:
    options = OptimizerOptions(warmup_ratio=0.2, schedule="constant")
    assert [lr_share(step, 10, options) for step in (0, 2, 9)] == [1 / 3, 1.0, 1.0]


def test_no_warm_up_begins_at_the_top() -> None:
    assert lr_share(0, 10, OptimizerOptions(warmup_ratio=0.0)) == 1.0


def test_the_options_reach_adamw() -> None:
    options = OptimizerOptions(lr=0.5, weight_decay=0.1, beta1=0.8, beta2=0.95, warmup_ratio=0)
    optimizer, scheduler = make_optimizer([torch.nn.Parameter(torch.zeros(1))], options, 4)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.1, (0.8, 0.95))
    optimizer.step()
    scheduler.step()
    assert group["lr"] == pytest.approx(0.5 * lr_share(1, 4, options))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lr": 0.0}, "optimizer.lr is 0.0"),
        ({"lr": math.nan}, "optimizer.lr is nan"),
        ({"weight_decay": -1.0}, "optimizer.weight_decay is -1.0"),
        ({"warmup_ratio": 1.0}, "optimizer.warmup_ratio is 1.0; it must be at least 0 and below 1"),
        ({"beta1": -0.1}, "optimizer.beta1 is -0.1; it must be at least 0 and below 1"),
        ({"beta2": 1.0}, "optimizer.beta2 is 1.0"),
        ({"schedule": "linear"}, "optimizer.schedule is 'linear'; accepted: cosine, constant"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        OptimizerOptions(**options)  # type: ignore[arg-type]
