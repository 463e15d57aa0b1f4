"""What the trainer's options say about processes; refused before a model is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonargparse import Namespace
from pytorch_lightning import LightningModule

from vidvec_msg.cli import main as cli
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.losses import InfoNCE
from vidvec_msg.train.strategies import FSDP2, DeepSpeed, asked_for
from vidvec_msg.train.strategies.asked_for import (
    ours,
    put_ours_in_place,
    ranks_asked_for,
    strategy_problems,
)


def trainer(**options: Any) -> Namespace:
    return Namespace(**{"devices": 1, "num_nodes": 1, "accelerator": "cpu", "strategy": "auto", **options})


def class_of(path: str, **init_args: Any) -> Namespace:
    return Namespace(class_path=path, init_args=Namespace(**init_args))


@pytest.mark.parametrize(
    ("devices", "nodes", "ranks"),
    [
        (1, 1, 1),
        (4, 2, 8),
        ("4", 1, 4),
        ("0,1", 1, 2),
        ("3,", 1, 1),
        ([0, 2, 3], 1, 3),
        ("auto", 3, 3),
        (-1, 1, 1),
        ("-1", 1, 1),
    ],
)
def test_ranks_are_counted_as_lightning_counts_them(
    devices: Any, nodes: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 7)  # none of them is asked for
    assert ranks_asked_for(trainer(devices=devices, num_nodes=nodes)) == ranks


def test_all_devices_are_all_gpus_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, ranks in ((4, 8), (0, 2)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda there=there: there)
        for accelerator in ("auto", "gpu", "cuda"):
            for devices in ("auto", -1, "-1"):
                asked = trainer(devices=devices, num_nodes=2, accelerator=accelerator)
                assert ranks_asked_for(asked) == ranks


def test_lightnings_names_mean_our_strategies() -> None:
    pytest.importorskip("deepspeed")
    for name, stage, offloads in (
        ("deepspeed_stage_1", 1, False),
        ("deepspeed_stage_2_offload", 2, True),
        ("deepspeed_stage_3", 3, False),
    ):
        made = ours(name)
        assert isinstance(made, DeepSpeed)
        assert isinstance(made.config, dict)
        assert made.config["zero_optimization"]["stage"] == stage
        assert ("offload_optimizer" in made.config["zero_optimization"]) is offloads
        assert made.exclude_frozen_parameters
    assert isinstance(ours("fsdp"), FSDP2)
    assert ours("ddp") == "ddp"
    assert ours(made) is made


def test_lightnings_class_becomes_ours_and_keeps_its_options() -> None:
    asked = trainer(
        strategy=class_of("pytorch_lightning.strategies.DeepSpeedStrategy", stage=3, sub_group_size=7)
    )
    put_ours_in_place(asked)
    assert asked.strategy.class_path == "vidvec_msg.train.strategies.DeepSpeed"
    expected = {"stage": 3, "sub_group_size": 7, "exclude_frozen_parameters": True}
    assert asked.strategy.init_args.as_dict() == expected
    plain = trainer(strategy="ddp")
    put_ours_in_place(plain)
    assert plain.strategy == "ddp"


ZERO_3 = class_of("vidvec_msg.train.strategies.DeepSpeed", stage=3)


@pytest.fixture
def deepspeed_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed is another matter."""
    monkeypatch.setattr(asked_for, "require", lambda *_, **__: None)


