"""The training step on a tiny real model: what it encodes, logs, saves, refuses."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer

from vidvec_msg.embedders.check import CollapsedSpaceWarning
from vidvec_msg.embedders.saved import load_saved, save_embedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.train.batches import Collate, PairBatch
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses import GuidedInfoNCE, InfoNCE
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.optimizer import OptimizerOptions
from vidvec_msg.train.step_report import NonFiniteLoss
from vidvec_msg.train.text_tower import TowerEmbedder, encode

PAIRS = [
    Pair("A small red ball rolls towards a wall.", "Keep trying.", ("Give up.",)),
    Pair("The slow turtle passes the fast hare.", "Keep trying."),
    Pair("Two friends share their bread.", "Sharing is caring.", ("Keep it.", "Give up.")),
]
SMALL = LoraOptions(r=4, alpha=8, dropout=0.0)


def module(tiny: Path, **options: Any) -> TextContrastive:
    torch.manual_seed(0)
    return TextContrastive(**{"model": str(tiny), "lora": SMALL, **options})


def batch_of(made: TextContrastive, passages: int = 2) -> PairBatch:
    return Collate(made.tokenise, passages)(list(enumerate(PAIRS)))


def trainer(tmp_path: Path, **options: Any) -> Trainer:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    return Trainer(**{**quiet, "enable_checkpointing": False, "default_root_dir": tmp_path, **options})


def test_every_distinct_text_goes_through_the_model_once(tiny: Path) -> None:
    made = module(tiny)
    rows: list[int] = []
    made.tower.get_base_model().register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    encoded = made.encode_batch(batch_of(made))
    assert sum(rows) == 3 + 2 + 2  # storylines, messages, negatives; "Keep trying." and "Give up." once each
    assert encoded.anchors.shape == (3, 64)
    assert encoded.negatives.shape == (3, 2, 64)
    torch.testing.assert_close(encoded.anchors.norm(dim=-1), torch.ones(3))
    assert torch.equal(encoded.positives[0], encoded.positives[1])


def test_vectors_do_not_depend_on_the_passages(tiny: Path) -> None:
    made = module(tiny)
    one, three = (made.encode_batch(batch_of(made, passages)) for passages in (1, 3))
    torch.testing.assert_close(one.anchors, three.anchors)
    torch.testing.assert_close(one.negatives, three.negatives)


@pytest.mark.parametrize(
    ("option", "value"), [("prompt", "plain"), ("layer", 1), ("max_tokens", 22), ("dtype", "bfloat16")]
)
def test_options_change_the_vectors_and_stand_in_the_card(tiny: Path, option: str, value: Any) -> None:
    plain, other = module(tiny), module(tiny, **{option: value})
    before, after = (made.encode_batch(batch_of(made)).anchors for made in (plain, other))
    assert after.dtype == torch.float32
    assert not torch.allclose(before, after, atol=1e-4)
    assert plain.card("x").fingerprint != other.card("x").fingerprint


def test_the_card_holds_what_evaluation_needs(tiny: Path) -> None:
    frames = FramePolicy(fps=2, max_frames=8)
    card = module(tiny, frames=frames, transcript="before").card("name")
    assert (card.name, card.dim, card.pooling, card.layer) == ("name", 64, "last", -1)
    assert (card.frames, card.transcript) == (frames, "before")
    assert card.prompt is not None
    assert card.prompt.video == "{video}\nSummarize above video in one word: "


def test_it_trains_from_the_start_in_training_mode_with_dropout(tiny: Path) -> None:
    made = module(tiny, lora=LoraOptions(r=4, dropout=0.5))
    with torch.no_grad():  # a fresh B is 0 and hides dropout
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    batch = batch_of(made)
    assert made.tower.training
    assert not torch.allclose(made.encode_batch(batch).anchors, made.encode_batch(batch).anchors)


def gradients(made: TextContrastive) -> dict[str, torch.Tensor]:
    loss, _, _ = made.contrast(batch_of(made))
    loss.backward()
    return {name: p.grad for name, p in made.named_parameters() if p.grad is not None}


def test_gradient_checkpointing_recomputes_and_gives_the_same_gradients(tiny: Path) -> None:
    plain, checkpointed = module(tiny), module(tiny, gradient_checkpointing=True)
    calls: list[int] = []
    checkpointed.tower.get_base_model().layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    expected, found = gradients(plain), gradients(checkpointed)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)
    assert len(calls) == 2 * 2  # two passages, forward and again in the backward pass


@pytest.mark.parametrize("passages", [1, 2, 6])
def test_grad_cache_gives_the_same_gradients_with_dropout_on(tiny: Path, passages: int) -> None:
    """Each passage runs twice; its dropout must repeat itself, and the sum over passages be whole."""
    found = []
    for cached in (False, True):
        made = module(tiny, lora=LoraOptions(r=4, dropout=0.3), grad_cache=cached)
        with torch.no_grad():  # a fresh B is 0 and hides dropout
            for name, parameter in made.named_parameters():
                if "lora_B" in name:
                    parameter.normal_()
        calls: list[int] = []
        made.tower.get_base_model().layers[0].mlp.register_forward_pre_hook(lambda *_, c=calls: c.append(1))
        torch.manual_seed(1)
        loss, _, _ = made.contrast(batch_of(made, passages))
        loss.backward()
        found.append({name: p.grad for name, p in made.named_parameters() if p.grad is not None})
        assert len(calls) == passages * (2 if cached else 1)
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert gradient.any()
        torch.testing.assert_close(found[1][name], gradient)


def test_grad_cache_gives_the_same_gradients_for_any_cut(tiny: Path) -> None:
    made = [module(tiny), module(tiny, grad_cache=True)]
    whole, cut = (batch_of(each, passages) for each, passages in zip(made, (1, 5), strict=True))
    for each, batch in zip(made, (whole, cut), strict=True):
        each.contrast(batch)[0].backward()
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad)


def test_a_learned_temperature_trains_is_logged_and_stands_in_the_checkpoint(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    trained = fit(
        tiny,
        pairs_file,
        tmp_path,
        loss=InfoNCE(0.05, learn_temperature=True),
        optimizer=OptimizerOptions(lr=1e-2),
    )
    name = "loss.temperature.logarithm"
    assert name in trained.trained_names()
    assert "train/temperature" in trained.trainer.callback_metrics
    assert float(trained.loss.temperature()) != pytest.approx(0.05, rel=1e-3)
    trained.trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert name in torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]
    save_embedder(tmp_path / "embedder", model=trained.tower, card=trained.card("x"))  # of the tower alone


def test_scores_are_float32_under_mixed_precision(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = module(tiny)
    batch = batch_of(made)
    own = made.encode_batch(batch)
    monkeypatch.setattr(made, "encode_batch", lambda batch: own)
    expected, _, _ = made.contrast(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, _, _ = made.contrast(batch)
    assert found.dtype == torch.float32
    assert found.item() == expected.item()  # cosines of bfloat16 differ in the third digit


def test_a_guide_sees_the_batchs_texts(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Guide:
        def encode(self, items: list[Item], *, role: str) -> np.ndarray:
            return np.eye(len(items), 16, dtype=np.float32)  # the n-th text of the batch is the n-th axis

    monkeypatch.setattr("vidvec_msg.train.module.load_embedder", lambda spec: Guide())
    made = module(tiny, loss=GuidedInfoNCE("anything"))
    batch = batch_of(made)
    encoded = made.encode_batch(batch)
    assert encoded.guide is not None
    assert encoded.guide.anchors.argmax(1).tolist() == [batch.texts.index(pair.anchor) for pair in PAIRS]
    assert encoded.guide.positives.argmax(1).tolist() == [batch.texts.index(pair.positive) for pair in PAIRS]
    made.contrast(batch)[0].backward()


def test_a_guide_is_opened_on_its_ranks_device_and_computes_in_its_own_dtype(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Guide:
        def __init__(self, spec: str) -> None:
            opened.append(spec)

        def encode(self, items: list[Item], *, role: str) -> np.ndarray:
            assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == torch.float32
            return np.eye(len(items), 16, dtype=np.float32)

    monkeypatch.setattr("vidvec_msg.train.module.load_embedder", Guide)
    made = module(tiny, loss=GuidedInfoNCE("anything"))
    assert opened == []  # the trainer has not chosen the GPU yet
    made.setup("fit")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.encode_batch(batch_of(made))
    assert opened == ["anything"]


def test_an_earlier_layer_trains_the_blocks_up_to_it_and_runs_no_others(tiny: Path) -> None:
    made = module(tiny, layer=1)
    assert len(made.tower.get_base_model().layers) == 1
    assert gradients(made).keys() == made.trained_names()  # none is idle, as DDP demands
    whole = module(tiny)
    batch = batch_of(made)
    expected = [encode(whole.tower, passage, layer=1) for passage in batch.passages]
    found = [encode(made.tower, passage, layer=1) for passage in batch.passages]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layer", [0, 4, -2])
def test_a_layer_at_which_nothing_can_train_is_refused(tiny: Path, layer: int) -> None:
    with pytest.raises(RefusedRequest, match=f"model.layer is {layer}; accepted: -1 .* or 1 to 3"):
        module(tiny, layer=layer)


def test_only_the_adapter_has_gradients(tiny: Path) -> None:
    made = module(tiny)
    assert gradients(made).keys() == made.trained_names()
    assert all("lora_" in name for name in made.trained_names())


def fit(tiny: Path, pairs_file: Path, tmp_path: Path, **options: Any) -> TextContrastive:
    steps = options.pop("max_steps", 3)
    made = module(tiny, **options)
    trainer(tmp_path, max_steps=steps).fit(made, datamodule=PairsData(str(pairs_file), batch_size=4))
    return made


def test_training_lowers_the_loss(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    before = module(tiny)
    after = fit(
        tiny,
        pairs_file,
        tmp_path,
        max_steps=30,
        optimizer=OptimizerOptions(lr=1e-2),
        loss=InfoNCE(temperature=0.1),
    )
    data = PairsData(str(pairs_file), batch_size=24)
    data.read()
    batch = Collate(before.tokenise)(list(enumerate(data.training)))
    losses = [made.eval().contrast(batch)[1].rows.mean().item() for made in (before, after)]
    assert losses[1] < 0.8 * losses[0]


def test_a_fit_tells_what_trains_and_how_many_negatives_an_anchor_has(
    tiny: Path, pairs_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="vidvec_msg")
    made = module(tiny)
    trainer(tmp_path, max_steps=2, accumulate_grad_batches=2).fit(
        made, datamodule=PairsData(str(pairs_file), batch_size=4, per_group=1)
    )
    assert "12,288 of 156,160 parameters train" in caplog.text
    assert "3.0 negatives per anchor on 1 rank(s); accumulating 2 batches adds none" in caplog.text
    assert "24 pairs train in 6 steps an epoch (24 pairs seen), 0 validate" in caplog.text
    assert {
        "train/loss",
        "train/accuracy",
        "train/false_negatives",
        "lr",
        "pairs_per_second",
        "tokens_per_second",
    } <= set(made.trainer.callback_metrics)


def test_vectors_that_are_all_alike_are_warned_about(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    made = module(tiny)
    weight = made.tower.get_base_model().norm.weight
    with torch.no_grad():  # one direction is all that is left: a read-out that sees no content
        weight.zero_()
        weight[0] = 1.0
        made.tower.get_base_model().embed_tokens.weight[:, 0] = 50.0
    with pytest.warns(CollapsedSpaceWarning, match=r"'in training': the mean pairwise cosine of 8 different"):
        trainer(tmp_path, max_steps=1).fit(made, datamodule=PairsData(str(pairs_file), batch_size=4))


def test_a_prompt_that_leaves_no_room_is_refused_before_the_weights_are_loaded(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vidvec_msg.train.module.load_language_model", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(RefusedRequest, match=r"model\.max_tokens is 5, and the prompt around the content"):
        module(tiny, max_tokens=5)


def test_a_loss_that_is_not_a_number_stops_and_names_the_batch(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    made = module(tiny)
    with torch.no_grad():
        next(p for name, p in made.named_parameters() if "lora_A" in name).fill_(torch.nan)
    with pytest.raises(
        NonFiniteLoss, match=r"the loss is nan at step 0, batch 0 \(pairs pair-\d+, .*\)\. Lower model"
    ):
        trainer(tmp_path, max_steps=1).fit(made, datamodule=PairsData(str(pairs_file), batch_size=4))


def test_texts_that_lose_their_end_are_counted_and_told_once(
    tiny: Path, pairs_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = module(tiny, max_tokens=30)  # all of them take more
    trainer(tmp_path, max_steps=2).fit(made, datamodule=PairsData(str(pairs_file), batch_size=4))
    assert made.trainer.callback_metrics["train/cut_texts"] == 8
    told = [record.message for record in caplog.records if "lose their end" in record.message]
    pairs = [json.loads(line) for line in pairs_file.read_text().splitlines()]
    tokens = replace(made.tokenise, max_tokens=1000)
    longest = max(len(tokens(pair[role]).ids) for pair in pairs for role in ("anchor", "positive"))
    assert told == [
        "batch 0: 8 of 8 distinct texts are longer than model.max_tokens 30 and lose their end; the prompt "
        "stays whole, and train/cut_texts counts them. The longest text of all needs --model.max_tokens "
        f"{longest}"
    ]


def test_validation_pairs_are_measured(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    made = module(tiny)
    data = PairsData(str(pairs_file), batch_size=4, validation_fraction=0.25)
    found = trainer(tmp_path).validate(made, datamodule=data, verbose=False)[0]
    assert {"val/loss", "val/accuracy", "val/negatives_per_anchor", "val/false_negatives"} <= found.keys()


def test_checkpoints_hold_the_adapter_alone_and_load_again(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    trained = fit(tiny, pairs_file, tmp_path)
    path = tmp_path / "a.ckpt"
    trained.trainer.save_checkpoint(path)
    checkpoint = torch.load(path, weights_only=True)  # nothing in it needs unpickling
    assert checkpoint["state_dict"].keys() == trained.trained_names()
    fresh = module(tiny)
    trainer(tmp_path).validate(
        fresh,
        datamodule=PairsData(str(pairs_file), batch_size=4),
        ckpt_path=path,
        verbose=False,
        weights_only=True,
    )
    for name, parameter in fresh.named_parameters():
        assert torch.equal(parameter, trained.get_parameter(name))


def test_a_checkpoint_of_another_adapter_is_refused(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    fit(tiny, pairs_file, tmp_path).trainer.save_checkpoint(path)
    other = module(tiny, lora=LoraOptions(r=2))
    with pytest.raises(
        RefusedRequest, match=r"the checkpoint is of another adapter: 42 weights differ, .*config.yaml"
    ):
        trainer(tmp_path).validate(
            other, datamodule=PairsData(str(pairs_file), batch_size=4), ckpt_path=path, weights_only=True
        )


# ---- the embedder over the tower

TEXTS = [
    Item("a", text="A small red ball."),
    Item("b", text="Keep trying, " * 20),
    Item("c", title="T", text="x"),
]


def test_a_texts_vector_is_the_same_in_any_batch_and_in_the_saved_embedder(
    tiny: Path, pairs_file: Path, tmp_path: Path
) -> None:
    made = fit(tiny, pairs_file, tmp_path, optimizer=OptimizerOptions(lr=1e-2))
    card = made.card("x")
    together = TowerEmbedder(made.tower, made.tokenise, card).encode(TEXTS, role="query")
    alone = [
        TowerEmbedder(made.tower, made.tokenise, card, batch_size=1).encode([t], role="query") for t in TEXTS
    ]
    np.testing.assert_allclose(np.concatenate(alone), together, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    assert made.tower.training  # as it was
    save_embedder(tmp_path / "embedder", model=made.tower, card=card)
    np.testing.assert_allclose(
        load_saved(tmp_path / "embedder").encode(TEXTS, role="query"), together, atol=1e-5
    )


def test_no_items_give_no_rows_and_an_item_without_text_is_named(tiny: Path) -> None:
    made = module(tiny)
    embedder = TowerEmbedder(made.tower, made.tokenise, made.card("x"))
    assert embedder.encode([], role="query").shape == (0, 64)
    with pytest.raises(ItemError, match="item 'e': no text in it"):
        embedder.encode([Item("a", text="x"), Item("e", text=" ")], role="query")


def test_a_zero_vector_is_never_handed_out(tiny: Path) -> None:
    made = module(tiny)
    with torch.no_grad():
        made.tower.get_base_model().norm.weight.zero_()
    with pytest.raises(ItemError, match="item 'a': the model gave a zero vector"):
        TowerEmbedder(made.tower, made.tokenise, made.card("x")).encode([Item("a", text="x")], role="query")
