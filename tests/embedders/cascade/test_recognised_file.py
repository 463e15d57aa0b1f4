from __future__ import annotations

import threading

import pytest

from vidvec_msg.embedders.cascade.recognised_file import Recognised, RecognisedFile
from vidvec_msg.errors import RefusedRequest

ONE = Recognised("said\nand “done”", {"engine": "x", "probability": 0.5, "reason": None})


def test_what_was_put_is_there_again(tmp_path):
    file = RecognisedFile(tmp_path / "cache" / "recognised.jsonl")
    assert file.get("a") is None
    file.put("a", ONE)
    file.put("b", Recognised(""))
    again = RecognisedFile(file.path)
    assert (again.get("a"), again.get("b"), len(again)) == (ONE, Recognised(""), 2)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_cut_off(tmp_path, cut):
    file = RecognisedFile(tmp_path / "recognised.jsonl")
    file.put("a", ONE)
    whole = file.path.read_bytes()
    file.put("b", ONE)
    file.path.write_bytes(file.path.read_bytes()[:-cut])
    again = RecognisedFile(file.path)
    assert (again.get("a"), again.get("b")) == (ONE, None)
    again.put("c", Recognised("new"))
    assert file.path.read_bytes().startswith(whole)
    assert RecognisedFile(file.path).get("c") == Recognised("new")
    assert all(line.endswith(b"}") for line in file.path.read_bytes().splitlines())


def test_a_damaged_line_is_passed_over(tmp_path):
    path = tmp_path / "recognised.jsonl"
    RecognisedFile(path).put("a", ONE)
    path.write_bytes(b'not json\n{"key": "z"}\n[1]\n' + path.read_bytes())
    file = RecognisedFile(path)
    assert (len(file), file.get("a")) == (1, ONE)


def test_two_writers_lose_nothing(tmp_path):
    files = [RecognisedFile(tmp_path / "recognised.jsonl") for _ in range(2)]

    def write(number: int) -> None:
        for at in range(50):
            files[number % 2].put(f"{number}-{at}", Recognised(f"{number} {at}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = RecognisedFile(tmp_path / "recognised.jsonl")
    assert len(found) == 200
    assert found.get("3-49") == Recognised("3 49")


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RefusedRequest, match=r"keeps what was recognised, cannot be used"):
        RecognisedFile(tmp_path / "file" / "recognised.jsonl")
