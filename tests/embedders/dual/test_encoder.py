"""``clip:`` on tiny real models of every route: the same vector in any batch, meanP, every option felt."""

import logging
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import TEXTS, least_cosine, noise
from media.clips import grey_frames, write_clip
from tiny_dual_encoders import PATCH, SIDE, build_tiny_dual_encoder, build_tiny_open_clip

from vidvec_msg import load_embedder
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Inspects, Prepares
from vidvec_msg.embedders.dual.encoder import DualEncoder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.retrieval.evaluate import read_report

ROUTES = ("clip", "siglip", "siglip2", "open_clip", "open_clip_timm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a route's tiny model."""

    @lru_cache
    def build(route: str, seed: int = 0) -> str:
        path = tmp_path_factory.mktemp(route)
        if route.startswith("open_clip"):
            return str(build_tiny_open_clip(path, timm=route.endswith("timm"), seed=seed))
        return str(build_tiny_dual_encoder(path, route, seed=seed))

    return build


@pytest.fixture(scope="module")
def clip(folder):
    """A tiny embedder of a route. One object per set of options."""

    @lru_cache
    def make(route: str, **options) -> DualEncoder:
        settings = {"fps": 4.0, "dtype": "float32", "decode_timeout": 0, **options}
        return DualEncoder(folder(route), **settings)

    return lambda route="clip", **options: make(route, **options)


# --- the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", [*ROUTES, "metaclip_2", "chinese_clip"])
def test_same_vector_in_any_batch(clip, mixed, route):
    embedder = clip(route)
    together = embedder.encode(mixed, role="document")
    check_vectors(together, mixed, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(together, alone) > 0.99999
    small = clip(route, batch_size=2, batch_frames=3).encode(mixed, role="document")
    assert least_cosine(together, small) > 0.99999
    backwards = embedder.encode(mixed[::-1], role="document")[::-1]
    assert least_cosine(together, backwards) > 0.99999
    assert np.abs(np.corrcoef(together) - np.eye(len(mixed))).max() < 0.9999  # and they differ


@pytest.mark.parametrize("route", ["clip", "open_clip"])
def test_bfloat16(clip, mixed, route):
    embedder = clip(route, dtype="bfloat16")
    assert embedder.card.dtype == "bfloat16"
    vectors = embedder.encode(mixed, role="document")
    check_vectors(vectors, mixed, embedder.card)
    assert least_cosine(vectors, clip(route).encode(mixed, role="document")) > 0.995
    assert embedder.card.fingerprint != clip(route).card.fingerprint


def test_the_card(clip, folder):
    embedder = clip()
    card = embedder.card
    assert isinstance(embedder, Embedder)
    assert isinstance(embedder, Inspects)
    assert isinstance(embedder, Prepares)
    assert (card.dim, card.modalities, card.max_tokens) == (24, ("text", "image", "video"), 20)
    assert (card.pooling, card.frames) == ("mean of frames of norm 1", FramePolicy(fps=4.0, max_frames=12))
    assert (card.base_model, len(card.weights), dict(card.role_prompts)) == (folder("clip"), 64, {})


def test_defaults_are_clip4clips(folder):
    card = DualEncoder(folder("clip")).card
    assert card.frames == FramePolicy(fps=1.0, max_frames=12)


def test_nothing_gives_an_empty_matrix(clip):
    vectors = clip().encode([], role="query")
    assert (vectors.shape, vectors.dtype) == ((0, 24), np.float32)


def test_role_is_checked(clip, texts):
    with pytest.raises(ValueError, match="role must be one of query, document, got 'passage'"):
        clip().encode(texts, role="passage")
    with pytest.raises(ValueError, match="role must be one of query, document, got 'passage'"):
        clip().inspect(texts, role="passage")


# --- clips --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("frames", [1, 3, 12])
def test_a_clip_is_the_mean_of_its_frames_unit_vectors(clip, route, frames):
    """meanP worked out from the vectors of the frames as images; fewer than the 12 asked for are all used."""
    pixels = noise(frames, 40, 52, seed=frames)
    embedder = clip(route)
    images = [Item(str(row), image=frame) for row, frame in enumerate(pixels)]
    mean = embedder.encode(images, role="document").mean(axis=0)
    (vector,) = embedder.encode([Item("clip", video=pixels)], role="document")
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize("route", ROUTES)
def test_the_towers_own_features(clip, folder, route):
    """The same vectors as the library gives when it is called as its documentation says."""
    frame, text = noise(40, 52), "slow turtle"
    items = [Item("image", image=frame), Item("text", text=text)]
    image_vector, text_vector = clip(route).encode(items, role="query")
    expected_image, expected_text = _by_the_library(route, folder(route), frame, text)
    np.testing.assert_allclose(image_vector, expected_image, atol=1e-5)
    np.testing.assert_allclose(text_vector, expected_text, atol=1e-5)


@torch.inference_mode()
def _by_the_library(route, folder, frame, text):
    from PIL import Image
    from transformers import AutoModel, AutoProcessor

    picture = Image.fromarray(frame)
    if route.startswith("open_clip"):
        import open_clip

        model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
        words = open_clip.get_tokenizer(f"local-dir:{folder}")([text])
        found = model.eval().encode_image(preprocess(picture)[None]), model.encode_text(words)
    else:
        model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
        ids = processor.tokenizer([text], padding="max_length", return_tensors="pt").input_ids
        seen = processor.image_processor(images=[picture], return_tensors="pt")
        found = model.get_image_features(**seen).pooler_output, model.get_text_features(ids).pooler_output
    return [torch.nn.functional.normalize(features[0], dim=0).numpy() for features in found]


def test_an_image_is_a_clip_of_one_frame(clip):
    frame = noise(40, 52)
    image, video = clip().encode([Item("image", image=frame), Item("clip", video=frame[None])], role="query")
    np.testing.assert_allclose(image, video, atol=1e-6)


def test_a_file_is_its_frames_in_memory(clip, tmp_path):
    frames = grey_frames(20)
    path = write_clip(tmp_path / "clip.mp4", frames)
    from_file, in_memory = clip().encode(
        [Item("file", video=path), Item("memory", video=np.stack(frames), fps=10)], role="document"
    )
    assert from_file @ in_memory > 0.999  # H.264 loses a little


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("size", [(64, 20), (20, 64), (3, 40), (40, 3)], ids=str)
def test_any_shape(clip, route, size):
    item = Item("clip", video=noise(2, *size))
    check_vectors(clip(route).encode([item], role="document"), [item], clip(route).card)


def test_frames_of_several_clips_run_together_within_the_limit(clip, monkeypatch):
    embedder = clip(batch_frames=5, fps="uniform")
    seen, run = [], embedder.towers.tower.frames

    def counting(frames):
        seen.append(len(frames))
        return run(frames)

    monkeypatch.setattr(embedder.towers.tower, "frames", counting)
    items = [Item(str(count), video=noise(count, 16, 16)) for count in (2, 3, 1, 12)]
    embedder.encode(items, role="document")
    assert seen == [5, 1, 5, 5, 2]  # 2 + 3; 1; a clip of 12 alone


def test_out_of_memory_goes_on_with_halves(clip, mixed, monkeypatch):
    embedder = clip(batch_size=8)
    whole = embedder.encode(mixed, role="document")
    for name in ("frames", "texts"):
        run = getattr(embedder.towers.tower if name == "frames" else embedder.towers, name)

        def small_gpu(batch, run=run):
            if len(batch) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return run(batch)

        holder = embedder.towers.tower if name == "frames" else embedder.towers
        monkeypatch.setattr(holder, name, small_gpu)
    assert least_cosine(whole, embedder.encode(mixed, role="document")) > 0.99999


def test_clips_are_decoded_ahead(clip, clip_file):
    embedder = clip(decode_timeout=60.0)
    items = [Item(str(row), video=clip_file, start=row / 10) for row in range(3)]
    embedder.prepare(items)
    ahead = embedder.encode(items, role="document")
    assert least_cosine(ahead, clip().encode(items, role="document")) > 0.99999


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "option"),
    [
        ("clip", {"fps": 1.0}),
        ("clip", {"fps": "uniform", "max_frames": 3}),
        ("clip", {"max_frames": 2}),
        ("clip", {"max_pixels": 300}),
        ("clip", {"frame_pooling": "mean_raw"}),
        ("clip", {"document_prompt": "a video of {text}"}),
        ("siglip2", {"max_patches": 9}),
        ("open_clip", {"max_frames": 2}),
    ],
    ids=str,
)
def test_each_option_changes_a_vector_and_the_fingerprint(clip, mixed, route, option):
    base, changed = clip(route), clip(route, **option)
    moved = np.abs(changed.encode(mixed, role="document") - base.encode(mixed, role="document")).max()
    assert moved > 1e-3
    assert changed.card.fingerprint != base.card.fingerprint


