"""The run folder: refused before the slow part, with the option to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.train.run_folder import last_checkpoint, refuse_bad_run, resolve_checkpoint, start_again


def test_a_new_or_empty_folder_is_accepted(tmp_path: Path) -> None:
    refuse_bad_run(str(tmp_path / "new"), None)
    refuse_bad_run(str(tmp_path), None)


def test_a_run_needs_a_folder() -> None:
    with pytest.raises(RefusedRequest, match=r"give --trainer.default_root_dir RUN"):
        refuse_bad_run(None, None)


def test_a_folder_of_another_run_is_refused_unless_it_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(
        RefusedRequest, match=r"--trainer.default_root_dir .* already holds a run: give another folder\.$"
    ):
        refuse_bad_run(str(tmp_path), None)
    last_checkpoint(tmp_path).parent.mkdir()
    last_checkpoint(tmp_path).touch()
    with pytest.raises(RefusedRequest, match="or continue it with --ckpt_path last"):
        refuse_bad_run(str(tmp_path), None)
    refuse_bad_run(str(tmp_path), "last")


def test_a_run_goes_on_from_its_own_checkpoints_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a", "ab"):
        last_checkpoint(tmp_path / run).parent.mkdir(parents=True)
        last_checkpoint(tmp_path / run).touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    refuse_bad_run("a", str(last_checkpoint(tmp_path / "a")))
    refuse_bad_run("link", "a/checkpoints/last.ckpt")
    refuse_bad_run("new", "ab/checkpoints/last.ckpt")
    for other in ("ab/checkpoints/last.ckpt", "a/../ab/checkpoints/last.ckpt"):
        with pytest.raises(RefusedRequest, match=r"is of another, .*: give a new folder, or a ch"):
            refuse_bad_run("a", other)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedRequest, match="is a file"):
        refuse_bad_run(str(tmp_path / "file"), None)


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedRequest, match=r"root_dir .*run cannot be created: .*file is no fold"):
        refuse_bad_run(str(tmp_path / "file" / "run"), None)


def test_last_is_the_run_folders_own(tmp_path: Path) -> None:
    last_checkpoint(tmp_path).parent.mkdir()
    last_checkpoint(tmp_path).touch()
    assert resolve_checkpoint("last", str(tmp_path)) == str(tmp_path / "checkpoints" / "last.ckpt")
    assert resolve_checkpoint(None, str(tmp_path)) is None


def test_best_is_the_run_folders_own_too(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"--ckpt_path best: there is no .*best.ckpt"):
        resolve_checkpoint("best", str(tmp_path))
    best = tmp_path / "checkpoints" / "best.ckpt"
    best.parent.mkdir()
    best.touch()
    assert resolve_checkpoint("best", str(tmp_path)) == str(best)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"--ckpt_path last: there is no .*last.ckpt"):
        resolve_checkpoint("last", str(tmp_path))
    with pytest.raises(RefusedRequest, match=r"--ckpt_path x.ckpt: there is no x.ckpt"):
        resolve_checkpoint("x.ckpt", None)
    with pytest.raises(RefusedRequest, match=r"--ckpt_path last needs --trainer.default_root_dir"):
        resolve_checkpoint("last", None)


def test_a_resumed_run_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "embedder").mkdir()
    (tmp_path / "summary.json").touch()
    start_again(tmp_path)
    assert not list(tmp_path.iterdir())
