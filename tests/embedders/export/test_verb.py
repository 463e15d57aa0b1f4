"""Exported folders: opened by the other library alone, same vectors; refused where that cannot be had."""

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine, noise
from embedders.test_saved import lora_on_tower
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from tiny_omni import build_tiny_omni

from vidvec_msg.cli import main
from vidvec_msg.embedders.export import sentence_transformers_folder
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.export.verb import export, export_embedder
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

TEXTS = [
    "a dog",
    "Keep trying.",
    "  spaces around \n",
    "naïve café — 東京の夜 🐢",
    "ends in a digit 7",
    "<|im_end|>\n<|im_start|>assistant\nNo.",
    "The slow turtle passes the fast hare that stopped to rest beside the road.",
]
UNCUT = {"text": {"truncation": False}}


def opened(folder) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def as_items(texts):
    return [Item(str(number), text=text) for number, text in enumerate(texts)]


@pytest.fixture(scope="module")
def adapted(tiny, llm, tmp_path_factory):
    """An embedder folder with an adapter."""
    out = tmp_path_factory.mktemp("adapted") / "embedder"
    card = dataclasses.replace(llm(dtype="float32").card, name="mine", weights="", versions={})
    save_embedder(out, model=lora_on_tower(tiny()), card=card)
    return out


@pytest.fixture(scope="module")
def exported(adapted, tmp_path_factory):
    """The adapted embedder for sentence-transformers: its folder, and it opened."""
    out = tmp_path_factory.mktemp("exported") / "st"
    export(str(adapted), out)
    return out, opened(out)


# --- sentence-transformers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
def test_text_vectors_are_the_embedders_in_any_batch(adapted, exported, side):
    model = exported[1]
    model.tokenizer.padding_side = side
    expected = load_embedder(adapted).encode(as_items(TEXTS), role="query")
    for encode in (model.encode, model.encode_query, model.encode_document):
        assert least_cosine(encode(TEXTS), expected) > 0.99999
    alone = np.concatenate([model.encode([text]) for text in TEXTS])
    assert least_cosine(alone, expected) > 0.99999


def test_the_adapter_is_in_the_weights(exported, llm):
    base = llm(dtype="float32").encode(as_items(TEXTS), role="query")
    assert least_cosine(exported[1].encode(TEXTS), base) < 0.99
    with safe_open(exported[0] / "model.safetensors", "pt") as weights:
        assert not [name for name in weights.keys() if "lora" in name or "base_layer" in name]  # noqa: SIM118


@pytest.mark.slow
def test_it_opens_without_this_package(exported):
    """In a process of its own, where importing vidvec_msg fails."""
    program = (
        "import sys; sys.modules['vidvec_msg'] = None\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(exported[0])!r}, device='cpu')\n"
        "print(*model.encode('a dog').tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = np.array([[float(word) for word in done.stdout.split()]])
    assert least_cosine(found, exported[1].encode(["a dog"])) > 0.999999


@pytest.mark.parametrize("family", ["videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm"])
def test_images_and_clips(tiny, family, tmp_path):
    """Frames that were chosen by our policy, never sampled again; a transcript in its place."""
    ours = MultimodalLLM(
        tiny(family), fps=2.0, max_frames=8, decode_timeout=0, dtype="float32", transcript="before"
    )
    items = [
        Item("image", image=noise(48, 40)),
        Item("one", video=noise(1, 48, 40, seed=3)),
        Item("three", video=noise(3, 48, 40), fps=2.0),
        Item("many", video=noise(40, 40, 48, seed=1), fps=10.0),
        Item("said", video=noise(4, 64, 32, seed=2), fps=2.0, transcript="somebody said this"),
    ]
    expected = ours.encode(items, role="document")
    export_embedder(ours, tmp_path / "st")
    model = opened(tmp_path / "st")
    for item, vector in zip(items, expected, strict=True):
        given = sentence_transformers_folder.as_input(item, ours)
        if item.transcript:
            given["text"] = item.transcript
        found = model.encode([given], processing_kwargs=UNCUT)
        assert least_cosine(found, vector[None]) > 0.99999, item.id
    batch = [sentence_transformers_folder.as_input(item, ours) for item in [items[2]] * 2]
    assert least_cosine(model.encode(batch, processing_kwargs=UNCUT), expected[[2, 2]]) > 0.99999


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "mean"},
        {"layer": 0, "pooling": "mean"},
        {"layer": 2},
        {"prompt": "qwen3vl-embedding"},
        {"prompt": "vlm2vec"},
        {"padding": "left"},
    ],
    ids=str,
)
def test_read_outs_and_prompts(tiny, options, tmp_path):
    ours = MultimodalLLM(tiny("qwen3_vl"), fps=2.0, decode_timeout=0, dtype="float32", **options)
    items = [*as_items(TEXTS), Item("clip", video=noise(4, 48, 40), fps=2.0)]
    expected = ours.encode(items, role="query")
    export_embedder(ours, tmp_path / "st")
    model = opened(tmp_path / "st")
    clip = sentence_transformers_folder.as_input(items[-1], ours)
    found = np.concatenate([model.encode(TEXTS), model.encode([clip], processing_kwargs=UNCUT)])
    assert least_cosine(found, expected) > 0.99999


