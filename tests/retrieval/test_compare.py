"""Comparisons: of the same queries only, with the tests of every pair, refused where data differ."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fakes import KEYWORDS, KeywordEmbedder
from retrieval.test_evaluate import collection

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard, Role, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.compare import compare, compare_runs
from vidvec_msg.retrieval.evaluate import evaluate_collection
from vidvec_msg.retrieval.evaluation.paired_tests import paired_difference

METRICS = ["recall@1", "hit_rate@1", "mrr", "map", "median_rank", "mean_rank"]


class NoisyEmbedder(KeywordEmbedder):
    """Keywords with noise that depends on the words alone.

    Args:
        noise: length of the noise beside that of the keywords.
    """

    def __init__(self, noise: float = 1.0, name: str = "noisy") -> None:
        super().__init__()
        self.noise = noise
        self.card = EmbedderCard(name=name, dim=len(KEYWORDS), weights=f"noise {noise}")

    def encode(self, items: "list[Item]", *, role: Role) -> Vectors:  # type: ignore[override]
        vectors = super().encode(items, role=role)
        for row, item in enumerate(items):
            seed = int.from_bytes(item.full_text.encode()[-7:], "little")
            noise = np.random.default_rng(seed).normal(size=vectors.shape[1])
            vectors[row] += self.noise * noise / np.linalg.norm(noise)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def world(root: Path, *, topics: int = 2) -> Path:
    """40 messages of one keyword and a number, one document each, in topics of 20."""
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for i in range(40):
        word, number = KEYWORDS[i % 8], i // 8
        queries.append(
            {
                "_id": f"q{i:02}",
                "text": f"{word} <b>{number}</b>",
                "groups": {"topic": f"t{i % topics}", "rare": "x" if i < 3 else "y", "same": "s"},
            }
        )
        corpus.append({"_id": f"d{i:02}", "text": f"{word} {word} of {number}"})
    qrels = {f"q{i:02}": {f"d{i:02}": 1} for i in range(40)}
    write_collection(root, corpus=corpus, queries=queries, qrels={"test": qrels})
    return root


def evaluated(root: Path, out: Path, noise: float, **options: Any) -> Path:
    name = options.pop("name", f"noise {noise}")
    spec = out.parent / f"{out.name}.yaml"
    spec.write_text(
        yaml.safe_dump(
            {"class_path": f"{__name__}.NoisyEmbedder", "init_args": {"noise": noise, "name": name}}
        )
    )
    return evaluate_collection(
        root, str(spec), out, **{"metrics": METRICS, "pictures": False, **options}
    ).folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    root = world(place / "world")
    return [evaluated(root, place / f"e{n}", noise) for n, noise in enumerate((0.1, 0.8, 2.0))]


@pytest.fixture(scope="module")
def content(runs: list[Path]) -> dict[str, Any]:
    return compare_runs(runs)


def test_scores_are_those_of_the_runs(runs: list[Path], content: dict[str, Any]) -> None:
    for run, folder in zip(content["runs"], runs, strict=True):
        report = json.loads((folder / "report.json").read_text())
        for way in ("forward", "reverse"):
            assert content[way]["scores"][run["name"]] == report[way]["metrics"]
    assert content["forward"]["queries"] == 40
    assert content["forward"]["left_out"] == {}


def test_every_pair_is_tested_as_it_would_be_alone(runs: list[Path], content: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    part = content["reverse"]
    assert len(part["differences"]) == 3 * 5  # three pairs of runs, five metrics: medians are not tested
    tables = [pq.read_table(folder / "per_query.parquet").to_pylist() for folder in runs]
    first, second = (
        np.array([row["map"] for row in table if row["direction"] == "reverse"]) for table in tables[:2]
    )
    alone = paired_difference(first, second)
    row = next(
        row
        for row in part["differences"]
        if (row["metric"], row["first"], row["second"]) == ("map", "noise 0.1", "noise 0.8")
    )
    assert (row["difference"], row["p"], row["t"]) == (alone.difference, alone.p, alone.t)
    assert (row["low"], row["high"], row["higher"], row["lower"]) == (
        alone.low, alone.high, alone.higher, alone.lower,
    )  # fmt: skip
    family = sorted(row["p"] for row in part["differences"] if row["metric"] == "map")
    assert row["bonferroni"] == pytest.approx(min(1, 3 * row["p"]))
    assert row["holm"] == pytest.approx(
        min(1, max((3 - place) * p for place, p in enumerate(family) if p <= row["p"]))
    )
    worst = next(
        row for row in part["differences"] if row["metric"] == "map" and row["second"] == "noise 2.0"
    )
    assert worst["difference"] < 0
    assert worst["holm"] < 0.01


def test_bca_intervals_in_both_verbs(runs: list[Path], tmp_path: Path) -> None:
    folder = evaluated(runs[0].parent / "world", tmp_path / "bca", 0.8, interval="bca")
    report = json.loads((folder / "report.json").read_text())
    plain = json.loads((runs[1] / "report.json").read_text())
    for way in ("forward", "reverse"):
        mine, other = report[way]["metrics"], plain[way]["metrics"]
        assert mine["map"]["value"] == other["map"]["value"]
        assert mine["map"]["low"] != other["map"]["low"]
        assert mine["median_rank"] == other["median_rank"]  # a median keeps its percentile interval
        scores = compare_runs([folder, runs[2]], interval="bca")[way]["scores"]
        assert scores["noise 0.8"] == mine


def test_a_baseline_leaves_the_other_pairs_out(runs: list[Path]) -> None:
    part = compare_runs(runs, baseline="noise 0.8", metrics=["map"])["forward"]
    assert [(row["first"], row["second"]) for row in part["differences"]] == [
        ("noise 0.8", "noise 0.1"),
        ("noise 0.8", "noise 2.0"),
    ]
    assert list(part["scores"]["noise 0.1"]) == ["map"]


def test_groups_with_counts_and_small_ones_marked(content: dict[str, Any]) -> None:
    groups = content["forward"]["groups"]
    assert set(groups) == {"topic", "rare"}  # what all queries share says nothing
    assert groups["topic"]["t0"]["queries"] == 20
    assert not groups["topic"]["t0"]["small"]
    assert groups["rare"]["x"] == groups["rare"]["x"] | {"queries": 3, "small": True}
    mean = np.mean([groups["topic"][name]["metrics"]["noise 2.0"]["map"] for name in ("t0", "t1")])
    assert mean == pytest.approx(content["forward"]["scores"]["noise 2.0"]["map"]["value"])


def test_the_queries_that_differ_most_come_with_their_words(content: dict[str, Any]) -> None:
    pair = content["forward"]["pairs"][1]
    assert (pair["first"], pair["second"], pair["plotted"]) == ("noise 0.1", "noise 2.0", "map")
    assert len(pair["curve"]) == 40
    assert pair["curve"] == sorted(pair["curve"])
    apart = [abs(row["first"] - row["second"]) for row in pair["queries"]]
    assert apart == sorted(apart, reverse=True)
    assert len(apart) == 10
    assert pair["queries"][0]["words"].split()[0] in KEYWORDS


def test_queries_that_only_some_have_are_left_out_and_listed(tmp_path: Path) -> None:
    whole, broken = collection(tmp_path / "whole"), collection(tmp_path / "broken", broken=True)
    folders = [
        evaluated(whole, tmp_path / "e0", 0.0, name="a"),
        evaluated(broken, tmp_path / "e1", 0.0, name="b", max_failures=2),
    ]
    content = compare_runs(folders)
    assert content["forward"]["left_out"] == {"b": ["q-bridge"]}
    assert content["reverse"]["left_out"] == {"b": ["d apple 0"]}
    assert content["forward"]["queries"] == 3
    assert content["forward"]["scores"]["a"]["mrr"]["value"] == 1.0
    assert all(row["queries"] == 3 for row in content["forward"]["differences"])


def test_other_data_and_settings_are_refused_by_name(runs: list[Path], tmp_path: Path) -> None:
    other = evaluated(collection(tmp_path / "other"), tmp_path / "e", 0.0, pool="split", depth=5)
    with pytest.raises(RefusedRequest) as caught:
        compare_runs([runs[0], other])
    message = str(caught.value)
    assert "pool is 'corpus' and 'split'" in message
    assert "depth is 1000 and 5" in message
    assert "the documents, the queries, the judgements differ" in message
    assert str(other) in message
    dev = evaluated(collection(tmp_path / "other"), tmp_path / "dev", 0.0, split="dev")
    with pytest.raises(RefusedRequest, match="split is 'test' and 'dev'"):
        compare_runs([evaluated(tmp_path / "other", tmp_path / "test", 0.0), dev])


def test_the_same_data_with_other_words_may_be_compared_and_says_so(
    runs: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Frames and captions, or texts replaced: the same ids show other things; nobody can tell which."""
    compare_runs(runs)
    assert "showed other" not in caplog.text
    root = world(tmp_path / "world")
    lines = (root / "corpus.jsonl").read_text().replace('"text": "', '"text": "he says ')
    (root / "corpus.jsonl").write_text(lines)
    said = evaluated(root, tmp_path / "said", 0.1, name="with transcript")
    compare([runs[0], said], out=tmp_path / "C")
    found = json.loads((tmp_path / "C" / "compare.json").read_text())
    told = f"the documents of {said} showed other clips or texts under the ids of {runs[0]}"
    for way in ("forward", "reverse"):
        assert found[way]["queries"] == 40
        assert [line for line in found[way]["warnings"]["with transcript"] if line.startswith(told)]
    assert f"> with transcript: {told}" in (tmp_path / "C" / "compare.md").read_text()
    assert caplog.text.count(told) == 1
    report = json.loads((said / "report.json").read_text())
    del report["contents"]  # of an evaluation made before it was recorded nothing is known
    (said / "report.json").write_text(json.dumps(report))
    assert "with transcript" not in compare_runs([runs[0], said])["forward"]["warnings"]


