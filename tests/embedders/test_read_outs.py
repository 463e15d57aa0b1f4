"""Every layer from one pass is what an embedder of that layer gives; what nobody reads is not run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES

from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.pooling import FINAL, visual_mask
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.embedders.read_outs import ReadOut, every_read_out
from vidvec_msg.embedders.saved import save_reading
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.frames import FramePolicy

pytestmark = pytest.mark.filterwarnings("ignore::vidvec_msg.embedders.check.CollapsedSpaceWarning")

POOLINGS = ("last", "mean", "visual")


@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_gives_what_each_layers_embedder_gives(llm, mixed, texts, family):
    base = llm(family)
    read_outs = every_read_out(base.backbone.tower, POOLINGS if family != "text" else POOLINGS[:2])
    assert len(read_outs) == (3 if family != "text" else 2) * (1 + 4 + 3)  # final, raw 0 to 3, normed 0 to 2
    items = texts if family == "text" else mixed
    every = base.variant(read_outs=read_outs).encode(items, role="document")
    np.testing.assert_allclose(np.linalg.norm(every, axis=1), 1, atol=1e-5)
    parts = np.split(every, len(read_outs), axis=1)
    for one, part in list(zip(read_outs, parts, strict=True))[:: 1 if family == "qwen3_vl" else 5]:
        alone = base.variant(read_outs=[one]).encode(items, role="document")
        unit = part / np.linalg.norm(part, axis=1, keepdims=True)
        assert float((unit * alone).sum(1).min()) > 0.99999, one


@pytest.mark.usefixtures("two_threads")
def test_threads_side_by_side_do_not_mix_their_layers(llm, texts):
    torch.set_num_threads(1)
    embedder = llm("text", batch_size=1)
    every = embedder.variant(read_outs=every_read_out(embedder.backbone.tower, POOLINGS[:2]))
    alone = every.encode(texts, role="query")
    torch.set_num_threads(3)
    for _ in range(3):
        np.testing.assert_allclose(every.encode(texts, role="query"), alone, atol=1e-6)
    np.testing.assert_allclose(
        embedder.variant(read_outs=[ReadOut(2)]).encode(texts, role="query"),
        llm("text", layer=2).encode(texts, role="query"),
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("read_outs", "blocks"),
    [
        ([ReadOut(1)], {0}),
        ([ReadOut(0), ReadOut(2, "mean", True)], {0, 1}),
        ([ReadOut(1), ReadOut(FINAL)], {0, 1, 2}),
    ],
)
def test_blocks_that_nobody_reads_do_not_run(llm, texts, read_outs, blocks):
    embedder, ran = llm().variant(read_outs=read_outs), []
    hooks = [
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, block in enumerate(embedder.backbone.tower.layers)
    ]
    embedder.encode(texts, role="query")
    for hook in hooks:
        hook.remove()
    assert set(ran) == blocks
    assert embedder.backbone.blocks == 3


def test_the_visual_mask_is_of_visual_tokens_or_of_all_content():
    ids = torch.tensor([[5, 9, 9, 6, 0], [5, 6, 7, 0, 0], [8, 9, 0, 0, 9]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    assert visual_mask(mask, ids, [9]).tolist() == [[0, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0]]


def test_visual_pooling_is_the_mean_for_texts_and_another_vector_for_clips(llm, mixed, texts):
    mean, visual = llm(pooling="mean"), llm(pooling="visual")
    np.testing.assert_allclose(
        mean.encode(texts, role="query"), visual.encode(texts, role="query"), atol=1e-6
    )
    seen = [item for item in mixed if item.modality != "text"]
    moved = np.abs(mean.encode(seen, role="query") - visual.encode(seen, role="query")).max(axis=1)
    assert moved.min() > 1e-3
    assert mean.card.fingerprint != visual.card.fingerprint


def test_normed_is_the_final_norm_of_that_layer(llm, texts):
    raw, normed = llm(layer=2), llm(layer=2, normed=True)
    given = torch.from_numpy(next(raw._forward.states_of_all([raw._reader.turns(texts[:1])], raw._count)))
    expected = raw.backbone.tower.norm(given)[0].numpy()
    found = normed.encode(texts[:1], role="query")[0]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)
    assert raw.card.fingerprint != normed.card.fingerprint
    assert dataclasses.replace(normed.card, normed=False).fingerprint == raw.card.fingerprint


@pytest.mark.parametrize("layer", [-1, 3])
def test_the_final_state_has_one_name(tiny, layer):
    with pytest.raises(ValueError, match=f"normed is true and layer is {layer}: that is layer -1"):
        MultimodalLLM(tiny(), layer=layer, normed=True)


# --- wording ----------------------------------------------------------------------------------------------


def test_role_prompts_are_system_turns_of_their_role(llm, texts):
    base = llm()
    asked = base.variant(role_prompts={"query": "Represent the message."})
    worded = base.variant(prompt=dataclasses.replace(base.card.prompt, instruction="Represent the message."))
    np.testing.assert_array_equal(asked.encode(texts, role="query"), worded.encode(texts, role="query"))
    np.testing.assert_array_equal(asked.encode(texts, role="document"), base.encode(texts, role="document"))
    assert "Represent the message." in asked.inspect(texts[:1], role="query")[0].wording
    assert "Represent the message." not in asked.inspect(texts[:1], role="document")[0].wording
    assert asked.card.role_prompts == {"query": "Represent the message."}
    assert base.variant(role_prompts={"query": ""}).card.fingerprint == base.card.fingerprint  # its own


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"role_prompts": "Find"}, "role_prompts must be a mapping .*, got 'Find'"),
        ({"role_prompts": {"asker": "x"}}, "role_prompts are of query and document, got 'asker'"),
        ({"role_prompts": {"query": "x"}, "prompt": "moral"}, "chat is off"),
    ],
)
def test_role_prompts_are_checked(tiny, options, reason):
    with pytest.raises(ValueError, match=reason):
        MultimodalLLM(tiny(), **options)


def test_a_variant_is_the_embedder_that_those_options_make(llm, mixed):
    made = llm().variant(prompt=PROMPTS["plain"], transcript="before", frames=FramePolicy(1.0, 2, 0))
    plain = llm(prompt="plain", transcript="before", fps=1.0, max_frames=2)
    np.testing.assert_array_equal(made.encode(mixed, role="document"), plain.encode(mixed, role="document"))
    assert made.card.fingerprint == plain.card.fingerprint
    with pytest.raises(ValueError, match="max_pixels is 9, and the model was opened for 0"):
        llm().variant(frames=FramePolicy(1.0, 2, 9))


# --- the folder -------------------------------------------------------------------------------------------


def test_a_reading_is_saved_as_an_embedder_folder(llm, mixed, tmp_path):
    made = llm().variant(
        read_outs=[ReadOut(2, "visual", True)], role_prompts={"document": "Look."}, transcript="after"
    )
    card = save_reading(tmp_path / "E", embedder=made, name="tiny@2", note="Found by hand.")
    assert sorted(path.name for path in (tmp_path / "E").iterdir()) == ["README.md", "embedder.json"]
    opened = load_embedder(tmp_path / "E", decode_timeout=0)
    assert opened.card.fingerprint == card.fingerprint == made.card.fingerprint
    assert opened.card.name == "tiny@2"
    for role in ("query", "document"):
        np.testing.assert_array_equal(opened.encode(mixed, role=role), made.encode(mixed, role=role))


def test_a_reading_of_a_model_that_has_changed_is_refused(llm, tiny, tmp_path):
    card = llm().card
    save_reading(tmp_path / "E", embedder=llm(), name="x", note="")
    file = tmp_path / "E" / "embedder.json"
    file.write_text(file.read_text().replace(card.weights, "0" * len(card.weights)))
    with pytest.raises(RefusedRequest, match="was written for other weights than those of"):
        load_embedder(tmp_path / "E")
