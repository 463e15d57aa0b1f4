"""A chat endpoint with logprobs judges; the server is real, on loopback."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import pytest
from PIL import Image
from retrieval.mcq.chat_server import chat_server

from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.reranking.by_endpoint import EndpointReranker
from vidvec_msg.retrieval.reranking.contract import Group, Reranker
from vidvec_msg.retrieval.reranking.load import load_reranker

STORY = Item("s", text="A slow turtle passes a hare.")
TEXTS = (Item("a", text="Keep trying."), Item("b", text="Share your bread."))


def logprobs(*listed):
    """A choice whose first token has these candidates."""
    top = [{"token": token, "logprob": math.log(p)} for token, p in listed]
    return {"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}


def opened(server, **options):
    return EndpointReranker("judge", **{"base_url": server.url, "decode_timeout": 0, "retries": 0, **options})


def judged(reranker, *groups):
    found, failed = {}, {}
    for one in reranker.judge(groups):
        found |= {(j.clip, j.text): (math.exp(j.yes), math.exp(j.no)) for j in one.judgements}
        failed |= {(f.clip, f.text): f.reason for f in one.failures}
    return found, failed


def test_the_forms_of_a_word_are_added():
    reply = lambda _: logprobs(("Yes", 0.4), (" yes", 0.1), ("No", 0.2), ("Maybe", 0.05))  # noqa: E731 — a fixture
    with chat_server(reply) as server:
        reranker = opened(server)
        assert isinstance(reranker, Reranker)
        found, failed = judged(reranker, Group(STORY, TEXTS))
        assert not failed
        assert found["s", "a"] == pytest.approx((0.5, 0.2))
        body = server.requests[0]
        assert (body["logprobs"], body["top_logprobs"], body["max_tokens"], body["temperature"]) == (
            True,
            20,
            1,
            0,
        )
        words = "".join(part["text"] for part in body["messages"][0]["content"])
        assert "A slow turtle passes a hare." in words
        assert words.endswith("Does the text match the sentence? Answer with a single word - Yes or No.")


def test_a_word_that_is_not_listed_is_as_likely_as_the_last_at_most():
    with chat_server(lambda _: logprobs(("Yes", 0.9), ("Maybe", 0.01))) as server:
        found, _ = judged(opened(server), Group(STORY, TEXTS[:1]))
    assert found["s", "a"] == pytest.approx((0.9, 0.01))


def test_a_word_that_is_not_listed_has_at_most_what_the_others_leave():
    """A server that lists the token it wrote and nothing else must not say Yes to everything."""
    with chat_server(lambda _: logprobs(("No", 0.9))) as server:
        found, _ = judged(opened(server), Group(STORY, TEXTS[:1]))
    assert found["s", "a"] == pytest.approx((0.1, 0.9))
    with chat_server(lambda _: logprobs(("Yes", 1.0))) as server:
        found, _ = judged(opened(server), Group(STORY, TEXTS[:1]))
    assert found["s", "a"] == pytest.approx((1.0, 0.0), abs=1e-8)


@pytest.mark.parametrize("never", [-9999.0, -math.inf])
def test_a_token_that_cannot_be_has_a_finite_logarithm(never):
    choice = logprobs(("Yes", 0.5), ("No", 0.25))
    choice["logprobs"]["content"][0]["top_logprobs"][1]["logprob"] = never
    with chat_server(lambda _: choice) as server:
        (one,) = opened(server).judge([Group(STORY, TEXTS[:1])])
    assert not one.failures
    assert math.isfinite(one.judgements[0].no)
    assert one.judgements[0].no <= one.judgements[0].yes


def test_neither_word_fails_the_pair_and_says_what_was_there():
    with chat_server(lambda _: logprobs(("The", 0.9), ("It", 0.05))) as server:
        found, failed = judged(opened(server), Group(STORY, TEXTS[:1]))
    assert not found
    assert "neither yes nor no is among the 2 likeliest first tokens ('The', 'It'" in failed["s", "a"]


@pytest.mark.parametrize(
    "answer", ["Yes", {"logprobs": None}, {"logprobs": {"content": []}}, {"logprobs": {}}]
)
def test_an_endpoint_without_logprobs_is_refused(answer):
    with (
        chat_server(lambda _: answer) as server,
        pytest.raises(RefusedRequest, match="answers without logprobs"),
    ):
        judged(opened(server), Group(STORY, TEXTS))


def test_frames_are_sent_as_images_before_the_question():
    pixels = np.zeros((4, 40, 48, 3), dtype=np.uint8)
    with chat_server(lambda _: logprobs(("Yes", 0.6), ("No", 0.3))) as server:
        reranker = opened(server, fps=2.0)
        found, failed = judged(reranker, Group(Item("c", video=pixels, fps=2.0, transcript="hush"), TEXTS))
        assert not failed
        assert len(found) == 2
        content = server.requests[0]["messages"][0]["content"]
    kinds = [part["type"] for part in content]
    assert kinds == ["text", *["image_url"] * 4, "text"]
    assert "hush" not in str(content)
    sent = Image.open(io.BytesIO(base64.b64decode(content[1]["image_url"]["url"].partition(",")[2])))
    assert sent.size == (48, 40)


def test_a_broken_clip_fails_its_pairs_and_a_refused_one_its_own(tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no clip")
    with chat_server(lambda _: logprobs(("Yes", 0.6), ("No", 0.3))) as server:
        server.scripted = [(400, {}, {"error": {"message": "this content is not allowed"}})]
        reranker = opened(server, concurrency=1)
        found, failed = judged(
            reranker, Group(Item("x", video=tmp_path / "broken.mp4"), TEXTS), Group(STORY, TEXTS)
        )
    assert found.keys() == {("s", "b")}
    assert failed.keys() == {("x", "a"), ("x", "b"), ("s", "a")}
    assert "not allowed" in failed["s", "a"]


def test_an_endpoint_that_gives_up_ends_the_job_and_keeps_what_was_judged():
    with chat_server(lambda _: logprobs(("Yes", 0.6), ("No", 0.3))) as server:
        reranker = opened(server, concurrency=1)
        outcomes = reranker.judge([Group(STORY, TEXTS[:1]), Group(STORY, TEXTS[1:])])
        assert next(outcomes).judgements
        server.scripted = [(500, {}, {})] * 3
        with pytest.raises(JobFailed, match="the same command goes on"):
            next(outcomes)


def test_the_fingerprint_follows_what_is_asked():
    with chat_server(lambda _: "") as server:
        plain = opened(server).fingerprint
        for options in ({"wording": "respond"}, {"yes": "True"}, {"fps": 2.0}, {"transcript": True}):
            assert opened(server, **options).fingerprint != plain


@pytest.mark.parametrize("options", ["yes=no", "concurrency=0", "top_logprobs=1", "wording=x", "stuff=1"])
def test_options_that_are_refused(options):
    with pytest.raises(RefusedRequest):
        load_reranker(f"endpoint:m?base_url=http://127.0.0.1:9/v1&{options}")
