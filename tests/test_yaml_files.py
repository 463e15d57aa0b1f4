"""A YAML file that is none is refused with what it should hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.yaml_files import read_table


def told(path: Path) -> str:
    with pytest.raises(RefusedRequest) as refusal:
        read_table(path, what="rule", holds="high, low")
    return str(refusal.value)


def test_a_table_is_read_also_behind_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfhigh: 4\n")
    assert read_table(tmp_path / "a.yaml", what="rule", holds="high, low") == {"high": 4}


def test_what_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rule.yaml"
    for content, wrong in (
        (b"", "is no table, but empty"),
        (b"- 4", "is no table, but a list"),
        (b"4", "is no table, but a int"),
        (
            b"a: [",
            "is not YAML: expected the node content, but found '<stream end>' (line 1, column 5)",
        ),
        (b"a: 2026-99-99", "is not YAML: month must be in 1..12"),
        (b"a: \xff", "is not YAML: 'utf-8' codec can't decode byte 0xff in position 3: invalid start byte"),
    ):
        path.write_bytes(content)
        assert told(path) == f"rule {path} {wrong}; needed are high, low"
    missing = tmp_path / "rules.yaml"
    assert told(missing) == (
        f"rule {missing}: no such file (did you mean 'rule.yaml'?); needed is a YAML file of high, low"
    )
    assert (
        told(tmp_path)
        == f"rule {tmp_path} cannot be read (Is a directory); needed is a YAML file of high, low"
    )
