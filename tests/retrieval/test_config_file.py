"""A folder is gone on with under the options that it was begun with, and under no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.retrieval.config_file import claim, refuse_other

SETTINGS = {"seed": 0, "metrics": ["map"], "batch_size": 4}


def test_the_same_options_go_on_and_others_are_named(tmp_path: Path) -> None:
    out = tmp_path / "O"
    refuse_other(out, SETTINGS, what="exam", free=())
    out.mkdir()
    (out / "report.json").touch()
    claim(out, SETTINGS, "report.json")
    assert [path.name for path in out.iterdir()] == ["config.yaml"]  # incomplete until the end
    refuse_other(out, {**SETTINGS, "batch_size": 8, "new": 1}, what="exam", free=("batch_size",))
    with pytest.raises(RefusedRequest) as refusal:
        refuse_other(out, {"seed": 1, "metrics": ["mrr"]}, what="exam", free=(), keep=" (and the answers)")
    assert str(refusal.value) == (
        f"--out {out} holds another exam; give a new folder (and the answers), or the same options: "
        "2 problems\n"
        "  - seed was 0 and is 1 now\n"
        "  - metrics was ['map'] and is ['mrr'] now"
    )


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(RefusedRequest, match="already holds files"):
        refuse_other(tmp_path, SETTINGS, what="exam", free=())


def test_the_folder_of_another_command(tmp_path: Path) -> None:
    """Such as a run of fit, whose config.yaml shares no option, or but a few of the same value."""
    claim(tmp_path, {"seed": 0, "trainer": {}, "model": {}}, "report.json")
    before = (tmp_path / "config.yaml").read_bytes()
    with pytest.raises(RefusedRequest, match=r"holds no exam: its config.yaml has other .* \(model, "):
        refuse_other(tmp_path, SETTINGS, what="exam", free=())
    assert (tmp_path / "config.yaml").read_bytes() == before
