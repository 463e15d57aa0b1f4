"""Items left in their file are the items that would have been loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats import item_file
from vidvec_msg.formats.collections import load_side, missing_media, open_side
from vidvec_msg.formats.item_file import ItemFile, items_in, modalities_of, read_block

LINES = [
    '\ufeff{"_id": "a", "text": "zwei ü\u2028x", "title": "T"}\r\n',
    "\n",
    '{"_id": 7, "video": "clips/a.mp4", "start": 1, "end": 2.5, "groups": {"year": 2020, "none": null}}\n',
    '  {"_id": "b", "image": "/x.png", "ocr": "words", "transcript": null}\n',
    '{"_id": "c", "audio": "s.wav", "transcript": "said"}',
]


def write(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(lines), encoding="utf-8", newline="")
    return folder


def test_a_file_left_alone_gives_what_loading_gives(tmp_path: Path) -> None:
    loaded = load_side(write(tmp_path, *LINES), "corpus")
    left = open_side(tmp_path, "corpus")
    assert tuple(left) == loaded
    assert [left[position] for position in range(-4, 4)] == [*loaded, *loaded]
    assert left.modalities == {"text", "video", "image", "audio"} == modalities_of(loaded)
    with pytest.raises(IndexError):
        left[4]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_slices_and_slices_of_slices_are_those_of_a_list(
    tmp_path_factory: pytest.TempPathFactory, data
) -> None:
    count = data.draw(st.integers(1, 30))
    lines = [json.dumps({"_id": f"d{n}", "text": "x" * n}) + "\n" * (1 + n % 3) for n in range(count)]
    folder = write(tmp_path_factory.mktemp("c"), *lines)
    items: object = load_side(folder, "corpus")
    left: object = open_side(folder, "corpus")
    end = st.none() | st.integers(-35, 35)
    for _ in range(2):
        cut = slice(data.draw(end), data.draw(end))
        items, left = items[cut], left[cut]
        assert tuple(left) == items
        assert len(left) == len(items)
        assert isinstance(left, ItemFile)


def test_a_slice_with_a_step_is_no_run_of_items(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one run of them; the step is 2, not 1"):
        open_side(write(tmp_path, *LINES), "corpus")[::2]


def test_more_items_than_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_file, "_READ_AT_ONCE", 3)
    folder = write(tmp_path, *(json.dumps({"_id": f"d{n}", "text": "x"}) + "\n" for n in range(10)))
    assert [item.id for item in open_side(folder, "corpus")] == [f"d{n}" for n in range(10)]


def test_what_loading_refuses_is_refused(tmp_path: Path) -> None:
    lines = ['{"_id": "a", "text": "x"}\n', '{"_id": "b"}\n', "no\n", '{"_id": "a", "text": "y"}\n']
    write(tmp_path, *lines)
    told = []
    for opened in (load_side, open_side):
        with pytest.raises(RefusedRequest) as caught:
            opened(tmp_path, "corpus")
        told.append(sorted(str(caught.value).splitlines()))
    assert told[0] == told[1]
    assert "  - corpus.jsonl:4: _id 'a' was already used in line 1" in told[0]
    assert "  - corpus.jsonl:2: row 'b' has no content" in "\n".join(told[0])
    for text, expected in (("\n", "corpus.jsonl holds no row"), (None, "corpus.jsonl is missing")):
        (tmp_path / "corpus.jsonl").unlink()
        if text is not None:
            write(tmp_path, text)
        for opened in (load_side, open_side):
            with pytest.raises(RefusedRequest, match=expected):
                opened(tmp_path, "corpus")


def test_equal_hashes_of_different_ids_are_not_equal_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, *LINES)
    monkeypatch.setattr(item_file, "hash", lambda name: 1, raising=False)
    assert len(open_side(folder, "corpus")) == 4
    write(tmp_path, LINES[0], LINES[0].removeprefix("\ufeff"))
    with pytest.raises(RefusedRequest, match=r"corpus\.jsonl:2: _id 'a' was already used in line 1"):
        open_side(folder, "corpus")


def test_a_file_that_changes_while_it_is_in_use_ends_the_job(tmp_path: Path) -> None:
    folder = write(tmp_path, *LINES)
    left = open_side(folder, "corpus")
    reading = iter(left)
    next(reading)
    path = folder / "corpus.jsonl"
    os.utime(path, ns=(0, 0))
    for read in (lambda: left[1], lambda: list(left[1:2]), lambda: list(left)):
        with pytest.raises(
            JobFailed, match=r"corpus\.jsonl was changed while it was in use; leave it as it is"
        ):
            read()


def test_rows_are_read_by_their_bytes(tmp_path: Path) -> None:
    left = open_side(write(tmp_path, *LINES), "corpus")
    assert left.places.dtype == np.int64
    with left.path.open("rb") as stream:
        block = read_block(stream, left.places[1], left.places[3], stamp=left.stamp, path=left.path)
    assert items_in(block, left.root) == list(left)[1:3]


def test_texts_alone_lack_no_media_and_are_not_read_for_it(tmp_path: Path) -> None:
    left = open_side(write(tmp_path, '{"_id": "a", "text": "x"}\n'), "corpus")
    os.utime(left.path, ns=(0, 0))  # reading it would fail
    assert missing_media(left) == []
    left = open_side(write(tmp_path, *LINES), "corpus")
    assert [failure.item for failure in missing_media(left)] == ["7", "b", "c"]
