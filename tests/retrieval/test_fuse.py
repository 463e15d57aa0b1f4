"""The verb: evaluations in, an evaluation out that other verbs read; refused where runs do not fit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from fakes import KEYWORDS
from retrieval.test_compare import evaluated

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.trec import read_run
from vidvec_msg.retrieval.compare import compare_runs
from vidvec_msg.retrieval.evaluate import read_report
from vidvec_msg.retrieval.fuse import fuse, fuse_runs
from vidvec_msg.retrieval.leaderboard import gather


def world(root: Path, *, word: str = "of") -> Path:
    """48 messages with two documents each; the dev split has every third."""
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    qrels: dict[str, dict[str, dict[str, int]]] = {"test": {}, "dev": {}}
    for i in range(48):
        first, second = KEYWORDS[i % 8], KEYWORDS[(i // 8 + i) % 8]
        queries.append({"_id": f"q{i:02}", "text": f"{first} {second} {i}", "groups": {"topic": f"t{i % 2}"}})
        corpus += [
            {"_id": f"d{i:02}-{j}", "text": f"{first} {second} {second} {word} {j} {i}"} for j in range(2)
        ]
        qrels["dev" if i % 3 == 0 else "test"][f"q{i:02}"] = {f"d{i:02}-0": 1, f"d{i:02}-1": 2}
    write_collection(root, corpus=corpus, queries=queries, qrels=qrels)
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fusion")


@pytest.fixture(scope="module")
def runs(place: Path) -> list[Path]:
    root = world(place / "world")
    return [evaluated(root, place / f"e{n}", noise) for n, noise in enumerate((0.6, 0.8, 1.5))]


@pytest.fixture(scope="module")
def dev(place: Path, runs: list[Path]) -> list[Path]:
    return [
        evaluated(place / "world", place / f"dev{n}", noise, split="dev", name=f"noise {noise}")
        for n, noise in enumerate((0.6, 0.8, 1.5))
    ]


def test_the_folder_is_an_evaluation(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = fuse(runs, tmp_path / "fused", pictures=False)
    report, printed = read_report(out), capsys.readouterr().out
    assert report["model"]["name"] == "rrf(noise 0.6, noise 0.8, noise 1.5)"
    assert "| metric | noise 0.6 | noise 0.8 | noise 1.5 | fused |" in printed
    assert (report["forward"]["queries"], report["reverse"]["queries"]) == (32, 64)
    assert report["fused"]["forward"] == {
        "method": "rrf", "normalize": None, "weights": None, "k": 60, "validation": None, "partial": 0,
    }  # fmt: skip
    compared = compare_runs([*runs, out])
    assert (
        compared["forward"]["scores"][report["model"]["name"]]["map"] == report["forward"]["metrics"]["map"]
    )
    rows = gather(tmp_path.parent)["benchmarks"]
    assert any(row["name"] == report["model"]["name"] for one in rows for row in one["forward"]["rows"])
    table = pq.read_table(out / "per_query.parquet")
    assert table.num_rows == 96
    assert set(table["group:topic"].to_pylist()) == {"t0", "t1"}
    page = (out / "report.html").read_text()
    assert "dimensions" not in page
    again = ["fuse", "--config", str(out / "config.yaml"), "--out", str(tmp_path / "same")]
    assert main(again) == 0
    same = read_report(tmp_path / "same")
    assert (same["forward"], same["model"]) == (report["forward"], report["model"])
    fuse([out, runs[0]], tmp_path / "again", pictures=False)  # a fused run is a run


def test_numbers_are_those_of_trec_eval_over_ranks_added_up(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "fused"
    report = fuse_runs(runs, out, pictures=False, metrics=["map", "ndcg@10", "mrr"])
    for way in ("forward", "reverse"):
        lists = [read_run(folder / f"runs/{way}.trec") for folder in runs]
        expected: dict[str, dict[str, float]] = {}
        for one in lists:
            for query, scored in one.items():
                order = sorted(scored, key=lambda name, scored=scored: (scored[name], name), reverse=True)
                for rank, document in enumerate(order, start=1):
                    found = expected.setdefault(query, {})
                    found[document] = found.get(document, 0.0) + 1 / (60 + rank)
        written = read_run(out / f"runs/{way}.trec")
        assert written.keys() == expected.keys()
        for query, scored in written.items():
            rounded = {name: float(np.float32(score)) for name, score in expected[query].items()}
            assert list(scored) == sorted(rounded, key=lambda name: (rounded[name], name), reverse=True)
        with (out / f"qrels/{way}.trec").open() as qrels:
            judged = pytrec_eval.parse_qrel(qrels)
        measures = {"map", "ndcg_cut.10", "recip_rank"}
        values = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(written).values()
        for ours, theirs in (("map", "map"), ("ndcg@10", "ndcg_cut_10"), ("mrr", "recip_rank")):
            mean = np.mean([value[theirs] for value in values])
            assert report[way]["metrics"][ours]["value"] == pytest.approx(mean)


def test_a_weight_of_one_is_that_run(runs: list[Path], tmp_path: Path) -> None:
    report = fuse_runs(
        runs, tmp_path / "f", method="sum", weights=[0, 1, 0], metrics=["map", "mrr"], pictures=False
    )
    alone = read_report(runs[1])
    for way in ("forward", "reverse"):
        assert report[way]["metrics"]["map"] == pytest.approx(alone[way]["metrics"]["map"])


def test_weights_come_from_other_queries(
    runs: list[Path], dev: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fuse", "--method", "sum", "--runs", *map(str, runs), "--validation", *map(str, dev)]
    assert main([*words, "--out", str(tmp_path / "f"), "--pictures", "false"]) == 0
    report = read_report(tmp_path / "f")
    part = report["fused"]["forward"]
    assert (part["validation"]["settings"], part["validation"]["queries"]) == (67, 16)
    assert sum(part["weights"]) == pytest.approx(1)
    assert part["validation"]["value"] >= max(*part["validation"]["single"], part["validation"]["even"])
    for number, folder in enumerate(dev):  # of a single run it is that run's own number
        own = read_report(folder)["forward"]["metrics"]["map"]["value"]
        assert part["validation"]["single"][number] == pytest.approx(own)
    printed = capsys.readouterr().out
    assert "the best of 67 settings by map on 16 validation queries" in printed
    # what is taken for the test does not depend on the test
    twice = fuse_runs(dev, tmp_path / "dev", method="sum", weights=part["weights"], pictures=False)
    assert twice["forward"]["metrics"]["map"]["value"] == pytest.approx(part["validation"]["value"])


def test_validation_among_far_fewer_candidates_is_warned_of(
    runs: list[Path], dev: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few = world(tmp_path / "few", word="elsewhere")
    lines = (few / "corpus.jsonl").read_text().splitlines(keepends=True)
    (few / "corpus.jsonl").write_text("".join(lines[place] for place in range(96) if place % 6 < 2))
    made = [
        evaluated(few, tmp_path / f"few{n}", noise, split="dev", name=f"noise {noise}")
        for n, noise in enumerate((0.6, 0.8, 1.5))
    ]
    told = "forward weights are chosen among 32 candidates and used among 96"
    fuse_runs(runs, tmp_path / "a", method="sum", validation=dev, pictures=False)
    assert told not in caplog.text
    fuse_runs(runs, tmp_path / "b", method="sum", validation=made, pictures=False)
    assert told in caplog.text


def test_runs_over_other_contents_of_the_same_ids_are_warned_of(
    runs: list[Path], dev: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = world(tmp_path / "replaced", word="replaced")
    told = "the documents of {} showed other clips or texts under the ids of {}"
    later = evaluated(root, tmp_path / "later", 0.8)
    later_dev = evaluated(root, tmp_path / "later_dev", 0.8, split="dev")
    fuse_runs(runs, tmp_path / "a", method="sum", validation=dev, pictures=False)
    assert "showed other" not in caplog.text
    report = fuse_runs(
        [runs[0], later], tmp_path / "b", method="sum", validation=[dev[0], later_dev], pictures=False
    )
    assert told.format(later, runs[0]) in caplog.text
    assert told.format(later_dev, dev[0]) in caplog.text
    first, second = (one["contents"] for one in report["fused"]["runs"])
    assert (first["queries"], report["contents"]) == (second["queries"], first)
    assert first["corpus"] != second["corpus"]


def test_queries_and_documents_that_a_run_lacks(place: Path, runs: list[Path], tmp_path: Path) -> None:
    root = world(tmp_path / "world")
    lines = (root / "corpus.jsonl").read_text().splitlines()
    broken = [
        json.dumps({**json.loads(line), "text": "nothing"}) if json.loads(line)["_id"] == "d01-0" else line
        for line in lines
    ]
    (root / "corpus.jsonl").write_text("\n".join(broken) + "\n")
    spec = tmp_path / "keywords.yaml"
    spec.write_text("class_path: fakes.KeywordEmbedder\n")
    from vidvec_msg.retrieval.evaluate import evaluate_collection

    partial = evaluate_collection(root, str(spec), tmp_path / "partial", pictures=False).folder
    assert read_report(partial)["failed"]["corpus"] == 1
    report = fuse_runs([runs[0], partial], tmp_path / "f", collection=root, pictures=False)
    assert report["reverse"]["queries"] == 64
    assert report["reverse"]["skipped"] == []
    assert report["fused"]["reverse"]["partial"] == 1
    assert report["forward"]["unreachable"] == 0
    alone = read_run(runs[0] / "runs/reverse.trec")["d01-0"]
    assert list(read_run(tmp_path / "f/runs/reverse.trec")["d01-0"]) == list(alone)
    # in no run at all: not in the means, and told
    other = evaluate_collection(root, str(spec), tmp_path / "other", pictures=False, seed=1).folder
    report = fuse_runs([partial, other], tmp_path / "g", pictures=False)
    assert report["reverse"]["skipped"] == [{"id": "d01-0", "reason": "no run has a list of it"}]
    row = next(
        row
        for row in pq.read_table(tmp_path / "g/per_query.parquet").to_pylist()
        if (row["direction"], row["query"]) == ("forward", "q01")
    )
    assert (
        dict(zip(row["gold_ids"], row["gold_ranks"], strict=True))["d01-0"] == 97
    )  # one past the last of 96
    assert row["recall@10"] < 1


def refusal(words: list[str], capsys: pytest.CaptureFixture[str], out: Path) -> str:
    assert main(["fuse", *words, "--out", str(out)]) == 2
    assert not out.exists()
    return capsys.readouterr().err


def test_refusals(
    place: Path, runs: list[Path], dev: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, out = str(runs[0]), str(runs[1]), tmp_path / "out"
    assert "two runs or more; given was 1" in refusal(["--runs", first], capsys, out)
    assert "is given twice" in refusal(["--runs", first, first], capsys, out)
    assert "the queries, the judgements differ" in refusal(["--runs", first, str(dev[1])], capsys, out)
    told = refusal(["--runs", first, second, "--collection", str(tmp_path)], capsys, out)
    assert "is not at" in told
    assert "--collection" in told
    other = world(tmp_path / "other")
    (other / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq01\td02-0\t1\n")
    told = refusal(["--runs", first, second, "--collection", str(other)], capsys, out)
    assert "is not the one that" in told

    summed = ["--method", "sum", "--runs", first, second, "--validation"]
    told = refusal([*summed, str(dev[0])], capsys, out)
    assert "2 runs and 1 validation runs" in told
    assert "is of another embedder than run" in refusal([*summed, str(dev[1]), str(dev[0])], capsys, out)
    assert "weights must be chosen on queries that the test does not have" in refusal(
        [*summed, first, second], capsys, out
    )
    # lists of another part of the ranking
    for name, options, reason in (
        ("short", {"depth": 20}, "forward lists of 96 of 96 candidates, and of 20 of 96"),
        ("pool", {"pool": "split"}, "pool is 'corpus' in the runs and 'split' in the validation"),
        ("self", {"exclude_self": True}, "exclude_self is False in the runs and True in the validation"),
        ("deep", {"depth": 2000}, ""),  # whole lists, like the test's
    ):
        made = [
            evaluated(
                place / "world", tmp_path / f"{name}{n}", noise, split="dev", name=f"noise {noise}", **options
            )
            for n, noise in enumerate((0.6, 0.8))
        ]
        if reason:
            told = refusal([*summed, *map(str, made)], capsys, out)
            assert "weights chosen on these validation runs would not fit" in told
            assert reason in told
        else:
            fuse(runs[:2], tmp_path / "fits", method="sum", validation=made, pictures=False)
    # a copy of the test elsewhere is the test
    copy = world(tmp_path / "copy")
    copies = [evaluated(copy, tmp_path / f"c{n}", noise) for n, noise in enumerate((0.6, 0.8))]
    told = refusal([*summed, *map(str, copies)], capsys, out)
    assert "32 queries hold what queries of the test hold: 'q01' is 'q01' of the test" in told
    with pytest.raises(RefusedRequest, match="already holds files"):
        fuse(runs, dev[0])
    assert read_report(dev[0])["model"]["name"] == "noise 0.6"