def test_requests_that_cannot_be_carried_out(runs: list[Path], tmp_path: Path) -> None:
    for options, message in (
        ({"folders": runs[:1]}, "needs two runs or more; given was 1"),
        ({"metrics": ["mpa"]}, r"not all runs have 'mpa' \(did you mean 'map'"),
        ({"baseline": "noise 0.9"}, "baseline 'noise 0.9' is none of the runs"),
        ({"names": ["a", "a", "b"]}, "names: 3 different ones are needed, one a run"),
        ({"interval": "normal"}, "interval is 'normal'"),
        ({"folders": [runs[0], tmp_path / "x", tmp_path / "y"]}, "(?s)2 problems.*x does not exist.*y does"),
    ):
        with pytest.raises(RefusedRequest, match=message):
            compare_runs(**{"folders": runs, **options})  # type: ignore[arg-type]


def test_names_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    root = runs[0].parent / "world"
    twin = evaluated(root, tmp_path / "twin", 0.8, name="noise 0.1")
    assert [run["name"] for run in compare_runs([runs[0], twin, runs[2]])["runs"]] == [
        "noise 0.1 (e0)", "noise 0.1 (twin)", "noise 2.0",
    ]  # fmt: skip
    named = compare_runs([runs[0], twin], names=["a", "b"], baseline="b", metrics=["map"])
    assert named["forward"]["differences"][0]["first"] == "b"
    with pytest.raises(RefusedRequest, match="e0 is given twice"):
        compare_runs([runs[0], runs[0]])