@pytest.mark.parametrize("chat_template", [True, False])
def test_a_plain_language_model(tiny, chat_template, tmp_path):
    ours = MultimodalLLM(tiny("text", chat_template=chat_template), dtype="float32")
    expected = ours.encode(as_items(TEXTS), role="query")
    export_embedder(ours, tmp_path / "st")
    model = opened(tmp_path / "st")
    assert model.modalities == ["text", "message"]
    assert least_cosine(model.encode(TEXTS), expected) > 0.99999


def test_a_tokenizer_that_adds_tokens_of_its_own(tiny, tmp_path):
    """A bare tokenizer adds none to what a chat template gave, so the template holds them."""
    from tokenizers.processors import TemplateProcessing

    ours = MultimodalLLM(tiny("text"), dtype="float32")
    start = ours.chat.tokenizer.convert_tokens_to_ids("<|vision_start|>")
    end = ours.chat.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    ours.chat.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|vision_start|> $A <|endoftext|>",
        special_tokens=[("<|vision_start|>", start), ("<|endoftext|>", end)],
    )
    ids = ours.chat.text_ids(PROMPTS["vidvec"], "a dog", max_tokens=99)
    assert (ids[0], ids[-1]) == (start, end)
    expected = ours.encode(as_items(TEXTS), role="query")
    export_embedder(ours, tmp_path / "st")
    assert least_cosine(opened(tmp_path / "st").encode(TEXTS), expected) > 0.99999


def test_long_texts_lose_content_and_never_the_prompt(tiny, tmp_path):
    ours = MultimodalLLM(tiny(), dtype="float32", max_tokens=60, decode_timeout=0)
    words = "The slow turtle passes the fast hare that stopped to rest beside the road. "
    long = [words * 10, words * 3 + "bread", "9 8 7 " * 50, "naïve 東京 " * 30]
    expected = ours.encode(as_items(long), role="query")
    export_embedder(ours, tmp_path / "st")
    model = opened(tmp_path / "st")
    tail = ours.chat.tokenizer("\nSummarize above sentence in one word: <|im_end|>\n<|im_start|>assistant\n")
    features = model.preprocess([{"text": text} for text in long])
    for row, mask in zip(features["input_ids"], features["attention_mask"], strict=True):
        kept = row[mask.bool()].tolist()
        assert len(kept) == 60
        assert kept[-len(tail.input_ids) :] == tail.input_ids
    assert least_cosine(model.encode(long), expected) > 0.99


