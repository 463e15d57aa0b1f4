"""What was kept is found again, whatever happened to the process or the file."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from vidvec_msg.embedders.endpoint.vector_cache import VectorCache, user_cache
from vidvec_msg.errors import RefusedRequest

ABOUT = {"model": "m", "base_url": "http://localhost/v1", "dimensions": 0}


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def rows(*numbers: int) -> dict[bytes, np.ndarray]:
    return {key(number): np.array([number, number + 0.25, 0.5], dtype=np.float32) for number in numbers}


def opened(root: Path, dim: int = 3) -> VectorCache:
    cache = VectorCache(root, ABOUT)
    cache.settle(dim)
    return cache


def equal(found, expected) -> bool:
    return found.keys() == expected.keys() and all((found[one] == expected[one]).all() for one in found)


def test_what_is_put_is_there_for_the_next_process(tmp_path):
    cache = opened(tmp_path)
    assert cache.get([key(1)]) == {}
    cache.put(rows(1, 2))
    cache.put({})
    assert equal(cache.get([key(1), key(2), key(3)]), rows(1, 2))
    again = VectorCache(tmp_path, dict(reversed(ABOUT.items())))
    assert again.dim == 3
    assert equal(again.get([key(2)]), rows(2))
    assert json.loads((cache.folder / "about.json").read_text()) == {**ABOUT, "dim": 3}


def test_other_models_have_other_folders(tmp_path):
    opened(tmp_path).put(rows(1))
    other = VectorCache(tmp_path, {**ABOUT, "model": "other"})
    assert other.dim is None
    assert other.get([key(1)]) == {}


def test_what_another_process_adds_is_seen(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    one.put(rows(1))
    assert equal(other.get([key(1)]), rows(1))
    other.put(rows(2))
    one.put(rows(3))
    assert equal(one.get(map(key, range(5))), rows(1, 2, 3))
    assert equal(other.get(map(key, range(5))), rows(1, 2, 3))


@pytest.mark.parametrize("left", [1, 31, 40, 47])
def test_a_torn_last_record_is_dropped(tmp_path, left):
    cache = opened(tmp_path)
    cache.put(rows(1, 2))
    whole = cache.folder.joinpath("vectors.bin").read_bytes()
    cache.folder.joinpath("vectors.bin").write_bytes(whole[: 48 + left])  # 32 + 3 * 4 + 4 bytes a record
    again = opened(tmp_path)
    assert equal(again.get([key(1), key(2)]), rows(1))
    again.put(rows(3))
    assert equal(opened(tmp_path).get(map(key, range(5))), rows(1, 3))
    assert len(cache.folder.joinpath("vectors.bin").read_bytes()) == 2 * 48


def test_a_damaged_record_counts_as_absent(tmp_path):
    opened(tmp_path).put(rows(1, 2, 3))
    file = opened(tmp_path).folder / "vectors.bin"
    content = bytearray(file.read_bytes())
    content[48 + 35] ^= 1  # a bit of the second vector
    file.write_bytes(content)
    cache = opened(tmp_path)
    assert equal(cache.get(map(key, (1, 2, 3))), rows(1, 3))
    cache.put(rows(2))
    assert equal(cache.get(map(key, (1, 2, 3))), rows(1, 2, 3))
    assert equal(opened(tmp_path).get(map(key, (1, 2, 3))), rows(1, 2, 3))  # the later record counts


def test_many_threads_of_two_caches(tmp_path):
    caches = [opened(tmp_path), opened(tmp_path)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: caches[number % 2].put(rows(number)), range(200)))
    assert equal(opened(tmp_path).get(map(key, range(200))), rows(*range(200)))


def test_another_number_of_dimensions(tmp_path):
    opened(tmp_path)
    with pytest.raises(RefusedRequest, match=r"vectors of 3 dimensions, and now they have 4: another model"):
        opened(tmp_path, dim=4)


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    with pytest.raises(RefusedRequest, match=r"cannot be made \(Not a directory\).*cache=none"):
        VectorCache(tmp_path / "cache", ABOUT)


def test_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "vidvec-msg"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert user_cache() == Path.home() / ".cache" / "vidvec-msg"