@pytest.mark.parametrize("option", [{"batch_size": 2}, {"batch_frames": 4}, {"name": "other"}], ids=str)
def test_how_it_runs_is_not_in_the_fingerprint(clip, option):
    assert clip(**option).card.fingerprint == clip().card.fingerprint


@pytest.mark.parametrize("route", ["clip", "open_clip"])
def test_other_weights_have_another_fingerprint(clip, folder, route):
    other = DualEncoder(folder(route, seed=1), fps=4.0, dtype="float32")
    assert other.card.fingerprint != clip(route).card.fingerprint


def test_prompts_go_around_texts_of_their_role(clip):
    asked = clip(query_prompt="a photo of {text}", document_prompt="{text}, on video")
    assert dict(asked.card.role_prompts) == {"query": "a photo of {text}", "document": "{text}, on video"}
    text, image = Item("t", text="bread"), Item("i", image=noise(32, 32))
    for role, worded in (("query", "a photo of bread"), ("document", "bread, on video")):
        (vector,) = asked.encode([text], role=role)
        (expected,) = clip().encode([Item("t", text=worded)], role=role)
        np.testing.assert_allclose(vector, expected, atol=1e-6)
        np.testing.assert_allclose(
            asked.encode([image], role=role), clip().encode([image], role=role), atol=1e-6
        )


