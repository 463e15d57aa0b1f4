"""Checksums: what they are of, how they say their kind, and those of earlier versions."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.checksums import Checksum, checksum, named
from vidvec_msg.errors import RefusedRequest


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**21 + 5])
def test_a_files_checksum_says_its_kind_and_is_that_of_its_bytes(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    (tmp_path / "f").write_bytes(content)
    ours, theirs = xxhash.xxh3_128(content).hexdigest(), hashlib.sha256(content).hexdigest()
    assert checksum(tmp_path / "f") == f"xxh3_128:{ours}"
    for like in (theirs, f"sha256:{theirs}"):
        assert checksum(tmp_path / "f", like=like) == named(like) == f"sha256:{theirs}"
    assert checksum(tmp_path / "f", like="xxh3_128:0") == f"xxh3_128:{ours}"


@given(st.lists(st.binary(max_size=50)))
def test_pieces_make_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    made, whole = Checksum(), Checksum()
    for piece in pieces:
        made.update(piece)
    whole.update(b"".join(pieces))
    assert str(made) == str(whole)


def test_a_kind_of_a_newer_version_is_refused() -> None:
    words = r"a checksum of the kind 'blake9' is not known here \(known: xxh3_128, sha256\).*update it"
    for ask in (named, Checksum):
        with pytest.raises(RefusedRequest, match=words):
            ask("blake9:00")
