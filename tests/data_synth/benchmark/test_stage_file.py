"""Stage files: what stays, what is made anew, and what a person's hand may do to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth.benchmark.stage_file import MARK, Form, Row, StageFile
from vidvec_msg.errors import Problems, RefusedRequest

FORM = Form(
    "things", "things", "id", ("id",), {"id": (str,), "text": (str,), "size": (int, None)}, "their source"
)
MANY = Form("parts", "parts", "whole", ("whole", "part"), {"whole": (str,), "part": (str,)}, "their whole")


def opened(folder: Path, form: Form = FORM) -> StageFile:
    file, problems = StageFile(folder, form), Problems("files")
    file.read(problems)
    problems.refuse_if_any()
    return file


class Maker:
    """Makes a row per unit, and remembers what it was asked for."""

    def __init__(self, able: Sequence[str] | None = None) -> None:
        self.asked: list[str] = []
        self.able = able

    def __call__(self, units: Sequence[str]) -> Mapping[str, list[Row]]:
        self.asked += units
        able = units if self.able is None else [one for one in units if one in self.able]
        return {one: [{"id": one, "text": f"about {one}"}] for one in able}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    first, second = Maker(), Maker()
    made = opened(tmp_path).settle({"a": "1", "b": "2"}, first)
    before = (tmp_path / "things.jsonl").stat().st_mtime_ns
    assert opened(tmp_path).settle({"a": "1", "b": "2"}, second) == made
    assert (first.asked, second.asked) == (["a", "b"], [])
    assert (tmp_path / "things.jsonl").stat().st_mtime_ns == before  # and not written without need


def test_a_unit_whose_source_changed_is_made_anew_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).settle({"a": "1", "b": "2"}, Maker())
    again = Maker()
    opened(tmp_path).settle({"a": "1", "b": "3", "c": "4"}, again)
    assert again.asked == ["b", "c"]
    assert "things.jsonl: 1 made anew, since their source changed: b" in caplog.text


def test_edited_rows_stay_and_are_followed(tmp_path: Path) -> None:
    opened(tmp_path).settle({"a": "1", "b": "2"}, Maker())
    edit(tmp_path / "things.jsonl", "about a", "about me")
    file, again = opened(tmp_path), Maker()
    assert file.settle({"a": "1", "b": "2"}, again)["a"][0]["text"] == "about me"
    assert again.asked == []
    assert file.edited() == 1


def test_an_edited_row_whose_source_changed_is_put_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path).settle({"a": "1", "b": "2"}, Maker())
    edit(tmp_path / "things.jsonl", "about a", "about me")
    found = opened(tmp_path).settle({"a": "9", "b": "9"}, Maker())
    assert found["a"][0]["text"] == "about a"
    (aside,) = (tmp_path / "replaced.jsonl").read_text(encoding="utf-8").splitlines()  # b had not been edited
    assert json.loads(aside) | {MARK: ""} == {"stage": "things", "id": "a", "text": "about me", MARK: ""}
    assert "rows edited by hand are now in replaced.jsonl: 1" in caplog.text


def test_a_persons_own_row_stays_as_long_as_its_unit_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "things.jsonl").write_text('{"id": "a", "text": "mine"}\n\n', encoding="utf-8")
    file, maker = opened(tmp_path), Maker()
    assert file.settle({"a": "1"}, maker)["a"] == [{"id": "a", "text": "mine"}]
    assert maker.asked == []
    file.prune([])
    assert (tmp_path / "things.jsonl").read_text() == ""
    assert "mine" in (tmp_path / "replaced.jsonl").read_text()


def test_a_row_taken_out_of_a_unit_stays_out_and_a_whole_unit_is_made_again(tmp_path: Path) -> None:
    def parts(units: Sequence[str]) -> Mapping[str, list[Row]]:
        return {one: [{"whole": one, "part": part} for part in "xyz"] for one in units}

    opened(tmp_path, MANY).settle({"a": "1", "b": "2"}, parts)
    path = tmp_path / "parts.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"b"' not in line and '"y"' not in line]
    path.write_text("\n".join(kept))
    found = opened(tmp_path, MANY).settle({"a": "1", "b": "2"}, parts)
    assert ["".join(row["part"] for row in rows) for rows in found.values()] == ["xz", "xyz"]


def test_units_that_cannot_be_made_are_missing_and_asked_for_again(tmp_path: Path) -> None:
    assert set(opened(tmp_path).settle({"a": "1", "b": "2"}, Maker(able=["a"]))) == {"a"}
    again = Maker()
    assert set(opened(tmp_path).settle({"a": "1", "b": "2"}, again)) == {"a", "b"}
    assert again.asked == ["b"]


def test_a_maker_that_dies_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    opened(tmp_path).settle({"a": "1"}, Maker())
    before = (tmp_path / "things.jsonl").read_bytes()

    def dies(units: Sequence[str]) -> Mapping[str, list[Row]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path).settle({"a": "2", "b": "2"}, dies)
    assert (tmp_path / "things.jsonl").read_bytes() == before


def test_every_fault_of_an_edited_file_is_told_at_once(tmp_path: Path) -> None:
    lines = [
        '{"id": "a", "text": "x"', "[1]", '{"id": 3, "text": "x"}', '{"id": "c", "text": ""}', '{"id": "d"}',
        '{"id": "e", "text": "x", "size": true}', '{"id": "f", "text": "x"}', '{"id": "f", "text": "y"}',
    ]  # fmt: skip
    (tmp_path / "things.jsonl").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    with pytest.raises(RefusedRequest) as refusal:
        opened(tmp_path)
    told = str(refusal.value)
    for number, fault in enumerate(
        ["not JSON", "a list, not an object", "id is 3; it must be a text", "text is empty",
         "text is missing", "size is True; it must be a whole number", "", "id 'f' stands in line 7 already"],
        start=1,
    ):  # fmt: skip
        assert not fault or f"things.jsonl, line {number}: {fault}" in told


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), max_size=6), min_size=1, max_size=5
    )
)
def test_whatever_is_asked_for_in_turn_the_rows_are_those_of_a_fresh_folder(
    turns: list[dict[str, Any]],
) -> None:
    """Each run settles and prunes; the file then is what one run with the last request alone makes."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        for wanted in turns:
            file = opened(Path(one))
            file.settle(wanted, Maker())
            file.prune(list(wanted))
        fresh = opened(Path(other))
        fresh.settle(turns[-1], Maker())
        paths = [Path(folder, "things.jsonl") for folder in (one, other)]
        lines = [sorted(path.read_text().splitlines()) if path.is_file() else [] for path in paths]
        assert lines[0] == lines[1]


def test_a_round_that_asks_for_a_part_leaves_the_file_alone(tmp_path: Path) -> None:
    opened(tmp_path).settle({"a1": "1", "a2": "1", "b1": "1"}, Maker())
    before = (tmp_path / "things.jsonl").stat().st_mtime_ns
    file = opened(tmp_path)
    for wanted in (["a1", "b1"], ["a1", "a2", "b1"]):
        assert list(file.settle(dict.fromkeys(wanted, "1"), Maker())) == wanted
    assert (tmp_path / "things.jsonl").stat().st_mtime_ns == before


def test_line_separators_inside_a_text_do_not_break_a_row(tmp_path: Path) -> None:
    def odd(units: Sequence[str]) -> Mapping[str, list[Row]]:
        return {one: [{"id": one, "text": "a\u2028b\u0085c"}] for one in units}

    opened(tmp_path).settle({"a": "1"}, odd)
    assert opened(tmp_path).units["a"][0]["text"] == "a\u2028b\u0085c"
