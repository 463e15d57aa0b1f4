"""Checksums: what they are of, how they say their kind, and those of earlier versions."""

from __future__ import annotations

import hashlib
import re
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
    for like in (theirs, f"sha256:{theirs}", theirs.upper(), f"SHA256:{theirs.upper()}", f"{theirs}\n"):
        assert checksum(tmp_path / "f", like=like) == named(like) == f"sha256:{theirs}"
    for like in (f"xxh3_128:{ours}", f"XXH3_128:{ours.upper()}"):
        assert checksum(tmp_path / "f", like=like) == named(like) == f"xxh3_128:{ours}"


@given(st.lists(st.binary(max_size=50)))
def test_pieces_make_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    made, whole = Checksum(), Checksum()
    for piece in pieces:
        made.update(piece)
    whole.update(b"".join(pieces))
    assert str(made) == str(whole)


@pytest.mark.parametrize(
    "given",
    [
        "blake9:00",
        "md5:" + 32 * "0",
        32 * "0",
        "xxh3_128:",
        "sha256:" + 63 * "0",
        64 * "g",
        ":" + 64 * "0",
        "abc",
    ],
)
def test_what_is_no_known_checksum_is_refused(given: str) -> None:
    """A bare XXH3-128, which has the digits of an MD5, among them: nothing says which it is."""
    words = (
        rf"the checksum '{given}' is not known here; known are xxh3_128:HEX \(32 digits\), sha256:HEX "
        r"\(64 digits\) and a bare SHA-256\. .* update vidvec-msg; if .* let it write one of these"
    )
    for ask in (named, Checksum):
        with pytest.raises(RefusedRequest, match=words):
            ask(given)


@pytest.mark.parametrize("given", [None, 5, ["a"], ""])
def test_what_is_no_text_is_no_checksum(given: object) -> None:
    with pytest.raises(RefusedRequest, match=rf"the checksum {re.escape(repr(given))} is not known here"):
        named(given)
