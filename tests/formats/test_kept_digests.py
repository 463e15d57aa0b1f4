"""Kept digests are those that would be made; only files that changed are read; nothing torn is believed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats import items as items_module
from vidvec_msg.formats import kept_digests
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.formats.kept_digests import KeptDigests, digests_kept_in


def clip(path: Path, content: bytes = b"frames", *, age: float = 100) -> Path:
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)
    return path


def clips(folder: Path, count: int) -> list[Item]:
    folder.mkdir()
    return [Item(f"c{n}", video=clip(folder / f"{n}.mp4", b"%d" % n)) for n in range(count)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read, as they are."""
    names: list[str] = []
    plain: Callable[..., None] = items_module._hash_file_ends

    def hashing(digest: object, path: Path) -> None:
        names.append(path.name)
        plain(digest, path)

    monkeypatch.setattr(items_module, "_hash_file_ends", hashing)
    return names


def digests(items: list[Item], folder: Path, **options: list[Path]) -> list[str]:
    with digests_kept_in(folder, **options):
        return [item_digest(item) for item in items]


def test_files_that_have_not_changed_are_read_once(tmp_path: Path, read: list[str]) -> None:
    items = clips(tmp_path / "media", 5)
    plain = [item_digest(item) for item in items]
    assert len(read) == 5  # without a block nothing is kept
    assert digests(items, tmp_path / "k") == plain
    read.clear()
    assert digests(items, tmp_path / "k") == plain
    assert read == []
    clip(tmp_path / "media" / "1.mp4", b"other", age=99)
    clip(tmp_path / "media" / "2.mp4", b"2", age=99)  # touched
    again = digests(items, tmp_path / "k")
    assert sorted(read) == ["1.mp4", "2.mp4"]
    assert [before == now for before, now in zip(plain, again, strict=True)] == [True, False] + [True] * 3
    assert again == [item_digest(item) for item in items]


def test_every_part_of_an_item_counts(tmp_path: Path) -> None:
    video, sound = clip(tmp_path / "a.mp4"), clip(tmp_path / "a.wav")
    other = clip(tmp_path / "b.mp4")
    items = [
        Item("1", video=video), Item("2", video=video, text="a"), Item("3", video=video, title="a"),
        Item("4", video=video, transcript="a"), Item("5", video=video, ocr="a"),
        Item("6", video=video, start=1.0), Item("7", video=video, end=1.0), Item("8", video=video, fps=1.0),
        Item("9", image=video), Item("10", audio=sound), Item("11", video=video, audio=sound),
        Item("12", video=other), Item("13", text="a"),
        Item("14", video=np.zeros((1, 2, 2, 3), np.uint8), audio=sound),
    ]  # fmt: skip
    plain = [item_digest(item) for item in items]
    assert len(set(plain)) == len(items)
    for _ in range(2):
        assert digests(items, tmp_path / "k") == plain
    same = Item("other id", video=video, groups={"topic": "news"})
    assert digests([same], tmp_path / "k") == plain[:1]


def test_a_file_that_was_just_changed_is_not_kept(tmp_path: Path, read: list[str]) -> None:
    path = clip(tmp_path / "a.mp4", age=0.5)
    item, changed = Item("a", video=path), path.stat().st_mtime_ns
    first = digests([item], tmp_path / "k")
    path.write_bytes(b"FRAMES")  # within one tick of a slow clock
    os.utime(path, ns=(changed, changed))
    assert digests([item], tmp_path / "k") != first
    assert read == ["a.mp4"] * 2


def test_a_missing_file_is_an_error_as_ever(tmp_path: Path) -> None:
    item = Item("a", video=clip(tmp_path / "a.mp4"))
    digests([item], tmp_path / "k")
    (tmp_path / "a.mp4").unlink()
    with pytest.raises(FileNotFoundError):
        digests([item], tmp_path / "k")


def test_the_outermost_block_counts_and_further_folders_are_read(tmp_path: Path, read: list[str]) -> None:
    items = clips(tmp_path / "media", 3)
    with digests_kept_in(tmp_path / "outer"):
        digests(items, tmp_path / "inner")
    assert not (tmp_path / "inner").exists()
    read.clear()
    digests(items, tmp_path / "k", known=[tmp_path / "absent", tmp_path / "outer"])
    assert read == []
    assert not (tmp_path / "k").exists()


def test_a_refused_request_and_an_output_that_is_gone_leave_nothing(tmp_path: Path) -> None:
    items = clips(tmp_path / "media", 3)

    def refused() -> None:
        with digests_kept_in(tmp_path / "k"):
            item_digest(items[0])
            raise RefusedRequest("no")

    with pytest.raises(RefusedRequest):
        refused()
    digests(items, tmp_path / "not made" / "k")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["media"]


def test_what_was_read_for_long_is_kept_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, digest = b"k" * 16, "ab" * 32
    killed = KeptDigests(tmp_path / "new" / "k")
    killed.put(key, digest)
    assert KeptDigests(tmp_path / "new" / "k").get(key) is None
    monkeypatch.setattr(kept_digests, "_SAVE_EVERY", -1.0)
    killed.put(key, digest)
    assert KeptDigests(tmp_path / "new" / "k").get(key) == digest


def test_a_folder_that_cannot_be_written_is_said_and_does_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = clips(tmp_path / "media", 2)
    (tmp_path / "k").write_text("a file")
    with caplog.at_level("INFO"):
        assert digests(items, tmp_path / "k") == [item_digest(item) for item in items]
    assert [line for line in caplog.messages if "digests are not kept in" in line]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is Linux's /dev/full")
@pytest.mark.parametrize("count", [3, 500])  # less and more than a stream's buffer
def test_a_full_disk_ends_no_job(tmp_path: Path, count: int) -> None:
    kept = KeptDigests(tmp_path / "k")
    kept._stream = Path("/dev/full").open("wb")  # noqa: SIM115  (KeptDigests closes it)
    for number in range(count):
        kept.put(number.to_bytes(16, "little"), "ab" * 32)
    kept.close()
    assert kept.get(bytes(16)) == "ab" * 32


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_damaged_records_are_not_believed(tmp_path: Path, damage: str, read: list[str]) -> None:
    items = clips(tmp_path / "media", 20)
    plain = digests(items, tmp_path / "k")
    [part] = (tmp_path / "k").iterdir()
    content = bytearray(part.read_bytes())
    assert len(content) == 20 * 52
    content[7 * 52 + 30] ^= 1
    part.write_bytes(content[:-5] if damage == "torn" else content)
    read.clear()
    assert digests(items, tmp_path / "k") == plain
    assert len(read) == (2 if damage == "torn" else 1)


@settings(max_examples=25, deadline=None)
@given(numbers=st.lists(st.integers(0, 30), max_size=60), in_memory=st.integers(1, 9), cut=st.integers(0, 60))
def test_what_was_put_in_is_found(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], in_memory: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("k")
    # keys of one beginning: the order of the keys says half of it
    pairs = [(number % 3).to_bytes(8, "little") + number.to_bytes(8, "little") for number in numbers]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_digests, "_IN_MEMORY", in_memory)
        for part in (pairs[:cut], pairs[cut:]):
            kept = KeptDigests(folder)
            for key in part:
                kept.put(key, (key * 2).hex())
                assert kept.get(key) == (key * 2).hex()
            kept.close()
        kept = KeptDigests(folder)
        assert [kept.get(key) for key in pairs] == [(key * 2).hex() for key in pairs]
        assert kept.get(b"x" * 16) is None
