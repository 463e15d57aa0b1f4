"""Sections beyond the tables: drawn from report.json alone, escaped, and absent where there is nothing."""

import re
from typing import Any

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.reports.drawings import curves, differences
from vidvec_msg.retrieval.reports.sections import (
    confusion_body,
    diverging_body,
    dual_softmax_body,
    matrix,
    message_words,
    published_body,
    separation_body,
)

SEPARATION = {
    "auc": 0.8125, "error": 1e-6, "positives": 4, "mismatched": 12, "thresholds": [-0.5, 0.0, 0.5],
    "positive_below": [0.0, 0.25, 1.0], "mismatched_below": [0.5, 0.75, 1.0],
}  # fmt: skip
MATRIX = {
    "title": "<b>", "rows": ["<b>", "work"], "columns": ["<b>", "work"],
    "cells": [[0, 0, 3], [0, 1, 1], [1, 1, 2]],
    "right": 5, "total": 6,
}  # fmt: skip


def part(**content: Any) -> dict[str, Any]:
    return {"label": "text → video", **content}


def test_nothing_to_show_is_nothing() -> None:
    assert separation_body([part(separation=None), part()]) == ""
    assert confusion_body([part(confusion=None), part()], {}) == ""
    assert diverging_body({"forward": part(), "reverse": part()}, {}, {}) == ""
    assert dual_softmax_body({"dual_softmax": None}) == ""


def test_published_rows_stand_by_direction() -> None:
    row = {
        "model": "A <model>", "direction": "text_to_video", "setting": "with transcripts",
        "values": {"R@10": 47.5}, "metrics": {}, "source": "Table 1", "remark": "of all positives",
    }  # fmt: skip
    rows = [row, row | {"model": "B", "values": {"mAP": 45.6}}]
    ours = {"recall@10": {"value": 0.123}, "map": {"value": 0.456}}
    report = {
        "published": [one | {"metrics": {"R@10": "recall@10"}} for one in rows],
        "model": {"name": "mine"},
        "forward": part(metrics=ours),
        "reverse": part(label="video → text", metrics=ours),
    }
    body = str(published_body(report))
    for text in ("published, not rerun", "A &lt;model&gt;", "47.5", "–", "Table 1: of all positives"):
        assert text in body
    assert body.count("<table") == 1
    first = body[body.index("<tbody>") : body.index("</tr>", body.index("<tbody>"))]
    for text in ("mine", "this run", "12.3"):  # on top; which of ours mAP is, the rows do not say here
        assert text in first
    assert "45.6" not in first
    assert published_body(report | {"published": []}) == ""


def test_separation_says_its_numbers_and_draws_both_curves() -> None:
    body = separation_body([part(separation=SEPARATION)])
    assert "pairwise AUC 0.812 · 4 positive pairs, 12 mismatched" in body
    assert body.count("<polyline") == 2
    rough = separation_body([part(separation=SEPARATION | {"error": 0.004})])
    assert "pairwise AUC 0.812 ± 0.004" in rough


def test_a_matrix_by_shares_of_its_rows() -> None:
    drawn = str(matrix(MATRIX, {"work": "about <i>work</i>"}))
    assert re.findall(r"--share: (\d+)%", drawn) == ["75", "25", "0", "100"]
    assert re.findall(r'<td class="quiet">([^<]*)', drawn) == ["75%", "100%"]
    assert "about &lt;i&gt;work&lt;/i&gt;" in drawn
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn


def test_a_large_matrix_is_a_list_of_confusions() -> None:
    labels = [f"t{n}" for n in range(30)]
    cells = [[n, n, 5] for n in range(30)] + [[3, 4, 9], [7, 8, 2]]
    listed = str(matrix(MATRIX | {"rows": labels, "columns": labels, "cells": cells}, {}))
    assert "--share" not in listed
    assert re.findall(r"<tr><th scope=\"row\">(t\d+)", listed) == ["t3", "t7"]


def test_messages_within_topics_open_on_demand() -> None:
    found = {"topics": MATRIX, "within": [MATRIX, MATRIX | {"total": 0}]}
    body = str(confusion_body([part(confusion=found)], {}))
    assert "5 of 6 right at rank 1" in body
    assert "<summary>messages within 1 topics</summary>" in body


def test_diverging_pairs_with_their_words() -> None:
    pair = {"query": "q", "document": "d", "forward": 320, "forward_of": 1000, "reverse": 3, "reverse_of": 52}
    report = {"diverging": [pair], "forward": part(), "reverse": part(label="video → text")}
    body = str(diverging_body(report, {"q": Item("q", text="a <message>")}, {"d": Item("d")}))
    for text in ("a &lt;message&gt;", "320 of 1,000", "3 of 52", "video → text"):
        assert text in body


def test_long_words_are_cut() -> None:
    words = message_words([Item("a", text="x " * 300), Item("b", transcript="said")])
    assert len(words["a"]) == 110
    assert words["b"] == "said"


def test_drawings_stay_inside() -> None:
    for drawing in (
        curves([0.2, 0.2], [("positive", [0.0, 1.0])], across="<similarity>", label='a "label"'),
        curves([-1, 0, 1], [("positive", [0, 0.5, 1])], across="s", label="l"),
        differences([-0.5, 0.0, 0.25, 1.0], scale=100, unit="%", queries=4, label="l"),
        differences([], scale=1, unit="", queries=0, label="l"),
        differences([0.0, 0.0], scale=1, unit="", queries=2, label="l"),
    ):
        assert "<similarity>" not in drawing
        across = [float(x) for x in re.findall(r'(?:x|x1|x2)="(-?[\d.]+)"', drawing)]
        down = [float(y) for y in re.findall(r'(?:y|y1|y2)="(-?[\d.]+)"', drawing)]
        points = re.findall(r"(-?[\d.]+),(-?[\d.]+)", "".join(re.findall(r'points="([^"]*)"', drawing)))
        assert min([*across, *(float(x) for x, _ in points)]) >= 0
        assert max([*across, *(float(x) for x, _ in points)]) <= 640
        assert min([*down, *(float(y) for _, y in points)]) >= 0
        assert max([*down, *(float(y) for _, y in points)]) <= 260
    bars = differences([-0.5, 0.0, 1.0], scale=100, unit="%", queries=3, label="l")
    assert bars.count('class="up"') == bars.count('class="down"') == 1
    assert "+100%" in bars
