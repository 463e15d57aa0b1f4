"""A chat endpoint over real HTTP answers; what it is shown, and what becomes of its trouble."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from retrieval.mcq.chat_server import chat_server, words_of
from retrieval.mcq.exams import question

from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.mcq.load import load_answerer

KEY = "sk-a-secret-that-nobody-sees"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def server():
    with chat_server(lambda body: "B") as running:
        yield running


def answerer(server, **options):
    settings = {"base_url": server.url, "backoff": 0.01, "decode_timeout": 0, **options}
    return load_answerer(
        "endpoint:org/model?" + "&".join(f"{name}={value}" for name, value in settings.items())
    )


def asked(one, *questions, with_clip=True):
    failures = []
    answers = {
        answer.question: answer for answer in one.answers(questions, with_clip=with_clip, failures=failures)
    }
    return answers, {failure.item: failure.reason for failure in failures}


def clip(frames: int = 3) -> Item:
    pixels = np.full((frames, 24, 32, 3), 128, dtype=np.uint8)
    return Item("the-name-of-the-clip", video=pixels, fps=1.0)


def test_frames_are_sent_as_images_and_nothing_tells_the_clips_name(server):
    answers, failures = asked(answerer(server), question("q", clip=clip()))
    assert answers["q"].chosen == 1
    assert answers["q"].raw == "B"
    assert failures == {}
    (body,) = server.requests
    assert server.paths == ["/v1/chat/completions"]
    assert body["model"] == "org/model"
    assert (body["max_tokens"], body["temperature"]) == (16, 0.0)
    (turn,) = body["messages"]
    kinds = [part["type"] for part in turn["content"]]
    assert kinds == ["text", "image_url", "image_url", "image_url", "text"]
    uri = turn["content"][1]["image_url"]["url"]
    image = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/jpeg;base64,"))))
    assert image.size == (32, 24)
    assert "A. apple pie" in words_of(body)
    assert "the-name" not in str(body)


def test_a_storyline_is_sent_as_text_and_the_control_sends_neither(server):
    story = question("q", clip=Item("c", text="a long story"))
    asked(answerer(server), story)
    asked(answerer(server), story, with_clip=False)
    shown, blind = server.requests
    assert shown["messages"][0]["content"][0] == {"type": "text", "text": "a long story"}
    assert len(blind["messages"][0]["content"]) == 1
    assert words_of(blind).startswith("You are not shown the clip")
    assert "a long story" not in str(blind)


def test_options_of_the_request_are_sent(server):
    asked(
        answerer(
            server, temperature="none", tokens_field="max_completion_tokens", new_tokens=99, max_frames=2
        ),
        question("q", clip=clip(9)),
    )
    (body,) = server.requests
    assert body["max_completion_tokens"] == 99
    assert "temperature" not in body
    assert "max_tokens" not in body
    assert sum(part["type"] == "image_url" for part in body["messages"][0]["content"]) == 2


def test_an_answer_that_names_no_option_is_kept_as_it_is(server):
    server.reply = lambda body: "I would say it is about patience."
    answers, _ = asked(answerer(server), question("q"))
    assert answers["q"].chosen is None
    assert answers["q"].raw == "I would say it is about patience."


def test_trouble_passes_and_a_refused_question_is_named(server):
    server.scripted = [
        (429, {"Retry-After": "0.01"}, {"error": {"message": "slow down"}}),
        (503, {}, {"error": {"message": "overloaded"}}),
        (200, {}, {"choices": []}),
        (400, {}, {"error": {"message": "content policy"}}),
    ]
    answers, failures = asked(answerer(server, concurrency=1), question("first"), question("second"))
    assert answers.keys() == {"second"}
    assert failures == {"first": "content policy"}
    assert len(server.requests) == 5


def test_a_clip_that_cannot_be_read_or_shown_is_named(server, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no clip")
    (tmp_path / "sound.wav").write_bytes(b"RIFF")
    answers, failures = asked(
        answerer(server),
        question("broken", clip=Item("c", video=tmp_path / "broken.mp4")),
        question("sound", clip=Item("c", audio=tmp_path / "sound.wav")),
        question("good"),
    )
    assert answers.keys() == {"good"}
    assert failures.keys() == {"broken", "sound"}
    assert failures["sound"] == "an endpoint is shown frames and texts; the clip is audio"


def test_an_endpoint_that_is_down_ends_the_exam_and_says_that_it_goes_on(server):
    server.scripted = [(500, {}, {"error": {"message": "down"}})] * 50
    with pytest.raises(
        JobFailed, match=r"failed 2 times in a row.*Answers are kept; the same command goes on"
    ):
        asked(answerer(server, retries=1), *(question(f"q{number}") for number in range(10)))


def test_a_wrong_key_is_refused_without_showing_it(server):
    server.scripted = [(401, {}, {"error": {"message": f"bad key {KEY}"}})] * 20
    with pytest.raises(RefusedRequest, match="HTTP 401") as refusal:
        asked(answerer(server), question("q"))
    assert KEY not in str(refusal.value)


def test_the_fingerprint_goes_with_what_decides_answers(server):
    plain = answerer(server).fingerprint
    assert plain == answerer(server, concurrency=9, timeout=3).fingerprint
    assert plain != answerer(server, max_frames=2).fingerprint
    assert plain != answerer(server, transcript="true").fingerprint
    assert KEY not in plain


def test_no_address_and_no_key_is_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(RefusedRequest, match="OPENAI_API_KEY holds none"):
        load_answerer("endpoint:gpt")


def test_a_key_that_an_answer_repeats_is_not_kept():
    with chat_server(lambda body: f"Your key is {KEY}") as running:
        answers, _ = asked(answerer(running), question("q", clip=clip()))
    assert answers["q"].raw == "Your key is <OPENAI_API_KEY>"
