"""The verb from end to end, over real HTTP: what is asked, kept, edited, refused, and gone on with."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from data_synth.benchmark.script import MESSAGES, answer
from data_synth.benchmark.youtube_server import Video, YouTubeServer, error, youtube_server
from data_synth.chat_server import ODD, UNUSABLE, WIRE, ChatServer, chat_server
from fakes import KeywordEmbedder

from vidvec_msg.cli import main
from vidvec_msg.data_synth.benchmark.verb import build_benchmark
from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest, TooManyFailures
from vidvec_msg.formats.items import Item

TEXTS = list(MESSAGES)
VIDEOS = {
    "coin0000001": Video("A woman drops coin after coin", "into a jar"),
    "coin0000002": Video("jar of coin", duration="PT2M"),
    "coin0000003": Video("a coin drops for an hour", duration="PT1H"),
    "kerb0000001": Video("boy cries on a kerb"),
    "kerb0000002": Video("boy cries on a kerb!", duration="PT46S"),  # the same clip, uploaded again
    "oven0000001": Video("dough sinks"),
}
STAGES = ("messages", "stories", "queries", "judged", "candidates", "ranked")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        running.answers = answer
        yield running


@pytest.fixture
def youtube(monkeypatch: pytest.MonkeyPatch) -> Iterator[YouTubeServer]:
    monkeypatch.setenv("YOUTUBE_API_KEY", "AIza-a-key-that-nobody-sees")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-that-nobody-sees")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with youtube_server(dict(VIDEOS)) as running:
        yield running


@pytest.fixture
def run(server: ChatServer, youtube: YouTubeServer, tmp_path: Path) -> Callable[..., Path]:
    """Builds in one folder, with options over the usual ones."""
    table = [{"id": f"m0{n}", "topic": "a topic", "message": text} for n, text in enumerate(TEXTS, start=1)]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")

    def build(**options: Any) -> Path:
        given = {
            "messages": tmp_path / "m.jsonl", "model": "org/m", "provider": ["youtube"],
            "out": tmp_path / "out", "endpoint": server.url, "youtube_url": youtube.url, "rounds": 1,
            "backoff": 0.01, "retries": 2, "concurrency": 4, "timeout": 5.0, **options,
        }  # fmt: skip
        return build_benchmark(**given)

    return build


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return found


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


# ---- the way from messages to tasks


def test_messages_become_candidates_for_people_to_rate(
    run: Callable[..., Path], server: ChatServer, youtube: YouTubeServer
) -> None:
    out = run()
    assert [row["message"] for row in rows(out, "messages")] == TEXTS
    assert [row["story"] for row in rows(out, "stories")] == list(MESSAGES.values())
    assert [row["query"] for row in rows(out, "queries")] == youtube.searched() == [
        "woman drops coin into jar", "roofer hammers roof in rain", "boy cries on kerb",
        "neighbour sits beside boy", "dough sinks in oven", "baker takes loaf out",
    ]  # fmt: skip
    ranked = rows(out, "ranked")
    by_message = {
        text: {row["clip_id"] for row in ranked if row["message"] == text} for text in dict.fromkeys(TEXTS)
    }
    assert next(iter(by_message.values())) == {"coin0000001", "coin0000002"}
    assert len(by_message[TEXTS[1]] & {"kerb0000001", "kerb0000002"}) == 1
    for message in by_message:
        mine = [row for row in ranked if row["message"] == message]
        assert [row["rank"] for row in mine] == list(range(1, len(mine) + 1))
        assert [row["score"] for row in mine] == sorted((row["score"] for row in mine), reverse=True)
    assert [row["message_id"] for row in ranked] == sorted(row["message_id"] for row in ranked)
    (row,) = [row for row in ranked if row["clip_id"] == "coin0000001"]
    assert {name: row[name] for name in ("video", "title", "duration", "source", "keywords", "topic")} == {
        "video": "https://www.youtube.com/watch?v=coin0000001", "title": "A woman drops coin after coin",
        "duration": 45.0, "source": "youtube", "keywords": ["woman drops coin into jar"], "topic": "a topic",
    }  # fmt: skip
    with (out / "tasks" / "tasks.csv").open() as stream:
        assert len(stream.read().splitlines()) == 1 + len(ranked)
    reasons = {(left["what"], left["code"]) for left in rows(out, "left_out")}
    assert ("coin0000003", "too long") in reasons
    assert [code for what, code in reasons if what.startswith("kerb")] == ["same clip"]
    assert summary(out)["spent"]["youtube_units"].popitem()[1] == 6 * 100 + len(
        [call for call, _ in youtube.calls if call == "videos"]
    )


def test_keys_stand_in_no_file(run: Callable[..., Path]) -> None:
    out = run()
    for path in out.rglob("*"):
        if path.is_file():
            assert b"that-nobody-sees" not in path.read_bytes(), path


def test_the_same_again_asks_nothing_and_changes_no_stage(
    run: Callable[..., Path], server: ChatServer, youtube: YouTubeServer
) -> None:
    out = run()
    before = {name: (out / f"{name}.jsonl").read_bytes() for name in STAGES}
    asked = len(server.requests), len(youtube.calls)
    run()
    assert (len(server.requests), len(youtube.calls)) == asked
    assert {name: (out / f"{name}.jsonl").read_bytes() for name in STAGES} == before


def test_the_kept_request_is_a_config_of_the_verb(run: Callable[..., Path], server: ChatServer) -> None:
    out = run(youtube={"regionCode": "US"}, seed=3)
    asked = len(server.requests)
    assert main(["build-benchmark", "--config", str(out / "build.json")]) == 0
    assert len(server.requests) == asked


def test_until_stops_after_each_stage(run: Callable[..., Path], server: ChatServer) -> None:
    for number, stage in enumerate(STAGES, start=1):
        out = run(until=stage)
        there = [name for name in STAGES if (out / f"{name}.jsonl").is_file()]
        assert there == list(STAGES[:number])
    assert not (out / "tasks").exists()
    asked = len(server.requests)
    run()
    assert len(server.requests) == asked
    assert (out / "tasks").is_dir()


# ---- a person's hand in the files


def test_an_edited_story_is_followed_and_only_what_hangs_on_it_is_done_again(
    run: Callable[..., Path], server: ChatServer, youtube: YouTubeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="vidvec_msg")
    out = run()
    edit(out / "stories.jsonl", MESSAGES[TEXTS[1]], "A loaf waits in an oven, and a child waits with it.")
    server.requests.clear()
    youtube.calls.clear()
    run()
    kinds = Counter(words.partition(":")[0] for words in server.asked)
    # the queries of the one story, and verdicts on them; what they find is known, but not for this message
    assert [words.partition("\n")[0] for words in server.asked if words.startswith("Scene")] == [
        "Scene: A loaf waits in an oven, and a child waits with it."
    ]
    assert kinds == {"Scene": 1, "Message": 2 + 1}
    assert youtube.calls == []  # these searches were made for another message
    assert (
        "queries.jsonl: 1 made anew, since their story, the template or the model changed: m02.1"
        in caplog.text
    )
    assert "stories.jsonl: edited by hand, and kept so: 1 of 3 rows" in caplog.text
    assert {row["clip_id"] for row in rows(out, "ranked") if row["message_id"] == "m02"} == {"oven0000001"}


def test_queries_of_ones_own_are_judged_and_searched_with(
    run: Callable[..., Path], youtube: YouTubeServer
) -> None:
    out = run(until="queries")
    with (out / "queries.jsonl").open("a") as stream:
        mine = {"id": "m01.1.mine", "story_id": "m01.1", "message_id": "m01", "query": "an hour of coin"}
        stream.write(json.dumps(mine) + "\n")
    run()
    assert "an hour of coin" in youtube.searched()
    assert [row["passed"] for row in rows(out, "judged") if row["id"] == "m01.1.mine"] == [True]
    assert summary(out)["files"]["queries.jsonl"]["edited_by_hand"] == 1


def test_a_story_of_ones_own_goes_all_the_way(run: Callable[..., Path]) -> None:
    out = run(until="stories")
    with (out / "stories.jsonl").open("a") as stream:
        stream.write(json.dumps({"id": "mine", "message_id": "m02", "story": "A coin rolls."}) + "\n")
    run()
    assert [row["id"] for row in rows(out, "queries") if row["story_id"] == "mine"] == ["mine.1", "mine.2"]
    assert "coin0000001" in {row["clip_id"] for row in rows(out, "ranked") if row["message_id"] == "m02"}
    run()
    assert len([row for row in rows(out, "stories") if row["id"] == "mine"]) == 1


def test_a_candidate_taken_out_of_the_ranking_stays_out_until_its_message_changes(
    run: Callable[..., Path],
) -> None:
    out = run()
    path = out / "ranked.jsonl"
    path.write_text("".join(line for line in path.open() if "coin0000001" not in line))
    run()
    assert "coin0000001" not in path.read_text()
    assert "coin0000001" not in (out / "tasks" / "tasks.csv").read_text()
    edit(out / "messages.jsonl", TEXTS[0], "Coins outlast storms.")
    run(max_failures=1.0)
    assert {row["message"] for row in rows(out, "ranked") if row["message_id"] == "m01"} <= {
        "Coins outlast storms."
    }


def test_a_verdict_turned_round_is_followed(run: Callable[..., Path], youtube: YouTubeServer) -> None:
    out = run(until="judged")
    edit(
        out / "judged.jsonl",
        '"query": "boy cries on kerb", "passed": true',
        '"query": "boy cries on kerb", "passed": false',
    )
    run()
    assert "boy cries on kerb" not in youtube.searched()
    (left,) = [left for left in rows(out, "left_out") if left["stage"] == "judged"]
    assert left["what"] == "m02.1.1"


def test_a_message_that_is_gone_takes_its_rows_along(run: Callable[..., Path], tmp_path: Path) -> None:
    out = run()
    (tmp_path / "fewer.jsonl").write_text(
        "".join(
            json.dumps({"id": f"m0{n}", "topic": "a topic", "message": TEXTS[n - 1]}) + "\n" for n in (1, 3)
        )
    )
    run(messages=tmp_path / "fewer.jsonl")
    for name in STAGES:
        assert "m02" not in (out / f"{name}.jsonl").read_text(), name


def test_a_message_put_above_others_without_ids_leaves_their_work_to_them(
    run: Callable[..., Path], server: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / "m.txt").write_text("\n".join(TEXTS[1:]) + "\n")
    out = run(messages=tmp_path / "m.txt", until="judged")
    story = rows(out, "stories")[0]
    edit(out / "stories.jsonl", story["story"], f"{story['story']} It rains.")
    before = rows(out, "stories")
    server.requests.clear()
    (tmp_path / "m.txt").write_text("\n".join(TEXTS) + "\n")
    run(messages=tmp_path / "m.txt", until="stories")
    assert rows(out, "stories")[1:] == before
    assert len(server.requests) == 1
    assert not (out / "replaced.jsonl").exists()


def test_faults_of_edited_files_are_told_at_once_and_nothing_is_asked(
    run: Callable[..., Path], server: ChatServer
) -> None:
    out = run(until="judged")
    edit(out / "stories.jsonl", '"story": "A woman', '"storey": "A woman')
    edit(out / "judged.jsonl", '"passed": true', '"passed": "yes"')
    asked = len(server.requests)
    with pytest.raises(RefusedRequest) as refusal:
        run()
    assert "stories.jsonl, line 1: story is missing" in str(refusal.value)
    assert "judged.jsonl, line 6: passed is 'yes'; it must be true or false" in str(refusal.value)
    assert len(server.requests) == asked


# ---- the single stages


def test_a_judges_words_go_back_a_bounded_number_of_times(
    run: Callable[..., Path], server: ChatServer
) -> None:
    out = run(refine=2, until="refined")
    for row in rows(out, "refined"):
        assert row["passed"]
        assert row["story"].endswith("Nobody says a word.")
        assert row["history"] == [{"story": MESSAGES[row["message"]], "feedback": "Somebody seems to speak."}]
    assert sum("Feedback: Somebody seems to speak." in words for words in server.asked) == 3


def test_a_judge_that_is_never_content_ends_after_so_many_revisions(
    run: Callable[..., Path], server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    def never(words: str) -> dict[str, Any]:
        if "Scene: " in words and "Message: " in words and "Feedback" not in words:
            return {"inferable": False, "implicit": True, "filmable": True, "feedback": ""}
        return answer(words)

    server.answers = never
    out = run(refine=3, until="refined")
    assert [(row["passed"], row["revisions"]) for row in rows(out, "refined")] == [(False, 3)] * 3
    assert rows(out, "refined")[0]["feedback"] == "It is not inferable."
    assert "3 stories were not accepted in the end and go on as they are" in caplog.text


def test_a_story_in_the_messages_own_words_is_sent_back_though_the_judge_likes_it(
    run: Callable[..., Path], server: ChatServer
) -> None:
    def likes_all(words: str) -> dict[str, Any]:
        if "Scene: " in words and "Message: " in words and "Feedback" not in words:
            return {"inferable": True, "implicit": True, "filmable": True, "feedback": ""}
        if "Feedback" in words:
            return {"story": "Two people on a bench."}
        return {"story": "Small sums, saved steadily."}

    server.answers = likes_all
    out = run(refine=1, until="refined")
    first = rows(out, "refined")[0]
    assert first["story"] == "Two people on a bench."
    assert "uses the message's own words: small, sums, saved, steadily" in first["history"][0]["feedback"]


def test_queries_that_give_the_message_away_are_not_searched_with(
    run: Callable[..., Path], server: ChatServer, youtube: YouTubeServer
) -> None:
    def discloses(words: str) -> dict[str, Any]:
        if words.startswith("Scene") and "coin" in words:
            return {"queries": ["saving small sums", "the secret of coin jars"]}
        if words.startswith("Scene") and "kerb" in words:
            return {"queries": ["something unrelated", "boy cries on kerb"]}
        return answer(words)

    server.answers = discloses
    out = run(max_failures=1)
    assert youtube.searched() == ["boy cries on kerb", "dough sinks in oven", "baker takes loaf out"]
    reasons = {left["what"]: (left["code"], left["reason"]) for left in rows(out, "left_out")}
    assert reasons["m01.1.1"] == (
        "message's words in the query",
        "'saving small sums': it uses the message's own words: small, sums, saved",
    )
    assert reasons["m01.1.2"][0] == "discloses the message"
    assert reasons["m02.1.1"][0] == "not related"
    assert reasons["m01"] == (
        "no candidate",
        "judged: message's words in the query; judged: discloses the message",
    )
    assert not any("Query: saving small sums" in words for words in server.asked)  # nobody had to be asked


def test_further_rounds_are_for_messages_with_few_candidates(
    run: Callable[..., Path], server: ChatServer
) -> None:
    out = run(rounds=3, enough=2)
    stories = Counter(row["message_id"] for row in rows(out, "stories"))
    assert stories == {"m01": 1, "m02": 1, "m03": 3}
    assert sum(left["code"] == "same query again" for left in rows(out, "left_out")) == 4
    assert len(rows(out, "judged")) == 6  # nor is such a query judged or searched with
    asked = len(server.requests)
    run(rounds=3, enough=2)
    assert len(server.requests) == asked
    run(rounds=3, enough=2, until="judged")  # does not look for what later rounds were needed for
    assert len(rows(out, "stories")) == 5
    assert len(rows(out, "candidates")) >= 8
    run(rounds=1)
    assert Counter(row["message_id"] for row in rows(out, "stories")) == {"m01": 1, "m02": 1, "m03": 1}


def test_two_stories_a_message(run: Callable[..., Path], server: ChatServer) -> None:
    out = run(stories=2, until="stories")
    found = rows(out, "stories")
    assert [row["id"] for row in found] == ["m01.1", "m01.2", "m02.1", "m02.2", "m03.1", "m03.2"]
    assert len(set(server.asked)) == 6  # of other genres or tones


def test_answers_oddly_wrapped_and_lost_ones_are_survived(
    run: Callable[..., Path], server: ChatServer, tmp_path: Path
) -> None:
    calm = run(out=tmp_path / "calm")
    server.troubles = [one for one in (*WIRE, *UNUSABLE, *ODD) if one != "slow"]
    server.share = 0.5
    rough = run(out=tmp_path / "rough", tries=20, retries=20)
    for name in STAGES:
        assert (rough / f"{name}.jsonl").read_bytes() == (calm / f"{name}.jsonl").read_bytes(), name


def test_a_story_that_nobody_writes_is_told_and_asked_for_again(
    run: Callable[..., Path], server: ChatServer
) -> None:
    server.answers = lambda words: {"nothing": 1} if "Listening" in words else answer(words)
    with pytest.raises(TooManyFailures, match=r"1 of 3 messages ended without a candidate.*m02"):
        run()
    server.answers = answer
    out = run()
    assert {row["message_id"] for row in rows(out, "ranked")} == {"m01", "m02", "m03"}


@pytest.mark.parametrize("how", ["message", "story"])
def test_any_embedder_ranks(
    run: Callable[..., Path], how: str, server: ChatServer, youtube: YouTubeServer
) -> None:
    youtube.videos = {
        "aaaaaaaaaaa": Video("woman bridge", "dog"),
        "bbbbbbbbbbb": Video("woman apple apple", "dog"),
        "ccccccccccc": Video("woman", "nothing that has a vector"),
    }
    server.answers = lambda words: {"story": "An apple and a coin"} if "Topic" in words else answer(words)
    out = run(embedder="fakes:KeywordEmbedder", rank_with=how, max_failures=1.0, until="ranked")
    found = [(row["clip_id"], row["score"]) for row in rows(out, "ranked") if row["message_id"] == "m01"]
    if how == "story":
        assert found == [("bbbbbbbbbbb", pytest.approx(2 / 5**0.5, abs=1e-5)), ("aaaaaaaaaaa", 0.0)]
    else:  # no keyword in the message: near nothing
        assert {score for _, score in found} == {0.0}
    assert ("ccccccccccc", "no score") in {(left["what"], left["code"]) for left in rows(out, "left_out")}
    assert not any("Title" in words for words in server.asked)


def test_an_embedder_ranks_the_clips_themselves(
    run: Callable[..., Path], server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    said = {"a": "dog dog apple", "b": "apple apple dog", "c": "bridge"}
    rows_of_clips = [{"_id": name, "video": f"{name}.mp4", "transcript": said[name]} for name in said]
    for name in said:
        (clips / f"{name}.mp4").write_bytes(name.encode())
    (clips / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of_clips))
    server.answers = lambda words: (
        {"story": "An apple falls"}
        if "Topic" in words
        else {"queries": ["dog"]}
        if words.startswith("Scene")
        else answer(words)
    )
    embedded: list[str] = []
    encode = KeywordEmbedder.encode

    def counted(self: KeywordEmbedder, items: Sequence[Item], *, role: Role) -> Vectors:
        embedded.extend(Path(item.video).stem for item in items if isinstance(item.video, Path))
        return encode(self, items, role=role)

    monkeypatch.setattr(KeywordEmbedder, "encode", counted)
    ranking = {"embedder": "fakes:KeywordEmbedder", "rank_clip": "clip", "rank_with": "story"}
    out = run(provider=[f"local:{clips}"], **ranking)
    assert sorted(embedded) == ["a", "b", "c"]  # by the search; the ranking has its vectors
    ranked = [row for row in rows(out, "ranked") if row["message_id"] == "m01"]
    assert [(row["clip_id"], row["score"], row["transcript"]) for row in ranked] == [
        ("b", pytest.approx(2 / 5**0.5, abs=1e-5), said["b"]),
        ("a", pytest.approx(1 / 5**0.5, abs=1e-5), said["a"]),
        ("c", 0.0, said["c"]),
    ]
    assert {row["video"] for row in ranked} == {str(clips.resolve() / f"{name}.mp4") for name in said}
    # a part of a clip, which a person put in the place of the whole, is another clip
    edit(out / "candidates.jsonl", '"transcript": "dog dog apple"', '"transcript": "dog", "start": 1.5')
    run(provider=[f"local:{clips}"], **ranking)
    assert sorted(embedded) == ["a", "a", "b", "c"]
    assert {row.get("start") for row in rows(out, "ranked") if row["clip_id"] == "a"} == {1.5}


def test_the_order_of_the_searches(run: Callable[..., Path], server: ChatServer) -> None:
    out = run(rank="provider", until="ranked")
    assert [row["clip_id"] for row in rows(out, "ranked") if row["message_id"] == "m01"] == [
        "coin0000001", "coin0000002",
    ]  # fmt: skip
    assert rows(out, "ranked")[0]["score"] == pytest.approx(1 / 61, abs=1e-6)


def test_no_more_than_the_best(run: Callable[..., Path]) -> None:
    out = run(top=1)
    assert [row["rank"] for row in rows(out, "ranked")] == [1, 1, 1]
    assert Counter(left["code"] for left in rows(out, "left_out"))["below the best"] >= 1


# ---- money and quota


def test_the_quota_stops_it_and_another_day_goes_on(
    run: Callable[..., Path], youtube: YouTubeServer, server: ChatServer
) -> None:
    with pytest.raises(
        JobFailed, match=r"today's quota of 350 units(.|\n)*3 queries are left to search with"
    ):
        run(quota=350)
    assert len(youtube.searched()) == 3
    out = run(until="judged")
    assert "quota" not in summary(out)["stopped"]
    assert len(rows(out, "candidates")) >= 3
    run()
    assert sorted(youtube.searched()) == sorted(row["query"] for row in rows(out, "queries"))


def test_the_services_quota_stops_it_cleanly(run: Callable[..., Path], youtube: YouTubeServer) -> None:
    run(until="judged")
    youtube.scripted = [error(403, "quotaExceeded")]
    with pytest.raises(JobFailed, match="6 queries are left"):
        run()
    run()
    assert len(youtube.searched()) == 1 + 6


def test_a_budget_stops_it_cleanly(run: Callable[..., Path], server: ChatServer, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("org/m: {input: 100, output: 1000}")
    with pytest.raises(JobFailed, match=r"the budget of \$0.72 is used up.*a larger --budget goes on"):
        run(prices=prices, budget=0.72, max_tokens=600, concurrency=1)
    asked = len(server.requests)
    assert 1 <= asked < 20
    out = run(prices=prices, budget=1000.0, max_tokens=600)
    assert summary(out)["spent"]["dollars"] > 0
    assert len(set(server.asked)) == len(server.asked)  # nothing was asked twice


def test_a_dry_run_asks_nothing_and_makes_nothing(
    run: Callable[..., Path], server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(dry_run=True, rounds=2, refine=1)
    told = capsys.readouterr().out
    assert f"Message: {TEXTS[0]}" in told
    assert "stories: at most 3 requests to org/m" in told
    assert "youtube: at most 6 searches, 606 units of the YouTube Data API, 1 days of --quota" in told
    assert "relevance: at most 150 requests to org/m" in told  # 25 clips of 6 queries are ranked by the model
    assert not out.exists()
    assert server.requests == []
    run(dry_run=True, rank="provider")
    assert "relevance" not in capsys.readouterr().out


# ---- refusals


def test_everything_that_is_wrong_is_told_at_once(
    run: Callable[..., Path], tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("YOUTUBE_API_KEY")
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice.txt").write_text("same\nsame\n")
    wrong: dict[str, Any] = {
        "messages": tmp_path / "twice.txt", "model": " ", "top": 0, "disclosed_share": 2.0,
        "rank_clip": "clip", "provider": ["youtoob", "youtube", f"local:{tmp_path}/empty"],
        "templates": {"storys": "x"}, "youtube": {"regioncode": "US"},
    }  # fmt: skip
    with pytest.raises(RefusedRequest) as refusal:
        run(**wrong)
    told = str(refusal.value)
    for fault in (
        "message 'same' stands there 2 times", "model is empty", "the folder is empty; it should hold clips",
        "unknown provider 'youtoob' (did you mean 'youtube'?); known: youtube, local:FOLDER, links:FILE.csv",
        "environment variable YOUTUBE_API_KEY holds none", "top is 0; it must be at least 1",
        "disclosed_share is 2.0; it lies between 0 and 1", "rank_clip is 'clip', and no embedder ranks",
        "templates: unknown kind 'storys' (did you mean 'stories'?)", "unknown parameter 'regioncode'",
    ):  # fmt: skip
        assert fault in told, fault
    with pytest.raises(
        RefusedRequest, match=r"until is 'rankd' \(did you mean 'ranked'\?\); accepted: messages"
    ):
        run(until="rankd")
    with pytest.raises(RefusedRequest, match=r"max_failures is 1.5; it must be a count"):
        run(max_failures=1.5)
    assert not (tmp_path / "out").exists()
    assert server.requests == []


def test_a_template_of_ones_own(run: Callable[..., Path], server: ChatServer, tmp_path: Path) -> None:
    from vidvec_msg.data_synth.template import SHIPPED

    content = yaml.safe_load((SHIPPED / "queries_v1.yaml").read_text())
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump({**content, "version": "own", "system": "In {count} words."}))
    run(templates={"queries": str(own)}, until="queries")
    assert any(body["messages"][0]["content"] == "In 2 words." for body in server.requests)
    own.write_text(yaml.safe_dump({**content, "version": "own", "system": "{count}", "axes": {"a": ["b"]}}))
    with pytest.raises(RefusedRequest, match=r"\{a\} is used nowhere"):
        run(templates={"queries": str(own)}, until="queries")


def test_an_endpoint_that_is_down_fails_fast_and_leaves_nothing(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(RefusedRequest, match=r"no answer from http://127\.0\.0\.1:9/v1"):
        run(endpoint="http://127.0.0.1:9/v1")
    assert not (tmp_path / "out").exists()


def test_an_endpoint_that_goes_down_later_keeps_what_there_is(run: Callable[..., Path]) -> None:
    out = run(until="stories")
    with pytest.raises(JobFailed, match="What was made before is kept"):
        run(endpoint="http://127.0.0.1:9/v1")
    assert len(rows(out, "stories")) == 3


def test_a_key_that_is_refused_later_keeps_what_there_is(
    run: Callable[..., Path], youtube: YouTubeServer, server: ChatServer
) -> None:
    youtube.scripted = [error(400, "keyInvalid", "API key not valid")]
    with pytest.raises(
        JobFailed, match=r"refuses the key in YOUTUBE_API_KEY(.|\n)*What was made before is kept"
    ):
        run()
    asked = len(server.requests)
    out = run()
    assert len(rows(out, "judged")) == 6
    assert not any("Topic" in words for words in server.asked[asked:])


def test_a_folder_of_something_else_is_left_alone(run: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(RefusedRequest, match="already holds files"):
        run()


def test_rule_and_files_want_ratings(run: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"--rule, --collecting: about ratings; give --ratings FILE"):
        run(rule=tmp_path / "rule.yaml", collecting={"grades": "mean"})
    with pytest.raises(
        RefusedRequest, match=r"tasks: unknown 'rater' \(did you mean 'raters'\?\); known: per_m"
    ):
        run(tasks={"rater": ["Ann"]})


def test_options_of_the_tasks_are_checked_before_candidates_are_paid_for(
    run: Callable[..., Path], server: ChatServer
) -> None:
    with pytest.raises(RefusedRequest, match=r"raters_per_task is 3; it lies between 1 and the 2 named"):
        run(tasks={"raters": ["Ann", "Bo"]})
    with pytest.raises(RefusedRequest) as refusal:
        run(tasks={"raters": "Ann", "per_message": "8"}, collecting={"split": 1})
    for fault in (
        "tasks: raters is 'Ann'; it must be a list of names",
        "tasks: per_message is '8'; it must be a whole number", "collecting: split is 1; it must be a text",
    ):  # fmt: skip
        assert fault in str(refusal.value)
    assert server.requests == []


def test_links_of_messages_that_nobody_asks_about_are_told(
    run: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "l.csv").write_text("url,message_id\nhttps://x.org/a,m01\nhttps://x.org/b,m001\n")
    run(provider=[f"links:{tmp_path}/l.csv"], dry_run=True)
    assert "1 rows are of messages that there are not, such as 'm001' (did you mean 'm01'?)" in caplog.text


def test_a_folder_that_holds_the_build_is_not_searched(run: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"out lies in it, and what a build writes would be searched"):
        run(provider=[f"local:{tmp_path}"], embedder="tinyworld")


# ---- ratings


def test_ratings_make_a_collection(run: Callable[..., Path], server: ChatServer, tmp_path: Path) -> None:
    import csv

    out = run(tasks={"raters": ["ann", "ben", "cleo"]})
    assert (out / "tasks" / "raters" / "ann" / "rate.html").is_file()
    with (out / "tasks" / "tasks.csv").open(newline="") as stream:
        tasks = list(csv.DictReader(stream))
    tables = []
    for rater in ("ann", "ben", "cleo"):
        path = tmp_path / f"{rater}.csv"
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["task_id", "rating"])
            writer.writerows(
                [one["task_id"], "2" if one["clip_id"] == "coin0000002" else "5"] for one in tasks
            )
        tables.append(path)
    asked = len(server.requests)
    run(ratings=tables)
    assert len(server.requests) == asked
    kept = {json.loads(line)["_id"] for line in (out / "collection" / "corpus.jsonl").open()}
    assert kept == {row["clip_id"] for row in rows(out, "ranked")} - {"coin0000002"}
    assert (out / "collection" / "qrels" / "test.tsv").is_file()
    with pytest.raises(
        RefusedRequest, match="collection already holds files; remove it first, or give --coll"
    ):
        run(ratings=tables)
    other = tmp_path / "other"
    (tmp_path / "rule.yaml").write_text("high: 2\n")
    run(ratings=tables, collection=other, rule=tmp_path / "rule.yaml", collecting={"split": "dev"})
    assert "coin0000002" in (other / "corpus.jsonl").read_text()
    assert (other / "qrels" / "dev.tsv").is_file()