def test_one_prompt_for_both_roles_is_no_difference_between_roles(clip):
    both = clip(query_prompt="a video of {text}", document_prompt="a video of {text}").card
    assert (dict(both.role_prompts), both.prompt.text) == ({}, "a video of {text}")
    assert both.fingerprint != clip().card.fingerprint


def test_uniform_takes_the_same_number_from_every_clip(clip):
    embedder = clip(fps="uniform", max_frames=8)
    items = [Item(str(seconds), video=noise(seconds * 30, 8, 8), fps=30) for seconds in (1, 9)]
    items.append(Item("short", video=noise(3, 8, 8), fps=30))
    found = embedder.inspect(items, role="document")
    assert [one.frames_used for one in found] == [8, 8, 3]
    assert [one.frames_asked for one in found] == [8, 8, 8]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "float8"}, "dtype must be auto, float32, bfloat16, float16, got 'float8'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_frames": 0}, "batch_frames must be at least 1, got 0"),
        ({"frame_pooling": "max"}, "frame_pooling must be mean or mean_raw, got 'max'"),
        ({"fps": -1}, "frames per second must be above 0"),
        ({"fps": "fast"}, "fps must be a number of frames per second, or uniform, got 'fast'"),
        ({"max_patches": -1}, "max_patches must be 0"),
        (
            {"max_patches": 64},
            "max_patches is for models that take images of any shape .* CLIPModel takes one",
        ),
        ({"query_prompt": "a video"}, r"query_prompt is 'a video'; it must hold \{text\} exactly once"),
        (
            {"document_prompt": "word " * 30 + "{text}"},
            "document_prompt takes .* leaves no room for the text",
        ),
        ({"device": "gpu"}, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
    ids=str,
)
def test_values_are_checked(folder, options, reason):
    with pytest.raises(ValueError, match=reason):
        DualEncoder(folder("clip"), **options)


def test_options_that_do_nothing_for_open_clip_are_refused(folder):
    for options in ({"max_patches": 4}, {"trust_remote_code": True}):
        with pytest.raises(ValueError, match="do nothing for open_clip models: leave them out"):
            DualEncoder(folder("open_clip"), **options)


