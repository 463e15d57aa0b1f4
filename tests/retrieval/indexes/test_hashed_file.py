"""Whatever the pieces: the file is what was written, what is read is the file, the checksum is its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.checksums import Checksum, checksum
from vidvec_msg.retrieval.indexes.hashed_file import HashedFile, HashedReader


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 100), st.sampled_from([2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])), max_size=8
    )
)
def test_the_checksum_is_that_of_the_pieces_together(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("f") / "file"
    pieces = [np.random.default_rng(size).bytes(size) for size in sizes]
    with HashedFile(path) as file:
        for piece in pieces:
            file.write(piece)
    assert path.read_bytes() == b"".join(pieces)
    assert file.checksum == checksum(path)


def test_what_is_written_may_change_afterwards(tmp_path: Path) -> None:
    rows = np.ones((3, 100_000), np.float32)
    with HashedFile(tmp_path / "file") as file:
        file.write(rows)
        rows[:] = 2
    assert (tmp_path / "file").read_bytes() == np.ones((3, 100_000), np.float32).tobytes()
    assert file.checksum == checksum(tmp_path / "file")


def test_a_file_that_was_broken_off_has_no_checksum(tmp_path: Path) -> None:
    file = HashedFile(tmp_path / "file")

    def break_off() -> None:
        with file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert file.checksum == ""


@pytest.mark.parametrize(("error", "read"), [(KeyboardInterrupt, 2**20), (RuntimeError, 5 * 2**20)])
def test_ctrl_c_does_not_read_the_rest(
    tmp_path: Path, error: type[BaseException], read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(5 * 2**20))
    hashed: list[int] = []
    monkeypatch.setattr(Checksum, "update", lambda _, block: hashed.append(len(block)))
    file = HashedReader(tmp_path / "file")

    def break_off() -> None:
        with file:
            file.read(10)
            raise error

    with pytest.raises(error):
        break_off()
    assert sum(hashed) == read


def test_a_full_disk_is_an_error_where_it_is_written() -> None:
    with pytest.raises(OSError, match="No space left on device"), HashedFile(Path("/dev/full")) as file:
        file.write(b"x")


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([0, 5, 2**20, 3 * 2**20 + 7]),
    asked=st.lists(
        st.one_of(st.integers(0, 100), st.sampled_from([2**20 - 1, 2**20, 2**20 + 1, 2**21])), max_size=8
    ),
    like=st.sampled_from(["", "xxh3_128:" + "0" * 32, "sha256:" + "0" * 64, "0" * 64]),
)
def test_what_is_read_is_the_file_and_the_checksum_that_of_all(
    tmp_path_factory: pytest.TempPathFactory, size: int, asked: list[int], like: str
) -> None:
    path, content = tmp_path_factory.mktemp("f") / "file", np.random.default_rng(size).bytes(size)
    path.write_bytes(content)
    with HashedReader(path, like=like) as file:
        read = [file.read(one) for one in asked]
    assert b"".join(read) == content[: sum(asked)]
    assert all(len(part) == one for part, one in zip(read, asked, strict=True)) or sum(asked) > size
    assert file.checksum == checksum(path, like=like)
