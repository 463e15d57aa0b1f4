"""The verb from end to end, over real HTTP: what is asked, kept, rejected, refused, and gone on with."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_synth.chat_server import ODD, TROUBLES, UNUSABLE, WIRE, ChatServer, chat_server, pair_for

from vidvec_msg.cli import main
from vidvec_msg.data_synth.judging import ASKED
from vidvec_msg.data_synth.verb import synth
from vidvec_msg.errors import JobFailed, RefusedRequest, TooManyFailures
from vidvec_msg.formats.pairs import read_pairs

ROOT = Path(__file__).parents[2]
PERSONAS = ROOT / "data/personas.jsonl"
KEY = "sk-a-secret-that-nobody-sees"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with chat_server() as running:
        yield running


def run(server: ChatServer, out: Path, **options: Any) -> dict[str, Any]:
    given = {"count": 30, "backoff": 0.01, "timeout": 5.0, "concurrency": 8, **options}
    synth(given.pop("personas", PERSONAS), given.pop("model", "org/m"), out, endpoint=server.url, **given)
    return summary(out)


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def everything_under(folder: Path) -> str:
    return "".join(
        path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()
    )


# ---- the path from personas to a file that fit reads


def test_pairs_come_out_as_fit_takes_them(server: ChatServer, tmp_path: Path) -> None:
    found = run(server, tmp_path / "out", count=40, validation_share=0.3)
    pairs = read_pairs(tmp_path / "out" / "pairs.jsonl")
    assert found["pairs"] == len(pairs) == 40
    by_user = {body["messages"][1]["content"]: body for body in server.requests}
    assert len(by_user) == len(server.requests) == 40
    for pair in pairs:
        written = [
            pair_for(words) for words in by_user if f"Persona: {pair.provenance['persona']}\n" in words
        ]
        assert written == [{"message": pair.positive, "storyline": pair.anchor}]
    assert {
        "persona",
        "tone",
        "genre",
        "setting",
        "subject",
        "generator",
        "template",
        "prompt_sha",
        "split",
    } <= set(pairs[0].provenance)
    assert len({pair.id for pair in pairs}) == 40
    assert [pair.id for pair in read_pairs(tmp_path / "out" / "pairs.parquet")] == [pair.id for pair in pairs]
    sides = [read_pairs(tmp_path / "out" / "splits" / f"{name}.jsonl") for name in ("train", "validation")]
    assert sum(map(len, sides)) == 40
    assert not {pair.group for pair in sides[0] if pair.group} & {
        pair.group for pair in sides[1] if pair.group
    }
    from vidvec_msg.train.datamodule import PairsData  # torch

    data = PairsData(str(tmp_path / "out" / "splits" / "train.jsonl"), batch_size=4)
    data.read()
    assert len(data.training) == len(sides[0])


def test_the_request_says_what_it_should(server: ChatServer, tmp_path: Path) -> None:
    run(server, tmp_path / "out", count=3, temperature=0.7, top_p=0.9, max_tokens=321, seed=5)
    body = server.requests[0]
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("org/m", 0.7, 0.9, 321)
    assert body["seed"] == 5
    assert not body.get("stream")
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["message", "storyline"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert not {"x-stainless-os", "x-stainless-arch", "x-stainless-runtime-version"} & {*server.headers[0]}
    assert gc.get_freeze_count() == 0  # frozen while requests are on their way, and no longer
    assert KEY not in everything_under(tmp_path)


def test_more_of_the_same_asks_only_for_what_is_missing(server: ChatServer, tmp_path: Path) -> None:
    run(server, tmp_path / "out", count=20)
    first = rows(tmp_path / "out" / "pairs.jsonl")
    run(server, tmp_path / "out", count=20)
    assert len(server.requests) == 20
    run(server, tmp_path / "out", count=35)
    assert len(server.requests) == 35
    second = rows(tmp_path / "out" / "pairs.jsonl")
    assert [row["id"] for row in second[:20]] == [row["id"] for row in first]
    assert len(second) == 35


def test_more_pairs_than_personas_draw_other_tones(server: ChatServer, tmp_path: Path) -> None:
    personas = tmp_path / "p.txt"
    personas.write_text("a tall baker in Lisbon\na small smith who sings\n")
    found = run(server, tmp_path / "out", personas=personas, count=6)
    assert found["personas"]["used"] == 2
    assert len(set(server.asked)) == 6
    assert len({row["id"] for row in rows(tmp_path / "out" / "pairs.jsonl")}) == 6


def test_a_torn_last_line_is_asked_again(server: ChatServer, tmp_path: Path) -> None:
    run(server, tmp_path / "out", count=10)
    whole = (tmp_path / "out" / "pairs.jsonl").read_bytes()
    replies = tmp_path / "out" / "replies" / "pairs.jsonl"
    replies.write_bytes(replies.read_bytes()[:-20])
    run(server, tmp_path / "out", count=10)
    assert len(server.requests) == 11
    assert (tmp_path / "out" / "pairs.jsonl").read_bytes() == whole


def test_two_runs_do_not_write_into_one_folder(server: ChatServer, tmp_path: Path) -> None:
    from vidvec_msg.data_synth.replies import ReplyStore

    run(server, tmp_path / "out", count=3)
    with (
        ReplyStore(tmp_path / "out" / "replies", "pairs"),
        pytest.raises(RefusedRequest, match="is being written by another process"),
    ):
        run(server, tmp_path / "out", count=5)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"temperature": 0.2}, "temperature was 1.0 and is 0.2"),
        ({"model": "other"}, "model was 'org/m' and is 'other'"),
        ({"seed": 1}, "seed was 0"),
    ],
)
def test_a_folder_of_other_settings_is_refused(
    server: ChatServer, tmp_path: Path, option: dict[str, Any], told: str
) -> None:
    run(server, tmp_path / "out", count=2)
    with pytest.raises(RefusedRequest, match=told):
        run(server, tmp_path / "out", count=2, **option)
    assert len(server.requests) == 2


# ---- trouble


@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_is_survived(server: ChatServer, tmp_path: Path, trouble: str) -> None:
    server.troubles, server.share, server.slow = (trouble,), 0.5, 0.6
    found = run(server, tmp_path / "out", count=12, timeout=0.5, retries=20, tries=20)
    assert server.met[trouble] > 2
    assert found["pairs"] == 12
    assert {row["positive"] for row in rows(tmp_path / "out" / "pairs.jsonl")} == {
        pair_for(words)["message"] for words in set(server.asked)
    }
    failed = rows(tmp_path / "out" / "replies" / "pairs_failed.jsonl")
    assert len(failed) == (server.met[trouble] if trouble in UNUSABLE else 0)
    if trouble in UNUSABLE:  # another try is another seed: the same request may get the same answer
        again = [
            body["seed"] for body in server.requests if body["messages"] == server.requests[0]["messages"]
        ]
        assert len(set(again)) == len(again)
    if trouble in (*ODD, *WIRE):
        assert found["spent"]["answers"] == 12


def test_a_429_costs_no_retry(server: ChatServer, tmp_path: Path) -> None:
    server.scripted = [(429, {"Retry-After": "0.05"}, {"error": {"message": "slow down"}})] * 5
    assert run(server, tmp_path / "out", count=3, retries=0)["pairs"] == 3
    assert len(server.requests) == 8


def test_a_server_that_dies_ends_the_job_and_keeps_what_was_answered(
    server: ChatServer, tmp_path: Path
) -> None:
    server.scripted = [(200, {}, answer(server)) for _ in range(4)] + [(500, {}, "oh no")] * 200
    with pytest.raises(JobFailed, match=r"failed 2 times in a row .* What was answered is kept"):
        run(server, tmp_path / "out", count=12, retries=1, concurrency=1)
    assert len(rows(tmp_path / "out" / "replies" / "pairs.jsonl")) == 4
    assert not (tmp_path / "out" / "summary.json").exists()
    server.scripted = []
    before = len(server.requests)
    assert (
        run(
            server,
            tmp_path / "out",
            count=12,
            filters={"message_duplicates": None, "storyline_duplicates": None},
        )["pairs"]
        == 12
    )
    assert len(server.requests) == before + 8


def answer(server: ChatServer, **fields: str) -> dict[str, Any]:
    text = json.dumps(fields or pair_for("any"))
    return {"model": "org/m", "choices": [{"message": {"content": text}, "finish_reason": "stop"}]}


def test_failed_answers_are_told_kept_and_asked_again(server: ChatServer, tmp_path: Path) -> None:
    server.always = "I'm sorry, but no."
    with pytest.raises(
        TooManyFailures, match=r"6 of 6 requests ended without a usable answer; .*rejects.jsonl says why"
    ):
        run(server, tmp_path / "out", count=6, tries=2)
    rejects = rows(tmp_path / "out" / "rejects.jsonl")
    assert [row["code"] for row in rejects] == ["refusal"] * 6
    assert {row["text"] for row in rejects} == {"I'm sorry, but no."}
    assert all(row["persona"] for row in rejects)
    assert summary(tmp_path / "out")["funnel"][0] == {
        "step": "answers",
        "given": 6,
        "left": 0,
        "reasons": {"refusal": 6},
    }
    server.always = None
    before = len(server.requests)
    assert run(server, tmp_path / "out", count=6)["pairs"] == 6
    assert len(server.requests) == before + 6  # yesterday's failure is not today's answer
    assert rows(tmp_path / "out" / "rejects.jsonl") == []


def test_a_model_that_ignores_the_format_is_stopped_early(server: ChatServer, tmp_path: Path) -> None:
    server.always = "A storyline could be about a market."
    with pytest.raises(JobFailed) as caught:
        run(server, tmp_path / "out", count=600)
    told = str(caught.value)
    assert "gave 20 answers in a row that cannot be used" in told
    assert told.count("'A storyline could be about a market.'") == 3
    assert len(server.requests) < 60
    # those that were on their way may come in too
    assert 20 <= len(rows(tmp_path / "out" / "replies" / "pairs_failed.jsonl")) < 30


def test_a_request_that_is_too_long_fails_alone(server: ChatServer, tmp_path: Path) -> None:
    personas = tmp_path / "p.txt"
    long = " ".join(f"word{n}" for n in range(100))
    personas.write_text(
        f"{long}\n" + "\n".join(f"a baker of bread number {n} in town {n * 7}" for n in range(30))
    )
    run(server, tmp_path / "probe", personas=personas, count=10)
    server.context = max(len(one["messages"][0]["content"]) for one in server.requests) + 400
    with pytest.raises(TooManyFailures, match="1 of 31"):
        run(server, tmp_path / "out", personas=personas, count=31, near_personas=1.1, max_failures=0)
    rejects = [row for row in rows(tmp_path / "out" / "rejects.jsonl") if row["step"] == "answers"]
    assert [row["code"] for row in rejects] == ["refused by the endpoint"]
    assert "maximum context length" in rejects[0]["reason"]


# ---- the first request


def test_an_endpoint_that_is_down_is_refused_at_once(tmp_path: Path, server: ChatServer) -> None:
    with chat_server() as gone:
        url = gone.url
    with pytest.raises(
        RefusedRequest, match=r"no answer from http://127.0.0.1:\d+/v1 .*connection error.*Is the server up"
    ):
        synth(PERSONAS, "m", tmp_path / "out", endpoint=url, backoff=0.01)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("forms", "used"),
    [
        (("json_schema", "json_object", "none"), "json_schema"),
        (("json_object", "none"), "json_object"),
        (("none",), "none"),
    ],
)
def test_the_strictest_form_that_the_endpoint_takes_is_found(
    server: ChatServer, tmp_path: Path, forms: tuple[str, ...], used: str
) -> None:
    server.forms = forms
    assert run(server, tmp_path / "out", count=5)["structured"] == used
    assert server.requests[-1].get("response_format", {}).get("type", "none") == used
    assert len(server.requests) == 5 + 3 - len(forms)


def test_a_form_can_be_demanded(server: ChatServer, tmp_path: Path) -> None:
    assert run(server, tmp_path / "out", count=2, structured="none")["structured"] == "none"
    server.forms = ("none",)
    with pytest.raises(
        RefusedRequest, match=r"does not take a request .* in any form: response_format json_schema"
    ):
        run(server, tmp_path / "other", count=2, structured="json_schema")
    assert not (tmp_path / "other").exists()


def test_a_context_that_is_too_short_for_any_request_says_so(server: ChatServer, tmp_path: Path) -> None:
    server.context = 100
    with pytest.raises(
        RefusedRequest, match=r"maximum context length is 100 characters.*lower --max_tokens \(700\)"
    ):
        run(server, tmp_path / "out")


@pytest.mark.parametrize(
    ("status", "told"), [(401, "refuses the key in OPENAI_API_KEY"), (404, "has no chat/completions at")]
)
def test_wrong_keys_and_addresses(server: ChatServer, tmp_path: Path, status: int, told: str) -> None:
    server.scripted = [(status, {}, {"error": {"message": f"no: {KEY}"}})]
    with pytest.raises(RefusedRequest, match=told) as caught:
        run(server, tmp_path / "out")
    assert KEY not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_key_in_an_answer_is_not_kept(server: ChatServer, tmp_path: Path) -> None:
    server.scripted = [(200, {}, answer(server, message="a", storyline=f"b {KEY}"))]
    run(server, tmp_path / "out", count=2)
    kept = rows(tmp_path / "out" / "replies" / "pairs.jsonl")
    assert "<OPENAI_API_KEY>" in kept[0]["text"]
    assert KEY not in everything_under(tmp_path / "out")


@pytest.mark.parametrize("key", ["x", "none", "whatever"])
def test_a_key_that_is_none_leaves_the_answers_as_they_are(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    server.answers = lambda words: (
        pair_for(words) | {"message": f"Strangers next door forgive {key} of our debts"}
    )
    run(server, tmp_path / "out", count=1)
    record = rows(tmp_path / "out" / "replies" / "pairs.jsonl")[0]
    assert record["fields"]["message"] == f"Strangers next door forgive {key} of our debts"


# ---- money


def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text("org/*: {input: 1000, output: 2000}\n")
    return path


def test_tokens_and_dollars_are_counted_and_the_budget_holds(server: ChatServer, tmp_path: Path) -> None:
    found = run(server, tmp_path / "a", count=20, prices=prices(tmp_path), max_tokens=200)
    spent = found["spent"]
    assert spent["dollars"] == pytest.approx(
        (1000 * spent["prompt_tokens"] + 2000 * spent["completion_tokens"]) / 1e6
    )
    assert spent["priced"] is True
    budget = 3.0  # some eight answers at $0.26, each of which may cost up to $1.2
    found = run(server, tmp_path / "b", count=20, prices=prices(tmp_path), max_tokens=200, budget=budget)
    assert 0 < found["pairs"] < 20
    assert found["not_asked"] == 20 - found["pairs"]
    assert found["spent"]["dollars"] <= budget
    assert "the budget of $3 is used up" in found["stopped"]
    assert "| stopped early | the budget of $3 is used up" in (tmp_path / "b" / "card.md").read_text()
    before = len(server.requests)
    assert (
        run(server, tmp_path / "b", count=20, prices=prices(tmp_path), max_tokens=200, budget=100.0)["pairs"]
        == 20
    )
    assert len(server.requests) == before + 20 - found["pairs"]


def test_the_budget_is_for_the_checks_too(server: ChatServer, tmp_path: Path) -> None:
    server.answers = lambda words: (
        dict.fromkeys((*ASKED, "why"), True) if "\nMessage: " in words else pair_for(words)
    )
    options = {"count": 6, "prices": prices(tmp_path), "max_tokens": 200}
    alone = run(server, tmp_path / "out", **options)["spent"]["dollars"]
    found = run(server, tmp_path / "out", **options, judge=True, budget=alone + 1.5)
    assert 0 < found["checks"]["judge"]["unanswered"] < 6
    assert "is used up" in found["checks"]["judge"]["stopped"]
    assert alone < found["spent"]["dollars"] <= alone + 1.5
    assert found["pairs"] == 6  # a pair that nobody judged stays


def test_the_model_that_judges_is_paid_at_its_own_price(server: ChatServer, tmp_path: Path) -> None:
    server.answers = lambda words: (
        dict.fromkeys((*ASKED, "why"), True) if "\nMessage: " in words else pair_for(words)
    )
    table = tmp_path / "prices.yaml"
    table.write_text("org/m: {input: 1, output: 1}\njudge/m: {input: 1000, output: 2000}\n")
    options = {"count": 6, "prices": table, "max_tokens": 200, "judge": True, "judge_model": "judge/m"}
    found = run(server, tmp_path / "out", **options, budget=1.5)
    assert 0 < found["checks"]["judge"]["unanswered"] < 6  # each answer may cost about $1
    assert 0.1 < found["checks"]["judge"]["dollars"] <= found["spent"]["dollars"] <= 1.5
    table.write_text("org/m: {input: 1, output: 1}\n")
    with pytest.raises(RefusedRequest, match=r"there is no price of 'judge/m': add it to .*prices.yaml"):
        run(server, tmp_path / "other", **options, budget=1.5)


def test_a_budget_needs_a_price(server: ChatServer, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedRequest, match=r"budget is \$5, and there is no price of 'org/m': give --prices TABLE"
    ):
        run(server, tmp_path / "out", budget=5.0)
    with pytest.raises(RefusedRequest, match=r"no price of 'lone': add it to .*prices.yaml"):
        run(server, tmp_path / "out", model="lone", budget=5.0, prices=prices(tmp_path))


def test_a_judge_that_nobody_asks_is_refused(server: ChatServer, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="judge_model: no model is asked to judge; add --judge or"):
        run(server, tmp_path / "out", judge_model="judge/m")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_asks_nothing(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synth(
        PERSONAS,
        "org/m",
        tmp_path / "out",
        endpoint=server.url,
        count=500,
        dry_run=True,
        prices=prices(tmp_path),
    )
    told = capsys.readouterr().out
    assert told.count("Persona: ") == 10
    assert "500 requests to org/m: about" in told
    assert "about $" in told
    assert "dry run: nothing was asked" in told
    assert server.requests == []
    assert not (tmp_path / "out").exists()


# ---- what is refused


def test_all_problems_come_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = [
        "--count", "0", "--temperature", "-1", "--top_p", "2", "--template", "pair_v2", "--concurrency", "0",
        "--filters", '{"stated": {"shar": 1}, "lenghts": null}', "--prices", "none.yaml",
        "--validation_share", "1", "--max_failures", "1.5",
    ]  # fmt: skip
    assert main(["synth", "--personas", "x", "--model", "m", "--out", str(tmp_path / "o"), *words]) == 2
    told = capsys.readouterr().err
    for problem in (
        "count is 0; it must be at least 1",
        "temperature is -1",
        "top_p is 2.0; it lies above 0 and is at most 1",
        "template pair_v2: no such file (did you mean 'pair_v1'?)",
        "concurrency is 0",
        "filters: stated has no option 'shar' (did you mean 'share'?); it has: share, least, run",
        "filters: unknown filter 'lenghts' (did you mean 'lengths'?)",
        "--prices none.yaml: no such file",
        "max_failures is 1.5; it must be a count (0, 1, 2, …) or a share below 1",
        "validation_share is 1.0; it is at least 0 and below 1",
        "needs a key and the environment variable OPENAI_API_KEY holds none",
    ):
        assert problem in told


def test_a_folder_with_other_files_is_left_alone(server: ChatServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(RefusedRequest, match="already holds files"):
        run(server, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


# ---- checks by a model


def test_a_judge_and_a_round_trip_are_asked_kept_and_resumed(server: ChatServer, tmp_path: Path) -> None:
    def answers(words: str) -> dict[str, Any]:
        if words.startswith("Storyline:"):
            return {"choice": 1}
        if "\nMessage: " in words:
            return {
                "inferable": "yes",
                "implicit": len(words) % 2 == 0,
                "visual": True,
                "Persona_free": True,
                "why": "So.",
            }
        return pair_for(words)

    server.answers = answers
    found = run(server, tmp_path / "out", count=24, judge=True, round_trip=True, judge_model="judge/m")
    steps = {step["step"]: step for step in found["funnel"]}
    assert steps["judge"]["given"] == 24
    assert set(steps["judge"]["reasons"]) == {"judged not implicit"}
    assert steps["round_trip"]["given"] == steps["judge"]["left"]
    assert set(steps["round_trip"]["reasons"]) == {"another message fits the storyline better"}
    rejects = rows(tmp_path / "out" / "rejects.jsonl")
    judged = next(row for row in rejects if row["step"] == "judge")
    assert judged["answer"] == {
        "inferable": True,
        "implicit": False,
        "visual": True,
        "persona_free": True,
        "why": "So.",
    }
    assert {body["model"] for body in server.requests} == {"org/m", "judge/m"}
    choices = [words for words in server.asked if words.startswith("Storyline:")]
    assert all(words.count("\n5. ") == 1 and "\n6. " not in words for words in choices)
    for pair in rows(tmp_path / "out" / "pairs.jsonl"):
        (mine,) = [words for words in choices if pair["anchor"] in words]
        assert f"1. {pair['positive']}" in mine
    before = len(server.requests)
    run(server, tmp_path / "out", count=24, judge=True, round_trip=True, judge_model="judge/m")
    assert len(server.requests) == before


def test_licences_go_on_with_the_data(server: ChatServer, tmp_path: Path) -> None:
    assert run(server, tmp_path / "a", count=1)["personas"]["licence"] == "unknown"
    hub = tmp_path / "persona.jsonl"
    hub.write_bytes(PERSONAS.read_bytes())
    assert run(server, tmp_path / "b", personas=hub, count=1)["personas"]["licence"] == "cc-by-nc-sa-4.0"
    card = (tmp_path / "b" / "card.md").read_text()
    assert 'license: "cc-by-nc-sa-4.0"' in card
    assert "non-commercial use, under the same licence" in card
    assert (
        run(server, tmp_path / "c", count=1, personas_licence="CC-BY-4.0")["personas"]["licence"]
        == "cc-by-4.0"
    )
