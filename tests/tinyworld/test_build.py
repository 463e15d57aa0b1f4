"""The build from end to end on a few clips and steps: complete, opened by the Auto classes, repeatable."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from vidvec_msg.tinyworld import build


def test_the_same_seed_builds_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {"right_story": 0.5, "right_actor": 0.25}  # captions of 256 clips would take most of the time
    monkeypatch.setattr(build, "caption_scores", lambda *_args, **_options: fixed)
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        build.main(tmp_path / name, seed=seed, steps=2, clips=32, batch=4)
    one, two, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "other")
    )
    assert one == two
    assert one != other
    log = json.loads((tmp_path / "other" / "build.json").read_text(encoding="utf-8"))
    assert (
        log["command"]
        == "python -m vidvec_msg.tinyworld.build --seed 1 --out DIR --steps 2 --clips 32 --batch 4"
    )
    assert log["command"] in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")
    assert AutoModelForImageTextToText.from_pretrained(tmp_path / "one").num_parameters() == log["parameters"]
    assert len(AutoProcessor.from_pretrained(tmp_path / "one").tokenizer) == log["tokens"]
