"""Errors name everything at once, and optional imports name the pip line."""

from __future__ import annotations

import pickle

import pytest

import vidvec_msg
from vidvec_msg.errors import (
    Failure,
    ItemError,
    Problems,
    RefusedRequest,
    did_you_mean,
    explain_unknown,
    first_failures,
)
from vidvec_msg.extras import require


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, ""),
        (1, "a0: bad"),
        (3, "a0: bad; a1: bad; a2: bad"),
        (5, "a0: bad; a1: bad; a2: bad; … and 2 more"),
    ],
)
def test_the_first_failures_and_how_many_more_there_are(count: int, told: str) -> None:
    failures = (Failure(f"a{number}", "bad") for number in range(count))
    assert first_failures(failures, count) == told
    assert sum(1 for _ in failures) == max(count - 3, 0)  # read no further than shown


def test_problems_come_in_one_message_and_the_rest_is_counted() -> None:
    problems = Problems("collection x", most=2)
    problems.refuse_if_any()
    for number in range(5):
        problems.add(f"row {number} is empty")
    with pytest.raises(RefusedRequest) as refusal:
        problems.refuse_if_any()
    lines = "collection x: 5 problems\n  - row 0 is empty\n  - row 1 is empty\n  - … and 3 more"
    assert str(refusal.value) == lines


def test_an_item_error_survives_the_way_back_from_a_worker() -> None:
    error = ItemError([Failure("a", "empty text"), Failure("b", "no video stream")])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.failures == error.failures
    assert str(copy) == "item 'a': empty text; item 'b': no video stream"


def test_a_missing_extra_names_the_pip_line() -> None:
    with pytest.raises(
        RefusedRequest, match=r"no_such_module is needed to count stars .* pip install no_such_module"
    ):
        require("no_such_module", purpose="count stars")
    assert require("json", purpose="read").loads("1") == 1


def test_a_missing_faiss_names_both_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)  # as if it were not installed
    with pytest.raises(RefusedRequest, match=r"vidvec-msg\[cpu\].*vidvec-msg\[gpu\].*never both"):
        require("faiss", purpose="search")


def test_near_names() -> None:
    assert did_you_mean("metrcs", ["metrics", "pool"]) == " (did you mean 'metrics'?)"
    assert did_you_mean("zzz", ["metrics"]) == ""
    assert did_you_mean("filter", ["fit", "filter-pairs"]) == " (did you mean 'filter-pairs'?)"
    assert did_you_mean("INFONCE", ["Matryoshka", "InfoNCE"]) == " (did you mean 'InfoNCE'?)"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "unrecognized arguments: --data.batch-sise",
            "'data.batch-sise' (did you mean 'data.batch_size'?)",
        ),
        ("Option 'seeds' is not accepted", "'seeds' (did you mean 'seed'?)"),
        ("Key 'fit.data.seed_' is not expected", "'data.seed_' (did you mean 'data.seed'?)"),
        ("Subcommand 'fit' does not accept option 'sed'", "'sed' (did you mean 'seed'?)"),
        ("Group 'data' does not accept option 'lora.rr'", "'data.lora.rr' (did you mean 'data.lora.r'?)"),
    ],
)
def test_an_option_that_the_parser_does_not_know(message: str, told: str) -> None:
    known = ["data.batch_size", "data.seed", "data.lora.r", "seed"]
    assert (
        explain_unknown(message, iter(known), ending="End.", inside="fit") == f"unknown option {told}. End."
    )


def test_other_complaints_of_the_parser_stay() -> None:
    for message in ("Key 'data.pairs' is required", 'Parser key "data.seed": Expected an int'):
        assert explain_unknown(message, ["data.seed"], ending="End.") == message


def test_the_package_offers_its_names_lazily() -> None:
    assert vidvec_msg.Item.__name__ == "Item"
    assert "load_embedder" in dir(vidvec_msg)
    with pytest.raises(AttributeError, match="it offers Collection"):
        _ = vidvec_msg.nothing
