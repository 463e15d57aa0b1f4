"""The shipped weights: small, opened by the Auto classes, and they see."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, AutoProcessor

from vidvec_msg.tinyworld import weights_dir
from vidvec_msg.tinyworld.build import caption_clips, told_story
from vidvec_msg.tinyworld.clips import draw_model_frames
from vidvec_msg.tinyworld.collections import split_cast
from vidvec_msg.tinyworld.lessons import tokenizer_texts
from vidvec_msg.tinyworld.model import ModelSize, train_tokenizer
from vidvec_msg.tinyworld.stories import STORIES


def test_they_are_at_most_8_mb_of_safetensors() -> None:
    files = [path for path in weights_dir().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 8_000_000
    assert {path.suffix for path in files} <= {".safetensors", ".json", ".md", ".jinja"}
    with safe_open(str(weights_dir() / "model.safetensors"), framework="pt") as file:
        assert len(list(file.keys())) > 50


def test_card_and_log_name_the_command_the_licence_and_the_limits() -> None:
    card = (weights_dir() / "README.md").read_text(encoding="utf-8")
    log = json.loads((weights_dir() / "build.json").read_text(encoding="utf-8"))
    assert log["command"] in card
    assert log["command"].startswith("python -m vidvec_msg.tinyworld.build --seed")
    for words in ("apache-2.0", "not a model for real videos", "do not transfer"):
        assert words in card


def test_the_tokenizer_is_what_the_texts_give() -> None:
    # the words have not changed since the weights were made: if this fails, build them again
    shipped = AutoProcessor.from_pretrained(weights_dir()).tokenizer
    assert train_tokenizer(tokenizer_texts(), ModelSize().vocabulary).get_vocab() == shipped.get_vocab()


@pytest.fixture(scope="module")
def model() -> AutoModelForImageTextToText:
    return AutoModelForImageTextToText.from_pretrained(weights_dir(), dtype=torch.float32).eval()


def test_test_clips_are_captioned_right(model: AutoModelForImageTextToText) -> None:
    tokenizer = AutoProcessor.from_pretrained(weights_dir()).tokenizer
    clips = [(story, split_cast(story, "test", 100, 0)) for story in STORIES]
    said = caption_clips(
        model, tokenizer, np.stack([draw_model_frames(story, cast) for story, cast in clips])
    )
    right = [told_story(text, cast) is story for (story, cast), text in zip(clips, said, strict=True)]
    assert np.mean(right) >= 0.7, list(zip([story.key for story, _ in clips], said, strict=True))


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, vidvec_msg.tinyworld as world; world.weights_dir()\n"
        "print('torch' in sys.modules, 'PIL' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
