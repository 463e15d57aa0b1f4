"""The leaderboard: one table a benchmark, the best first, whatever lies around in the folder."""

import json
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fakes import KEYWORDS

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.retrieval.evaluate import evaluate_collection
from vidvec_msg.retrieval.leaderboard import gather, leaderboard

METRICS = ["hit_rate@1", "map", "mean_rank"]


def world(root: Path, documents: int) -> Path:
    """A message per keyword, with one document each; the first ones lie on two keywords."""
    corpus: list[dict[str, Any]] = [
        {"_id": f"d{i}", "text": f"{word} {KEYWORDS[(i + 1) % 8]} {KEYWORDS[(i + 1) % 8]}" if i < 3 else word}
        for i, word in enumerate(KEYWORDS)
    ]
    queries = [{"_id": f"q{i}", "text": word} for i, word in enumerate(KEYWORDS)]
    qrels = {"test": {f"q{i}": {f"d{i}": 1} for i in range(documents)}}
    write_collection(root, corpus=corpus, queries=queries, qrels=qrels)
    return root


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks, two embedders on the first, and things that are none."""
    place = tmp_path_factory.mktemp("board")
    first, second = world(place / "first", 8), world(place / "second", 5)
    flat = place / "flat.yaml"
    flat.write_text("class_path: fakes.KeywordEmbedder\ninit_args:\n  bias: 1.0e+9\n")
    for name, root, spec in (
        ("keywords", first, "fakes:KeywordEmbedder"),
        ("flat", first, str(flat)),
        ("deep/other", second, "fakes:KeywordEmbedder"),
    ):
        evaluate_collection(root, spec, place / "evaluations" / name, metrics=METRICS, pictures=False)
    (place / "evaluations/notes").mkdir()
    (place / "evaluations/notes/report.json").write_text("[]")
    broken = shutil.copytree(place / "evaluations/flat", place / "evaluations/broken")
    (broken / "report.json").write_text('{"format": 99}')
    return place / "evaluations"


def test_benchmarks_apart_and_the_best_first(board: Path) -> None:
    content = gather(board)
    assert [Path(one["collection"]).name for one in content["benchmarks"]] == ["second", "first"]
    rows = content["benchmarks"][1]["forward"]["rows"]
    assert [row["name"] for row in rows] == ["keywords (keywords)", "keywords (flat)"]
    assert rows[0]["metrics"]["map"]["value"] > rows[1]["metrics"]["map"]["value"]
    assert rows[0]["metrics"]["map"]["low"] is not None
    assert content["benchmarks"][1]["forward"]["chance"]["hit_rate@1"] == pytest.approx(1 / 8)
    assert len(content["unread"]) == 1
    assert "has format 99" in content["unread"][0]


def test_by_a_metric_of_which_less_is_better(board: Path) -> None:
    rows = gather(board, sort="mean_rank")["benchmarks"][1]["reverse"]["rows"]
    values = [row["metrics"]["mean_rank"]["value"] for row in rows]
    assert values == sorted(values)
    assert values[0] < values[1]


def test_what_is_written_and_printed(board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["leaderboard", "--folder", str(board), "--out", str(tmp_path / "b"), "--metrics", "map"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "b/leaderboard.md").read_text()
    assert re.search(r"\| keywords \(keywords\) \| \*\*[\d.]+\*\* \([\d.]+ – [\d.]+\) \|", printed)
    assert "| chance | " in printed
    assert "Not read: evaluation" in printed
    html = (tmp_path / "b/leaderboard.html").read_text()
    assert "Leaderboard" in html
    assert "http" not in html
    assert r"\toprule" in (tmp_path / "b/leaderboard.tex").read_text()
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "b/leaderboard.json").read_text())


def test_a_row_with_skipped_queries_says_so_and_is_never_the_best(tmp_path: Path) -> None:
    root = world(tmp_path / "world", 8)
    evaluate_collection(root, "fakes:KeywordEmbedder", tmp_path / "e/whole", metrics=METRICS, pictures=False)
    text = (root / "queries.jsonl").read_text()
    (root / "queries.jsonl").write_text(
        text.replace('"text": "apple"', '"text": "pear"')
    )  # a wrong one at rank 1
    evaluate_collection(root, "fakes:KeywordEmbedder", tmp_path / "e/part", metrics=METRICS, pictures=False)
    content = gather(tmp_path / "e")
    part = content["benchmarks"][0]["forward"]
    assert part["queries"] == 8
    assert {row["name"]: row["skipped"] for row in part["rows"]} == {
        "keywords (part)": 1,
        "keywords (whole)": 0,
    }
    leaderboard(tmp_path / "e", out=tmp_path / "b")
    printed = (tmp_path / "b/leaderboard.md").read_text()
    (row,) = (line for line in printed.splitlines()[:12] if "keywords (part) (1 skipped)" in line)
    assert "**" not in row
    assert "<u>" not in row
    assert "Rows with skipped queries are means over the others" in printed
    assert "(1 skipped)" in (tmp_path / "b/leaderboard.html").read_text()
    assert "Rows with skipped" in (tmp_path / "b/leaderboard.html").read_text()
    (line,) = [
        line for line in (tmp_path / "b/leaderboard.tex").read_text().splitlines()[:12] if "skipped" in line
    ]
    assert "textbf" not in line


def test_rows_over_other_contents_of_the_same_ids_are_named(board: Path, tmp_path: Path) -> None:
    for name in ("keywords", "flat"):
        shutil.copytree(board / name, tmp_path / "e" / name)
    root = world(tmp_path / "first", 8)
    (root / "corpus.jsonl").write_text((root / "corpus.jsonl").read_text().replace("apple", "apple apple"))
    evaluate_collection(root, "fakes:KeywordEmbedder", tmp_path / "e/later", metrics=METRICS, pictures=False)
    leaderboard(tmp_path / "e", out=tmp_path / "b")
    told = "The same ids showed other clips or texts in these rows than in the others: keywords (later). "
    assert (tmp_path / "b/leaderboard.md").read_text().count(told) == 2  # a direction each
    assert told in (tmp_path / "b/leaderboard.html").read_text()
    leaderboard(board, out=tmp_path / "same")
    assert "showed other" not in (tmp_path / "same/leaderboard.md").read_text()


def test_evaluations_of_one_name_in_folders_of_one_name_are_all_there(board: Path, tmp_path: Path) -> None:
    for name in ("keywords", "flat"):
        shutil.copytree(board / name, tmp_path / name / "e")
    content = gather(tmp_path)
    names = [row["name"] for row in content["benchmarks"][0]["forward"]["rows"]]
    assert names == [f"keywords ({tmp_path / name / 'e'})" for name in ("keywords", "flat")]
    leaderboard(tmp_path, out=tmp_path / "b")
    assert (tmp_path / "b/leaderboard.tex").read_text().count("/e)") == 4  # two rows a direction


def test_adapters_in_folders_of_one_name_have_rows_of_their_own_names(tmp_path: Path) -> None:
    root = world(tmp_path / "world", 8)
    for run in ("a", "b"):
        adapter = shutil.copytree(
            files("vidvec_msg.tinyworld") / "weights_yes_no", tmp_path / "runs" / run / "model"
        )
        evaluate_collection(
            root, f"tinyworld?adapter={adapter}", tmp_path / "e" / run, metrics=METRICS, pictures=False
        )
    rows = gather(tmp_path / "e")["benchmarks"][0]["forward"]["rows"]
    assert [row["name"] for row in rows] == ["tinyworld+a", "tinyworld+b"]


def test_refused(board: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"no evaluation below .*looked for report.json"):
        leaderboard(tmp_path)
    with pytest.raises(RefusedRequest, match="does not exist; give one that holds evaluations"):
        leaderboard(tmp_path / "nowhere")
    with pytest.raises(RefusedRequest, match=r"has 'mpa' \(did you mean 'map'"):
        leaderboard(board, sort="mpa")
