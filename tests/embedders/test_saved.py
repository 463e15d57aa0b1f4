"""Adapters: saved and reopened, equal before and after, refused when they would do nothing."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.pooling import last_token
from vidvec_msg.embedders.saved import load_saved, read_card, save_embedder
from vidvec_msg.errors import RefusedRequest

TARGETS = r".*layers\.\d+\.(self_attn\.(q|k|v|o)_proj|mlp\.(gate|up|down)_proj)"


def lora_on_tower(folder, *, trained=True):
    """LoRA on the bare language model, as the training makes it; random B stands for some steps."""
    tower = AutoModelForImageTextToText.from_pretrained(folder).get_decoder()
    model = get_peft_model(tower, LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS))
    if trained:
        generator = torch.Generator().manual_seed(0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.normal_(0.0, 0.1, generator=generator)
    return model.eval()


def vectors_of_tower(model, chat, card, items):
    rows = []
    for item in items:
        ids = torch.tensor([chat.text_ids(card.prompt, item.full_text, max_tokens=1024)])
        with torch.inference_mode():
            hidden = model(input_ids=ids).last_hidden_state
        rows.append(torch.nn.functional.normalize(last_token(hidden, torch.ones_like(ids)), dim=-1))
    return torch.cat(rows).numpy()


@pytest.fixture(scope="module")
def saved(tiny, llm, tmp_path_factory):
    """Folder, model and written card of one saved embedder."""
    model = lora_on_tower(tiny())
    out = tmp_path_factory.mktemp("saved") / "embedder"
    card = dataclasses.replace(llm().card, name="mine", weights="", versions={})
    return out, model, save_embedder(out, model=model, card=card)


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


@pytest.mark.parametrize("family", ["videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm"])
def test_an_adapter_of_the_tower_gives_the_same_vectors_on_the_full_model(tiny, llm, texts, tmp_path, family):
    base, model = llm(family), lora_on_tower(tiny(family))
    before = vectors_of_tower(model, base.chat, base.card, texts)
    save_embedder(tmp_path / "e", model=model, card=base.card)
    after = load_saved(tmp_path / "e").encode(texts, role="query")
    assert least_cosine(before, after) > 0.999999
    assert least_cosine(after, base.encode(texts, role="query")) < 0.99  # the adapter does something


def test_the_folder(saved):
    out, _, card = saved
    assert sorted(path.name for path in out.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "embedder.json",
    ]
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == card.base_model
    assert config["revision"] is None
    assert json.loads((out / "embedder.json").read_text())["fingerprint"] == card.fingerprint
    assert not list(out.parent.glob("*.partial"))
    assert not list(out.parent.glob(".*"))


def test_the_card_comes_back(saved, llm, caplog):
    out, _, written = saved
    embedder = load_saved(out)
    assert not caplog.records
    assert embedder.card.name == "mine"
    assert embedder.card.fingerprint == written.fingerprint == read_card(out).fingerprint
    assert embedder.card.fingerprint != llm().card.fingerprint
    assert embedder.card.frames == llm().card.frames
    assert embedder.card.adapter == str(out)


def test_a_moved_folder_keeps_its_fingerprint(saved, copy):
    assert load_saved(copy).card.fingerprint == saved[2].fingerprint


def test_a_base_model_in_a_relative_folder(saved, llm, tiny, tmp_path, monkeypatch):
    """The folder opens from other working folders; where the base model went, the way out is named."""
    base = shutil.copytree(tiny(), tmp_path / "models" / "base")
    monkeypatch.chdir(tmp_path)
    card = dataclasses.replace(llm().card, base_model="models/base")
    assert save_embedder(tmp_path / "e", model=saved[1], card=card).base_model == str(base)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert load_saved(tmp_path / "e").card.fingerprint == saved[2].fingerprint
    base.rename(tmp_path / "moved")
    with pytest.raises(RefusedRequest, match=r"its base model is not here\. (.|\n)*: \S+/e\?model=FOLDER"):
        load_saved(tmp_path / "e")
    assert load_saved(tmp_path / "e", model=tmp_path / "moved").card.fingerprint == saved[2].fingerprint


def test_clips_go_through_the_adapter_too(saved, llm, mixed):
    clips = [item for item in mixed if item.modality == "video"]
    assert (
        least_cosine(
            load_saved(saved[0]).encode(clips, role="document"), llm().encode(clips, role="document")
        )
        < 0.99
    )


def test_overrides(saved, texts):
    assert load_saved(saved[0], layer=2).card.layer == 2
    assert load_saved(saved[0], max_frames=3).card.frames.max_frames == 3


def test_another_base_model_is_reported(saved, tiny, caplog):
    load_saved(saved[0], model=tiny("videollama3", seed=1))
    assert "are not those it was trained on" in caplog.text


def test_saving_again_replaces(saved, tiny, llm, tmp_path, texts):
    out = tmp_path / "e"
    save_embedder(out, model=saved[1], card=llm().card)
    first = load_saved(out).encode(texts, role="query")
    other = lora_on_tower(tiny())
    for name, parameter in other.named_parameters():
        if "lora_B" in name:
            parameter.data.mul_(-1)
    save_embedder(out, model=other, card=llm().card)
    assert least_cosine(first, load_saved(out).encode(texts, role="query")) < 0.999


def test_gathered_weights(saved, llm, tmp_path, texts):
    """ZeRO-3 hands over weights that the model itself no longer holds."""
    state = {name: tensor.clone() for name, tensor in saved[1].state_dict().items() if "lora_" in name}
    save_embedder(tmp_path / "e", model=saved[1], card=llm().card, state_dict=state)
    one, other = (load_saved(folder).encode(texts, role="query") for folder in (saved[0], tmp_path / "e"))
    np.testing.assert_array_equal(one, other)


# --- refused at saving -------------------------------------------------------------------------------------


def test_an_untrained_adapter(tiny, llm, tmp_path):
    model = lora_on_tower(tiny(), trained=False)
    with pytest.raises(RefusedRequest, match="every lora_B is zero, so the adapter changes nothing"):
        save_embedder(tmp_path / "e", model=model, card=llm().card)
    assert not list(tmp_path.iterdir())  # nothing is left behind
    save_embedder(tmp_path / "e", model=model, card=llm().card, allow_untrained=True)
    assert (tmp_path / "e" / "embedder.json").exists()


def test_empty_shards(saved, llm, tmp_path):
    state = {name: torch.zeros(0) for name in saved[1].state_dict() if "lora_" in name}
    with pytest.raises(RefusedRequest, match=r"is empty, shape \(0,\); a run under ZeRO-3 has to gather"):
        save_embedder(tmp_path / "e", model=saved[1], card=llm().card, state_dict=state)


def test_missing_tensors(saved, llm, tmp_path):
    state = {
        name: tensor
        for name, tensor in saved[1].state_dict().items()
        if "lora_" in name and "layers.0" in name
    }
    with pytest.raises(RefusedRequest, match=r"is nothing in the file, expected \("):
        save_embedder(tmp_path / "e", model=saved[1], card=llm().card, state_dict=state)


def test_a_diverged_adapter(tiny, llm, tmp_path):
    model = lora_on_tower(tiny())
    next(parameter for name, parameter in model.named_parameters() if "lora_A" in name).data[0] = float("nan")
    with pytest.raises(RefusedRequest, match="is not finite; the training diverged"):
        save_embedder(tmp_path / "e", model=model, card=llm().card)


def test_foreign_folders(saved, llm, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RefusedRequest, match="already holds files that are not an embedder"):
        save_embedder(tmp_path, model=saved[1], card=llm().card)
    with pytest.raises(RefusedRequest, match="is a file"):
        save_embedder(tmp_path / "notes.txt", model=saved[1], card=llm().card)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_card_without_a_base_model(saved, tmp_path):
    with pytest.raises(RefusedRequest, match="the card names no base model"):
        save_embedder(tmp_path / "e", model=saved[1], card=EmbedderCard(name="x", dim=64))


# --- refused at loading
# ---------------------------------------------------------------------------------------


def rewrite(folder, change):
    path = folder / "adapter_model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def test_an_adapter_of_40_bytes(copy):
    rewrite(copy, lambda tensors: {})
    assert (copy / "adapter_model.safetensors").stat().st_size < 100
    with pytest.raises(RefusedRequest, match="holds no tensors; a run under ZeRO-3 has to gather"):
        load_saved(copy)
    (copy / "adapter_model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(RefusedRequest, match=r"\(40 bytes\) cannot be read"):
        load_saved(copy)


@pytest.mark.parametrize("prefix", ["model.", "visual.", "base_model.model."])
def test_a_wrong_prefix(copy, prefix):
    rewrite(
        copy,
        lambda tensors: {
            name.replace("base_model.model.", f"base_model.model.{prefix}"): tensor
            for name, tensor in tensors.items()
        },
    )
    with pytest.raises(
        RefusedRequest, match=r"adapted modules are not in the model, for example .*another prefix"
    ):
        load_saved(copy)


def test_another_shape(copy):
    def narrower(tensors):
        return {
            name: tensor[:, :32].contiguous() if "lora_A" in name else tensor
            for name, tensor in tensors.items()
        }

    rewrite(copy, narrower)
    with pytest.raises(
        RefusedRequest, match=r"adapter .* does not fit the model: .*size mismatch for .*q_proj"
    ):
        load_saved(copy)


def test_keys_beside_the_adapted_modules(copy):
    config = json.loads((copy / "adapter_config.json").read_text())
    config["target_modules"] = (
        r".*self_attn\.q_proj"  # the configuration names fewer modules than the file holds
    )
    (copy / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedRequest, match="did not arrive in the model"):
        load_saved(copy)


def test_an_adapter_of_another_tool_on_the_full_model(tiny, llm, copy, texts, saved):
    """Keys that name the full model's modules are put onto the full model."""
    inner = "base_model.model.model.language_model."
    rewrite(
        copy,
        lambda tensors: {
            name.replace("base_model.model.", inner): tensor for name, tensor in tensors.items()
        },
    )
    foreign = MultimodalLLM(tiny(), adapter=copy, fps=2.0, max_frames=8)
    np.testing.assert_allclose(
        foreign.encode(texts, role="query"), load_saved(saved[0]).encode(texts, role="query"), atol=1e-6
    )


def test_an_interrupted_folder(copy, tmp_path):
    (copy / "embedder.json").unlink()
    with pytest.raises(RefusedRequest, match=r"incomplete or was interrupted: embedder.json is missing"):
        load_saved(copy)
    with pytest.raises(RefusedRequest, match="does not exist"):
        load_saved(tmp_path / "nothing")


def test_a_card_of_another_kind(copy):
    (copy / "embedder.json").write_text('{"name": "x", "dim": 4, "colour": "blue"}')
    with pytest.raises(RefusedRequest, match=r"embedder.json: not an embedder card: .*colour"):
        load_saved(copy)
