"""The model card: what the run says, what is unknown as unknown, and no folder of this machine."""

import dataclasses
import shutil

import numpy as np
import pytest
import yaml
from embedders.test_merge import KINDS, adapted
from huggingface_hub import ModelCard

from vidvec_msg.embedders.card_page import card_page
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.merge import merge
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.embedders.training_record import (
    Measurement,
    PairsRecord,
    TrainingRecord,
    read_training,
)
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.frames import FramePolicy

CARD = EmbedderCard(
    name="mine",
    dim=64,
    modalities=("text", "image", "video"),
    base_model="org/base",
    revision="abc",
    weights="0" * 64,
    prompt=PROMPTS["vidvec"],
    layer=-1,
    pooling="last",
    frames=FramePolicy(fps=2.0, max_frames=8),
    max_tokens=128,
    versions={"torch": "2.14.1"},
)
TRAINING = TrainingRecord(
    pairs=PairsRecord(
        source="my|pairs.jsonl",
        sha256="f" * 64,
        training=600,
        validation=60,
        groups=52,
        with_negatives=3,
        provenance={
            "license": {"CC-BY-4.0": 599, "": 1},
            "language": {"en": 600},
            "generator": {"a writer": 600},
        },
    ),
    steps=1234,
    pairs_seen=1200,
    seconds=61.4,
    pairs_per_step=256,
    ranks=4,
    accumulated=2,
    negatives_per_anchor=127.0,
    cut_texts=5.0,
    trained="1 of 10 parameters train",
    config={
        "seed_everything": 1,
        "model": {
            "loss": {"class_path": "vidvec_msg.train.losses.Matryoshka", "init_args": {"dims": [16, 32]}}
        },
    },
    measurements=(
        Measurement(
            "val/forward/map",
            0.5,
            collection="clips",
            queries=52,
            candidates=416,
            kinds="text → video",
            before=0.25,
        ),
        Measurement("val/reverse/map", 0.75, collection="clips", queries=416, candidates=52),
    ),
    losses={"train/loss": 1.25},
)


def page(card=CARD, training=TRAINING, **options):
    return card_page(card, training, **{"name": "embedder", "adapter": True, "cosines": {}, **options})


def header(text):
    start, content, body = text.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(content), body


def test_the_header_is_what_a_hub_reads():
    found, _ = header(page())
    assert found == {
        "library_name": "peft",
        "pipeline_tag": "feature-extraction",
        "base_model": "org/base",
        "base_model_relation": "adapter",
        "language": ["en"],
        "tags": [
            *("vidvec-msg", "feature-extraction", "sentence-similarity", "retrieval", "peft", "lora"),
            *("text-embedding", "image-embedding", "video-embedding"),
        ],
    }
    read = ModelCard(page())  # the hub's own reader
    assert read.data.base_model == "org/base"
    assert read.data.library_name == "peft"


def test_a_merged_model_is_a_finetuned_one():
    card = dataclasses.replace(CARD, merged_from="0123456789abcdef")
    text = page(card, adapter=False, cosines={"text": 0.9999995, "video": 0.99999})
    found, body = header(text)
    assert (found["library_name"], found["base_model_relation"]) == ("transformers", "finetune")
    assert "merged into the weights (embedder `0123456789abcdef` before)" in body
    assert "| video | 0.999990 |" in body
    assert "PEFT" not in body


