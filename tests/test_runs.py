"""Output folders and their manifests."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from vidvec_msg import runs
from vidvec_msg.errors import RefusedRequest


def _write_half(target: Path) -> None:
    with runs.replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError("disk full")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    runs.write_json(target, {"v": 1})
    with pytest.raises(RuntimeError, match="disk full"):
        _write_half(target)
    assert runs.read_json(target, what="run", made_by="x") == {"v": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_two_writers_do_not_write_into_each_other(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    writers = [
        threading.Thread(target=runs.write_json, args=(target, {"v": "x" * 10_000 * n})) for n in (1, 2)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(runs.read_json(target, what="run", made_by="x")["v"]) in (10_000, 20_000)


def test_nan_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        runs.write_json(tmp_path / "a.json", {"v": float("nan")})


def test_a_missing_manifest_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(
        RefusedRequest, match=r"incomplete or was interrupted: manifest.json is missing. Run `make it`"
    ):
        runs.read_json(tmp_path / "manifest.json", what="vectors folder", made_by="make it")
    with pytest.raises(RefusedRequest, match="does not exist"):
        runs.read_json(tmp_path / "no" / "manifest.json", what="vectors folder", made_by="make it")


@pytest.mark.parametrize(("text", "told"), [("{", "is not JSON"), ("[]", "holds a list, not an object")])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(RefusedRequest, match=told):
        runs.read_json(tmp_path / "m.json", what="index", made_by="index")


def test_digests_ignore_key_order_and_see_values() -> None:
    assert runs.digest_of({"a": 1, "b": 2}) == runs.digest_of({"b": 2, "a": 1})
    assert runs.digest_of({"a": 1}) != runs.digest_of({"a": 2})


def test_an_output_folder_must_be_new_empty_or_ours(tmp_path: Path) -> None:
    runs.require_new(tmp_path / "new", option="--out")
    runs.require_new(tmp_path, option="--out")
    (tmp_path / "state.json").write_text("{}")
    runs.require_new(tmp_path, option="--out", resumable="state.json")
    with pytest.raises(RefusedRequest, match=r"--out .* already holds files"):
        runs.require_new(tmp_path, option="--out")
    with pytest.raises(RefusedRequest, match="is a file"):
        runs.require_new(tmp_path / "state.json", option="--out")


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "run", tmp_path / "file" / "deeper" / "run"):
        with pytest.raises(RefusedRequest) as refusal:
            runs.require_new(out, option="--out")
        assert str(refusal.value) == (
            f"--out {out} cannot be created: {tmp_path / 'file'} is no folder; give a folder elsewhere."
        )
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RefusedRequest, match=r"link/run cannot be created: .*link is no folder"):
        runs.refuse_unwritable(tmp_path / "link" / "run", option="--out")
    # whoever runs the tests may have every right
    monkeypatch.setattr(runs.os, "access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(RefusedRequest, match=rf"new/run cannot be created: {tmp_path} cannot be written"):
        runs.require_new(tmp_path / "new" / "run", option="--out")
    with pytest.raises(RefusedRequest, match=rf"--out {tmp_path} cannot be written: {tmp_path} cannot be wr"):
        runs.require_new(tmp_path, option="--out")
    assert not (tmp_path / "new").exists()


def test_a_folder_in_the_working_folder_can_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.require_new(Path("new/run"), option="--out")
    runs.require_new(Path(), option="--out")


def test_versions_name_what_can_change_a_vector() -> None:
    assert {"vidvec-msg", "torch", "transformers", "numpy"} <= set(runs.software_versions())


def test_rows_become_json_lines(tmp_path: Path) -> None:
    runs.write_json_lines(tmp_path / "new" / "rows.jsonl", ({"b": n, "a": "é"} for n in range(2)))
    assert (
        tmp_path / "new" / "rows.jsonl"
    ).read_bytes() == '{"b": 0, "a": "é"}\n{"b": 1, "a": "é"}\n'.encode()
