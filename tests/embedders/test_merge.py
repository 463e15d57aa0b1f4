"""Merged adapters: the same vectors from a folder with whole weights; refused where nothing is to do."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine, noise
from embedders.test_saved import TARGETS
from peft import LoraConfig, get_peft_model
from tiny_omni import build_tiny_omni
from transformers import AutoModelForImageTextToText

from vidvec_msg.cli import main
from vidvec_msg.embedders import whole
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.merge import merge
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.saved import holds_weights, load_saved, read_card, save_embedder
from vidvec_msg.embedders.training_record import PairsRecord, TrainingRecord, read_training
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

KINDS = {
    "lora": {"r": 4, "lora_alpha": 8},
    "rslora": {"r": 4, "lora_alpha": 8, "use_rslora": True},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True},
}


def adapted(folder, **options):
    """An adapter on the bare language model, as if after some steps."""
    from vidvec_msg.embedders.language_model import load_language_model

    model = get_peft_model(load_language_model(folder), LoraConfig(target_modules=TARGETS, **options))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.1, generator=generator)
        if "lora_magnitude" in name:
            parameter.data.mul_(1.1)
    return model


@pytest.fixture(scope="module")
def saved(tiny, llm, tmp_path_factory):
    """``saved("qwen3_vl", "dora")``: the folder of an embedder with an adapter."""

    def make(family="videollama3", kind="lora", **record):
        out = tmp_path_factory.mktemp("saved") / "embedder"
        card = dataclasses.replace(llm(family, dtype="float32").card, name="mine", weights="", versions={})
        save_embedder(out, model=adapted(tiny(family), **KINDS[kind]), card=card, **record)
        return out

    return make


@pytest.fixture(scope="module")
def merged(saved, tmp_path_factory):
    """Folder with the adapter, folder without."""
    before = saved(training=TrainingRecord(pairs=PairsRecord(source="mine.jsonl", training=24), steps=3))
    after = tmp_path_factory.mktemp("merged") / "whole"
    merge(str(before), after)
    return before, after


ITEMS = [
    *(Item(text, text=text) for text in ("a dog", "Keep trying.", "naïve café — 東京の夜 🐢", "x " * 300)),
    Item("image", image=noise(48, 40)),
    Item("clip", video=noise(5, 48, 40), fps=2.0),
]


@pytest.mark.parametrize(
    ("family", "kind"),
    [("videollama3", "lora"), ("qwen3_vl", "rslora"), ("qwen2_5_vl", "dora")],
)
def test_the_same_vectors_of_texts_images_and_clips(saved, llm, family, kind, tmp_path):
    before = saved(family, kind)
    merge(str(before), tmp_path / "whole")
    expected = load_saved(before).encode(ITEMS, role="query")
    found = load_embedder(tmp_path / "whole").encode(ITEMS, role="query")
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert least_cosine(found, llm(family, dtype="float32").encode(ITEMS, role="query")) < 0.99


@pytest.mark.parametrize("family", ["qwen2_5_omni", "text"])
def test_a_thinker_and_a_plain_language_model(tiny, family, tmp_path):
    omni = family != "text"
    base = str(build_tiny_omni(tmp_path / "omni", family)) if omni else tiny("text")
    ours = MultimodalLLM(base, dtype="float32", fps=2.0, decode_timeout=0)
    save_embedder(tmp_path / "e", model=adapted(base, **KINDS["lora"]), card=ours.card)
    merge(str(tmp_path / "e"), tmp_path / "whole")
    items = ITEMS if omni else ITEMS[:4]
    expected = load_saved(tmp_path / "e").encode(items, role="query")
    found = load_saved(tmp_path / "whole")
    assert least_cosine(found.encode(items, role="query"), expected) > 0.99999
    assert found.card.modalities == ours.card.modalities


def test_the_folder_is_a_model_and_an_embedder(merged):
    before, after = merged
    assert holds_weights(after)
    assert not holds_weights(before)
    assert {"config.json", "model.safetensors", "tokenizer.json", "embedder.json", "README.md"} <= {
        path.name for path in after.iterdir()
    }
    assert not [path for path in after.iterdir() if "adapter" in path.name]
    assert [path.name for path in after.parent.iterdir()] == [after.name]  # nothing is left behind
    full, report = AutoModelForImageTextToText.from_pretrained(after, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert full.config.model_type == "video_llama_3"


def test_what_its_card_says(merged, tiny):
    old, new = (read_card(folder) for folder in merged)
    assert new.merged_from == old.fingerprint
    assert new.fingerprint != old.fingerprint  # other weights, to the last digit: other vectors, in it
    assert (new.base_model, new.name, new.prompt, new.frames) == (tiny(), "mine", old.prompt, old.frames)
    opened = load_saved(merged[1]).card
    assert opened == dataclasses.replace(new, versions=opened.versions)
    assert opened.fingerprint == json.loads((merged[1] / "embedder.json").read_text())["fingerprint"]


def test_where_it_was_merged_from_does_not_change_the_fingerprint(merged):
    card = read_card(merged[1])
    assert dataclasses.replace(card, merged_from="").fingerprint == card.fingerprint


def test_the_training_is_carried_on(merged):
    assert read_training(merged[1]) == read_training(merged[0])
    assert read_training(merged[1]).pairs.source == "mine.jsonl"


def test_it_needs_neither_the_base_model_nor_its_own_place(merged, tmp_path, monkeypatch):
    moved = shutil.copytree(merged[1], tmp_path / "moved")
    card = json.loads((moved / "embedder.json").read_text())
    (moved / "embedder.json").write_text(json.dumps({**card, "base_model": "/nowhere/at/all"}))
    monkeypatch.chdir(tmp_path)
    found = load_saved("moved").encode(ITEMS, role="query")
    np.testing.assert_array_equal(found, load_saved(merged[1]).encode(ITEMS, role="query"))


@pytest.mark.slow
def test_half_precision(merged, tmp_path, capsys):
    before = str(merged[0])
    words = ["merge", "--embedder", before, "--out", str(tmp_path / "half"), "--dtype", "bfloat16"]
    assert main(words) == 0
    told = capsys.readouterr().err
    assert re.search(r"made \S+half \([0-9a-f]{16}\), merged from [0-9a-f]{16}; least cosine with its", told)
    half = load_saved(tmp_path / "half")
    assert half.card.dtype == "bfloat16"
    expected = load_saved(before, dtype="bfloat16").encode(ITEMS, role="query")
    assert least_cosine(half.encode(ITEMS, role="query"), expected) > 0.99


# --- refused ------------------------------------------------------------------------------------------------


def test_nothing_to_merge(merged, tiny, tmp_path):
    for spec in (str(merged[1]), f"mllm:{tiny()}"):
        with pytest.raises(RefusedRequest, match="has no adapter in it: there is nothing to merge"):
            merge(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_kind_of_embedder(tmp_path):
    with pytest.raises(
        RefusedRequest, match="is a KeywordEmbedder; merge takes multimodal LLMs with an adap"
    ):
        merge("fakes:KeywordEmbedder", tmp_path / "out")


def test_an_output_folder_that_holds_something(merged, capsys):
    assert main(["merge", "--embedder", str(merged[0]), "--out", str(merged[1])]) == 2
    assert "already holds files; give another folder" in capsys.readouterr().err


def test_other_vectors_are_not_kept(saved, tmp_path, monkeypatch):
    """A merge that loses the adapter: right in every file, wrong in what it gives."""
    before, real = saved(), whole.transformers_folder.write

    def spoilt(embedder, folder):
        with torch.no_grad():
            embedder.backbone.tower.layers[0].mlp.up_proj.weight.mul_(0.5)
        real(embedder, folder)

    monkeypatch.setattr(whole.transformers_folder, "write", spoilt)
    with pytest.raises(RefusedRequest, match=r"the written model gives other vectors .*Nothing was kept"):
        merge(str(before), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_other_weights_are_not_kept(saved, tmp_path, monkeypatch):
    real = whole.transformers_folder.write

    def spoilt(embedder, folder):
        real(embedder, folder)
        with torch.no_grad():
            embedder.backbone.full.model.vision_model.encoder.layers[0].mlp.fc1.weight[0, 0] += 1.0

    monkeypatch.setattr(whole.transformers_folder, "write", spoilt)
    with pytest.raises(RefusedRequest, match=r"not the one in memory: model\.vision_model\S+ differs"):
        merge(str(saved()), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_opened_as_something_else(merged, tiny):
    for form in ("mllm", "st"):
        with pytest.raises(RefusedRequest, match=f"{form}: would leave that aside. Give the folder alone"):
            load_embedder(f"{form}:{merged[1]}")
    with pytest.raises(
        RefusedRequest, match="holds its whole weights; model would put others in their place"
    ):
        load_embedder(f"{merged[1]}?model={tiny('videollama3', seed=1)}")


def test_changed_weights_are_told(merged, tmp_path, caplog):
    copy = shutil.copytree(merged[1], tmp_path / "copy")
    load_saved(copy)
    assert not caplog.records
    path = copy / "tokenizer_config.json"
    path.write_text(path.read_text() + "\n")
    load_saved(copy)
    assert "the weights are not those that its card was written for" in caplog.text
