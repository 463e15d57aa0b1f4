"""What a job needs is estimated before it begins."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from fakes import KeywordEmbedder

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.disk_space import METADATA_BYTES, bytes_needed, free_bytes, in_words
from vidvec_msg.retrieval.embed import embed_items

Usage = namedtuple("Usage", "total used free")
ITEMS = [Item(f"d{n}", text="dog " * 60) for n in range(1000)]


def embed(out: Path, *, free: int | None = None, **options: object) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if free is not None:
            patched.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, free))
        embed_items(ITEMS, KeywordEmbedder(), role="document", out=out, shard_size=100, **options)


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    needed = bytes_needed(1000, 8, "float32", 100)
    assert needed == 1000 * (8 * 4 + METADATA_BYTES) + 100 * 8 * 4
    with pytest.raises(RefusedRequest) as caught:
        embed(tmp_path / "v", free=needed - 1)
    assert str(caught.value) == (
        f"--out {tmp_path / 'v'}: 1,000 vectors of 8 dimensions in float32 need about 235.2 kB, and the disk "
        "has 235.2 kB free; make room or give an --out with more of it, or store --dtype float16 (217.6 kB)."
    )
    assert not (tmp_path / "v").exists()
    with pytest.raises(RefusedRequest, match=r"in float16 need about 217\.6 kB, .* with more of it\.$"):
        embed(tmp_path / "v", free=0, dtype="float16")
    embed(tmp_path / "v", free=needed)
    assert sum(path.stat().st_size for path in (tmp_path / "v").iterdir()) <= needed


def test_what_is_there_already_needs_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = KeyboardInterrupt()

    def encode(self: KeywordEmbedder, items: list[Item], *, role: str) -> object:
        if items[0].id == "d500":
            raise stop
        return real(self, items, role=role)

    real = KeywordEmbedder.encode
    with monkeypatch.context() as patched:
        patched.setattr(KeywordEmbedder, "encode", encode)
        with pytest.raises(KeyboardInterrupt):
            embed(tmp_path / "v")
    left = bytes_needed(1000, 8, "float32", 100) - 5 * (100 * 8 * 4 + 128)  # 5 shards, each with its header
    with pytest.raises(RefusedRequest, match=r"need about 218\.6 kB more, and the disk has 218\.6 kB free"):
        embed(tmp_path / "v", free=left - 1)
    embed(tmp_path / "v", free=left)


def test_a_folder_that_is_not_there_yet_has_the_room_of_its_disk(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


@pytest.mark.parametrize(
    ("size", "words"),
    [(12, "12 bytes"), (1500, "1.5 kB"), (3.2e9, "3.2 GB"), (4.1e12, "4.1 TB"), (9e15, "9000.0 TB")],
)
def test_bytes_in_words(size: float, words: str) -> None:
    assert in_words(int(size)) == words
