"""A tiny model and a few pairs for all tests of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import build_tiny_mllm

ANIMALS = ["dog", "cat", "fox", "owl", "bee", "ant", "cow", "pig", "hen", "rat", "bat", "elk"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny multimodal LLM, as a folder."""
    return build_tiny_mllm(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pairs in 12 groups of two."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [
        {
            "id": f"pair-{i}",
            "anchor": f"In clip {i} a small {ANIMALS[i // 2]} rolls towards a wall and bounces back again.",
            "positive": f"Keep trying like the {ANIMALS[i // 2]}, take {i}.",
            "group": f"story {i // 2}",
        }
        for i in range(24)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
