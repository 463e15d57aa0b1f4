"""Language models trained in full: back inside the full model, the same vectors, or refused."""

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine
from embedders.test_saved import vectors_of_tower

from vidvec_msg.embedders.language_model import keep_blocks, load_language_model
from vidvec_msg.embedders.saved import load_saved, read_card
from vidvec_msg.embedders.training_record import TrainingRecord, read_training
from vidvec_msg.embedders.whole import save_full
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

TEXTS = [Item(text, text=text) for text in ("a dog", "Keep trying.", "naïve café — 東京の夜 🐢")]


def trained(folder):
    """A tower all of whose weights moved."""
    tower = load_language_model(folder)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    return tower


@pytest.mark.parametrize("family", ["videollama3", "smolvlm", "gemma3", "text"])
def test_the_reopened_folder_gives_the_towers_vectors(tiny, llm, family, tmp_path):
    base, tower = llm(family, dtype="float32"), trained(tiny(family))
    before = vectors_of_tower(tower, base.chat, base.card, TEXTS)
    card = save_full(tmp_path / "e", tower=tower, card=base.card, expected=(TEXTS, before))
    opened = load_saved(tmp_path / "e")
    assert least_cosine(opened.encode(TEXTS, role="query"), before) > 0.999999
    assert least_cosine(base.encode(TEXTS, role="query"), before) < 0.99  # training moved something
    assert opened.card.fingerprint == card.fingerprint == read_card(tmp_path / "e").fingerprint
    assert opened.card.fingerprint != base.card.fingerprint
    assert opened.card.base_model == base.card.base_model
    assert opened.card.adapter is None
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_gathered_weights_and_the_record(tiny, llm, tmp_path):
    """ZeRO-3 hands over weights that the tower itself no longer holds."""
    tower = trained(tiny())
    state = {name: tensor.clone() for name, tensor in tower.state_dict().items()}
    expected = vectors_of_tower(tower, llm().chat, llm().card, TEXTS)
    for parameter in tower.parameters():
        parameter.data = torch.zeros(0)
    record = TrainingRecord(steps=7)
    save_full(tmp_path / "e", tower=tower, card=llm(dtype="float32").card, state_dict=state, training=record)
    assert least_cosine(load_saved(tmp_path / "e").encode(TEXTS, role="query"), expected) > 0.999999
    assert read_training(tmp_path / "e") == record


def test_blocks_that_were_cut_stay_the_base_models(tiny, llm, tmp_path):
    tower = trained(tiny())
    keep_blocks(tower, 2)
    ours = llm(dtype="float32", layer=2)
    save_full(tmp_path / "e", tower=tower, card=ours.card)
    opened = load_saved(tmp_path / "e")
    for number, moved in ((1, True), (2, False)):
        one, other = (one.backbone.tower.layers[number].mlp.up_proj.weight for one in (opened, ours))
        assert torch.equal(one, other) is not moved
    assert opened.card.layer == 2


def test_another_model_takes_its_place(tiny, llm, tmp_path):
    save_full(tmp_path / "e", tower=load_language_model(tiny()), card=llm(dtype="float32").card)
    first = load_saved(tmp_path / "e").encode(TEXTS, role="query")
    np.testing.assert_allclose(first, llm(dtype="float32").encode(TEXTS, role="query"), atol=1e-6)
    save_full(tmp_path / "e", tower=trained(tiny()), card=llm(dtype="float32").card)
    assert least_cosine(load_saved(tmp_path / "e").encode(TEXTS, role="query"), first) < 0.99


# --- refused ------------------------------------------------------------------------------------------------


def changed(state, **changes):
    return {**state, **{name.replace("__", "."): tensor for name, tensor in changes.items()}}


def test_weights_that_do_not_fit(tiny, llm, tmp_path):
    tower, card = trained(tiny()), llm(dtype="float32").card
    state = tower.state_dict()
    name = "layers.0.mlp.up_proj.weight"
    cases = [
        ({**state, name: torch.full_like(state[name], torch.nan)}, "up_proj.weight is not finite; the train"),
        (
            {**state, name: torch.zeros(0)},
            r"up_proj.weight is \(0,\), expected \(128, 64\); a run under ZeRO",
        ),
        (
            {key: value for key, value in state.items() if key != name},
            "1 missing, for example layers.0.mlp.up",
        ),
        ({**state, "head.weight": state[name]}, "1 strange, 0 missing, for example head.weight is not in it"),
    ]
    for given, message in cases:
        with pytest.raises(RefusedRequest, match=message):
            save_full(tmp_path / "e", tower=tower, card=card, state_dict=given)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "notes").write_text("mine")
    with pytest.raises(RefusedRequest, match="already holds files that are not an embedder"):
        save_full(tmp_path / "e", tower=tower, card=card)
    assert [path.name for path in tmp_path.rglob("*")] == ["e", "notes"]


def test_other_vectors_than_the_towers(tiny, llm, tmp_path):
    base = llm(dtype="float32")
    wrong = base.encode(TEXTS, role="query")  # of the model before training
    with pytest.raises(RefusedRequest, match="the written model gives other vectors than the embedder"):
        save_full(tmp_path / "e", tower=trained(tiny()), card=base.card, expected=(TEXTS, wrong))
    assert not list(tmp_path.iterdir())
