"""A folder appears whole, or what was there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.embedders.new_folder import appearing


def test_an_earlier_folder_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with appearing(tmp_path / "e") as folder:
            (folder / "weights").write_text(text)
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
    assert (tmp_path / "e" / "weights").read_text() == "second"


@pytest.mark.parametrize("fails", [".partial", "e"])
def test_an_earlier_folder_survives_a_rename_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    with appearing(tmp_path / "e") as folder:
        (folder / "weights").write_text("first")
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if self.name.endswith(fails):
            raise OSError("no space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="no space left"), appearing(tmp_path / "e") as folder:
        (folder / "weights").write_text("second")
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
    assert (tmp_path / "e" / "weights").read_text() == "first"