@pytest.mark.parametrize("family", ["qwen2_5_omni", "qwen3_omni"])
def test_a_model_that_hears(family, tmp_path, caplog, monkeypatch):
    """Texts, images and silent clips go out; what is heard does not, and it is said."""
    folder = str(build_tiny_omni(tmp_path / "omni", family))
    for sound in (False, True):
        ours = MultimodalLLM(folder, fps=2.0, sound=sound, dtype="float32", decode_timeout=0)
        clip = Item("clip", video=noise(4, 48, 40), fps=2.0)
        expected = ours.encode([*as_items(TEXTS), clip], role="query")
        out = tmp_path / f"sound {sound}"
        export_embedder(ours, out)
        told = "video and audio" if sound else "audio"
        assert f"the exported folder does not take {told}" in caplog.text
        model = opened(out)
        assert model.modalities == ["text", "image", *([] if sound else ["video"]), "message"]
        assert least_cosine(model.encode(TEXTS), expected[:-1]) > 0.99999
        page = (out / "README.md").read_text()
        assert ("no video, no audio" if sound else "takes no audio") in page
        if not sound:
            lines = {}
            monkeypatch.chdir(tmp_path)
            for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
                exec(block, lines)
            given = sentence_transformers_folder.as_input(clip, ours)
            settings = {"text": {"truncation": False}, "video": {"fps": 2.0}}
            assert least_cosine(model.encode([given], processing_kwargs=settings), expected[-1:]) > 0.99999


def test_what_it_refuses_rather_than_words_otherwise(exported):
    model = exported[1]
    with pytest.raises(Exception, match="empty text"):
        model.encode([" \n"])
    with pytest.raises(Exception, match="no system turn, prompt or answer is accepted"):
        model.encode(["a dog"], prompt="query: ")
    with pytest.raises(Exception, match="reads no words beside a medium"):
        model.encode([{"text": "said", "image": noise(48, 40)}])
    with pytest.raises(Exception, match="one medium an item"):
        model.encode([{"image": [noise(48, 40), noise(48, 40)]}])
    with pytest.raises(Exception, match="one user message with one text"):
        model.encode([[{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]])


# --- transformers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["videollama3", "qwen2_5_vl"])
def test_a_plain_model_folder(tiny, family, tmp_path, monkeypatch):
    """Opened by the spec, by the YAML and by the Python lines that its README.md gives."""
    monkeypatch.chdir(tmp_path)
    ours = MultimodalLLM(
        tiny(family), fps=2.0, max_frames=6, layer=2, pooling="mean", dtype="float32", decode_timeout=0
    )
    items = [*as_items(["a dog", *TEXTS]), Item("clip", video=noise(9, 48, 40), fps=4.0)]
    expected = ours.encode(items, role="query")
    export_embedder(ours, tmp_path / "plain", to="transformers")
    readme = (tmp_path / "plain" / "README.md").read_text()
    spec = re.search(r"--embedder '(mllm:.*)' ", readme)[1]
    assert spec == (
        f"mllm:plain?name={ours.card.name}&layer=2&pooling=mean&dtype=float32&fps=2.0&max_frames=6"
    )
    (tmp_path / "embedder.yaml").write_text(re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)[1])
    for way in (spec, "embedder.yaml"):
        found = load_embedder(way)
        assert least_cosine(found.encode(items, role="query"), expected) > 0.999999
        assert found.card.prompt == ours.card.prompt
        assert found.card.frames == ours.card.frames
    lines = {}
    exec(re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1], lines)
    assert least_cosine(lines["vector"].numpy()[None], expected[:1]) > 0.99999
    for other in ("st:plain", "plain"):  # either would leave prompt and read-out behind
        with pytest.raises(RefusedRequest, match=r"exported for transformers.*README\.md holds the spec"):
            load_embedder(other)


def test_the_prompt_is_not_worded_twice(exported):
    """Its chat template holds the prompt; ours around it would give other vectors."""
    with pytest.raises(RefusedRequest, match="holds the prompt already; use st:"):
        load_embedder(f"mllm:{exported[0]}")


def test_the_readme_for_sentence_transformers(exported, monkeypatch):
    monkeypatch.chdir(exported[0].parent)
    page = (exported[0] / "README.md").read_text()
    lines = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, lines)
    assert lines["vectors"].shape == (2, 64)
    assert lines["clips"].shape == (1, 64)
    assert "{text}\\nSummarize above sentence in one word: " in page
    assert "the normed final state at the last token" in page
    assert "cut at its end" in page


# --- the folder ---------------------------------------------------------------------------------------------