def test_as_a_spec(folder, clip, texts):
    embedder = load_embedder(f"clip:{folder('clip')}?fps=uniform&max_frames=8&dtype=float32&name=mine")
    assert (embedder.card.name, embedder.card.frames) == ("mine", FramePolicy.uniform(8))
    assert least_cosine(embedder.encode(texts, role="query"), clip().encode(texts, role="query")) > 0.99999
    with pytest.raises(
        RefusedRequest, match=r"unknown option 'frame_poling' \(did you mean 'frame_pooling'\?\)"
    ):
        load_embedder(f"clip:{folder('clip')}?frame_poling=mean")
    with pytest.raises(RefusedRequest, match="clip: is followed by a CLIP or SigLIP folder"):
        load_embedder("clip:")


@pytest.mark.parametrize(
    ("route", "form"),
    [("clip", "clip"), ("siglip2", "clip"), ("open_clip", "clip"), ("videoprism", "videoprism")],
)
def test_a_bare_folder_is_told_its_form(folder, route, form):
    path = folder(route)
    with pytest.raises(RefusedRequest, match=f"it is a model checkpoint; use {form}:{path}$"):
        load_embedder(path)


# --- words --------------------------------------------------------------------------------------------------


def test_long_texts_are_cut_counted_and_told_once(folder, caplog):
    embedder = DualEncoder(folder("clip"), name="tiny")
    short, long = "a a", "a " * 40  # a token each, and a mark at either end
    with caplog.at_level(logging.WARNING):
        embedder.encode([Item("a", text=short)], role="query")
        assert not caplog.records
        vectors = embedder.encode([Item("b", text=long), Item("c", text="a " * 18)], role="query")
        embedder.encode([Item("d", text=long)], role="query")
    assert [record.getMessage() for record in caplog.records] == [
        "tiny: texts longer than the model's 20 tokens are cut (22 tokens of 1 items so far)"
    ]
    assert (embedder.cut_items, embedder.cut_tokens) == (2, 44)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)  # what is left is 18 words


def test_content_is_cut_and_words_behind_it_are_not(clip):
    embedder = clip(query_prompt="see {text} on video.")
    (found,) = embedder.inspect([Item("a", text="a " * 40)], role="query")
    kept = found.wording.count("a")
    assert found.wording == f"see {' '.join(['a'] * kept)} on video."
    assert (found.text_tokens, found.cut_tokens) == (20, 40 - kept)  # "a" is one token
    with pytest.raises(ItemError, match="its first word alone does not fit into 20 tokens with the prompt"):
        embedder.encode([Item("a", text="x" * 300 + " y")], role="query")


def test_siglip_texts_are_lowered_and_see_their_padding(clip, folder):
    """Case does not matter; the mask over the padding that transformers would make is not used."""
    loud, quiet = clip("siglip").encode([Item("a", text="A Dog"), Item("b", text="a dog")], role="query")
    np.testing.assert_allclose(loud, quiet, atol=1e-6)
    tower = clip("siglip").towers.tower
    assert tower.processor.tokenizer("A Dog").input_ids != tower.processor.tokenizer("a dog").input_ids
    inputs = tower.processor.tokenizer(["a dog"], padding="max_length", return_tensors="pt")
    assert "attention_mask" in inputs  # the trap
    with torch.inference_mode():
        masked = torch.nn.functional.normalize(
            tower.model.get_text_features(**inputs).pooler_output[0], dim=0
        )
    assert float(torch.tensor(quiet) @ masked) < 0.999


def test_a_siglip_tokenizer_without_an_end_mark_is_told(folder, tmp_path, caplog):
    import json
    import shutil

    copy = Path(shutil.copytree(folder("siglip"), tmp_path / "model"))
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    DualEncoder(str(copy))
    assert "puts no end mark behind a text" in caplog.text


