"""Pairs from every layout and format, and refusals that name rows and columns."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs

ROWS: list[dict[str, Any]] = [
    {"id": "1", "anchor": "A ball rolls.", "positive": "Keep trying.", "group": "g", "persona": "a nurse"},
    {"id": "2", "anchor": "A hare rests.", "positive": "Slow wins.", "group": "h", "persona": "a cook"},
]
PAIRS = [
    Pair("A ball rolls.", "Keep trying.", group="g", id="1", provenance={"persona": "a nurse"}),
    Pair("A hare rests.", "Slow wins.", group="h", id="2", provenance={"persona": "a cook"}),
]


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_jsonl(tmp_path: Path) -> None:
    assert read_pairs(jsonl(tmp_path / "p.jsonl", ROWS)) == PAIRS


def test_csv(tmp_path: Path) -> None:
    with (tmp_path / "p.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    assert read_pairs(tmp_path / "p.csv") == PAIRS


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "p.parquet")
    assert read_pairs(str(tmp_path / "p.parquet")) == PAIRS


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\ufeff" + json.dumps(ROWS[0]) + "\n\n")
    assert read_pairs(path) == PAIRS[:1]


def test_numbered_negatives_of_sentence_transformers(tmp_path: Path) -> None:
    row = {"anchor": "a", "positive": "p", "negative_10": "n10", "negative_2": "n2", "negative": "n"}
    assert read_pairs(jsonl(tmp_path / "p.jsonl", [row])) == [Pair("a", "p", ("n", "n2", "n10"))]


def test_flag_embedding(tmp_path: Path) -> None:
    row = {"query": "q", "pos": ["p1", "p2"], "neg": ["n1", "n2"], "pos_scores": [1.0, 0.5], "prompt": "x"}
    kept = {"pos_scores": [1.0, 0.5], "prompt": "x"}
    assert read_pairs(jsonl(tmp_path / "p.jsonl", [row])) == [
        Pair("q", "p1", ("n1", "n2"), provenance=kept),
        Pair("q", "p2", ("n1", "n2"), provenance=kept),
    ]


def test_a_csv_with_semicolons_is_one(tmp_path: Path) -> None:
    """As spreadsheets of countries with a decimal comma write it."""
    path = tmp_path / "p.csv"
    path.write_text("\ufeffanchor;positive\r\nA street, rain.;x\r\n", "utf-8", newline="")
    [pair] = read_pairs(path)
    assert (pair.anchor, pair.positive) == ("A street, rain.", "x")


def test_lists_in_csv_are_json_and_missing_cells_are_no_negatives(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('anchor,positive,negatives,negative_1\na,p,"[""n1"", ""n2""]",\nb,q,,[sic] n\n')
    assert read_pairs(path) == [Pair("a", "p", ("n1", "n2")), Pair("b", "q", ("[sic] n",))]


def test_a_column_mapping(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"caption": "c", "message": "m", "hard": ["n"], "story": 3}])
    columns = {"anchor": "caption", "positive": "message", "negatives": "hard", "group": "story"}
    assert read_pairs(path, columns) == [Pair("c", "m", ("n",), group="3")]


def test_a_mapping_of_one_role_leaves_the_others(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"storyline": "s", "positive": "p"}])
    assert read_pairs(path, {"anchor": "storyline"}) == [Pair("s", "p")]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("made_pairs")
    monkeypatch.setitem(sys.modules, "made_pairs", module)
    return module


def test_a_function_that_yields_rows(source: ModuleType) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield from ROWS

    source.rows = rows  # type: ignore[attr-defined]
    assert read_pairs("made_pairs:rows") == PAIRS


def test_functions_that_are_not_there_are_refused(source: ModuleType) -> None:
    with pytest.raises(RefusedRequest, match="module made_pairs has no function 'rows'"):
        read_pairs("made_pairs:rows")
    with pytest.raises(RefusedRequest, match="there is no module 'no_such_module' to import"):
        read_pairs("no_such_module:rows")


@pytest.mark.parametrize(
    ("rows", "columns", "told"),
    [
        (
            [{"anchr": "a", "positive": "p"}],
            None,
            "no column 'anchor' for the anchor (did you mean 'anchr'?)",
        ),
        ([{"text": "a", "label": "p"}], None, "no column 'positive' for the positive; it has: text, label"),
        ([{"anchor": "a", "positive": "p"}], {"anchor": "query"}, "no column 'query' for the anchor"),
        ([{"anchor": "a", "positive": "p"}], {"negatives": "hard"}, "no column 'hard' for the negatives"),
        (
            [{"anchor": "a", "positive": "p"}],
            {"anchors": "x"},
            "unknown role 'anchors' (did you mean 'anchor'?)",
        ),
        ([], None, "it holds no row; at least one pair is needed"),
        ([["a", "p"]], None, "line 1: holds a list; each line is an object with anchor and positive"),
        ([{"anchor": "a", "positive": "p"}, {"anchor": 3, "positive": "p"}], None, "line 2: anchor is a int"),
        ([{"query": "a", "pos": []}], None, "line 1: pos is an empty list; at least one text is needed"),
        ([{"anchor": "a", "positive": "p", "negatives": ["n", " "]}], None, "line 1: negatives[1] is empty"),
        (
            [{"anchor": "a", "positive": "p", "hard_negatives": ["n"]}],
            None,
            "column 'hard_negatives' looks like",
        ),
        ([{"anchor": "a", "positive": "p", "neg": ["n"]}], None, "column 'neg' looks like training text but"),
        ([{"anchor": "a", "positive": "p", "positive_2": "n"}], None, "column 'positive_2' looks like"),
        (
            [{"anchor": "a", "positive": "p"}, {"anchor": "b", "positive": "r", "neg": ["n"]}],
            None,
            "column 'neg' looks like training text but",
        ),
    ],
)
def test_refusals(tmp_path: Path, rows: list[Any], columns: dict[str, str] | None, told: str) -> None:
    path = jsonl(tmp_path / "p.jsonl", rows)
    with pytest.raises(RefusedRequest) as refusal:
        read_pairs(path, columns)
    assert told in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_all_empty_texts_come_in_one_message_with_their_rows(tmp_path: Path) -> None:
    rows = [
        {"anchor": "a", "positive": "p"},
        {"anchor": " ", "positive": "p"},
        {"anchor": "a", "positive": None},
    ]
    with pytest.raises(
        RefusedRequest, match=r"2 problems\n.*line 2: anchor is empty.*\n.*line 3: positive is empty"
    ):
        read_pairs(jsonl(tmp_path / "p.jsonl", rows))


def test_broken_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"anchor": "a", "positive": "p"}\n{"anchor": \n{"anchor": "", "positive": "p"}\n')
    with pytest.raises(RefusedRequest, match=r"2 problems\n.*line 2: not JSON.*\n.*line 3: anchor is empty"):
        read_pairs(path)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    jsonl(tmp_path / "pairs.jsonl", ROWS)
    with pytest.raises(RefusedRequest, match=r"no such file \(did you mean 'pairs.jsonl'\?\)"):
        read_pairs(tmp_path / "pair.jsonl")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a")
    with pytest.raises(
        RefusedRequest, match=r"unknown format '.txt'; accepted: .jsonl, .csv, .parquet, or module:function"
    ):
        read_pairs(tmp_path / "p.txt")


def test_an_unquoted_comma_does_not_cut_a_text(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("anchor,positive\nA dog, running,Keep going.\n")
    with pytest.raises(
        RefusedRequest, match="row 1: more cells than the header has; quote texts that hold a"
    ):
        read_pairs(path)


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl"])
def test_another_encoding_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes('{"anchor": "für", "positive": "p"}\n'.encode("latin-1"))
    with pytest.raises(RefusedRequest, match="it is not UTF-8"):
        read_pairs(tmp_path / name)