def test_manifest_and_leftovers(exported):
    folder = exported[0]
    manifest = json.loads((folder / "export.json").read_text())
    assert manifest["to"] == "sentence-transformers"
    assert manifest["merged_modules"] == 21
    assert set(manifest["least_cosine"]) == {"text", "image", "video"}
    assert min(manifest["least_cosine"].values()) > 0.9999
    assert manifest["card"]["name"] == "mine"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    modules = json.loads((folder / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert not list(folder.glob("*.py"))


def test_half_precision(adapted, tmp_path):
    export(str(adapted), tmp_path / "half", dtype="bfloat16")
    model = opened(tmp_path / "half")
    assert next(model.parameters()).dtype == torch.bfloat16
    expected = load_embedder(adapted, dtype="bfloat16").encode(as_items(TEXTS), role="query")
    assert least_cosine(model.encode(TEXTS), expected) > 0.99


def test_the_verb(adapted, tmp_path, capsys):
    words = ["export", "--embedder", str(adapted), "--out", str(tmp_path / "st"), "--to", "transformers"]
    assert main(words) == 0
    told = capsys.readouterr().err
    assert "21 adapted weights merged" in told
    assert "opens in transformers; least cosine with the embedder's own vectors: text 1.0" in told
    assert main(words) == 2
    assert "already holds files" in capsys.readouterr().err


def test_a_folder_with_other_vectors_is_not_kept(tiny, tmp_path, monkeypatch):
    ours = MultimodalLLM(tiny(), dtype="float32", decode_timeout=0)
    write = sentence_transformers_folder.write

    def spoilt(embedder, folder):
        write(embedder, folder)
        config = json.loads((folder / "1_Pooling" / "config.json").read_text())
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({**config, "pooling_mode": "mean"}))

    monkeypatch.setattr(sentence_transformers_folder, "write", spoilt)
    with pytest.raises(RefusedRequest, match=r"gives other vectors than the embedder: least cosine text 0\."):
        export_embedder(ours, tmp_path / "st")
    assert not list(tmp_path.iterdir())


# --- refused ------------------------------------------------------------------------------------------------


def test_the_raw_last_block(tiny, tmp_path):
    ours = MultimodalLLM(tiny(), layer=3, dtype="float32", decode_timeout=0)
    with pytest.raises(RefusedRequest, match=r"layer 3, the raw output of the last block.*--to transformers"):
        export_embedder(ours, tmp_path / "st")
    export_embedder(ours, tmp_path / "plain", to="transformers")
    assert "catch it with a forward\nhook" in (tmp_path / "plain" / "README.md").read_text()


def test_what_is_no_multimodal_llm(tmp_path):
    with pytest.raises(RefusedRequest, match="is a KeywordEmbedder; export writes embedders made of a multi"):
        export("fakes:KeywordEmbedder", tmp_path / "st")
    with pytest.raises(RefusedRequest, match="accepted are sentence-transformers, transformers"):
        export("tinyworld", tmp_path / "st", to="onnx")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(RefusedRequest, match=r"--out .* already holds files"):
        export("tinyworld", tmp_path)


def test_adapters_that_are_no_sums(tiny, tmp_path):
    ours = MultimodalLLM(tiny("text"), dtype="float32")

    class Replacing(torch.nn.Linear):
        modules_to_save = ("default",)

    ours.backbone.full.layers[0].mlp.up_proj = Replacing(4, 4)
    with pytest.raises(RefusedRequest, match=r"layers.0.mlp.up_proj is a Replacing, not an addition"):
        merge_adapters(ours.backbone.full)


def test_a_template_that_words_content_twice(tiny, tmp_path):
    ours = MultimodalLLM(tiny("text"), dtype="float32")
    ours.chat.tokenizer.chat_template = "{{ messages[0]['content'] }} {{ messages[0]['content'] }}"
    with pytest.raises(RefusedRequest, match="does not word an item exactly once"):
        export_embedder(ours, tmp_path / "st")


def test_a_template_that_depends_on_the_text(tiny, tmp_path):
    ours = MultimodalLLM(tiny("text"), dtype="float32")
    ours.chat.tokenizer.chat_template = "{{ messages[0]['content'] | upper }}".replace(
        "upper", "replace('dog', 'cat')"
    )
    with pytest.raises(RefusedRequest, match="cannot be exported exactly: the text 'a dog' has"):
        export_embedder(ours, tmp_path / "st")
