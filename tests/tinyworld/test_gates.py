"""The gates of the shipped weights, over three adapter seeds; see vidvec_msg.tinyworld.gates."""

from __future__ import annotations

import numpy as np
import pytest

from vidvec_msg import Collection
from vidvec_msg.tinyworld.gates import CONDITIONS, Gates, in_memory, missed


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Gates:
    # half the clips of the measurement in docs/tinyworld.md, which takes twice as long
    return Gates(tmp_path_factory.mktemp("gates"), clips_per_story={"test": 4, "combo": 2})


@pytest.mark.slow(minutes=7)
@pytest.mark.timeout(1800)
class TestShippedWeights:
    @pytest.mark.parametrize(
        "name", [name for name, c in CONDITIONS.items() if (c.most, c.least) != (None, None)]
    )
    def test_gate(self, gates: Gates, name: str) -> None:
        assert missed(name, gates.measure(name)["mean"]) == ""

    def test_motion_counts(self, gates: Gates) -> None:
        whole = np.array(gates.measure("after")["mean"])
        for name in ("reversed", "last_frame"):
            assert (np.array(gates.measure(name)["mean"]) <= whole - 15).all()

    def test_a_file_and_its_frames_in_memory_are_the_same_clip(self, gates: Gates) -> None:
        clips = Collection.load(gates.folder / "world", split="test").corpus[:16]
        embedder = gates.embedder("true")
        from_files = embedder.encode(clips, role="document")
        from_memory = embedder.encode([in_memory(item) for item in clips], role="document")
        assert (from_files * from_memory).sum(axis=1).min() > 0.9999


def test_a_missed_gate_is_named() -> None:
    assert missed("after", [80.0, 76.0]) == ""
    assert missed("after", [80.0, 74.9]) == "after: [80.0, 74.9] is below 75"
    assert missed("before", [3.0, 15.1]) == "before: [3.0, 15.1] is above 15"
    assert missed("reversed", [0.0, 100.0]) == ""  # reported, no gate
