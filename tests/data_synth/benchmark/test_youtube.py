"""The provider youtube against a loopback server: pages, lengths, quota, faults, and the secret key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_synth.benchmark.youtube_server import Video, YouTubeServer, error, youtube_server
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.data_synth.benchmark.providers.contract import (
    Exhausted,
    Wanted,
    seconds_of,
    youtube_address,
    youtube_id,
)
from vidvec_msg.data_synth.benchmark.providers.quota import Quota
from vidvec_msg.data_synth.benchmark.providers.youtube import YouTube, check_parameters
from vidvec_msg.data_synth.benchmark.providers.youtube_client import YouTubeClient
from vidvec_msg.embedders.endpoint.retries import Retrying
from vidvec_msg.errors import JobFailed, Problems, RefusedRequest

KEY = "AIza-a-key-that-nobody-sees"
VIDEOS = {f"jar{n:08d}": Video(f"jar number {n}", duration=f"PT{n + 1}S") for n in range(120)}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[YouTubeServer]:
    monkeypatch.setenv("YOUTUBE_API_KEY", KEY)
    with youtube_server(dict(VIDEOS)) as running:
        yield running


def provider(server: YouTubeServer, folder: Path, **options: Any) -> YouTube:
    retrying = Retrying("the service", retries=options.pop("retries", 3), backoff=0.01, patience=5.0)
    client = YouTubeClient(
        folder, "YOUTUBE_API_KEY", options.pop("url", server.url), options.pop("quota", 0), 5.0, retrying
    )
    return YouTube(client, options.pop("parameters", {}), options.pop("pages", 1))


def wanted(query: str = "jar", limit: int = 500, max_seconds: float = 180.0) -> Wanted:
    return Wanted(query, "m", limit, max_seconds)


def everything_under(folder: Path) -> str:
    return "".join(path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file())


def test_pages_are_followed_as_far_as_allowed(server: YouTubeServer, tmp_path: Path) -> None:
    found = provider(server, tmp_path, pages=3).search(wanted())
    assert [clip.id for clip in found] == list(VIDEOS)  # 50 + 50 + 20, in the order of the search
    assert [parameters.get("pageToken") for call, parameters in server.calls if call == "search"] == [
        None, "P50", "P100",
    ]  # fmt: skip
    assert found[3].video == "https://www.youtube.com/watch?v=jar00000003"
    assert (found[3].title, found[3].duration) == ("jar number 3", 4.0)
    assert found[3].about == {"channel": "A channel", "published": "2024-05-01T12:00:00Z"}


def test_no_page_more_than_needed(server: YouTubeServer, tmp_path: Path) -> None:
    assert len(provider(server, tmp_path, pages=3).search(wanted(limit=50))) == 50
    assert len(server.searched()) == 1
    assert len(provider(server, tmp_path / "b", pages=3).search(wanted(limit=51))) == 51
    assert len(server.searched()) == 1 + 2


def test_the_request_is_what_the_documentation_says(server: YouTubeServer, tmp_path: Path) -> None:
    options = {"parameters": {"relevanceLanguage": "en", "safeSearch": "strict"}}
    provider(server, tmp_path, **options).search(wanted("jar of coins"))
    call, parameters = server.calls[0]
    assert call == "search"
    assert parameters | {"fields": ""} == {
        "part": "snippet", "type": "video", "maxResults": "50", "q": "jar of coins", "videoDuration": "short",
        "relevanceLanguage": "en", "safeSearch": "strict", "fields": "",
    }  # fmt: skip
    assert server.calls[1][0] == "videos"
    assert server.calls[1][1]["part"] == "snippet,contentDetails"
    provider(server, tmp_path / "b").search(wanted(max_seconds=600))
    assert "videoDuration" not in server.calls[2][1]


def test_the_key_goes_in_a_header_and_nowhere_else(server: YouTubeServer, tmp_path: Path) -> None:
    server.scripted = [(*error(503, "backendError", f"oh {KEY}"),)]
    provider(server, tmp_path).search(wanted())
    assert {headers["x-goog-api-key"] for headers in server.headers} == {KEY}
    assert KEY not in "".join(server.paths)
    assert KEY not in everything_under(tmp_path)
    server.scripted = [(*error(400, "keyInvalid", f"API key not valid: {KEY}"),)]
    with pytest.raises(RefusedRequest) as refusal:
        provider(server, tmp_path / "b").search(wanted())
    assert KEY not in str(refusal.value)
    assert KEY not in repr(provider(server, tmp_path / "b").client)


def test_a_redirection_does_not_carry_the_key_elsewhere(server: YouTubeServer, tmp_path: Path) -> None:
    with youtube_server({}) as elsewhere:
        server.scripted = [(302, {}, {"Location": f"{elsewhere.url}/search?q=x&maxResults=1"})]
        with pytest.raises(RefusedRequest, match="HTTP 302"):
            provider(server, tmp_path).search(wanted())
        assert elsewhere.calls == []


def test_lengths_and_broadcasts(server: YouTubeServer, tmp_path: Path) -> None:
    server.videos = {
        "a": Video("clip", duration="PT2M59S"),
        "b": Video("clip", duration="PT3M"),
        "c": Video("clip", duration="P0D", live="upcoming"),
        "d": Video("clip", duration="PT1M", live="live"),
        "e": Video("clip", duration="soon"),
        "f": Video("clip", gone=True),
        "g": Video("clip", duration="P1DT2H"),
    }
    found = {clip.id: clip.left_out for clip in provider(server, tmp_path).search(wanted("clip"))}
    assert found == {
        "a": "",
        "b": "too long: 180 s, not under 180 s",
        "c": "live: a broadcast (upcoming)",
        "d": "live: a broadcast (live)",
        "e": "no length: 'soon'",
        "f": "gone: the service knows no such video any more",
        "g": "too long: 93600 s, not under 180 s",
    }


def test_nothing_is_asked_twice(server: YouTubeServer, tmp_path: Path) -> None:
    first = provider(server, tmp_path, pages=2)
    found = first.search(wanted())
    assert first.search(wanted()) == found
    first.close()
    second = provider(server, tmp_path, pages=3)
    assert [*second.search(wanted())][:100] == [*found]
    assert len(server.calls) == 4 + 2  # the third page alone
    torn = tmp_path / "youtube.jsonl"
    second.close()
    torn.write_bytes(torn.read_bytes()[:-30])  # a kill in the middle of a line
    provider(server, tmp_path, pages=3).search(wanted())
    assert len(server.calls) == 4 + 2 + 1


# ---- quota


def test_the_quota_stops_before_it_is_passed_and_goes_on_the_next_day(
    server: YouTubeServer, tmp_path: Path
) -> None:
    first = provider(server, tmp_path, quota=250)
    for query in ("jar one", "jar two"):
        first.search(wanted(query))
    with pytest.raises(
        Exhausted, match=r"quota of 250 units is used up \(201 spent, search.list costs 100\)"
    ):
        first.search(wanted("jar three"))
    assert len(server.searched()) == 2
    first.close()
    again = provider(server, tmp_path, quota=250)  # another process of the same day knows what was spent
    again.search(wanted("jar one"))
    with pytest.raises(Exhausted):
        again.search(wanted("jar three"))
    again.close()
    quota = tmp_path / "youtube_quota.jsonl"
    quota.write_text(quota.read_text().replace('"day": "20', '"day": "19'))  # that was another day
    assert provider(server, tmp_path, quota=250).search(wanted("jar three"))


def test_units_are_counted_before_the_call(server: YouTubeServer, tmp_path: Path) -> None:
    server.scripted = ["cut", "cut", "cut", "cut"]
    with pytest.raises(RefusedRequest):
        provider(server, tmp_path).search(wanted())
    rows = [json.loads(line) for line in (tmp_path / "youtube_quota.jsonl").read_text().splitlines()]
    assert [(row["call"], row["units"]) for row in rows] == [("search.list", 100)] * 4


def test_a_torn_line_of_the_quota_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    Quota(path, 0).spend(100, "search.list")
    path.write_bytes(path.read_bytes() + b'{"day": "20')
    Quota(path, 0).spend(100, "search.list")
    assert sum(Quota(path, 0).spent.values()) == 200


# ---- faults


@pytest.mark.parametrize("reason", ["quotaExceeded", "dailyLimitExceeded"])
def test_the_services_own_quota(server: YouTubeServer, tmp_path: Path, reason: str) -> None:
    server.scripted = [error(403, reason)]
    with pytest.raises(Exhausted, match=r"quota of today is used up.*goes on after midnight Pacific time"):
        provider(server, tmp_path).search(wanted())
    assert len(server.calls) == 1  # not tried again


def test_mishaps_and_haste_are_survived(server: YouTubeServer, tmp_path: Path) -> None:
    server.scripted = [
        error(500, "backendError"), "cut", "torn",
        (*error(429, "rateLimitExceeded"), {"Retry-After": "0.01"}),
        (*error(403, "userRateLimitExceeded"), {"Retry-After": "0.01"}), (200, ["no object"]),
    ]  # fmt: skip
    assert len(provider(server, tmp_path, retries=5).search(wanted())) == 50
    assert len(server.calls) == 6 + 2


def test_a_service_that_stops_answering(server: YouTubeServer, tmp_path: Path) -> None:
    one = provider(server, tmp_path, retries=1)
    server.scripted = [error(503, "backendError")] * 2
    with pytest.raises(RefusedRequest, match=r"no answer from http://127\.0\.0\.1.*Is the address right"):
        one.search(wanted("jar one"))
    one.search(wanted("jar two"))
    server.scripted = [error(503, "backendError")] * 2
    with pytest.raises(JobFailed, match="What was found is kept; the same command goes on"):
        one.search(wanted("jar three"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error(400, "keyInvalid", "API key not valid"), "refuses the key in YOUTUBE_API_KEY"),
        (error(403, "accessNotConfigured"), "Is the YouTube Data API v3 enabled"),
        (
            error(400, "invalidParameter", "invalid regionCode"),
            r"refuses the call \(HTTP 400\): invalid regionCode",
        ),
        ((404, {}), r"refuses the call \(HTTP 404\)"),
    ],
)
def test_refusals_are_final(server: YouTubeServer, tmp_path: Path, answer: Any, told: str) -> None:
    server.scripted = [answer]
    with pytest.raises(RefusedRequest, match=told):
        provider(server, tmp_path).search(wanted())
    assert len(server.calls) == 1


def test_a_missing_key_is_named(
    server: YouTubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("YOUTUBE_API_KEY")
    with pytest.raises(RefusedRequest, match="environment variable YOUTUBE_API_KEY holds none"):
        provider(server, tmp_path)
    monkeypatch.setenv("YOUTUBE_API_KEY", "two words")
    with pytest.raises(RefusedRequest, match="holds characters that no key has"):
        provider(server, tmp_path)
    monkeypatch.setenv("YOUTUBE_API_KEY", KEY)
    with pytest.raises(RefusedRequest, match=r"youtube_url is 'ftp://x'"):
        provider(server, tmp_path, url="ftp://x")


def test_parameters_that_there_are_not() -> None:
    problems = Problems("x")
    check_parameters({"regioncode": "US", "order": True}, problems)
    assert "unknown parameter 'regioncode' (did you mean 'regionCode'?)" in problems.found[0]
    assert problems.found[1] == "youtube: order is True; it must be a text"


# ---- small parts


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1M3S", 63), ("PT2M", 120), ("PT45S", 45), ("PT1H0M1S", 3601), ("P1DT1S", 86_401), ("P0D", 0),
        ("P1W", 604_800), ("PT1.5S", 1.5), ("1:03", 63), ("1:00:03", 3603), ("63", 63), ("63.5", 63.5),
        (" 7 ", 7), ("P", None), ("PT", None), ("soon", None), ("-3", None), ("inf", None), ("nan", None),
        ("", None),
    ],
)  # fmt: skip
def test_lengths(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_a_length_survives_its_iso_form(seconds: int) -> None:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    assert seconds_of(f"PT{hours}H{minutes}M{rest}S") == seconds


@pytest.mark.parametrize(
    "address",
    [
        "https://www.youtube.com/watch?v=abcdefghij_", "http://youtube.com/watch?feature=x&v=abcdefghij_&t=3",
        "https://youtu.be/abcdefghij_?t=3", "https://m.youtube.com/shorts/abcdefghij_",
        "youtube.com/embed/abcdefghij_", "https://www.youtube-nocookie.com/embed/abcdefghij_",
    ],
)  # fmt: skip
def test_addresses_of_one_video(address: str) -> None:
    assert youtube_id(address) == "abcdefghij_"
    assert youtube_id(youtube_address("abcdefghij_")) == "abcdefghij_"


@pytest.mark.parametrize(
    "address",
    ["https://example.org/watch?v=abcdefghijk", "https://youtu.be/short", "clips/a.mp4", "", "https://"],
)
def test_addresses_of_none(address: str) -> None:
    assert youtube_id(address) is None
