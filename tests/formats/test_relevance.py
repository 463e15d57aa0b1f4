"""Relevance: reading, writing, and the same judgements read from the other side."""

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.relevance import positives, read_qrels, reverse, write_qrels

# eight clips per message invite shared ids; the map stays many-to-many
MANY = {"m1": {f"c{i}": 1 for i in range(8)}, "m2": {"c7": 2, "c8": 1}}


def test_written_and_read(tmp_path: Path) -> None:
    write_qrels(tmp_path / "test.tsv", MANY)
    assert (tmp_path / "test.tsv").read_text().startswith("query-id\tcorpus-id\tscore\nm1\tc0\t1\n")
    assert read_qrels(tmp_path / "test.tsv") == MANY


def test_reverse_has_other_counts_and_returns() -> None:
    backwards = reverse(MANY)
    assert len(backwards) == 9
    assert backwards["c7"] == {"m1": 1, "m2": 2}
    assert reverse(backwards) == MANY


def test_positives_drop_zero_and_negative_grades() -> None:
    assert positives({"a": {"x": 0, "y": 2, "z": -1}, "b": {"x": 0}}) == {"a": {"y": 2}}


def test_faults_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_bytes(b"query-id\tcorpus-id\tscore\nq\td\thigh\n\td\t1\nq\td\xff\t1\n")
    with pytest.raises(RefusedRequest) as caught:
        read_qrels(path)
    message = str(caught.value)
    assert "dev.tsv:2: the score is 'high'; it must be an integer (0 means not relevant)" in message
    assert "dev.tsv:3: an id is empty" in message
    assert "dev.tsv:4: not UTF-8" in message
    with pytest.raises(
        RefusedRequest, match="is missing; it is a TSV with the header query-id corpus-id score"
    ):
        read_qrels(tmp_path / "none.tsv")
