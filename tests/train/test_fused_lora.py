"""LoRA linears in one step: peft's values and gradients, noise by the seed, and peft itself where it must."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.utils.checkpoint import checkpoint

from vidvec_msg.train.fused_lora import draws_shared_noise, fuse_lora, noise_from


class Two(nn.Module):
    """Two linears, one with a bias, as a tower's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 20), nn.Linear(20, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(torch.tanh(self.first(x)))
        return made


def adapted(*, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
    """Adapters that change something: a fresh B is 0."""
    torch.manual_seed(0)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["first", "second"], **{"lora_dropout": 0.0, **options}
    )
    made = get_peft_model(Two().to(dtype), config)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    return made.train()


def both(**options: Any) -> tuple[nn.Module, nn.Module]:
    plain = adapted(**options)
    fused = copy.deepcopy(plain)
    assert fuse_lora(fused) == 2
    return plain, fused


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    model(x).pow(2).sum().backward()
    assert x.grad is not None
    found = [x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    model.zero_grad()
    return found


@pytest.mark.parametrize("rslora", [False, True])
def test_values_and_gradients_are_pefts(rslora: bool) -> None:
    plain, fused = both(use_rslora=rslora)
    x = torch.randn(3, 5, 12)
    torch.testing.assert_close(fused(x), plain(x))
    expected, found = gradients(plain, x), gradients(fused, x)
    assert len(found) == 1 + 4  # x, and A and B of two linears
    torch.testing.assert_close(found, expected)


def test_the_first_block_reads_what_needs_no_gradient() -> None:
    plain, fused = both()
    x = torch.randn(5, 12)
    for model in (plain, fused):
        model(x).sum().backward()
    for one, other in zip(plain.parameters(), fused.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_takes_its_share_of_the_adapters_input_alone_and_keeps_the_mean(dtype: torch.dtype) -> None:
    fused = adapted(lora_dropout=0.25, dtype=dtype)
    fuse_lora(fused)
    linear = fused.get_submodule("base_model.model.first")
    x = torch.ones(4000, 12, dtype=dtype)
    base = linear.base_layer(x).float()
    with torch.no_grad():
        update = linear(x).float() - base
        linear.eval()
        whole = linear(x).float() - base
    torch.testing.assert_close(update.mean(0), whole.mean(0), rtol=0.05, atol=0.05)
    assert update.std(0).min() > 0.01
    assert torch.equal(whole[0], whole[1])


def test_the_gradients_of_a_step_with_dropout_are_those_of_its_own_noise() -> None:
    """Finite differences in float64, the noise held."""
    fused = adapted(lora_dropout=0.5).double()
    fuse_lora(fused)

    def value(x: Tensor) -> Tensor:
        with noise_from(3):
            made: Tensor = fused(x)
        return made

    assert torch.autograd.gradcheck(value, (torch.randn(4, 12, dtype=torch.float64, requires_grad=True),))
    weight = fused.get_parameter("base_model.model.first.lora_A.default.weight")
    x = torch.randn(4, 12, dtype=torch.float64)
    value(x).sum().backward()
    assert weight.grad is not None
    found, step = weight.grad[1, 2].item(), 1e-6
    sides = []
    with torch.no_grad():
        for sign in (1, -2):
            weight[1, 2] += sign * step
            sides.append(value(x).sum().item())
    assert found == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5)


def test_torchs_seed_decides_on_the_noise_and_checkpointing_repeats_it() -> None:
    fused = adapted(lora_dropout=0.5)
    fuse_lora(fused)
    x = torch.randn(6, 12)
    torch.manual_seed(1)
    expected = gradients(fused, x)
    torch.manual_seed(1)
    torch.testing.assert_close(gradients(fused, x), expected)
    torch.manual_seed(2)
    assert not torch.allclose(gradients(fused, x)[0], expected[0])
    torch.manual_seed(1)
    again = x.clone().requires_grad_()
    checkpoint(fused, again, use_reentrant=False).pow(2).sum().backward()
    torch.testing.assert_close(again.grad, expected[0])


def test_adapters_stay_in_float32_on_bfloat16_weights_and_compute_in_theirs() -> None:
    plain, fused = both(dtype=torch.bfloat16)
    x = torch.randn(7, 12, dtype=torch.bfloat16)
    assert fused(x).dtype == torch.bfloat16
    torch.testing.assert_close(fused(x), plain(x), rtol=0.05, atol=0.05)
    for one, other in zip(gradients(plain, x), gradients(fused, x), strict=True):
        assert one.dtype == other.dtype
        assert cosine_similarity(one.float().flatten(), other.float().flatten(), 0) > 0.999


def calls_of_the_parts(model: nn.Module, x: Tensor) -> int:
    calls: list[int] = []
    hook = model.get_submodule("base_model.model.first.lora_A.default").register_forward_hook(
        lambda *_: calls.append(1)
    )
    model(x)
    hook.remove()
    return len(calls)


def test_a_hook_on_a_part_is_called_as_zero_3_needs_it() -> None:
    fused = adapted()
    fuse_lora(fused)
    assert calls_of_the_parts(fused, torch.randn(2, 12)) == 1


@pytest.mark.parametrize("way", ["disabled", "merged", "evaluation", "dora", "autocast"])
def test_what_is_out_of_the_ordinary_is_left_to_peft(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fused = both(use_dora=way == "dora")
    x = torch.randn(3, 12)
    ordinary = fused(x)
    monkeypatch.setattr("vidvec_msg.train.fused_lora._LoraLinear.apply", lambda *_: pytest.fail("fused"))
    if way == "dora":
        torch.testing.assert_close(ordinary, plain(x))
    elif way == "evaluation":
        torch.testing.assert_close(fused.eval()(x), ordinary)
    elif way == "merged":
        fused.merge_adapter()
        torch.testing.assert_close(fused(x), ordinary)
    elif way == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            assert fused(x).dtype == torch.bfloat16
    else:
        with fused.disable_adapter():
            torch.testing.assert_close(fused(x), fused.get_base_model()(x))


def test_it_is_known_who_draws_from_the_shared_generator() -> None:
    assert not draws_shared_noise(adapted())
    assert draws_shared_noise(adapted(lora_dropout=0.1))
    fused = adapted(lora_dropout=0.1)
    fuse_lora(fused)
    assert not draws_shared_noise(fused)
    assert draws_shared_noise(nn.Sequential(fused, nn.Dropout(0.1)))
    fused.get_submodule("base_model.model.first").attention_dropout = 0.1
    assert draws_shared_noise(fused)
    dora = adapted(lora_dropout=0.1, use_dora=True)
    fuse_lora(dora)
    assert draws_shared_noise(dora)
