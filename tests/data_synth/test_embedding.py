"""What the embedder of a run is known by."""

from __future__ import annotations

from pathlib import Path

from vidvec_msg.data_synth.embedding import MessageVectors


def test_an_embedder_that_was_trained_again_in_its_folder_is_another_one(tmp_path: Path) -> None:
    folder = tmp_path / "embedder"
    folder.mkdir()
    (folder / "embedder.json").write_text('{"weights": "a"}')
    spec = str(folder)
    before = MessageVectors(spec).identity
    assert before == MessageVectors(spec).identity
    assert before is not None
    assert before.startswith(spec)
    (folder / "embedder.json").write_text('{"weights": "b"}')
    assert MessageVectors(spec).identity != before


def test_a_name_is_its_own_identity_and_none_has_none() -> None:
    assert MessageVectors("tinyworld").identity == "tinyworld"
    assert MessageVectors(None).identity is None
