"""The verb: a review on disk, decisions of people, judgements that say who and when."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from retrieval.relevance_mining.reviews import decided_by, reviewed

from vidvec_msg.cli import main
from vidvec_msg.errors import RefusedRequest, TooManyFailures
from vidvec_msg.formats.collections import Collection, write_collection
from vidvec_msg.formats.relevance import read_qrels
from vidvec_msg.retrieval.relevance_mining.agreement import agreements, decided
from vidvec_msg.retrieval.relevance_mining.verb import mine_relevance

TEXTS = {
    "a": "apple apple bridge", "b": "apple apple bridge bridge", "c": "candle dog", "d": "candle dog engine",
    "e": "harbour", "f": "guitar",
}  # fmt: skip


@pytest.fixture
def collection(tmp_path) -> Path:
    """Six narratives, each with its own document."""
    write_collection(
        tmp_path / "C",
        corpus=[{"_id": f"doc-{name}", "text": f"clip {name}"} for name in TEXTS],
        queries=[{"_id": name, "text": text} for name, text in TEXTS.items()],
        qrels={"test": {name: {f"doc-{name}": 1} for name in TEXTS}},
    )
    return tmp_path / "C"


def mined(collection: Path, out: Path, **options) -> list[dict]:
    mine_relevance(collection, out, embedder="fakes:KeywordEmbedder", **{"threshold": 0.6, **options})
    return [json.loads(line) for line in (out / "review.jsonl").read_text().splitlines()]


def test_a_review_has_the_pairs_in_three_forms(collection, tmp_path, capsys):
    rows = mined(collection, tmp_path / "R")
    assert [(row["first"], row["second"], row["kind"]) for row in rows] == [
        ("a", "b", "similar"), ("c", "d", "similar"),
    ]  # fmt: skip
    assert rows[0]["score"] == pytest.approx(0.9487, abs=1e-4)  # (2, 1) and (2, 2)
    assert all(row["decision"] == row["reviewer"] == "" for row in rows)
    with (tmp_path / "R" / "review.csv").open(encoding="utf-8-sig", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [row["first_text"] for row in table] == [row["first_text"] for row in rows]
    page = (tmp_path / "R" / "review.html").read_text()
    held = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert held["rows"] == rows
    assert "http" not in re.sub(r"data:image", "", page)
    assert f"{len(rows)} pairs to review" in capsys.readouterr().out


def test_words_of_a_page_cannot_end_its_script(collection, tmp_path):
    rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    rows[0]["text"] = "apple bridge </script><b>bold</b>"
    (collection / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mined(collection, tmp_path / "R", threshold=0.5)
    assert "<b>bold" not in (tmp_path / "R" / "review.html").read_text()


def test_pairs_from_which_nothing_follows_are_left_out_and_counted(collection, tmp_path, capsys):
    (collection / "qrels" / "test.tsv").open("a").write("a\tdoc-b\t1\nb\tdoc-a\t1\n")
    rows = mined(collection, tmp_path / "R")
    assert ("a", "b") not in {(row["first"], row["second"]) for row in rows}
    assert "1 pairs left out: no new judgement would follow" in capsys.readouterr().out
    shown = mined(collection, tmp_path / "K", known=True)
    assert ("a", "b") in {(row["first"], row["second"]) for row in shown}


def test_items_without_a_vector_are_told_and_compared_by_their_words(collection, tmp_path):
    rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    rows += [{"_id": name, "text": "words that nobody knows, at all, ever"} for name in ("x", "y", "z", "w")]
    (collection / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (collection / "qrels" / "test.tsv").open("a").write("x\tdoc-a\t1\n")
    with pytest.raises(TooManyFailures, match=r"no vector and 0 may.*; z: .*; … and 1 more\. They were"):
        mined(collection, tmp_path / "R")
    made = [json.loads(line) for line in (tmp_path / "R" / "review.jsonl").read_text().splitlines()]
    assert ("x", "y", None, "exact") in {
        (row["first"], row["second"], row["score"], row["kind"]) for row in made
    }


def test_accepted_pairs_become_judgements_with_who_and_when(collection, tmp_path, capsys):
    rows = mined(collection, tmp_path / "R")
    file = reviewed(tmp_path / "ann.jsonl", rows, "Ann", lambda row: row["first"] == "a")
    mine_relevance(collection, tmp_path / "J", reviewed=[file])
    made = read_qrels(tmp_path / "J" / "qrels" / "test.tsv")
    assert made["a"] == {"doc-a": 1, "doc-b": 1}
    assert made["b"] == {"doc-b": 1, "doc-a": 1}
    assert made["c"] == {"doc-c": 1}
    judged = [json.loads(line) for line in (tmp_path / "J" / "judgements.jsonl").read_text().splitlines()]
    assert {(one["query"], one["document"]) for one in judged} == {("a", "doc-b"), ("b", "doc-a")}
    assert judged[0]["reviews"] == [
        {"reviewer": "Ann", "reviewed_at": "2026-11-30T10:00:00Z", "decision": "accept"}
    ]
    assert "2 judgements added to 6" in capsys.readouterr().out


def test_the_judgements_are_a_split_that_evaluate_reads(collection, tmp_path):
    rows = mined(collection, tmp_path / "R")
    file = reviewed(tmp_path / "ann.jsonl", rows, "Ann", lambda row: True)
    mine_relevance(collection, tmp_path / "J", reviewed=[file])
    (collection / "qrels" / "reviewed.tsv").write_bytes((tmp_path / "J" / "qrels" / "test.tsv").read_bytes())
    assert len(Collection.load(collection).qrels["reviewed"]["a"]) == 2


def test_a_table_that_a_spreadsheet_wrote_is_read(collection, tmp_path):
    mined(collection, tmp_path / "R")
    with (tmp_path / "R" / "review.csv").open(encoding="utf-8-sig", newline="") as stream:
        table = list(csv.DictReader(stream))
    table[0] |= {"decision": "Accept", "reviewer": "Bo", "reviewed_at": "2026-11-30"}
    with (tmp_path / "bo.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    mine_relevance(collection, tmp_path / "J", reviewed=[tmp_path / "bo.csv"])
    assert json.loads((tmp_path / "J" / "reviewed.json").read_text())["accepted"] == 1


def test_two_reviewers_agree_as_far_as_kappa_says_and_disputes_are_listed(collection, tmp_path, capsys):
    rows = mined(collection, tmp_path / "R", threshold=-0.9, k=5)
    first = reviewed(tmp_path / "1.jsonl", rows, "Ann", lambda row: row["first"] in "ab")
    second = reviewed(tmp_path / "2.jsonl", rows, "Bo", lambda row: row["first"] == "a")
    capsys.readouterr()
    words = ["mine-relevance", "--collection", str(collection), "--reviewed", str(first), str(second)]
    assert main([*words, "--out", str(tmp_path / "J"), "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    disputed = [json.loads(line) for line in (tmp_path / "J" / "disputed.jsonl").read_text().splitlines()]
    assert {one["first"] for one in disputed} == {"b"}
    assert account["disputed"] == len(disputed)
    assert account["accepted"] == sum(row["first"] == "a" for row in rows)
    (both,) = account["agreement"]
    assert both["pairs"] == len(rows)
    assert 0 < both["kappa"] < 1
    mine_relevance(collection, tmp_path / "any", reviewed=[first, second], rule="any")
    any_one = json.loads((tmp_path / "any" / "reviewed.json").read_text())
    assert any_one["accepted"] == account["accepted"] + account["disputed"]


# --- agreement ----------------------------------------------------------------------------------------------


def test_pairs_count_in_either_order_and_only_where_both_decided():
    ones = [
        decided_by("Ann", "a", "b", True),
        decided_by("Bo", "b", "a", True),
        decided_by("Ann", "c", "d", True),
    ]
    (both,) = agreements(ones)
    assert (both.pairs, both.share) == (1, 1.0)


@pytest.mark.parametrize(
    ("votes", "rule", "accepted"),
    [
        ([True, True, False], "all", False), ([True, True, False], "majority", True),
        ([True, False], "majority", False), ([True, False, False], "any", True), ([True], "all", True),
        ([False, False], "any", False),
    ],
)  # fmt: skip
def test_the_rule_decides(votes, rule, accepted):
    ones = [decided_by(f"reviewer {number}", "a", "b", vote) for number, vote in enumerate(votes)]
    found, disputed = decided(ones, rule)
    assert bool(found) is accepted
    assert bool(disputed) is (len(set(votes)) == 2)


# --- refusals -----------------------------------------------------------------------------------------------


def test_faulty_decisions_are_refused_all_at_once(collection, tmp_path):
    rows = [
        {"first": "a", "second": "b", "decision": "maybe", "reviewer": "Ann", "reviewed_at": "2026-11-30"},
        {"first": "a", "second": "zz", "decision": "accept", "reviewer": "Ann", "reviewed_at": "2026-11-30"},
        {"first": "a", "second": "c", "decision": "accept", "reviewer": "", "reviewed_at": "yesterday"},
        {"first": "c", "second": "d", "decision": "accept", "reviewer": "Ann", "reviewed_at": "2026-11-30"},
        {"first": "d", "second": "c", "decision": "reject", "reviewer": "Ann", "reviewed_at": "2026-12-01"},
        {"first": "e", "second": "f", "decision": "", "reviewer": "", "reviewed_at": ""},
    ]
    file = tmp_path / "faulty.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RefusedRequest) as refusal:
        mine_relevance(collection, tmp_path / "J", reviewed=[file, tmp_path / "no.txt"])
    for words in (
        "row 1: the decision is 'maybe'", "row 2: second is 'zz'", "row 3: a decision without a reviewer",
        "row 3: reviewed_at is 'yesterday'", "row 5: Ann decided c and d differently before",
        "no.txt is no file",
    ):  # fmt: skip
        assert words in str(refusal.value)
    assert not (tmp_path / "J").exists()


def test_files_without_any_decision_are_refused(collection, tmp_path):
    mined(collection, tmp_path / "R")
    with pytest.raises(RefusedRequest, match="hold no decision"):
        mine_relevance(collection, tmp_path / "J", reviewed=[tmp_path / "R" / "review.jsonl"])


def test_what_is_wrong_with_a_request_comes_at_once(collection, tmp_path):
    with pytest.raises(RefusedRequest) as refusal:
        mine_relevance(collection, tmp_path / "R", k=0, threshold=2, rule="some", side="both")
    for words in ("give --embedder SPEC", "k is 0", "threshold is 2", "rule is 'some'", "side is 'both'"):
        assert words in str(refusal.value)