def test_an_older_evaluation_is_told_to_run_again(runs: list[Path], tmp_path: Path) -> None:
    import shutil

    old = shutil.copytree(runs[0], tmp_path / "old")
    report = json.loads((old / "report.json").read_text())
    del report["data"]
    (old / "report.json").write_text(json.dumps(report))
    with pytest.raises(RefusedRequest, match="made before evaluations recorded what a comparison needs"):
        compare_runs([runs[0], old])


def test_the_folder_and_what_is_printed(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c"
    words = ["compare", "--runs", *map(str, runs), "--out", str(out), "--names", "a|b", "<i>two</i>", "c_3"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == (out / "compare.md").read_text()
    assert "| metric | a&#124;b | <i>two</i> | c_3 | chance |" in printed
    assert re.search(r"\| map \| \*\*[\d.]+\*\* \([\d.]+ – [\d.]+\) \| <u>[\d.]+</u>", printed)
    ranks = re.search(r"\| mean_rank \| \*\*([\d.]+)\*\* .* <u>([\d.]+)</u> [^|]*\| ([\d.]+) ", printed)
    assert ranks is not None
    assert float(ranks[1]) < float(ranks[2]) < float(ranks[3])  # of ranks, the lowest is the best
    assert "| rare | queries |" in printed
    assert "| x † | 3 |" in printed
    html = (out / "compare.html").read_text()
    assert "&lt;i&gt;two&lt;/i&gt;" in html
    assert "<i>two" not in html
    assert "<script" not in html
    assert "http" not in html
    assert html.count('class="plot"') == 6
    tex = (out / "compare.tex").read_text()
    assert r"c\_3" in tex
    assert re.search(r"a\|b & \\textbf\{[\d.]+\}", tex)
    assert tex.count(r"\toprule") == 2
    assert main([*words[:-3], "x", "y", "z", "--json"]) == 0  # made again in place
    assert json.loads(capsys.readouterr().out) == json.loads((out / "compare.json").read_text())


def test_a_folder_of_something_else_is_not_written_into(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RefusedRequest, match="already holds files"):
        compare(runs, out=tmp_path)
