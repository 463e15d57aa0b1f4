"""Passages in threads: the same vectors and gradients as one after the other, noise and cache included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
import torch

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch, pad
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.side_by_side import portions, runs_side_by_side, states_side_by_side

PAIRS = [
    Pair("A small red ball rolls towards a wall. " * (1 + i % 5), f"Keep trying {i}.") for i in range(24)
]


@pytest.fixture(autouse=True)
def _threads_stay_two(two_threads: None) -> Iterator[None]:
    yield
    assert torch.get_num_threads() == 2


def module(tiny: Path, **options: Any) -> TextContrastive:
    torch.manual_seed(0)
    made = TextContrastive(**{"model": str(tiny), "lora": LoraOptions(r=4, dropout=0.3), **options})
    with torch.no_grad():  # a fresh B is 0 and hides dropout
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return made


def batch_of(made: TextContrastive) -> PairBatch:
    return Collate(made.tokenise)(list(enumerate(PAIRS)))


def gradients(made: TextContrastive, seed: int = 1) -> dict[str, torch.Tensor]:
    made.zero_grad()
    torch.manual_seed(seed)
    made.contrast(batch_of(made))[0].backward()
    return {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}


def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vidvec_msg.train.module.runs_side_by_side", lambda tower: False)


@pytest.mark.parametrize("grad_cache", [False, True])
def test_gradients_are_those_of_one_passage_after_the_other(
    tiny: Path, grad_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module(tiny, grad_cache=grad_cache, lora=LoraOptions(r=4, dropout=0.0))
    threads: set[int] = set()
    made.tower.get_base_model().layers[0].register_forward_pre_hook(lambda *_: threads.add(get_ident()))
    found = gradients(made)
    assert len(threads) > 1
    assert get_ident() not in threads
    in_turn(monkeypatch)
    expected = gradients(made)
    assert found.keys() == expected.keys() == made.trained_names()
    for name, gradient in expected.items():
        assert gradient.any()
        torch.testing.assert_close(found[name], gradient)


def test_noise_depends_on_the_seed_and_on_nothing_else(tiny: Path) -> None:
    made = module(tiny)
    first = gradients(made)
    for again in (gradients(made), gradients(module(tiny, grad_cache=False))):
        for name, gradient in first.items():
            assert torch.equal(again[name], gradient)
    assert any(not torch.allclose(other, first[name]) for name, other in gradients(made, seed=2).items())


def test_grad_cache_repeats_the_noise(tiny: Path) -> None:
    plain, cached = module(tiny), module(tiny, grad_cache=True)
    passages = portions(batch_of(plain).passages, bounded=True)
    found = []
    for made in (plain, cached):
        weights = [p for p in made.tower.parameters() if p.requires_grad]
        torch.manual_seed(1)
        states = states_side_by_side(made._read, passages, weights, keep=not made.grad_cache)
        states.pow(3).sum().backward()
        found.append([states.detach(), *(weight.grad for weight in weights)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("grad_cache", [False, True])
def test_under_autocast_the_noise_repeats_too(tiny: Path, grad_cache: bool) -> None:
    made = module(tiny, grad_cache=grad_cache)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not runs_side_by_side(made.tower)
        first, again = gradients(made), gradients(made)
    assert first.keys() == again.keys()
    for name, gradient in first.items():
        assert torch.equal(gradient, again[name])


def test_portions_are_the_texts_in_order_with_less_padding() -> None:
    lengths = [3, 4, 9, 300, 310, 400]
    passages = [pad([[7] * n for n in lengths[:3]]), pad([[7] * n for n in lengths[3:]])]
    parts = portions(passages, bounded=False)
    assert [int(n) for part in parts for n in part.attention_mask.sum(1)] == lengths
    assert [tuple(part.input_ids.shape) for part in parts] == [(3, 9), (1, 300), (1, 310), (1, 400)]


def test_bounded_portions_hold_no_more_than_a_passage_in_all_threads_together() -> None:
    passages = [pad([[7] * 10] * 40), pad([[7] * 100] * 4)]
    assert max(part.input_ids.numel() for part in portions(passages, bounded=True)) * 2 <= 400
    assert max(part.input_ids.numel() for part in portions(passages, bounded=False)) == 250


def test_where_passages_run_one_after_the_other(tiny: Path) -> None:
    assert runs_side_by_side(module(tiny).tower)
    assert not runs_side_by_side(module(tiny, gradient_checkpointing=True).tower)
    assert not runs_side_by_side(module(tiny, lora=LoraOptions(r=4, dropout=0.1, dora=True)).tower)
    assert not runs_side_by_side(module(tiny).tower.to("meta"))
    torch.set_num_threads(1)
    try:
        assert not runs_side_by_side(module(tiny).tower)
    finally:
        torch.set_num_threads(2)


def test_an_error_in_a_passage_is_the_steps(tiny: Path) -> None:
    made = module(tiny)

    def fail(*_: Any) -> None:
        raise RuntimeError("block 0 fails")

    made.tower.get_base_model().layers[0].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="block 0 fails"):
        made.contrast(batch_of(made))
