"""Rows for a paper: marks, ties and escapes."""

import pytest

from vidvec_msg.retrieval.reports.latex import latex_table, latex_text, marks


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("map", [0.1, 0.3, 0.2], ["", "best", "second"]),
        ("mean_rank", [10.0, 3.0, 4.0], ["", "best", "second"]),
        ("map", [0.5001, 0.5002, 0.1], ["best", "best", "second"]),  # printed alike
        ("map", [0.5, None, 0.4], ["best", "", "second"]),
        ("map", [0.5], [""]),
        ("map", [0.5, 0.5], ["", ""]),
        ("map", [], []),
    ],
)
def test_marks(metric: str, values: list[float | None], expected: list[str]) -> None:
    assert marks(metric, values) == expected


def test_a_table() -> None:
    rows = {"A_1": {"map": 0.25, "mean_rank": 3.0}, "B & C": {"map": 0.5}, "chance": {"map": 0.9}}
    table = latex_table("text → video, 5%", rows, ["map", "mean_rank"], unmarked=["chance"])
    assert r" & map & mean\_rank \\" in table
    assert r"A\_1 & \underline{25.0} & 3.0 \\" in table
    assert r"B \& C & \textbf{50.0} & -- \\" in table
    assert r"chance & 90.0 & -- \\" in table
    assert r"\caption{text $\rightarrow$ video, 5\%}" in table
    assert table.count("\\\\\n") == 4


def test_escapes() -> None:
    assert latex_text(r"a\b{c}^~#$") == r"a\textbackslash{}b\{c\}\textasciicircum{}\textasciitilde{}\#\$"
