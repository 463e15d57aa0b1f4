"""One request over real HTTP: what its answer means."""

import logging
from types import SimpleNamespace

import numpy as np
import openai
import pytest
from embedders.embeddings_server import embeddings_server, vector_of

from vidvec_msg.embedders.endpoint.client import Endpoint, Unfit, read_answer
from vidvec_msg.embedders.endpoint.retries import Busy, Mishap
from vidvec_msg.errors import RefusedRequest

KEY = "sk-a-secret-that-nobody-sees"


@pytest.fixture(scope="module")
def server():
    with embeddings_server() as running:
        yield running


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def endpoint(server, **options):
    return Endpoint("org/model", base_url=server.url, **{"timeout": 20.0, **options})


def refusal(server, status, body, headers=None, **options) -> Exception:
    server.scripted.append((status, headers or {}, body))
    with pytest.raises(Exception) as caught:
        endpoint(server, **options).ask(["a", "b"])
    return caught.value


@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_vectors_in_the_order_of_the_texts(server, encoding):
    texts = [f"text {number}" for number in range(20)]
    reply = endpoint(server, encoding_format=encoding).ask(texts)
    np.testing.assert_array_equal(reply.vectors, [vector_of(text, 8) for text in texts])
    assert reply.vectors.dtype == np.float32
    assert reply.tokens == 40
    assert server.requests[-1] == {"input": texts, "model": "org/model", "encoding_format": encoding}


def test_dimensions_and_further_fields_are_sent(server):
    reply = endpoint(server, dimensions=4).ask(["a"], fields={"input_type": "query"})
    assert reply.vectors.shape == (1, 4)
    assert server.requests[-1]["dimensions"] == 4
    assert server.requests[-1]["input_type"] == "query"


def test_the_key_is_sent_and_a_local_endpoint_needs_none(server, monkeypatch):
    endpoint(server).ask(["a"])
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"
    monkeypatch.setenv("OTHER_KEY", "other")
    endpoint(server, key_env="OTHER_KEY").ask(["a"])
    assert server.headers[-1]["authorization"] == "Bearer other"
    monkeypatch.delenv("OPENAI_API_KEY")
    endpoint(server).ask(["a"])
    assert server.headers[-1]["authorization"] == "Bearer none-needed"
    assert not {"x-stainless-os", "x-stainless-arch", "x-stainless-runtime-version"} & {*server.headers[-1]}


def test_clients_before_1_108_have_no_omit(server, monkeypatch):
    monkeypatch.delattr(openai, "omit", raising=False)
    assert endpoint(server).ask(["a"]).tokens == 1


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, r"refuses the key in OPENAI_API_KEY for model 'org/model' \(HTTP 401\): Incorrect key"),
        (403, r"refuses the key in OPENAI_API_KEY for model 'org/model' \(HTTP 403\): Incorrect key"),
        (404, r"knows no model 'org/model', or has no embeddings at http://127.0.0.1:\d+/v1/embeddings"),
        (402, r"127.0.0.1:\d+ refuses the request \(HTTP 402\): Incorrect key"),
    ],
)
def test_final_refusals(server, status, words):
    error = refusal(server, status, {"error": {"message": f"Incorrect key: {KEY}."}})
    assert isinstance(error, RefusedRequest)
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__
    with pytest.raises(RefusedRequest, match=words):
        raise error


def test_a_request_without_a_key_is_refused(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    error = refusal(server, 401, {"error": "no key"})
    assert "refuses a request without a key (OPENAI_API_KEY is empty)" in str(error)


def test_a_quota_that_is_used_up_is_final(server):
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    error = refusal(server, 429, body, {"Retry-After": "1"})
    assert isinstance(error, RefusedRequest)
    assert "the quota of this key is used up: You exceeded your quota" in str(error)


def test_busy_says_for_how_long(server):
    error = refusal(server, 429, {"error": {"message": "Rate limit"}}, {"Retry-After": "3"})
    assert isinstance(error, Busy)
    assert (str(error), error.wait) == ("Rate limit", 3.0)
    assert refusal(server, 429, "try later").wait is None


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("body", [{"error": {"message": "too long"}}, {"detail": "too long"}, "too long"])
def test_input_that_is_not_taken(server, status, body):
    error = refusal(server, status, body)
    assert isinstance(error, Unfit)
    assert str(error) == "too long"


@pytest.mark.parametrize("status", [408, 500, 502, 503, 529])
def test_statuses_of_a_mishap(server, status):
    error = refusal(server, status, {"error": {"message": "oh no"}})
    assert isinstance(error, Mishap)
    assert str(error) == f"HTTP {status}: oh no"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("slow", "no answer within 0.3 s"),
        ("cut", "connection error: .+"),
        ("torn", "connection error: .+"),
        ("few", "0 vectors for 2 texts|No embedding data"),
        ("html", "an answer without embeddings: <html>Please log in</html>"),
        ("indices", r"2 indices are not 0 to 1 \(but 0, 0\), .*; batch_size=1 does without them"),
    ],
)
def test_answers_that_cannot_be_used(trouble, words):
    with embeddings_server(troubles=[trouble], share=1.0) as server, pytest.raises(Mishap, match=words):
        endpoint(server, timeout=0.3 if trouble == "slow" else 20.0).ask(["a", "b"])


