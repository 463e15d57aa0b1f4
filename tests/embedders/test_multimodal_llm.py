"""The embedder on tiny real models: the same vector in any batch, bad items named, every option felt."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine, noise
from media.clips import grey_frames

from vidvec_msg.embedders.backbone import choose_dtype
from vidvec_msg.embedders.check import CollapsedSpaceWarning, check_vectors
from vidvec_msg.embedders.contract import Embedder, EmbedderCard
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item

SEEING = ("videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm")


@pytest.mark.parametrize("family", SEEING)
def test_same_vector_in_any_batch(llm, mixed, family):
    embedder = llm(family, transcript="before")
    together = embedder.encode(mixed, role="document")
    check_vectors(together, mixed, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(together, alone) > 0.99999
    for options in ({"batch_size": 3}, {"padding": "left"}):
        other = llm(family, transcript="before", **options).encode(mixed, role="document")
        assert least_cosine(together, other) > 0.99999
    backwards = embedder.encode(mixed[::-1], role="document")[::-1]
    assert least_cosine(together, backwards) > 0.99999


def test_same_vector_in_any_batch_for_a_text_model(llm, texts):
    together = llm("text").encode(texts, role="query")
    assert (
        least_cosine(together, np.concatenate([llm("text").encode([item], role="query") for item in texts]))
        > 0.99999
    )
    assert least_cosine(together, llm("text", padding="left").encode(texts, role="query")) > 0.99999


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("layer", [-1, 2])
def test_same_vector_for_every_read_out(llm, mixed, pooling, layer):
    one = llm(pooling=pooling, layer=layer).encode(mixed, role="query")
    other = llm(pooling=pooling, layer=layer, padding="left", batch_size=2).encode(mixed, role="query")
    assert least_cosine(one, other) > 0.99999


def test_same_vector_in_bfloat16(llm, mixed):
    embedder = llm(dtype="bfloat16")
    assert embedder.card.dtype == "bfloat16"
    together = embedder.encode(mixed, role="document")
    assert together.dtype == np.float32
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(together, alone) > 0.9995


def test_different_items_get_different_vectors(llm, mixed):
    vectors = llm().encode(mixed, role="document")
    cosines = vectors @ vectors.T - np.eye(len(mixed))
    assert cosines.max() < 0.999


@pytest.mark.parametrize("family", SEEING)
def test_a_file_and_its_frames_in_memory_are_one_clip(llm, clip_file, family):
    import av

    with av.open(str(clip_file)) as container:
        pixels = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    one, other = llm(family).encode(
        [Item("file", video=clip_file), Item("memory", video=pixels, fps=10)], role="document"
    )
    assert float(one @ other) > 0.9999


def test_a_worker_process_gives_the_same_vector(llm, clip_file):
    item = Item("file", video=clip_file)
    here, there = (llm(decode_timeout=limit).encode([item], role="document") for limit in (0, 60))
    np.testing.assert_array_equal(here, there)


def test_clips_are_decoded_side_by_side_and_worded_in_one_thread(llm, clip_file, monkeypatch):
    """A fast tokenizer that several threads call raises "Already borrowed" now and then."""
    embedder, worded_in = llm(), []
    ids = embedder.chat._ids

    def recorded(prompt):
        worded_in.append(threading.current_thread())
        return ids(prompt)

    monkeypatch.setattr(embedder.chat, "_ids", recorded)
    embedder.encode([Item(str(n), video=clip_file, start=n / 4) for n in range(4)], role="document")
    assert len(worded_in) == 4
    assert set(worded_in) == {threading.main_thread()}


def test_segments_are_clips_of_their_own(llm, clip_file):
    pixels = np.stack(grey_frames(20))
    parts = [Item("a", video=pixels, fps=10, start=0, end=1), Item("b", video=pixels, fps=10, start=1, end=2)]
    first, second, alone = llm().encode([*parts, Item("c", video=pixels[:10], fps=10)], role="document")
    assert float(first @ alone) > 0.9999
    assert float(first @ second) < 0.9999
    from_file = llm().encode([Item("a", video=clip_file, start=0, end=1)], role="document")[0]
    assert float(from_file @ first) > 0.99  # the file went through a codec


@pytest.mark.parametrize("frames", range(1, 8))
def test_very_short_clips(llm, frames):
    item = Item("short", video=noise(frames, 32, 32), fps=25)
    for family in ("videollama3", "qwen3_vl"):
        check_vectors(llm(family).encode([item], role="document"), [item], llm(family).card)


def test_nothing_gives_an_empty_matrix(llm):
    vectors = llm().encode([], role="query")
    assert (vectors.shape, vectors.dtype) == ((0, 64), np.float32)


def test_no_vocabulary_logits(llm, texts, monkeypatch):
    embedder = llm()

    def refuses(*_, **__):
        raise AssertionError("the vocabulary head ran")

    monkeypatch.setattr(embedder.backbone.full.lm_head, "forward", refuses)
    embedder.encode(texts, role="query")


def test_order_of_items_is_kept(llm, texts):
    vectors = llm().encode(texts, role="query")
    order = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(
        llm().encode([texts[row] for row in order], role="query"), vectors[order], atol=1e-6
    )


def test_title_counts_as_text(llm):
    together, apart = llm().encode(
        [Item("a", title="A dog", text="barks"), Item("b", text="A dog barks")], role="query"
    )
    np.testing.assert_allclose(together, apart, atol=1e-6)


# --- bad items ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", SEEING[:3])
def test_a_picture_that_the_processor_does_not_take_is_that_items_failure(llm, mixed, family):
    """It alone, not the batch that it came in; and what was computed of the others is kept."""
    strip = np.zeros((2, 900, 3), np.uint8)
    bad = [Item("strip", image=strip), Item("long clip", video=np.stack([strip] * 4))]
    items = [mixed[0], bad[0], *mixed[1:], bad[1]]
    embedder = llm(family)
    with pytest.raises(ItemError) as caught:
        embedder.encode(items, role="document")
    assert [failure.item for failure in caught.value.failures] == ["strip", "long clip"]
    for failure in caught.value.failures:
        assert failure.reason.startswith("the model's processor does not take it: absolute aspect ratio must")
    vectors = embedder.encode(mixed, role="document")
    assert least_cosine(vectors, llm(family).encode(mixed, role="document")) > 0.99999


def test_what_the_processor_says_of_a_batch_alone_ends_the_call(llm, mixed, monkeypatch):
    embedder = llm()
    real = embedder.chat.batch

    def fails(turns):
        if len(turns) > 1:
            raise ValueError("not together")
        return real(turns)

    monkeypatch.setattr(embedder.chat, "batch", fails)
    with pytest.raises(ValueError, match="not together"):
        embedder.encode(mixed, role="document")


def test_all_bad_items_are_named_and_the_good_ones_are_not_done_twice(llm, clip_file, tmp_path, monkeypatch):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "image.png").write_bytes(b"no image")
    items = [
        Item("good", text="a dog"),
        Item("empty", text="  "),
        Item("nothing"),
        Item("not a video", video=tmp_path / "text.mp4"),
        Item("missing", video=tmp_path / "missing.mp4"),
        Item("late", video=clip_file, start=9),
        Item("floats", video=np.zeros((2, 8, 8, 3), np.float32)),
        Item("channels first", video=np.zeros((2, 3, 8, 8), np.uint8)),
        Item("not an image", image=tmp_path / "image.png"),
        Item("sound", audio=tmp_path / "a.wav"),
        Item("good clip", video=clip_file),
    ]
    embedder = llm()
    with pytest.raises(ItemError) as caught:
        embedder.encode(items, role="document")
    reasons = {failure.item: failure.reason for failure in caught.value.failures}
    assert list(reasons) == [item.id for item in items if not item.id.startswith("good")]
    assert reasons["empty"] == reasons["nothing"] == "empty text"
    assert "not a video" in reasons["not a video"]
    assert "no such file" in reasons["missing"]
    assert "begins after the clip's end at 2.00 s" in reasons["late"]
    assert "must be uint8" in reasons["floats"]
    assert "channels come last" in reasons["channels first"]
    assert "not an image" in reasons["not an image"]
    assert reasons["sound"] == "this embedder reads text, image, video; the item is audio"
    good = [item for item in items if item.id.startswith("good")]
    with monkeypatch.context() as patched:
        patched.setattr(embedder._forward, "_run", lambda *_: pytest.fail("the model ran again"))
        patched.setattr(embedder._reader.clips, "_decoded", lambda *_: pytest.fail("decoded again"))
        kept = embedder.encode(good, role="document")
    np.testing.assert_array_equal(kept, llm().encode(good, role="document"))
    assert not len(embedder._kept)


def test_what_is_kept_for_one_role_or_object_is_not_taken_for_another(llm, texts, monkeypatch):
    embedder, ran = llm("text"), []
    run = embedder._forward._run
    monkeypatch.setattr(embedder._forward, "_run", lambda *given: ran.append(len(given[0])) or run(*given))
    for role, again in (("query", texts[:1]), ("document", [Item("text0", text="bread")])):
        with pytest.raises(ItemError, match="item 'empty': empty text"):
            embedder.encode([texts[0], Item("empty", text="")], role="document")
        ran.clear()
        vectors = embedder.encode(again, role=role)
        assert ran == [1]
        np.testing.assert_array_equal(vectors, embedder.encode(again, role=role))


def test_a_text_model_refuses_clips(llm, clip_file):
    with pytest.raises(ItemError, match="this embedder reads text; the item is video"):
        llm("text").encode([Item("a", video=clip_file)], role="document")
    assert llm("text").card.modalities == ("text",)
    assert llm("text").card.frames is None


def test_a_vector_that_is_not_finite_is_named(tiny, texts):
    embedder = MultimodalLLM(tiny())
    ids = {
        item.id: set(embedder.chat.text_ids(embedder.card.prompt, item.text, max_tokens=99)) for item in texts
    }
    row = sorted(ids["text3"] - ids["text0"])[0]
    with torch.no_grad():
        embedder.backbone.tower.embed_tokens.weight[row] = float("nan")
    with pytest.raises(ItemError, match="item 'text3': the model gave a vector that is not finite") as caught:
        embedder.encode(texts, role="query")
    assert "text0" not in {failure.item for failure in caught.value.failures}


def test_unused_columns_do_not_matter(llm):
    bare, full = llm().encode(
        [
            Item("a", text="a dog"),
            Item("b", text="a dog", title=None, transcript="x", ocr="y", groups={"k": "v"}),
        ],
        role="query",
    )
    np.testing.assert_allclose(bare, full, atol=1e-6)


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"prompt": "plain"},
        {"layer": 1},
        {"pooling": "mean"},
        {"fps": 1.0},
        {"max_frames": 2},
        {"max_pixels": 300},
        {"transcript": "before"},
        {"transcript": "after"},
        {"max_tokens": 40},
    ],
    ids=str,
)
def test_each_option_changes_a_vector_and_the_fingerprint(llm, mixed, option):
    base, changed = llm(), llm(**option)
    moved = np.abs(changed.encode(mixed, role="document") - base.encode(mixed, role="document")).max()
    assert moved > 1e-3
    assert changed.card.fingerprint != base.card.fingerprint


@pytest.mark.parametrize(
    "option", [{"batch_size": 2}, {"batch_tokens": 9}, {"batch_frames": 4}, {"name": "other"}], ids=str
)
def test_how_it_runs_is_not_in_the_fingerprint(llm, option):
    assert llm(**option).card.fingerprint == llm().card.fingerprint


def test_batches_keep_their_limits(llm, mixed):
    embedder = llm(batch_size=2, batch_frames=5)
    turns = embedder._reader.turns(mixed)
    batches = list(embedder._forward.limits.batches(turns, embedder.chat.go_together))
    assert sorted(row for batch in batches for row in batch) == list(range(len(mixed)))
    for batch in batches:
        frames = [0 if turns[row].frames is None else len(turns[row].frames.pixels) for row in batch]
        assert len(batch) <= 2
        assert sum(frames) <= 5 or len(batch) == 1
        assert len({turns[row].kind for row in batch}) == 1
    alike = [Item(str(number), text="word " * number) for number in range(1, 9)]
    sizes = [[turn.size for turn in batch] for batch in _turn_batches(embedder, alike)]
    assert sizes == [sorted(batch, reverse=True) for batch in sizes]
    assert sizes == sorted(sizes, reverse=True)  # longest first


def _turn_batches(embedder, items):
    turns = embedder._reader.turns(items)
    batches = embedder._forward.limits.batches(turns, embedder.chat.go_together)
    return [[turns[row] for row in batch] for batch in batches]


def test_out_of_memory_goes_on_with_halves(llm, texts, monkeypatch):
    embedder = llm(batch_size=4)
    whole = embedder.encode(texts, role="query")
    run, seen = embedder._forward._run, []

    def small_gpu(turns, count):
        seen.append(len(turns))
        if len(turns) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(turns, count)

    monkeypatch.setattr(embedder._forward, "_run", small_gpu)
    assert least_cosine(whole, embedder.encode(texts, role="query")) > 0.99999
    assert max(seen) == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"transcript": "behind"}, "transcript must be before, after or none, got 'behind'"),
        ({"dtype": "float8"}, "dtype must be auto, float32, bfloat16, float16, got 'float8'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_frames": 0}, "batch_frames must be at least 1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"batch_tokens": -1}, "batch_tokens must be at least 1, or 0 for the device's own, got -1"),
        ({"fps": -1}, "frames per second must be above 0"),
        ({"layer": 4}, "got 4"),
        ({"pooling": "max"}, "pooling must be one of last, mean"),
        ({"prompt": "vidvek"}, "unknown prompt preset 'vidvek'"),
        ({"device": "gpu"}, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        ({"padding": "top"}, "padding must be 'right' or 'left'"),
    ],
    ids=str,
)
def test_values_are_checked(tiny, options, reason):
    with pytest.raises(ValueError, match=reason):
        MultimodalLLM(tiny(), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(tiny):
    with pytest.raises(ValueError, match="device is 'cuda' and torch sees no GPU"):
        MultimodalLLM(tiny(), device="cuda")


def test_role_is_checked(llm, texts):
    with pytest.raises(ValueError, match="role must be one of query, document, got 'passage'"):
        llm().encode(texts, role="passage")


# --- the card -----------------------------------------------------------------------------------------------


def test_the_card_is_full_and_survives_json(llm, tiny):
    import json

    card = llm().card
    assert isinstance(llm(), Embedder)
    assert card.modalities == ("text", "image", "video")
    assert card.base_model == tiny()
    assert len(card.weights) == 64
    assert (card.dim, card.layer, card.pooling, card.padding, card.dtype) == (
        64,
        -1,
        "last",
        "right",
        "float32",
    )
    assert card.max_tokens == 1024
    assert {"torch", "transformers", "peft"} <= set(card.versions)
    back = EmbedderCard.from_dict(json.loads(json.dumps(card.to_dict())))
    assert back == card
    assert back.fingerprint == card.fingerprint


def test_other_weights_have_another_fingerprint(llm, tiny):
    assert (
        MultimodalLLM(tiny("videollama3", seed=1), fps=2.0, max_frames=8).card.fingerprint
        != llm().card.fingerprint
    )


# --- collapse -----------------------------------------------------------------------------------------------


def collapsed(tiny):
    embedder = MultimodalLLM(tiny("text"))
    with torch.no_grad():
        embedder.backbone.tower.norm.weight.zero_()
        embedder.backbone.tower.norm.weight[0] = 1.0
        embedder.backbone.tower.embed_tokens.weight[:, 0] = 50.0
    return embedder


def test_a_collapsed_space_warns_once(tiny):
    embedder = collapsed(tiny)
    items = [Item(str(number), text="word " * (number + 1)) for number in range(8)]
    with pytest.warns(CollapsedSpaceWarning, match=r"mean pairwise cosine of 8 different items is 1.000"):
        embedder.encode(items, role="query")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embedder.encode(items, role="query")


def test_few_or_equal_items_say_nothing(tiny):
    embedder = collapsed(tiny)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embedder.encode([Item(str(number), text="word " * (number + 1)) for number in range(7)], role="query")
        embedder.encode([Item(str(number), text="the same") for number in range(20)], role="query")


# --- models that are none
# -------------------------------------------------------------------------------------


def test_parts_that_would_stay_random_are_refused(tiny, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(tiny(), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    gone = next(
        name for name in weights if name.endswith("layers.1.self_attn.q_proj.weight") and "vision" not in name
    )
    del weights[gone]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RefusedRequest, match=r"1 parameters are missing from the checkpoint .*q_proj"):
        MultimodalLLM(str(folder))


def test_pickled_weights_are_not_opened(tiny, tmp_path):
    import shutil

    folder = Path(shutil.copytree(tiny(), tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RefusedRequest, match="cannot load the model"):
        MultimodalLLM(str(folder))


# --- speed changes nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*SEEING, "text"])
def test_batches_by_tokens_give_the_vectors_of_texts_alone(llm, family):
    items = [Item(str(n), text="the slow turtle " * (1 + 7 * n % 13)) for n in range(12)]
    alone = np.concatenate([llm(family).encode([item], role="query") for item in items])
    for options in ({"batch_tokens": 100}, {"batch_tokens": 1000}, {"batch_size": 5}, {"padding": "left"}):
        assert least_cosine(alone, llm(family, **options).encode(items, role="query")) > 0.9999


def test_a_batch_of_texts_holds_its_tokens_padding_counted(llm):
    embedder = llm("text", batch_tokens=100)
    items = [Item(str(n), text="turtle " * (1 + n % 40)) for n in range(60)]
    batches = _turn_batches(embedder, items)
    for batch in batches:
        assert max(turn.tokens for turn in batch) * len(batch) <= 100 or len(batch) == 1
    assert sum(len(batch) for batch in batches) == len(items)
    assert any(len(batch) > 3 for batch in batches)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_ids_at_hand_are_what_the_tokenizer_makes(llm, texts, padding):
    chat = llm("text", padding=padding).chat
    turns = llm("text", padding=padding)._reader.turns(texts)
    expected = chat.tokenizer(
        [turn.prompt for turn in turns], padding=True, padding_side=padding, return_tensors="pt"
    )
    made = chat.batch(turns)
    for name in ("input_ids", "attention_mask"):
        torch.testing.assert_close(made[name], expected[name], rtol=0, atol=0)


def test_a_text_is_tokenised_once(llm, texts, monkeypatch):
    embedder = llm("text")
    embedder.encode(texts, role="query")
    calls = []
    tokenizer = type(embedder.chat.tokenizer)
    run = tokenizer.__call__
    monkeypatch.setattr(
        tokenizer, "__call__", lambda *given, **named: calls.append(1) or run(*given, **named)
    )
    embedder.encode(texts, role="query")
    assert len(calls) == len(texts)


def test_the_mask_is_left_out_where_nothing_looks_at_padding(llm, texts, monkeypatch):
    seen = []
    for family in ("text", "qwen3_vl"):
        for padding in ("right", "left"):
            embedder = llm(family, padding=padding)
            run = embedder.backbone.base.forward
            monkeypatch.setattr(
                embedder.backbone.base,
                "forward",
                lambda *_, run=run, **named: seen.append(named) or run(**named),
            )
            assert embedder._forward._needs_mask() is (padding == "left")
            seen.clear()
            embedder.encode(texts, role="query")
            assert all(("attention_mask" in named) == (padding == "left") for named in seen)


def test_blocks_behind_the_layer_do_not_run(llm, texts, monkeypatch):
    embedder, ran = llm(layer=1), []
    for number, block in enumerate(embedder.backbone.tower.layers):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    embedder.encode(texts, role="query")
    assert set(ran) == {0}
    assert embedder.backbone.blocks == 3  # for whoever saves the model


@pytest.mark.filterwarnings("ignore::vidvec_msg.embedders.check.CollapsedSpaceWarning")  # twelve alike
def test_many_clips_stream_through_few_at_a_time(llm, clip_file, monkeypatch):
    """Windows of two batches: the model runs while most clips are not decoded yet."""
    embedder = llm(batch_frames=8)
    items = [Item(str(n), video=clip_file, start=n / 20) for n in range(12)]
    whole = llm().encode(items, role="document")
    events = []
    decode, run = embedder._reader.clips.clip_of, embedder._forward._run
    monkeypatch.setattr(
        type(embedder._reader.clips), "clip_of", lambda _, item: events.append("d") or decode(item)
    )
    monkeypatch.setattr(embedder._forward, "_run", lambda *given: events.append("m") or run(*given))
    assert least_cosine(whole, embedder.encode(items, role="document")) > 0.9999
    waiting = [events[:place].count("d") for place, event in enumerate(events) if event == "m"]
    assert waiting[0] < len(items) / 2


def test_a_text_model_decodes_nothing_ahead(llm, clip_file, monkeypatch):
    embedder = llm("text", decode_timeout=60)
    monkeypatch.setattr(embedder._reader.clips.pool, "read", lambda *_, **__: pytest.fail("decoded"))
    embedder.prepare([Item("clip", video=clip_file)])
    assert not embedder._reader.clips._begun


def test_threads_that_share_an_embedder_take_turns(llm, texts, monkeypatch):
    """A layer is read with the blocks behind it taken out: two at once left the model without them."""
    embedder, running, most = llm(layer=2, batch_size=1), [], []
    plain, run = embedder.encode(texts, role="query"), embedder._forward._run

    def slowly(turns, count):
        running.append(turns)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(turns)
        return run(turns, count)

    monkeypatch.setattr(embedder._forward, "_run", slowly)
    with ThreadPoolExecutor(2) as threads:
        for vectors in threads.map(lambda _: embedder.encode(texts, role="query"), range(2)):
            np.testing.assert_array_equal(vectors, plain)
    assert len(most) == 2 * len(texts)
    assert max(most) == 1
    assert embedder.backbone.blocks == 3


def test_prepared_items_get_the_same_bytes(llm, clip_file, texts):
    items = [*(Item(str(n), video=clip_file, start=n / 10) for n in range(8)), *texts]
    embedder = llm(decode_timeout=60)
    plain = embedder.encode(items, role="document")
    for _ in range(2):
        embedder.prepare(items)
    np.testing.assert_array_equal(embedder.encode(items, role="document"), plain)
    np.testing.assert_array_equal(plain, llm().encode(items, role="document"))
    assert not embedder._reader.clips._begun


# --- dtype --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amx", "avx512", "chosen"),
    [(False, False, torch.float32), (True, False, torch.bfloat16), (False, True, torch.bfloat16)],
)
def test_auto_is_bfloat16_where_the_cpu_is_fast_in_it(monkeypatch, amx, avx512, chosen):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    assert choose_dtype("auto", torch.device("cpu")) == chosen
    assert choose_dtype("float16", torch.device("cpu")) == torch.float16


@pytest.mark.parametrize(
    ("capability", "chosen"), [(7, torch.float32), (8, torch.bfloat16), (9, torch.bfloat16)]
)
def test_auto_is_bfloat16_on_a_gpu_since_ampere(monkeypatch, capability, chosen):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (capability, 0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert choose_dtype("auto", torch.device("cuda")) == chosen


def test_a_torch_without_these_questions_computes_in_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported", raising=False)
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported", raising=False)
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32


def test_an_encoder_without_a_decoder_embeds_texts(tmp_path, texts):
    """BERT and its kin look at padding: the mask stays."""
    from tiny_models import build_tokenizer
    from transformers import BertConfig, BertModel

    tokenizer = build_tokenizer({}, "", eos="</s>", pad="<pad>")
    tokenizer.chat_template = None
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="max_tokens is 1024, and this model has positions for 512 tokens"):
        MultimodalLLM(str(tmp_path))
    for options in ({}, {"layer": 1}):
        embedder = MultimodalLLM(str(tmp_path), prompt="plain", pooling="mean", max_tokens=400, **options)
        assert embedder._forward._needs_mask()
        assert embedder.card.modalities == ("text",)
        together = embedder.encode(texts, role="query")
        alone = np.concatenate([embedder.encode([item], role="query") for item in texts])
        assert least_cosine(together, alone) > 0.9999


@pytest.mark.parametrize("family", ["videollama3", "text"])
def test_batches_side_by_side_give_the_vectors_of_one_after_the_other(tiny, two_threads, family):
    embedder = MultimodalLLM(tiny(family), batch_tokens=64, device="cpu")
    items = [Item(f"i{n}", text="a small red ball rolls " * (1 + n % 7)) for n in range(40)]
    together = embedder.encode(items, role="query")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    np.testing.assert_allclose(embedder.encode(items, role="query"), together, atol=1e-6)


def test_an_error_in_a_batch_at_the_side_leaves_the_threads_as_they_were(tiny, two_threads, monkeypatch):
    embedder = MultimodalLLM(tiny("text"), batch_tokens=64, device="cpu")
    items = [Item(f"i{n}", text="a small red ball rolls " * 5) for n in range(9)]
    embedder.encode(items, role="query")
    monkeypatch.setattr(embedder.backbone.base, "forward", lambda **inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embedder.encode(items, role="query")
    assert torch.get_num_threads() == 2
