"""Personas: any file, streamed, the same sample whatever the order, near-duplicates gone."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth import personas as module
from vidvec_msg.data_synth.personas import sample_personas
from vidvec_msg.errors import RefusedRequest

ROOT = Path(__file__).parents[2]
PERSONAS = [
    json.loads(line)["persona"] for line in (ROOT / "data/personas.jsonl").read_text("utf-8").splitlines()
]


def written(path: Path, rows: list[object], *, bom: bool = False) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + b"\n".join(lines) + b"\n")
    return path


def hub(path: Path, names: list[str]) -> Path:
    return written(path, [{"persona": name} for name in names])


def test_the_sample_does_not_depend_on_the_order_and_grows_by_its_end(tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(PERSONAS, len(PERSONAS))
    small = sample_personas(hub(tmp_path / "a.jsonl", PERSONAS), 50, seed=3).personas
    large = sample_personas(hub(tmp_path / "b.jsonl", shuffled), 200, seed=3).personas
    assert large[:50] == small
    assert len(set(large)) == 200
    assert sample_personas(tmp_path / "a.jsonl", 50, seed=4).personas != small


def test_every_persona_has_the_same_chance(tmp_path: Path) -> None:
    path = hub(tmp_path / "a.jsonl", PERSONAS[:20])
    drawn = [name for seed in range(300) for name in sample_personas(path, 5, seed=seed).personas]
    counts = [drawn.count(name) for name in PERSONAS[:20]]
    assert sum(counts) == 1_500
    assert min(counts) > 40
    assert max(counts) < 115  # 75 expected, standard deviation 7.5


@given(st.lists(st.sampled_from(["red ant", "blue bee", "tall cow", "sad dog"]), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_exact_repetitions_are_one(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    path = hub(tmp_path_factory.mktemp("p") / "a.jsonl", names)
    assert sorted(sample_personas(path, 10).personas) == sorted(set(names))


def test_near_duplicates_go_and_are_replaced_by_others(tmp_path: Path) -> None:
    words = (
        "a retired lighthouse keeper in northern Norway who carves small wooden whales for his grandchildren"
    )
    near = [f"{words}{mark}" for mark in ("", ".", " !", ", too")]
    path = hub(tmp_path / "a.jsonl", [*near, *PERSONAS[:60]])
    found = sample_personas(path, 50)
    assert len(found.personas) == 50
    everything = sample_personas(path, 64)
    assert len(everything.personas) == 61
    assert sum(name.startswith("a retired lighthouse") for name in everything.personas) == 1
    assert everything.left_out == {"near-duplicates of another one in the sample": 3}
    assert len(sample_personas(path, 64, near=1.1).personas) == 64


def test_many_near_duplicates_take_another_pass(tmp_path: Path) -> None:
    copies = [
        f"a tram conductor who collects postcards of lighthouses and old stamps number {n}"
        for n in range(400)
    ]
    found = sample_personas(hub(tmp_path / "a.jsonl", [*copies, *PERSONAS[:80]]), 70, near=0.8)
    assert len(found.personas) == 70


def test_a_messy_file(tmp_path: Path) -> None:
    rows: list[object] = [
        {"persona": PERSONAS[0], "general domain (top 1 percent)": "Medicine", "id": 3},
        b"",
        b"   ",
        {"persona": ""},
        {"persona": None},
        {"other": "x"},
        b"{not json",
        b'{"persona": "caf\xff"}',
        [1, 2],
        {"persona": "x" * 2_000},
        {"persona": PERSONAS[1], "notes": "y" * (10 << 20)},
        {"persona": f"  {PERSONAS[2]}\n"},
    ]
    found = sample_personas(written(tmp_path / "messy.jsonl", rows, bom=True), 10)
    assert sorted(found.personas) == sorted(PERSONAS[:3])
    assert (found.field, found.read) == ("persona", 10)
    assert found.left_out == {
        "empty": 1,
        "without a text in 'persona'": 2,
        "not JSON": 1,
        "not UTF-8": 1,
        "no object with a persona": 1,
        "longer than 1,000 characters": 1,
    }


def test_a_line_that_is_no_row_is_skipped_without_being_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 1 << 20)
    rows: list[object] = [
        {"persona": PERSONAS[0]},
        b"z" * (3 << 20),
        {"persona": PERSONAS[1]},
        b"z" * (1 << 20),
    ]
    found = sample_personas(written(tmp_path / "a.jsonl", rows), 10)
    assert sorted(found.personas) == sorted(PERSONAS[:2])
    assert found.left_out["longer than 1 MB"] == 2


def test_tables_texts_and_plain_strings(tmp_path: Path) -> None:
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"a{suffix}"
        with path.open("w", encoding="utf-8-sig", newline="") as stream:
            csv.writer(stream, delimiter=delimiter).writerows([["n", "persona"], *enumerate(PERSONAS[:5])])
        assert sorted(sample_personas(path, 9).personas) == sorted(PERSONAS[:5])
    (tmp_path / "a.txt").write_text("\ufeff" + "\n\n".join(PERSONAS[:5]), encoding="utf-8")
    assert sorted(sample_personas(tmp_path / "a.txt", 9).personas) == sorted(PERSONAS[:5])
    path = written(tmp_path / "strings.jsonl", list(PERSONAS[:5]))
    assert sorted(sample_personas(path, 9).personas) == sorted(PERSONAS[:5])


def test_the_column_is_found_or_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [{"id": "1", "who": "a tall baker in Lisbon"}])
    assert sample_personas(path, 1).field == "who"
    path = written(tmp_path / "b.jsonl", [{"one": "a tall baker", "two": "a small smith"}])
    with pytest.raises(
        RefusedRequest, match=r"which of its fields \(one, two\) is the persona\?.*--persona_field"
    ):
        sample_personas(path, 1)
    assert sample_personas(path, 1, field="two").personas == ["a small smith"]
    with pytest.raises(RefusedRequest, match=r"no field 'tow' \(did you mean 'two'\?\); it has: one, two"):
        sample_personas(path, 1, field="tow")


def test_files_that_are_none(tmp_path: Path) -> None:
    hub(tmp_path / "personas.jsonl", PERSONAS[:2])
    with pytest.raises(RefusedRequest, match=r"no such file \(did you mean 'personas.jsonl'\?\)"):
        sample_personas(tmp_path / "persona.jsonl", 1)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(
        RefusedRequest, match=r"unknown format '.parquet'; accepted: .jsonl, .csv, .tsv, .txt"
    ):
        sample_personas(tmp_path / "a.parquet", 1)
    with pytest.raises(RefusedRequest, match=r"not one persona in 2 rows; 2 rows empty"):
        sample_personas(written(tmp_path / "b.jsonl", [{"persona": ""}, {"persona": " "}]), 1)
    (tmp_path / "c.csv").write_bytes(b"persona\ncaf\xff\n")
    with pytest.raises(RefusedRequest, match="is not UTF-8"):
        sample_personas(tmp_path / "c.csv", 1)
