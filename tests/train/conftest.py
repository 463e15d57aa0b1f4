"""A tiny model and a few pairs for all tests of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import build_tiny_mllm


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
            "anchor": f"A small ball rolls towards wall {i} and bounces back again and again until it breaks.",
            "positive": f"Keep trying, patience wins {i // 2}",
            "group": f"story {i // 2}",
        }
        for i in range(24)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
