"""The report: everything is in one file, everything is escaped, and the parts can be used alone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation.directions import Direction, Evaluation, Score, evaluate_vectors
from vidvec_msg.retrieval.evaluation.groups import add_groups
from vidvec_msg.retrieval.reports.pictures import interval_bar, item_picture, rank_bins, strip
from vidvec_msg.retrieval.reports.report import (
    Card,
    Example,
    Result,
    Row,
    Section,
    chance_row,
    choose_examples,
    comparison_table,
    example,
    group_table,
    html_report,
    metric_table,
    page,
    query_sheet,
    rank_histogram,
)
from vidvec_msg.retrieval.reports.tables import markdown_report, shown, terminal_tables

COUNT = 12
EVIL = '<script>alert("x")</script> & | more'


def clip(colour: int) -> np.ndarray:
    return np.full((8, 48, 48, 3), colour, dtype=np.uint8)


QUERIES = tuple(
    Item(f"m{i}", text=EVIL if i == 0 else f"message {i}", groups={"topic": EVIL}) for i in range(COUNT)
)
CORPUS = tuple(Item(f"c{i}", video=clip(10 * i)) for i in range(COUNT))
QRELS = {f"m{i}": {f"c{i}": 1} for i in range(COUNT)}


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    generator = np.random.default_rng(0)
    left = generator.normal(size=(COUNT, 6))
    right = left + 3 * generator.normal(size=(COUNT, 6))
    left, right = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (left, right))
    made = evaluate_vectors(
        left.astype(np.float32), [q.id for q in QUERIES], right.astype(np.float32), [c.id for c in CORPUS],
        QRELS, labels=("text", "video"),
    )  # fmt: skip
    return Evaluation(add_groups(made.forward, {q.id: q.groups for q in QUERIES}), made.reverse)


@pytest.fixture(scope="module")
def report(evaluation: Evaluation) -> dict[str, Any]:
    model = {"name": "tiny", "dim": 6, "base_model": "", "fingerprint": "0" * 16}
    return {
        "collection": "some/folder", "embedder": "x:y", "split": "test", "depth": 1000, "model": model,
        "versions": {"numpy": "2"}, **evaluation.to_dict(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def html(evaluation: Evaluation, report: dict[str, Any]) -> str:
    return html_report(report, evaluation, QUERIES, CORPUS, QRELS, True)


def test_the_page_needs_nothing_from_outside(html: str) -> None:
    assert "http:" not in html
    assert "https:" not in html
    assert "//" not in re.sub(r"data:image/jpeg;base64,[A-Za-z0-9+/=]+", "", html)
    assert not re.findall(r"<(?:link|script|iframe|object)\b", html)
    assert "@import" not in html
    assert "url(" not in html
    assert all(source.startswith("data:image/jpeg;base64,") for source in re.findall(r'src="([^"]*)"', html))


def test_the_page_is_light_and_dark_and_fits_a_phone(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "@media (max-width" in html


def test_texts_are_escaped(html: str, report: dict[str, Any]) -> None:
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "&#124;" in markdown_report(report)  # a pipe would split the table's cell


def test_everything_is_on_the_page(html: str) -> None:
    for text in (
        "text → video",
        "video → text",
        "Where the best positive came out",
        "By group",
        "worst",
        "✓ relevant",
    ):
        assert text in html
    assert html.count("<img") > 20
    assert "†" in html


def test_pictures_can_be_left_out(evaluation: Evaluation, report: dict[str, Any]) -> None:
    assert "<img" not in html_report(report, evaluation, QUERIES, CORPUS, QRELS, False)


def test_markdown_and_terminal_hold_the_same_numbers(report: dict[str, Any]) -> None:
    markdown, terminal = markdown_report(report), terminal_tables(report)
    score = report["forward"]["metrics"]["map"]
    row = next(line for line in markdown.splitlines() if line.startswith("| map |"))
    assert row == (
        f"| map | {100 * score['value']:.1f} | {100 * score['low']:.1f} – {100 * score['high']:.1f} "
        f"| {100 * score['chance']:.1f} |"
    )
    assert f"{100 * score['value']:.1f}" in terminal
    assert "text → video" in terminal


def test_a_comparison_of_four_rows() -> None:
    scores = {"hit_rate@1": Score(0.9, 0.8, 0.95, 0.03)}
    rows = [Row("before", {}, "no adapter"), Row("after", scores, style="marked"), chance_row(scores)]
    table = str(comparison_table(rows, ["hit_rate@1"], caption="held-out"))
    assert re.findall(r'<td class="value">([^<]*)', table) == ["–", "90.0", "3.0"]
    assert "80.0 – 95.0" in table
    assert 'class="marked"' in table
    assert 'class="chance"' in table
    assert "no adapter" in table
    text = page(
        "A <title>", [Section("One", comparison_table(rows, ["hit_rate@1"]), "lead")], facts=[("a", "<b>")]
    )
    assert "<h1>A &lt;title&gt;</h1>" in text
    assert "&lt;b&gt;" in text


def test_metric_table_leaves_out_columns_it_has_no_numbers_for() -> None:
    table = str(metric_table({"map": Score(0.5), "hits@3": Score(1.25)}))
    assert "interval" not in table
    assert "chance" not in table
    assert "1.250" in table  # hits are counts, not percent


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("map", 0.1234, "12.3"),
        ("hits@5", 1.5, "1.500"),
        ("dcg", 2.0, "2.000"),
        ("map", None, "–"),
        ("ndcg@5", 1, "100.0"),
    ],
)
def test_figures(metric: str, value: float | None, text: str) -> None:
    assert shown(metric, value) == text


def test_groups_beyond_the_limit_are_counted() -> None:
    groups = {f"g{i}": {"queries": i, "small": i < 15, "metrics": {"map": 0.5}} for i in range(40)}
    table = str(group_table("topic", groups, ["map"]))
    assert "and 10 more, in report.json" in table
    assert "g39" in table
    assert ">g3<" not in table


def test_bins_add_up_and_count_what_is_no_candidate(evaluation: Evaluation) -> None:
    bins = rank_bins(evaluation.forward.gold)
    assert [b.label for b in bins] == ["1", "2–3", "4–10", "11–12"]
    assert sum(b.count for b in bins) == COUNT
    assert sum(b.by_chance or 0 for b in bins) == pytest.approx(1)
    lost = evaluate_vectors(
        np.eye(2, dtype=np.float32), ["a", "b"], np.eye(2, dtype=np.float32), ["x", "y"],
        {"a": {"x": 1}, "b": {"gone": 1}}, unreachable="keep",
    ).forward  # fmt: skip
    assert [(b.label, b.count) for b in rank_bins(lost.gold)] == [("1", 1), ("2", 0), ("no candidate", 1)]
    assert "no candidate" in rank_histogram(lost.gold)


def test_best_and_worst_are_different_queries(evaluation: Evaluation) -> None:
    best, worst = choose_examples(evaluation.forward)
    assert len(best) == len(worst) == 4
    assert not set(best) & set(worst)
    ranks = evaluation.forward.gold.best
    assert ranks[best].max() <= ranks[worst].min()
    assert ranks[worst[0]] == ranks.max()


def test_the_best_positive_is_shown_however_far_down(evaluation: Evaluation) -> None:
    direction: Direction = evaluation.forward
    row = int(np.argmax(direction.gold.best))
    items = {item.id: item for item in QUERIES}, {item.id: item for item in CORPUS}
    made = example(direction, row, items[0], items[1], QRELS, with_pictures=False)
    rank = int(direction.gold.best[row])
    assert rank > 5
    assert made.best_rank == rank
    last = made.results[-1]
    assert (last.rank, last.relevant, last.far, last.card.id) == (rank, True, True, f"c{row}")
    assert [result.rank for result in made.results[:-1]] == [1, 2, 3, 4, 5]


def test_a_sheet_by_itself() -> None:
    made = Example(Card("q", "what"), 0, 3, [Result(Card("d", "that"), 1, 0.25, False)])
    text = str(query_sheet([made]))
    assert "no rank: it has no vector" in text
    assert "0.250" in text
    assert "relevant" not in text


def test_pictures() -> None:
    from PIL import Image

    picture = item_picture(CORPUS[0])
    assert picture is not None
    import base64
    import io

    image = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))
    assert image.size == (3 * 84 + 2 * 3, 84)
    assert strip(clip(0)[:1]).startswith("data:image/jpeg;base64,")
    assert item_picture(Item("t", text="words")) is None
    assert item_picture(Item("i", image=clip(3)[0])) is not None


def test_a_clip_that_does_not_decode_is_shown_by_its_words(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_text("not a video")
    item = Item("v", video=tmp_path / "broken.mp4", transcript="what is said")
    card = Card.of(item)
    assert card.picture is None
    assert card.words == "what is said"


def test_long_texts_are_cut() -> None:
    card = Card.of(Item("t", text="x" * 1000))
    assert len(card.words) == 400
    assert card.words.endswith("…")


def test_interval_bar_stays_inside() -> None:
    drawing = interval_bar(1.0, 0.0, 1.5, 0.5)
    numbers = [float(x) for x in re.findall(r'(?:x1|x2|cx)="([\d.]+)"', drawing)]
    assert 4 <= min(numbers) <= max(numbers) <= 116
    assert interval_bar(None, None, None, None) == ""
