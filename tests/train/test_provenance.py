"""A checkpoint of another run is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_models import build_tiny_mllm

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train import provenance
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.provenance import describe, refuse_another, refuse_other_ranks


def module(model: Path, **lora: Any) -> TextContrastive:
    return TextContrastive(str(model), lora=LoraOptions(**{"r": 4, **lora}))


def test_the_same_run_goes_on_also_where_the_base_model_has_moved(tiny: Path, tmp_path: Path) -> None:
    found = describe(module(tiny))
    refuse_another(found, describe(module(tiny)))
    shutil.copytree(tiny, tmp_path / "moved")
    refuse_another(found, describe(module(tmp_path / "moved")))


def test_another_base_model_of_the_same_shape_is_refused(tiny: Path, tmp_path: Path) -> None:
    other = build_tiny_mllm(tmp_path / "other", seed=1)
    found = describe(module(tiny))
    with pytest.raises(RefusedRequest) as refusal:
        refuse_another(found, describe(module(other)))
    told = str(refusal.value)
    assert f"the checkpoint is of another base model: {tiny} (hidden size 64, weights " in told
    assert f"{other} (hidden size 64, weights " in told
    assert told.endswith("Use the model that it was trained with (its run's config.yaml).")


def test_a_base_model_that_is_not_here_is_told_by_its_name_revision_and_width(tiny: Path) -> None:
    model = module(tiny)
    found = {**describe(model), "base_digest": ""}
    refuse_another(found, describe(model))
    for key, value in (("base_model", "org/other"), ("revision", "abc"), ("hidden_size", 65)):
        with pytest.raises(RefusedRequest, match="is of another base model"):
            refuse_another({**found, key: value}, describe(model))


@pytest.mark.parametrize(
    ("lora", "told"),
    [
        ({"r": 2}, r"42 weights differ, for example .*lora_A.* is \(4, 128\) in it and \(2, 128\) in t"),
        ({"targets": ".*q_proj"}, r"36 weights differ, .* in it and not there in this model"),
    ],
)
def test_another_rank_or_other_targets_are_refused(tiny: Path, lora: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedRequest, match="the checkpoint is of another adapter: " + told):
        refuse_another(describe(module(tiny)), describe(module(tiny, **lora)))


def test_a_checkpoint_of_fsdp2_is_not_one_of_plain_training(tiny: Path) -> None:
    model = module(tiny)
    with pytest.raises(RefusedRequest, match="is of a run with FSDP2, and this one has whole weights, whose"):
        refuse_another({**describe(model), "layout": "FSDP2"}, describe(model))


def test_shards_of_another_number_of_ranks_are_refused() -> None:
    refuse_other_ranks({"ranks": 1}, 1)
    with pytest.raises(RefusedRequest, match="was written by 4 ranks and holds a share for each; this run h"):
        refuse_other_ranks({"ranks": 4}, 1)


def test_the_account_lies_beside_shards(tmp_path: Path) -> None:
    provenance.write(tmp_path, {provenance.KEY: {"ranks": 2}})
    assert provenance.read(tmp_path) == {"ranks": 2}
    with pytest.raises(RefusedRequest, match=r"checkpoint .* is missing"):
        provenance.read(tmp_path / "nothing")
