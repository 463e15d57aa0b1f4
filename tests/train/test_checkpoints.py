"""Checkpoints take their place when they are whole, and one is there whatever happens while writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vidvec_msg.cli import main as cli
from vidvec_msg.train.checkpoints import CheckpointNotWritten, KeepLast, save_atomically
from vidvec_msg.train.fit import main
from vidvec_msg.train.run_folder import before_replacement, resolve_checkpoint

resource = pytest.importorskip("resource")  # POSIX


class Barriers:
    def barrier(self, name: str) -> None:
        pass


class Writer:
    """As much of a trainer as writing takes; fails after the first half if told so."""

    is_global_zero, global_step, strategy = True, 7, Barriers()

    def __init__(self, content: str, *, folder: bool = False, error: Exception | None = None) -> None:
        self.content, self.folder, self.error = content, folder, error

    def save_checkpoint(self, path: Path, weights_only: bool) -> None:
        assert not path.exists()
        if self.folder:
            path.mkdir()
        (path / "shard" if self.folder else path).write_text(self.content)
        if self.error is not None:
            raise self.error


def write(path: Path, content: str, **options: Any) -> None:
    save_atomically(Writer(content, **options), path)  # type: ignore[arg-type]


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_write_that_fails_leaves_the_checkpoint_before_it_and_nothing_else(
    tmp_path: Path, folder: bool
) -> None:
    path = tmp_path / "checkpoints" / "last.ckpt"
    with pytest.raises(CheckpointNotWritten, match=r"of step 7 cannot be written .* There is none before it"):
        write(path, "half", folder=folder, error=OSError(28, "No space left on device"))
    write(path, "one", folder=folder)
    with pytest.raises(CheckpointNotWritten) as failure:  # torch's own writer raises this kind
        write(path, "half", folder=folder, error=RuntimeError("file write failed"))
    assert str(failure.value) == (
        f"the checkpoint of step 7 cannot be written to {path}: file write failed. The checkpoint before it "
        f"is whole: make room and continue with --ckpt_path {path}."
    )
    assert (path / "shard" if folder else path).read_text() == "one"
    assert [found.name for found in path.parent.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_newer_one_replaces_it_and_what_a_kill_left_is_no_obstacle(tmp_path: Path, folder: bool) -> None:
    path = tmp_path / "last.ckpt"
    write(path, "one", folder=folder)
    (tmp_path / ".last.ckpt.partial").mkdir()
    (tmp_path / ".last.ckpt.partial" / "shard").write_text("torn")
    write(path, "two", folder=folder)
    assert (path / "shard" if folder else path).read_text() == "two"
    assert [found.name for found in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_kill_between_two_renames_of_folders_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    write(path, "one", folder=True)
    rename = Path.rename

    def killed(self: Path, target: Path) -> Path:
        if target == path:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            write(path, "two", folder=True)
    found = resolve_checkpoint(str(path), None)
    assert found == str(before_replacement(path))
    assert (Path(found) / "shard").read_text() == "one"
    write(path, "three", folder=True)
    assert resolve_checkpoint(str(path), None) == str(path)
    assert [found.name for found in tmp_path.iterdir()] == ["last.ckpt"]


# ---- through the command line


@pytest.fixture
def config(tiny: Path, pairs_file: Path, tmp_path: Path) -> Path:
    keep = {"class_path": "vidvec_msg.train.checkpoints.KeepLast", "init_args": {"every_n_steps": 2}}
    content = {
        "trainer": {"accelerator": "cpu", "max_steps": 5, "logger": False, "callbacks": [keep]},
        "model": {"model": str(tiny), "lora": {"r": 8}},
        "data": {"pairs": str(pairs_file), "batch_size": 4},
    }
    (tmp_path / "fit.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "fit.yaml"


def test_a_full_disk_ends_the_run_and_leaves_the_last_good_checkpoint(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(run)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    write_checkpoint = KeepLast.write

    def on_a_full_disk(self: KeepLast, trainer: Any) -> None:
        if trainer.global_step == 4:  # no file may grow over 50 kB
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        write_checkpoint(self, trainer)

    with monkeypatch.context() as patch:
        patch.setattr(KeepLast, "write", on_a_full_disk)
        try:
            code = cli(words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr().err
    assert code == 1
    last = run / "checkpoints" / "last.ckpt"
    assert f"the checkpoint of step 4 cannot be written to {last}: " in told
    assert f"make room and continue with --ckpt_path {last}." in told
    assert [path.name for path in last.parent.iterdir()] == ["last.ckpt"]
    assert not (run / "summary.json").exists()
    assert cli([*words, "--ckpt_path=last"]) == 0  # there is room again
    assert (run / "summary.json").exists()


def test_a_keeplast_of_the_config_takes_the_place_of_the_automatic_one(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    write = KeepLast.write

    def noting(self: KeepLast, trainer: Any) -> None:
        written.append((self.every_n_steps, trainer.global_step))
        write(self, trainer)

    monkeypatch.setattr(KeepLast, "write", noting)
    main(["fit", "--config", str(config), "--trainer.default_root_dir", str(tmp_path / "run")])
    assert written == [(2, 2), (2, 4), (2, 5)]
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


def test_an_impossible_period_is_refused() -> None:
    with pytest.raises(ValueError, match="KeepLast: every_n_steps is 0; it must be at least 1"):
        KeepLast(every_n_steps=0)
