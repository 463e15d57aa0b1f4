"""What is written is read back as it was, in every format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs
from vidvec_msg.formats.pairs_file import write_pairs

PAIRS = [
    Pair("Zwei Hände, 雨", 'He said "stay", and left.\nTwice.', ("[a]", "b, c"), "g", "1", {"persona": "p"}),
    Pair("b", "[q]", (), None, None, {"mined": {"scores": [0.25], "positive_score": None}}),
]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_pairs_come_back(tmp_path: Path, suffix: str) -> None:
    path = write_pairs(tmp_path / f"pairs{suffix}", PAIRS)
    found = read_pairs(path)
    assert [replace(pair, provenance={}) for pair in found] == [
        replace(pair, provenance={}) for pair in PAIRS
    ]
    assert found[0].provenance["persona"] == "p"
    if suffix == ".csv":
        assert found[1].provenance["mined"] == '{"scores": [0.25], "positive_score": null}'
    else:
        assert found[1].provenance["mined"] == PAIRS[1].provenance["mined"]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", PAIRS)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_pairs(path, [Pair("a", "b", provenance={"score": float("nan")})])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["pairs.jsonl"]


def test_other_formats_and_columns_that_would_be_mistaken_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"unknown format '.tsv'.*accepted: .jsonl, .csv, .parquet"):
        write_pairs(tmp_path / "pairs.tsv", PAIRS)
    with pytest.raises(RefusedRequest, match="column 'group' is not read as what its name says"):
        write_pairs(tmp_path / "pairs.jsonl", [Pair("a", "b", provenance={"group": "c"})])
