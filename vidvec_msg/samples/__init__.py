"""Texts written for this project, for docs, tests and first steps: 600 pairs, their personas, a benchmark.

``README.md`` beside this file is their card. The benchmark's 52 messages are not among the pairs, nor is a
near paraphrase of one (a test says so), so that a model trained on the pairs can be measured on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

PAIRS = FOLDER / "pairs.jsonl"
PERSONAS = FOLDER / "personas.jsonl"
STORYLINES52 = FOLDER / "storylines52"
"""A collection: 52 messages in 9 topics, 8 storylines each."""


def pairs() -> Iterator[dict[str, Any]]:
    """The 600 rows, as a source of pairs: ``--data.pairs vidvec_msg.samples:pairs``."""
    with PAIRS.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)