# --- what the model is given ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "patches"), [("clip", 16), ("siglip", 16), ("open_clip", 16), ("open_clip_timm", 100)]
)
def test_inspect(clip, clip_file, route, patches):
    assert patches == 100 or patches == (SIDE // PATCH) ** 2
    items = [Item("t", text="A dog"), Item("i", image=noise(40, 60)), Item("v", video=clip_file)]
    text, image, video = clip(route).inspect(items, role="query")
    assert (text.item, text.wording.lower(), text.visual_tokens) == ("t", "a dog", 0)
    assert text.text_tokens > 2
    assert (image.frames_used, image.visual_tokens, image.size) == (1, patches, (40, 60))
    assert (video.frames_asked, video.frames_used, video.visual_tokens) == (8, 8, 8 * patches)
    assert (video.size, video.reader) == ((48, 64), "decord")


def test_naflex_counts_the_patches_of_the_frames_shape(clip):
    wide, few = (
        clip("siglip2", **options).inspect([Item("i", image=noise(20, 60))], role="query")[0].visual_tokens
        for options in ({}, {"max_patches": 9})
    )
    assert 9 < wide <= 24
    assert few <= 9


# --- bad items --------------------------------------------------------------------------------------------


def test_all_bad_items_are_named(clip, clip_file, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    items = [
        Item("good clip", video=clip_file),
        Item("empty", text="  "),
        Item("not a video", video=tmp_path / "text.mp4"),
        Item("floats", video=np.zeros((2, 8, 8, 3), np.float32)),
        Item("channels first", video=np.zeros((2, 3, 8, 8), np.uint8)),
        Item("no image", image=tmp_path / "text.mp4"),
        Item("sound", audio=tmp_path / "a.wav"),
        Item("good", text="a dog"),
        Item("another good clip", video=clip_file),
    ]
    for run in (clip().encode, clip().inspect):
        with pytest.raises(ItemError) as caught:
            run(items, role="document")
        reasons = {failure.item: failure.reason for failure in caught.value.failures}
        assert list(reasons) == [item.id for item in items if "good" not in item.id]
        assert reasons["empty"] == "empty text"
        assert "not a video" in reasons["not a video"]
        assert reasons["sound"] == "this embedder reads text, image, video; the item is audio"


def test_a_vector_that_is_not_finite_is_named(folder):
    embedder = DualEncoder(folder("clip"), dtype="float32")
    token = embedder.towers.tower.processor.tokenizer("bread").input_ids[1]
    with torch.no_grad():
        embedder.towers.tower.model.text_model.embeddings.token_embedding.weight[token] = float("nan")
    with pytest.raises(ItemError, match="item 'b': the model gave a vector that is not finite"):
        embedder.encode([Item("a", text="turtle"), Item("b", text="bread")], role="query")


# --- end to end -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluate_both_ways(folder, tmp_path, capsys):
    """Real clips through the command line; random weights, so only the mechanics are asserted."""
    from vidvec_msg.cli import main

    collection = _collection(tmp_path / "collection")
    out = tmp_path / "evaluation"
    spec = f"clip:{folder('clip')}?fps=uniform&max_frames=3&query_prompt=a video of {{text}}"
    status = main(
        [
            "evaluate",
            "--collection",
            str(collection),
            "--embedder",
            spec,
            "--out",
            str(out),
            "--pictures",
            "false",
        ]
    )
    assert status == 0, capsys.readouterr().err
    report = read_report(out)
    assert report["model"]["fingerprint"] == load_embedder(spec).card.fingerprint
    assert report["forward"]["queries"] == report["reverse"]["queries"] == 4
    assert report["failed"] == {"corpus": 0, "queries": 0}
    assert 0 < report["forward"]["metrics"]["map"]["value"] <= 1


def _collection(path: Path) -> Path:
    """Four clips of growing brightness, each the answer to one text."""
    import json

    (path / "qrels").mkdir(parents=True)
    clips, texts, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for row, text in enumerate(TEXTS[:4]):
        write_clip(path / f"{row}.mp4", grey_frames(20)[5 * row :][:5])
        clips.append(json.dumps({"_id": f"c{row}", "video": f"{row}.mp4"}))
        texts.append(json.dumps({"_id": f"q{row}", "text": text}))
        qrels.append(f"q{row}\tc{row}\t1")
    for name, lines in (("corpus.jsonl", clips), ("queries.jsonl", texts), ("qrels/test.tsv", qrels)):
        (path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