def test_what_the_run_says_is_in_it():
    text = page()
    for line in (
        "| pairs | my\\|pairs.jsonl: 600 for training, 60 kept aside; SHA-256 `" + "f" * 64 + "` |",
        "| groups | 52 |",
        "| hard negatives | 3 pairs have some |",
        "| license of the texts | CC-BY-4.0 (599 pairs), not given (1 pairs) |",
        "| generator of the texts | a writer (600 pairs) |",
        "| batch | 256 pairs a step, on 4 processes, 2 accumulated batches |",
        "| negatives per anchor | 127.0 |",
        "| steps | 1,234; 1,200 pairs seen, 2.0 times the training pairs |",
        "| texts cut at the longest | 5 in the last step |",
        "| trained | 1 of 10 parameters train |",
        "| clips | forward (text → video) | 52 | 416 | map | 0.2500 | 0.5000 |",
        "| clips | reverse | 416 | 52 | map | not measured | 0.7500 |",
        "Last values of the fit itself: `train/loss` 1.2500.",
        "seed_everything: 1",
        "| longest text | 128 tokens, the words around it included; more is cut at its end |",
        "| frames of a clip | 2.0 a second, at most 8 |",
        'text: "{text}\\nSummarize above sentence in one word: "',
        "| shorter vectors | trained at 32, 16 dimensions too (Matryoshka): "
        '`load_embedder("embedder", truncate_dim=16)` |',
        "made of [org/base](https://huggingface.co/org/base) at revision abc",
        f"`{CARD.fingerprint}`",
        "torch 2.14.1.",
    ):
        assert line in text, line
    assert "and is measured above." in text
    assert "The pairs name these licences: CC-BY-4.0, none given." in text


def test_what_is_unknown_is_said_to_be():
    text = page(dataclasses.replace(CARD, max_tokens=None), TrainingRecord())
    for line in (
        "| pairs | not recorded: 0 for training",
        "| negatives per anchor | not recorded |",
        "The options were not recorded: the fit was not started from a config.",
        "No retrieval was measured during the fit.",
        "The language of the pairs is not recorded; other languages were not looked at.",
        "The pairs name no licence.",
        "Its quality was not measured in this fit.",
        "and is not measured here.",
        "| longest text | not recorded tokens",
    ):
        assert line in text, line
    assert "## Training\n\nNot recorded in this folder." in page(training=None)
    assert "None" not in text


def test_text_pairs_alone_say_nothing_of_clips():
    one = Measurement("val/pairs/forward/map", 0.5, kinds="text → text")
    text = page(training=dataclasses.replace(TRAINING, measurements=(one,)))
    assert "- Measured on texts alone." in text
    assert "and is not measured here." in text


@pytest.mark.parametrize(
    ("base", "told"), [("/home/ann/models/base", "base (a folder of"), ("tinyworld", "tinyworld, the tiny")]
)
def test_a_base_model_that_no_hub_knows(base, told):
    found, body = header(page(dataclasses.replace(CARD, base_model=base, revision=None)))
    assert "base_model" not in found
    assert told in body
    assert "/home/ann" not in body
    assert ("Say where it lies on your machine" in body) == (base != "tinyworld")


def test_the_folders_own_pages(tiny, llm, tmp_path, clip_file, monkeypatch):
    """Written with the embedder, carried on by merge; the lines of Python in it run."""
    card = dataclasses.replace(llm(dtype="float32").card, name="mine", weights="", versions={})
    model = adapted(tiny(), **KINDS["lora"])
    save_embedder(tmp_path / "embedder", model=model, card=card, training=TRAINING)
    merge(str(tmp_path / "embedder"), tmp_path / "merged")
    shutil.copy(clip_file, tmp_path / "clip.mp4")
    monkeypatch.chdir(tmp_path)
    scores = {}
    for name in ("embedder", "merged"):
        assert read_training(tmp_path / name) == TRAINING
        text = (tmp_path / name / "README.md").read_text()
        assert str(tmp_path) not in text
        assert str(tiny()) not in text
        lines = {}
        exec(text.partition("```python\n")[2].partition("```")[0], lines)
        scores[name] = lines["scores"]
    np.testing.assert_allclose(scores["embedder"], scores["merged"], atol=1e-5)


def test_a_record_that_cannot_be_read(tmp_path):
    assert read_training(tmp_path) is None
    (tmp_path / "training.json").write_text('{"colour": "blue"}')
    with pytest.raises(RefusedRequest, match=r"training\.json: not a record of a training: .*colour"):
        read_training(tmp_path)
