"""A checkpoint that brings its own Python files: none of them runs until the user says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import dynamic_module_utils

from vidvec_msg import load_embedder
from vidvec_msg.embedders.backbone import load_backbone
from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.language_model import load_language_model
from vidvec_msg.embedders.models import remote_code_refusal
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest

REFUSED = (
    r"model '.*mystery' needs Python files that come with its checkpoint \(auto_map in its config.json\)\. "
    r"They are not run unless you say so: read them, then give trust_remote_code=true, in a spec "
    r"`mllm:.*mystery\?trust_remote_code=true`\. The files then run on this machine with your rights"
)


@pytest.fixture
def mystery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of a type that transformers does not know; importing its file leaves a mark."""
    folder = tmp_path / "mystery"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "mystery",
                "auto_map": {
                    "AutoConfig": "configuration_mystery.MysteryConfig",
                    "AutoModelForImageTextToText": "modeling_mystery.MysteryModel",
                },
            }
        )
    )
    (folder / "configuration_mystery.py").write_text(
        "from pathlib import Path\n"
        "from transformers import PretrainedConfig\n"
        f"Path({str(tmp_path / 'was run')!r}).touch()\n"
        "class MysteryConfig(PretrainedConfig):\n"
        "    model_type = 'mystery'\n"
    )
    # transformers copies such files there before it imports them
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return folder


def test_every_way_in_refuses_and_nothing_runs(mystery: Path, tmp_path: Path) -> None:
    ways = [
        lambda: load_embedder(f"mllm:{mystery}"),
        lambda: MultimodalLLM(str(mystery)),
        lambda: Chat.open(str(mystery)),
        lambda: load_language_model(mystery),
        lambda: load_backbone(
            str(mystery),
            revision=None,
            device=torch.device("cpu"),
            dtype="float32",
            trust_remote_code=False,
        ),
    ]
    for way in ways:
        with pytest.raises(RefusedRequest, match=REFUSED):
            way()
    assert not (tmp_path / "was run").exists()


def test_it_runs_when_the_user_says_so(mystery: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="cannot load a processor or tokenizer"):  # it brings none
        load_embedder(f"mllm:{mystery}?trust_remote_code=true")
    assert (tmp_path / "was run").exists()


def test_other_errors_are_not_taken_for_it() -> None:
    assert remote_code_refusal("org/name", OSError("no such file")) is None
