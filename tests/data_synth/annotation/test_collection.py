"""Ratings → a collection: what is in it, what its card says, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_synth.annotation.candidate_files import candidates, ranked, row, wide

from vidvec_msg.cli import main
from vidvec_msg.data_synth.annotation.candidates import read_candidates
from vidvec_msg.data_synth.annotation.collection import collection_from_ratings
from vidvec_msg.data_synth.annotation.reliability import reliability
from vidvec_msg.data_synth.annotation.rule import Rule
from vidvec_msg.data_synth.annotation.tasks import export_tasks
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection

PAIRS = (("m1", "a"), ("m1", "b"), ("m1", "c"), ("m2", "b"), ("m2", "d"), ("m2", "e"))
GIVEN = {  # a b c | b d e
    "Ann": [5, 4, 6, 2, 4, 1],
    "Bo": [4, 4, 5, 3, 5, 5],
    "Cleo": [3, None, 5, 3, 4, 5],
}
"""m1: a and b stay, c is too obvious. m2: b is no majority, d stays, e has a 1."""


@pytest.fixture
def source(tmp_path) -> Path:
    """Six candidates of two messages; clip b is one of both."""
    rows = [row(message, clip, title=f"apple {clip}") for message, clip in PAIRS]
    return ranked(tmp_path / "D", rows)


@pytest.fixture
def rated(source, tmp_path) -> Path:
    """What three people gave."""
    return wide(tmp_path / "r.csv", read_candidates(source), GIVEN)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- what is made -------------------------------------------------------------------------------------------


def test_what_people_found_right_is_relevant_and_the_rest_is_told(source, rated, tmp_path, capsys):
    out = collection_from_ratings(
        source,
        [rated],
        tmp_path / "C",
        about={"chat_model": "M", "models": {"a": ["b", "c"]}},
        licence="cc0-1.0",
    )
    loaded = Collection.load(out)
    assert loaded.qrels == {"test": {"m1": {"a": 1, "b": 1}, "m2": {"b": 0, "d": 1}}}
    assert [(one.id, one.groups) for one in loaded.queries] == [
        ("m1", {"topic": "growth"}), ("m2", {"topic": "culture"}),
    ]  # fmt: skip
    # b was a candidate of both messages and stays for the first
    assert [(one.id, one.groups["topic"]) for one in loaded.corpus] == [
        ("a", "growth"), ("b", "growth"), ("d", "culture"),
    ]  # fmt: skip
    account = json.loads((out / "ratings.json").read_text())
    assert account["conditions_failed"]["too obvious"] == 1
    assert account["cells_without_a_rating"] == 1
    assert account["clips_of_a_message"] == {"least": 1, "mean": 1.5, "most": 2}
    assert [one["kept"] for one in lines(out / "ratings.jsonl")] == [True, True, False, False, True, False]
    card = (out / "README.md").read_text()
    for words in (
        'license: "cc0-1.0"', "2 messages × 3 clips", "too obvious 1", "| chat model | M |",
        "| models | a: b, c |",
        "Standard YouTube",
        "3 of 3 clips have no file here", "17 ratings of 3 people; 1 cells hold none",
    ):  # fmt: skip
        assert words in card
    told = capsys.readouterr().out
    assert "2 messages, 3 clips (0 with a file)" in told
    assert "majority of high" in told
    assert (out / "funnel.png").stat().st_size > 1000


def test_an_address_is_never_taken_for_a_file(source, rated, tmp_path):
    out = collection_from_ratings(source, [rated], tmp_path / "C")
    for one, item in zip(lines(out / "corpus.jsonl"), Collection.load(out).corpus, strict=True):
        assert item.modality == "text"
        assert item.text == f"apple {item.id}"
        assert one["metadata"]["url"].startswith("https://www.youtube.com/")


def test_doctor_and_evaluate_take_it_as_it_is(source, rated, tmp_path, capsys):
    out = str(collection_from_ratings(source, [rated], tmp_path / "C"))
    main(["doctor", "--embedder", "fakes:KeywordEmbedder", "--collection", out, "--json"])
    told = capsys.readouterr().out
    audited = json.loads(told[told.index("\n{") :])["collection"]["checks"]
    assert {one["verdict"] for one in audited} == {"ok", "n/a"}
    asked = (tmp_path / "C" / "queries.jsonl").read_text().replace("Small steps", "apple steps")
    (tmp_path / "C" / "queries.jsonl").write_text(asked.replace("A good", "An apple"))
    options = ["--embedder", "fakes:KeywordEmbedder", "--out", str(tmp_path / "E")]
    assert main(["evaluate", "--collection", out, *options]) == 0
    report = json.loads((tmp_path / "E" / "report.json").read_text())
    assert (report["forward"]["queries"], report["forward"]["candidates"]) == (2, 3)


def test_grades_can_be_the_mean_rating(source, rated, tmp_path):
    out = collection_from_ratings(source, [rated], tmp_path / "C", grades="mean", split="dev")
    assert Collection.load(out).qrels == {"dev": {"m1": {"a": 4, "b": 4}, "m2": {"b": 0, "d": 4}}}


def test_another_rule_keeps_others(source, rated, tmp_path):
    out = collection_from_ratings(source, [rated], tmp_path / "C", rule=Rule(obvious=1, low=0))
    assert Collection.load(out).qrels["test"] == {
        "m1": {"a": 1, "b": 1, "c": 1},
        "m2": {"b": 0, "d": 1, "e": 1},
    }


def test_a_clip_of_several_topics_is_one_clip_of_several_topics(tmp_path):
    rows = [row("m1", "a"), row("m2", "a"), row("m1", "a", message_id="m3", message="m", topic="th|rd"),
            row("m1", "b")]  # fmt: skip
    path = ranked(tmp_path / "D", rows)
    table = wide(tmp_path / "r.csv", read_candidates(path), {"Ann": [5] * 4, "Bo": [5] * 4})
    out = collection_from_ratings(path, [table], tmp_path / "C")
    assert json.loads((out / "ratings.json").read_text())["clips_of_several_topics"] == 1
    assert "\n| th\\|rd | 1 |\n" in (out / "README.md").read_text()


def test_a_message_without_a_clip_is_left_out_and_named(source, tmp_path, capsys):
    given = {"Ann": [5, 4, 4, 2, 2, 2], "Bo": [5, 4, 4, 2, 2, 2]}
    rated = wide(tmp_path / "r.csv", read_candidates(source), given)
    out = collection_from_ratings(source, [rated], tmp_path / "C")
    assert [one.id for one in Collection.load(out).queries] == ["m1"]
    assert "messages without a clip, left out: m2" in capsys.readouterr().out
    assert "Messages without a clip, left out: `m2`" in (out / "README.md").read_text()


def test_the_order_of_files_and_raters_changes_no_judgement(source, tmp_path):
    found = read_candidates(source)
    one = wide(tmp_path / "one.csv", found, {"Ann": GIVEN["Ann"]})
    two = wide(tmp_path / "two.csv", found, {"Cleo": GIVEN["Cleo"], "Bo": GIVEN["Bo"]})
    made = [
        collection_from_ratings(source, files, tmp_path / name)
        for name, files in (("A", [one, two]), ("B", [two, one]))
    ]
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (made[0] / name).read_bytes() == (made[1] / name).read_bytes()
    first, second = (json.loads((out / "ratings.json").read_text())["agreement"] for out in made)
    for scale in first:
        for when in first[scale]:
            assert first[scale][when]["kappa"] == pytest.approx(second[scale][when]["kappa"])


# --- agreement ----------------------------------------------------------------------------------------------


def test_average_pairwise_kappa_worked_out_by_hand(tmp_path):
    # Ann and Bo on four clips: 1 4 3 5 and 1 5 3 5. Differences 0 1 0 0: mean 1/4. All 16 meetings:
    # (0+4+2+4) + (3+1+1+1) + (2+2+0+2) + (4+0+2+0) = 28: mean 7/4. Kappa 1 - 1/7.
    # Cleo rated the last two like Ann: 3 5, kappa 1 with both. The mean of 6/7, 1 and 1.
    given = {
        "t1": {"Ann": 1, "Bo": 1}, "t2": {"Ann": 4, "Bo": 5}, "t3": {"Ann": 3, "Bo": 3, "Cleo": 3},
        "t4": {"Ann": 5, "Bo": 5, "Cleo": 5},
    }  # fmt: skip
    found = reliability(given)
    assert found.kappa == pytest.approx((6 / 7 + 2) / 3)
    assert (found.tasks, found.pairs, found.undefined_pairs) == (4, 3, 0)
    # collapsed: 0 2 1 2 by everybody
    assert reliability(given, collapse=True).kappa == 1
    # of t2 and t4: 4 5 and 5 5; differences 1 0, all meetings 1 1 0 0: chance; and Cleo shares only t4
    some = reliability(given, tasks={"t2", "t4"})
    assert (some.kappa, some.pairs, some.undefined_pairs) == (0, 1, 2)


def test_a_crowd_that_shares_few_clips_is_compared_by_place():
    given = {f"t{n}": {f"w{n}a": 1 + n % 5, f"w{n}b": 1 + n % 5} for n in range(10)}
    found = reliability(given)
    assert (found.kappa, found.pairs, found.undefined_pairs) == (None, 0, 10)
    assert found.kappa_by_place == 1
    assert found.alpha_ordinal == found.alpha_interval == 1


def test_agreement_that_is_not_defined_is_told_and_is_no_nan(tmp_path, capsys):
    source = ranked(tmp_path / "D", [row("m1", "a"), row("m1", "b")])
    rated = wide(tmp_path / "r.csv", read_candidates(source), {"Ann": [4, 4], "Bo": [4, 4]})
    out = collection_from_ratings(source, [rated], tmp_path / "C")
    assert "weighted kappa undefined on 1-6, undefined on the collapsed" in capsys.readouterr().out
    assert (
        "| 1 to 6 | all rated | 2 | undefined | undefined | undefined | 0 (1 undefined) |"
        in (out / "README.md").read_text()
    )
    assert "NaN" not in (out / "ratings.json").read_text()


# --- files of clips -----------------------------------------------------------------------------------------


def test_files_come_from_a_table_and_their_titles_are_no_content(source, rated, tmp_path):
    (tmp_path / "clips").mkdir()
    for name in "abd":
        (tmp_path / "clips" / f"{name}.mp4").write_bytes(b"x")
    rows = "".join(f"{name};{name}.mp4\n" for name in "abd")
    (tmp_path / "clips" / "map.csv").write_text("clip_id;file\n" + rows + "z;a.mp4\n")
    out = collection_from_ratings(source, [rated], tmp_path / "C", files=tmp_path / "clips" / "map.csv")
    for item in Collection.load(out).corpus:
        assert item.video == tmp_path / "C" / f"../clips/{item.id}.mp4"
        assert item.full_text == ""
    assert {one["metadata"]["title"] for one in lines(out / "corpus.jsonl")} == {
        "apple a",
        "apple b",
        "apple d",
    }
    assert "have no file here" not in (out / "README.md").read_text()


def test_files_come_from_a_folder_by_id_or_by_address(source, rated, tmp_path):
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.mp4").write_bytes(b"x")
    (tmp_path / "clips" / f"{'b':_<11}.webm").write_bytes(b"x")
    with pytest.raises(
        TooManyFailures, match=r"1 clips have no file and 0 may .* d: no file called 'd' or 'd___"
    ):
        collection_from_ratings(source, [rated], tmp_path / "C", files=tmp_path / "clips")
    loaded = Collection.load(tmp_path / "C")
    assert {one.id: one.video.name for one in loaded.corpus} == {"a": "a.mp4", "b": f"{'b':_<11}.webm"}
    assert loaded.qrels["test"] == {"m1": {"a": 1, "b": 1}}
    assert [one["item"] for one in lines(tmp_path / "C" / "left_out.jsonl")] == ["d"]
    allowed = {"files": tmp_path / "clips", "max_failures": 1}
    collection_from_ratings(source, [rated], tmp_path / "C1", **allowed)
    out = collection_from_ratings(source, [rated], tmp_path / "C2", files=tmp_path / "clips", missing="keep")
    assert {one.id: one.modality for one in Collection.load(out).corpus} == {
        "a": "video",
        "b": "video",
        "d": "text",
    }


def test_candidates_that_are_files_need_no_table(tmp_path):
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "a.mp4").write_bytes(b"x")
    source = ranked(tmp_path / "D", [row("m1", "a", video="a.mp4", start=1.5, end=4, transcript="words")])
    rated = wide(tmp_path / "r.csv", read_candidates(source), {"Ann": [4], "Bo": [5]})
    out = collection_from_ratings(source, [rated], tmp_path / "C")
    (item,) = Collection.load(out).corpus
    assert (item.modality, item.start, item.end, item.transcript) == ("video", 1.5, 4.0, "words")


def test_candidates_that_are_texts_are_shown_rated_and_kept_as_texts(tmp_path):
    source = ranked(tmp_path / "D", [row("m1", "a", video=None, text="apple storyline"), row("m1", "b")])
    page = (export_tasks(source, tmp_path / "T") / "rate.html").read_text()
    assert '"text": "apple storyline"' in page
    assert json.loads((tmp_path / "T" / "tasks.json").read_text())["without_file_or_address"] == 0
    rated = wide(tmp_path / "r.csv", read_candidates(source), {"Ann": [4, 5], "Bo": [4, 5]})
    (tmp_path / "b.mp4").write_bytes(b"x")
    out = collection_from_ratings(source, [rated], tmp_path / "C", files=tmp_path)
    text, clip = Collection.load(out).corpus
    assert (text.text, text.modality, clip.modality) == ("apple storyline", "text", "video")
    assert "url" not in lines(out / "corpus.jsonl")[0]["metadata"]
    assert "have no file here" not in (out / "README.md").read_text()


def test_a_table_of_files_is_checked_whole(source, rated, tmp_path):
    (tmp_path / "map.csv").write_text("clip_id,file\na,gone.mp4\nb,r.csv\nb,D/ranked.jsonl\n")
    with pytest.raises(RefusedRequest) as refusal:
        collection_from_ratings(source, [rated], tmp_path / "C", files=tmp_path / "map.csv")
    assert "gone.mp4 is no file" in str(refusal.value)
    assert "map.csv, row 3: clip 'b' has another file above" in str(refusal.value)
    (tmp_path / "map.csv").write_text("clip,path\na,b\n")
    with pytest.raises(RefusedRequest, match="has no column clip_id and no file; it has: clip, path"):
        collection_from_ratings(source, [rated], tmp_path / "C", files=tmp_path / "map.csv")
    assert not (tmp_path / "C").exists()


# --- bad input ----------------------------------------------------------------------------------------------


def test_one_rater_is_told_what_cannot_be_computed(source, tmp_path):
    rated = wide(tmp_path / "r.csv", read_candidates(source), {"Ann": [5, 4, 4, 4, 4, 4]})
    with pytest.raises(
        RefusedRequest, match=r"one rater only \(Ann\): neither a majority nor any agreement can"
    ):
        collection_from_ratings(source, [rated], tmp_path / "C")
    out = collection_from_ratings(source, [rated], tmp_path / "C", rule=Rule(least_raters=1))
    assert json.loads((out / "ratings.json").read_text())["agreement"]["raw"]["all_rated"]["kappa"] is None


def test_clips_that_nobody_rated_are_named(source, tmp_path):
    found = read_candidates(source)
    rated = wide(tmp_path / "r.csv", found, {"Ann": [5, 4, 4, None, None, 4], "Bo": [5, 4, 4, None, None, 4]})
    with pytest.raises(RefusedRequest, match=r"nobody rated 2 of 6 candidates: b of m2, d of m2\. If nobody"):
        collection_from_ratings(source, [rated], tmp_path / "C")
    out = collection_from_ratings(source, [rated], tmp_path / "C", unrated="leave_out")
    assert Collection.load(out).qrels["test"] == {"m1": {"a": 1, "b": 1, "c": 1}, "m2": {"e": 1}}


def test_candidates_that_were_not_given_out_are_not_missed(source, tmp_path):
    tasks = export_tasks(source, tmp_path / "T", per_message=1) / "tasks.csv"
    rated = wide(tmp_path / "r.csv", candidates(tmp_path, *PAIRS)[:4:3], {"Ann": [5, 4], "Bo": [5, 4]})
    by_tasks = collection_from_ratings(source, [rated], tmp_path / "A", tasks=tasks)
    by_count = collection_from_ratings(source, [rated], tmp_path / "B", per_message=1)
    for out in (by_tasks, by_count):
        assert Collection.load(out).qrels["test"] == {"m1": {"a": 1}, "m2": {"b": 1}}
    (tmp_path / "other.csv").write_text("task_id\nt0\n")
    with pytest.raises(RefusedRequest, match=r"1 tasks of .*other.csv are of other candidates, such as t0"):
        collection_from_ratings(source, [rated], tmp_path / "E", tasks=tmp_path / "other.csv")


def test_every_problem_comes_in_one_message_and_nothing_is_written(source, tmp_path):
    found = read_candidates(source)
    rated = wide(tmp_path / "r.csv", found, {"Ann": [9, 4, 4, 4, None, 4]})
    with pytest.raises(RefusedRequest) as refusal:
        collection_from_ratings(
            source, [rated], tmp_path / "C", grades="best", missing="x", per_message=-1, max_failures=1.5
        )
    told = str(refusal.value)
    for words in (
        "grades is 'best'; it is binary or mean", "missing is 'x'", "per_message is -1",
        "max_failures is 1.5; it must be a count", "r.csv, row 1: Ann gave '9'",
        "one rater only (Ann)", "nobody rated",
    ):  # fmt: skip
        assert words in told
    assert not (tmp_path / "C").exists()


def test_nothing_left_is_told_with_the_reasons(source, tmp_path):
    rated = wide(tmp_path / "r.csv", read_candidates(source), {"Ann": [2] * 6, "Bo": [2] * 6})
    with pytest.raises(
        RefusedRequest, match=r"no candidate of 6 meets the rule \(no majority of high ratings: 6\)"
    ):
        collection_from_ratings(source, [rated], tmp_path / "C")
    (tmp_path / "empty").mkdir()
    kept = wide(tmp_path / "k.csv", read_candidates(source), GIVEN)
    with pytest.raises(RefusedRequest, match="none of the 3 candidates that meet the rule has a file"):
        collection_from_ratings(source, [kept], tmp_path / "C", files=tmp_path / "empty")