def test_nobody_listens(server):
    with embeddings_server() as gone:
        pass
    with pytest.raises(Mishap, match=r"connection error: .*refused"):
        endpoint(gone).ask(["a"])


def test_words_are_one_line_and_not_too_many(server):
    error = refusal(server, 500, "a\n  b" + "c" * 1000)
    assert str(error).startswith("HTTP 500: a bccc")
    assert len(str(error)) < 320


# --- the answer -------------------------------------------------------------------------------------------


def answer(*embeddings, indices=None):
    places = range(len(embeddings)) if indices is None else indices
    data = [
        SimpleNamespace(index=place, embedding=one) for place, one in zip(places, embeddings, strict=True)
    ]
    return SimpleNamespace(data=data, usage=None)


def test_one_text_needs_no_index():
    reply = read_answer(answer([1.0, 2.0], indices=[None]), 1)
    np.testing.assert_array_equal(reply.vectors, [[1, 2]])
    assert reply.tokens == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (answer([1.0], [2.0], [3.0]), "3 vectors for 2 texts"),
        (answer([1.0], [2.0], indices=[1, 2]), r"2 indices are not 0 to 1 \(but 1, 2\)"),
        (answer([1.0], [2.0], indices=[None, None]), r"\(but None, None\)"),
        (answer([1.0], [2.0, 3.0]), "vectors of 1, 2 dimensions in one answer"),
        (answer([], []), "vectors of 0 dimensions"),
        (answer([1.0], None), "a vector that is a NoneType, not a list of numbers"),
        (answer([1.0], ["x"]), "a vector that is no list of numbers"),
        (answer([1.0], [[1.0]]), r"no list of numbers .*: its numbers have the shape \(1, 1\)"),
        (answer([1.0], "A"), "a vector that is no list of numbers and no base64"),
        (answer([1.0], "AAAA"), "a vector that is no list of numbers and no base64"),
    ],
)
def test_answers_that_are_none(given, words):
    with pytest.raises(Mishap, match=words):
        read_answer(given, 2)


# --- what is refused before anything is sent --------------------------------------------------------------


def test_openai_itself_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(
        RefusedRequest, match=r"api.openai.com needs a key and the environment variable OPENAI_API"
    ):
        Endpoint("text-embedding-3-small")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8000/v1/")
    assert Endpoint("m").base_url == "http://localhost:8000/v1"
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert Endpoint("m").host == "api.openai.com"


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http:///v1", "https://[host/v1"])
def test_addresses_that_are_none(url):
    with pytest.raises(RefusedRequest, match=r"it begins with http:// or https://, as https://api"):
        Endpoint("m", base_url=url)


@pytest.mark.parametrize(
    "url", ["https://me:secret@host/v1", "https://host/v1?key=secret", "https://h/v1#secret"]
)
def test_addresses_with_secrets(url):
    with pytest.raises(RefusedRequest, match="secrets belong into the environment") as caught:
        Endpoint("m", base_url=url)
    assert "secret@" not in str(caught.value)
    assert "=secret" not in str(caught.value)


@pytest.mark.parametrize("pasted", ["sk-a…z", "sk-a\nsk-b"])
def test_a_key_that_is_none(monkeypatch, pasted):
    monkeypatch.setenv("OPENAI_API_KEY", pasted)
    with pytest.raises(RefusedRequest, match="OPENAI_API_KEY holds characters that no key has") as caught:
        Endpoint("m")
    assert "sk-a" not in str(caught.value)


def test_a_model_without_a_name():
    with pytest.raises(ValueError, match="the model's name is empty"):
        Endpoint(" ", base_url="http://localhost/v1")


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://gpu-box:8000/v1", True), ("http://127.0.0.1:8/v1", False), ("https://gpu-box/v1", False)],
)
def test_a_key_that_goes_unencrypted(url, warned, caplog):
    with caplog.at_level(logging.WARNING):
        shown = repr(Endpoint("m", base_url=url))
    assert ("the key in OPENAI_API_KEY goes to gpu-box:8000 unencrypted" in caplog.text) is warned
    assert KEY not in shown + caplog.text
