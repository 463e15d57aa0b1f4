"""Messages from tables and texts, and everything that is wrong with a file of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vidvec_msg.data_synth.benchmark.disclosure import disclosed_words
from vidvec_msg.data_synth.benchmark.messages import FORM, Message, read_messages, settled
from vidvec_msg.data_synth.benchmark.stage_file import StageFile
from vidvec_msg.errors import Problems, RefusedRequest

ROOT = Path(__file__).parents[3]


def test_the_queries_of_a_collection_are_messages() -> None:
    found = read_messages(ROOT / "data/storylines52/queries.jsonl")
    assert len(found) == 52
    assert found[0] == Message(
        "m01", "career_and_finance", "Small sums saved steadily grow into real security."
    )


def test_a_text_has_a_message_a_line_and_topics_as_headings(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text("\ufeffNo topic yet.\n\n# Work \nRest is work.\n  Haste  is waste. \n", encoding="utf-8")
    assert read_messages(path) == [
        Message("mb5f91ef1", "", "No topic yet."),
        Message("ma233cf6f", "Work", "Rest is work."),
        Message("md2d3afa0", "Work", "Haste is waste."),
    ]
    path.write_text("New.\n# Work\nHaste is waste.\nRest is work.\n")
    assert [one.id for one in read_messages(path)][1:] == ["md2d3afa0", "ma233cf6f"]


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("id,topic,message\nx,work,Rest is work.\n,,Haste is waste.\n")
    assert read_messages(path) == [
        Message("x", "work", "Rest is work."),
        Message("md2d3afa0", "", "Haste is waste."),
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("m.txt", "\n# only a heading\n", "no message in it"),
        ("m.jsonl", "", "no message in it"),
        (
            "m.jsonl",
            '{"id": "a", "message": "x"}\n{"id": "a", "message": "y"}',
            "id 'a' stands there 2 times",
        ),
        ("m.txt", "same\nsame\n", "message 'same' stands there 2 times"),
        ("m.jsonl", '{"id": "a b", "message": "x"}', "line 1: id 'a b' holds a space"),
        ("m.jsonl", '{"id": "a", "message": " "}', "line 1: no message; it stands in the column message"),
        ("m.jsonl", '{"id": "a", "words": "x"}', "line 1: no message"),
        ("m.jsonl", "{", "line 1: not JSON"),
        ("m.xlsx", "x", "unknown format '.xlsx'"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(RefusedRequest, match=told.replace("(", r"\(")):
        read_messages(path)


def test_no_such_file(tmp_path: Path) -> None:
    for name in ("m.txt", "m.jsonl"):
        with pytest.raises(RefusedRequest, match="no such file"):
            read_messages(tmp_path / name)


def test_the_builds_own_file_is_followed(tmp_path: Path) -> None:
    given = [Message("a", "", "One."), Message("b", "", "Two.")]

    def run(messages: list[Message]) -> list[str]:
        file, problems = StageFile(tmp_path, FORM), Problems("x")
        file.read(problems)
        return [f"{one.id} {one.text}" for one in settled(messages, file)]

    assert run(given) == ["a One.", "b Two."]
    path = tmp_path / "messages.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["message"] = "First."
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": "c", "message": "Mine."}]))
    assert run(given) == ["a First.", "b Two.", "c Mine."]
    assert run(given[:1]) == ["a First.", "c Mine."]
    assert run([Message("a", "", "Another.")]) == ["a Another.", "c Mine."]
    path.write_text(path.read_text().replace("Mine.", "Another."))
    with pytest.raises(RefusedRequest, match=r"'Another\.' stands there 2 times"):
        run([Message("a", "", "Another.")])


@pytest.mark.parametrize(
    ("message", "query", "words"),
    [
        ("Small sums saved steadily grow into real security.", "woman drops coin in jar", []),
        ("Small sums saved steadily grow into real security.", "small jar of coins", []),  # 1 of 7
        ("Small sums saved steadily grow into real security.", "saving small amounts", ["small", "saved"]),
        ("Small sums saved steadily grow into real security.", "real security guard", ["real", "security"]),
        ("Listening helps more than advice.", "man listens to boy", ["listening"]),  # 1 of 3 is too much
        ("It is what it is.", "it is what it is", []),  # nothing but function words
        ("", "x", []),
    ],
)
def test_words_that_give_a_message_away(message: str, query: str, words: list[str]) -> None:
    assert disclosed_words(message, query) == words


def test_two_neighbouring_words_disclose_whatever_the_share() -> None:
    message = "Old friends forgive late replies without asking many further questions again today"
    assert disclosed_words(message, "old friends at a table", 0.5) == ["old", "friends"]
    assert disclosed_words(message, "friends at an old table", 0.5) == []
