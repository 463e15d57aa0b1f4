"""The published rows, held to a few cells read from the papers by eye and to their own arithmetic."""

from __future__ import annotations

import json

import pytest
from retrieval.mcq.exams import messages

from vidvec_msg.retrieval.benchmarks.published import published_for, published_rows, published_table
from vidvec_msg.retrieval.benchmarks.registry import BENCHMARKS
from vidvec_msg.retrieval.evaluate import evaluate, read_report
from vidvec_msg.retrieval.reports.tables import terminal_tables


def the(benchmark, model, direction, setting=""):
    (row,) = [
        row
        for row in published_rows(benchmark)
        if (row.model, row.direction, row.setting) == (model, direction, setting)
    ]
    return row


@pytest.mark.parametrize(
    ("model", "direction", "setting", "values"),
    [
        ("VidVec-Msg", "text_to_video", "without transcripts", {"R@10": 47.5, "mAP": 45.6}),
        ("VidVec-Msg", "video_to_text", "with transcripts", {"R@1": 49.1, "mAP": 65.0}),
        ("Clip4Clip", "video_to_text", "without transcripts", {"R@1": 24.1, "mAP": 37.3}),
        ("Qwen3-VL-Emb", "text_to_video", "with transcripts", {"R@10": 42.7, "mAP": 42.8}),
    ],
)
def test_vidmsg_table_1(model, direction, setting, values):
    assert the("vidmsg", model, direction, setting).values == values


def test_vidmsg_models_without_transcripts_have_no_row_with_them():
    settings = {row.setting for row in published_rows("vidmsg") if row.model == "PE-Core"}
    assert settings == {"without transcripts"}


def test_vidmsg_table_2_overall():
    assert the("vidmsg", "Qwen2.5-VL-7B", "multiple_choice", "overall").values == {"accuracy": 71.9}


def test_drivelhub_table_2():
    row = the("drivelhub", "omni-embed-nemotron-3b", "video_to_text")
    assert row.values == {"R@1": 87.7, "R@5": 96.2, "R@10": 96.8, "MRR": 92.5, "N@5": 93.2, "N@10": 93.4}
    assert the("drivelhub", "Qwen3-Omni-30B-A3B", "text_to_video").values["R@10"] == 1.8


def test_a_value_has_our_name_only_where_the_paper_says_enough():
    row = the("vidmsg", "VidVec", "text_to_video", "without transcripts")
    assert row.value("recall@10") == pytest.approx(0.284)
    assert row.value("hit_rate@10") is None
    drivel = the("drivelhub", "e5-omni-7B", "text_to_video")
    assert drivel.value("ndcg@5") == pytest.approx(0.749)
    assert drivel.value("recall@1") is None
    assert drivel.value("hit_rate@1") is None


def test_every_row_says_where_it_is_from_and_is_a_percentage():
    rows = [row for name in BENCHMARKS for row in published_rows(name)]
    assert len(rows) == 28 + 140 + 18
    assert all("Table" in row.source and row.remark for row in rows)
    assert all(0 <= value <= 100 for row in rows for value in row.values.values())


def test_no_rows_for_what_is_not_known():
    assert published_rows("msrvtt") == published_rows("../vidmsg") == ()


@pytest.mark.parametrize(("as_published", "found"), [(True, True), (False, False)])
def test_rows_stand_beside_collections_of_the_published_sizes_alone(as_published, found, tmp_path):
    made = {"name": "vidmsg", "as_published": as_published}
    (tmp_path / "benchmark.json").write_text(json.dumps(made))
    assert bool(published_for(tmp_path)) is found
    assert published_for(tmp_path / "elsewhere") == ()


def test_a_table_to_stand_under_a_run():
    numbers = {name: {"value": value} for name, value in {"recall@1": 0.25, "map": 0.5, "mrr": 1.0}.items()}
    report = {"model": {"name": "a|b"}, "forward": {"metrics": numbers}, "reverse": {"metrics": numbers}}
    rows = {name: [row.to_dict() for row in published_rows(name)] for name in ("vidmsg", "drivelhub")}
    lines = published_table(report | {"published": rows["vidmsg"]}, "reverse")
    assert lines[:4] == [
        "| published, not rerun | setting | R@1 | mAP |",
        "| --- | --- | ---: | ---: |",
        "| **a&#124;b** | **this run** | **25.0** | **50.0** |",
        "| Clip4Clip | without transcripts | 24.1 | 37.3 |",
    ]
    assert "| VidVec-Msg | with transcripts | 49.1 | 65.0 |" in lines
    assert lines[-2].startswith("VidMsg, Table 1 (§5.2): R@10 is recall over all positives")
    lines = published_table(report | {"published": rows["drivelhub"]}, "forward")
    assert lines[0] == "| published, not rerun | setting | R@1 | R@5 | R@10 | MRR | N@5 | N@10 |"
    assert lines[2] == "| **a&#124;b** | **this run** | **–** | **–** | **–** | **100.0** | **–** | **–** |"
    assert published_table(report, "forward") == []
    assert json.loads(json.dumps(rows)) == rows


def test_evaluate_prints_them_under_a_run_on_the_benchmark_alone(tmp_path, capsys):
    root = messages(tmp_path / "C", clips=1).root
    evaluate(root, "fakes:KeywordEmbedder", tmp_path / "plain", pictures=False)
    assert "published" not in capsys.readouterr().out
    (root / "benchmark.json").write_text('{"name": "vidmsg", "as_published": true}')
    evaluate(root, "fakes:KeywordEmbedder", tmp_path / "own", pictures=False)
    forward, _, reverse = capsys.readouterr().out.partition("\n## text corpus")
    assert "| VidVec-Msg | without transcripts | 47.5 | 45.6 |" in forward
    assert "| **keywords** | **this run** |" in forward
    page = (tmp_path / "own" / "report.html").read_text()
    assert "What papers publish" in page
    assert "published, not rerun" in page
    report = read_report(tmp_path / "own")
    drawn = terminal_tables(report)
    assert "published, not rerun" in drawn
    assert "this run" in drawn
    assert "VidVec-Msg" in drawn
    assert "| VidVec-Msg | with transcripts | 49.1 | 65.0 |" in reverse
    assert "47.5" in (tmp_path / "own" / "report.md").read_text()
    assert len(json.loads((tmp_path / "own" / "report.json").read_text())["published"]) == 168