@pytest.mark.parametrize(
    ("options", "data", "told"),
    [
        (
            {"strategy": "deepspeed_stage_3", "devices": 2},
            {"passage_tokens": 100},
            "data.passage_tokens 100 gives ranks different numbers of passages, and ZeRO-3 cuts the weights",
        ),
        (
            {"strategy": "fsdp", "devices": 2},
            {"passage_tokens": 100},
            "FSDP cuts the weights into shards; ranks take their forward passes together",
        ),
        (
            {"strategy": ZERO_3, "num_nodes": 2},
            {"passages": 3},
            "data.passages is 3, and ZeRO-3 cuts the weights into shards; ranks take their forward passes "
            "together then, and all need as many of them; a rank with a single pair has two texts: give at "
            "most 2",
        ),
        (
            {"strategy": "deepspeed_stage_4"},
            {},
            "trainer.strategy is 'deepspeed_stage_4' (did you mean 'deepspeed_stage_3'?); accepted: auto,",
        ),
        ({"strategy": "fsdp_cpu_offload"}, {}, "true, fsdp, deepspeed, deepspeed_stage_1, deepspeed_stage_2"),
        ({"strategy": "dpp"}, {}, "trainer.strategy is 'dpp' (did you mean 'ddp'?); accepted: auto, ddp, "),
        (
            {"strategy": class_of("pytorch_lightning.strategies.FSDPStrategy")},
            {},
            "trainer.strategy FSDPStrategy is not made for adapters: use vidvec_msg.train.strategies.FSDP2, "
            "or its name, fsdp",
        ),
    ],
)
@pytest.mark.usefixtures("deepspeed_is_there")
def test_what_cannot_go_together(options: dict[str, Any], data: dict[str, Any], told: str) -> None:
    given = Namespace(**{"passage_tokens": 0, "passages": 2, **data})
    ranks = ranks_asked_for(trainer(**options))
    (problem,) = strategy_problems(trainer(**options), given, None, ranks=ranks)
    assert told in problem


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DDP", "ddp"),
        ("Auto", "auto"),
        ("FSDP2", "fsdp"),
        ("DDPStrategy", "ddp"),
        ("DeepSpeed", "deepspeed"),
        ("deepspeed-zero3", "deepspeed_stage_3"),
        ("DeepSpeed_ZeRO_2", "deepspeed_stage_2"),
        ("zero1", "deepspeed_stage_1"),
        ("zero", "deepspeed"),
        ("ZeRO", "deepspeed"),
        ("deepspeed_zero", "deepspeed"),
        ("ZeRO-3-offload", "deepspeed_stage_3_offload"),
        ("deepspeed3", "deepspeed_stage_3"),
    ],
)
def test_what_others_call_a_strategy_is_understood(name: str, meant: str) -> None:
    given = Namespace(passage_tokens=0, passages=2)
    (problem,) = strategy_problems(trainer(strategy=name), given, None, ranks=1)
    assert problem.startswith(
        f"trainer.strategy is {name!r} (did you mean {meant!r}?); accepted: auto, ddp, "
    )


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "deepspeed_stage_3"},  # one rank
        {"strategy": "deepspeed_stage_2", "devices": 2},
        {"strategy": "ddp", "devices": 2},
        {},
    ],
)
@pytest.mark.usefixtures("deepspeed_is_there")
def test_whole_weights_bear_any_number_of_passages(options: dict[str, Any]) -> None:
    given = Namespace(passage_tokens=100, passages=5)
    ranks = ranks_asked_for(trainer(**options))
    assert list(strategy_problems(trainer(**options), given, None, ranks=ranks)) == []


def test_deepspeeds_checkpoints_are_not_measured_alone() -> None:
    data = Namespace(passage_tokens=0, passages=2)
    (problem,) = strategy_problems(trainer(strategy="deepspeed_stage_1"), data, None, ranks=1, trains=False)
    assert "open for training alone. Measure the embedder that the fit made (vidvec-msg evaluate" in problem
    assert not list(strategy_problems(trainer(strategy="ddp"), data, None, ranks=1, trains=False))


@pytest.mark.usefixtures("deepspeed_is_there")
def test_a_checkpoint_of_another_form_is_refused(tmp_path: Path) -> None:
    file, folder = tmp_path / "last.ckpt", tmp_path / "folder.ckpt"
    file.touch()
    folder.mkdir()
    data = Namespace(passage_tokens=0, passages=2)
    (problem,) = strategy_problems(trainer(strategy="deepspeed_stage_2"), data, str(file), ranks=1)
    assert problem == (
        f"--ckpt_path {file} is a file, as DeepSpeed does not write them, and trainer.strategy "
        "deepspeed_stage_2 is of DeepSpeed: continue it with the strategy that it was written with"
    )
    (problem,) = strategy_problems(trainer(strategy="ddp"), data, str(folder), ranks=1)
    assert "is a folder, as DeepSpeed writes them, and trainer.strategy ddp is of another" in problem
    assert not list(strategy_problems(trainer(strategy=ZERO_3), data, str(folder), ranks=1))
    assert not list(strategy_problems(trainer(strategy="fsdp"), data, str(file), ranks=1))


def test_deepspeed_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    monkeypatch.setattr(
        "vidvec_msg.extras.import_module",
        lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name, name=name)),
    )
    data = Namespace(passage_tokens=0, passages=2)
    (problem,) = strategy_problems(trainer(strategy="deepspeed_stage_2"), data, None, ranks=1)
    assert problem == (
        "deepspeed is needed to train with trainer.strategy deepspeed_stage_2 and is not installed: "
        "pip install 'vidvec-msg[deepspeed]'"
    )


def test_the_command_line_refuses_before_the_model_is_loaded(
    tiny: Path,
    pairs_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was built before the refusal")

    monkeypatch.setattr("vidvec_msg.train.module.load_language_model", never)
    words = ["fit", f"--model.model={tiny}", f"--data.pairs={pairs_file}", "--data.passage_tokens=64"]
    words += ["--trainer.strategy=fsdp", "--trainer.devices=2", "--trainer.accelerator=cpu"]
    assert cli([*words, "--data.batch_size=4", f"--trainer.default_root_dir={tmp_path / 'run'}"]) == 2
    assert "data.passage_tokens 64 gives ranks different numbers" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_fsdp2_refuses_what_trains_outside_the_language_model() -> None:
    module = LightningModule()
    module.tower, module.loss = torch.nn.Linear(2, 2), InfoNCE(learn_temperature=True)
    with pytest.raises(RefusedRequest, match=r"^loss\.temperature\.logarithm would train .*ddp or deepspeed"):
        FSDP2().shard(module)
