"""The embedder behind an endpoint, over real HTTP: same vectors whatever happens, nothing asked twice."""

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from embedders.embeddings_server import TROUBLES, embeddings_server, vector_of

from vidvec_msg import load_embedder
from vidvec_msg.embedders.endpoint.embedder import EndpointEmbedder
from vidvec_msg.errors import ItemError, JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item

KEY = "sk-a-secret-that-nobody-sees"
ITEMS = [Item(f"i{number}", text=f"text number {number % 45}") for number in range(50)]  # five stand twice


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user_cache"))


@pytest.fixture
def server():
    with embeddings_server() as running:
        yield running


def embedder(server, **options) -> EndpointEmbedder:
    settings = {"timeout": 20.0, "backoff": 0.01, "retries": 20, **options}
    return EndpointEmbedder("org/model", base_url=server.url, **settings)


def expected(texts, dim=8) -> np.ndarray:
    raw = np.stack([vector_of(text, dim) for text in texts])
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def texts_of(items):
    return [item.text for item in items]


# --- the same vectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 128])
def test_same_vectors_in_any_batch(server, batch_size):
    made = embedder(server, batch_size=batch_size, cache=None)
    vectors = made.encode(ITEMS, role="document")
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected(texts_of(ITEMS)), atol=1e-6)
    np.testing.assert_array_equal(made.encode(ITEMS[3:5], role="document"), vectors[3:5])
    assert made.encode([], role="query").shape == (0, 8)
    sent = [text for request in server.requests[1:] for text in request["input"]]
    assert len(sent) == 45 + 2  # each distinct text once
    assert max(len(request["input"]) for request in server.requests) <= batch_size


@pytest.mark.parametrize("seed", range(4))
def test_same_vectors_whatever_happens(seed):
    with embeddings_server(troubles=TROUBLES, share=0.5, seed=seed) as server:
        made = embedder(server, batch_size=5, timeout=1.0)
        np.testing.assert_allclose(made.encode(ITEMS, role="document"), expected(texts_of(ITEMS)), atol=1e-6)
        assert server.met  # there was trouble
        assert set(Counter(server.answered).values()) == {1}  # and nothing was answered twice


def test_requests_side_by_side_but_not_too_many(server):
    server.delay = 0.1
    embedder(server, batch_size=3, concurrency=3, cache=None).encode(ITEMS, role="query")
    assert server.most_at_once == 3


def test_a_budget_of_characters(server):
    embedder(server, batch_chars=40, cache=None).encode(ITEMS, role="query")
    asked = [request["input"] for request in server.requests[1:]]
    assert all(sum(map(len, texts)) <= 40 for texts in asked)
    assert len(asked) < 45
    long = Item("long", text="x" * 100)
    embedder(server, batch_chars=40, cache=None).encode([ITEMS[0], long, ITEMS[1]], role="query")
    assert ["x" * 100] in [request["input"] for request in server.requests]


def test_a_busy_endpoint_spends_no_budget_and_stops_everyone(server):
    made = embedder(server, retries=0, batch_size=10, concurrency=4, cache=None)
    server.scripted = [(429, {"Retry-After": "0.3"}, {"error": "slow down"})] * 4
    began = time.monotonic()
    made.encode(ITEMS, role="query")
    assert time.monotonic() - began >= 0.3
    assert len(server.requests) == 1 + 4 + 5


# --- the cache --------------------------------------------------------------------------------------------


def test_the_second_run_asks_nothing(server):
    first = embedder(server).encode(ITEMS, role="document")
    asked = len(server.requests)
    again = embedder(server)
    np.testing.assert_array_equal(again.encode(ITEMS, role="document"), first)
    assert len(server.requests) == asked
    assert again.usage.cached == 45
    assert (again.usage.requests, again.usage.tokens) == (0, 0)


def test_the_cache_lies_where_it_should(server, tmp_path):
    embedder(server).encode(ITEMS[:1], role="query")
    (about,) = (tmp_path / "user_cache" / "vidvec-msg" / "embeddings").rglob("about.json")
    told = json.loads(about.read_text())
    assert told == {"base_url": server.url, "model": "org/model", "dimensions": 0, "dim": 8}
    embedder(server, cache=tmp_path / "mine").encode(ITEMS[:1], role="query")
    assert len(list((tmp_path / "mine").rglob("vectors.bin"))) == 1
    made = load_embedder(f"openai:org/model?base_url={server.url}&cache=none")
    asked = len(server.requests)
    made.encode(ITEMS[:1], role="query")
    assert len(server.requests) == asked + 1


@pytest.mark.parametrize(
    "change",
    [
        {"query_prompt": "query: "},
        {"dimensions": 4},
        {"role_param": "input_type"},
    ],
)
def test_another_wording_or_size_is_another_key(server, change):
    embedder(server).encode(ITEMS[:3], role="query")
    asked = len(server.requests)
    changed = embedder(server, **change)
    changed.encode(ITEMS[:3], role="query")
    assert len(server.requests) == asked + 1
    assert changed.card.fingerprint != embedder(server).card.fingerprint


KILLED = """
import sys
from vidvec_msg import Item, load_embedder
items = [Item(f"i{n}", text=f"text number {n % 45}") for n in range(50)]
load_embedder(sys.argv[1]).encode(items, role="document")
"""


def test_killed_in_the_middle_the_next_run_asks_for_what_is_missing(server, tmp_path):
    server.delay = 0.3
    spec = f"openai:org/model?base_url={server.url}&cache={tmp_path}&batch_size=3&concurrency=2"
    with subprocess.Popen([sys.executable, "-c", KILLED, spec]) as process:
        while len(server.answered) < 14 and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(0.5)  # requests on their way arrive
    before = list(server.answered)
    assert len(before) < 40
    server.delay = 0.0
    vectors = embedder(server, cache=tmp_path, batch_size=3).encode(ITEMS, role="document")
    np.testing.assert_allclose(vectors, expected(texts_of(ITEMS)), atol=1e-6)
    twice = len(before) + len(server.answered[len(before) :]) - len(set(server.answered))
    assert twice <= 6  # those whose answer was on its way to the killed process: 2 requests of 3 texts
    asked = len(server.requests)
    embedder(server, cache=tmp_path).encode(ITEMS, role="document")
    assert len(server.requests) == asked


# --- bad items --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["auto", None])
def test_an_over_long_text_is_found_and_the_others_are_kept(server, cache):
    server.longest = 40
    made = embedder(server, batch_size=16, cache=cache)
    items = [*ITEMS[:20], Item("long", text="x" * 41), *ITEMS[20:], Item("longer", text="y" * 99)]
    with pytest.raises(ItemError) as caught:
        made.encode(items, role="document")
    assert [failure.item for failure in caught.value.failures] == ["long", "longer"]
    reason = caught.value.failures[0].reason
    assert (
        f"127.0.0.1:{server.server_port} refuses its text: maximum context length is 40 characters" == reason
    )
    asked = len(server.requests)
    vectors = made.encode(ITEMS, role="document")  # as the pipelines do: the rest again
    np.testing.assert_allclose(vectors, expected(texts_of(ITEMS)), atol=1e-6)
    assert len(server.requests) == asked


def test_a_batch_that_is_too_large_for_the_endpoint(server, caplog):
    server.most = 8
    made = embedder(server, batch_size=32, concurrency=1, cache=None)
    with caplog.at_level(logging.INFO, "vidvec_msg"):
        made.encode(ITEMS, role="document")
    assert "takes no 16 texts at once (batch size 16 > maximum 8); from now on 8 at most" in caplog.text
    asked = len(server.requests)
    made.encode(ITEMS, role="document")
    assert [len(request["input"]) for request in server.requests[asked:]] == [8, 8, 8, 8, 8, 5]


@pytest.mark.parametrize("embedding", [[float("nan")] * 8, [0.0] * 8, [None] * 8])
def test_vectors_that_are_none_are_named_and_not_kept(server, embedding):
    server.special["text number 3"] = embedding
    made = embedder(server)
    with pytest.raises(
        ItemError, match=r"^item 'i3': the model gave a (vector that is not finite|zero vector)$"
    ):
        made.encode(ITEMS[:10], role="document")
    server.special.clear()
    asked = len(server.requests)
    np.testing.assert_allclose(
        made.encode(ITEMS[:10], role="document"), expected(texts_of(ITEMS[:10])), atol=1e-6
    )
    assert server.requests[asked]["input"] == ["text number 3"]


def test_items_without_words_are_named_before_anything_is_asked(server):
    made = embedder(server)
    asked = len(server.requests)
    items = [
        Item("blank", text="  "),
        ITEMS[0],
        Item("half", text="a \ud83d b"),
        Item("picture", image=Path("p.png")),
        Item("mute", video=Path("v.mp4")),
    ]
    with pytest.raises(ItemError) as caught:
        made.encode(items, role="document")
    assert {failure.item: failure.reason for failure in caught.value.failures} == {
        "blank": "empty text",
        "half": r"'utf-8' codec can't encode character '\ud83d' in position 2: surrogates not allowed",
        "picture": "this embedder reads text, video; the item is image",
        "mute": "the clip has no transcript and no ocr, which is all that this embedder reads of a clip "
        "(clip_text=transcript+ocr); `vidvec-msg annotate` writes such fields",
    }
    assert len(server.requests) == asked


def test_a_role_that_is_none(server):
    with pytest.raises(ValueError, match="role must be one of query, document, got 'passage'"):
        embedder(server).encode(ITEMS, role="passage")


# --- words ------------------------------------------------------------------------------------------------


def test_clips_by_their_words(server):
    clip = Item("c", video=Path("c.mp4"), transcript="said", ocr="written", text="caption")
    for spec, words in [("transcript+ocr", "said\nwritten"), ("text", "caption")]:
        vectors = embedder(server, clip_text=spec).encode([clip], role="document")
        np.testing.assert_allclose(vectors, expected([words]), atol=1e-6)
    blind = embedder(server, clip_text=None)
    assert blind.card.modalities == ("text",)
    with pytest.raises(ItemError, match="this embedder reads text; the item is video"):
        blind.encode([clip], role="document")


def test_prompts_and_roles(server):
    made = embedder(server, query_prompt="Q: ", document_prompt="D: ", role_param="input_type:query,passage")
    np.testing.assert_allclose(
        made.encode(ITEMS[:1], role="query"), expected(["Q: text number 0"]), atol=1e-6
    )
    assert server.requests[-1]["input_type"] == "query"
    np.testing.assert_allclose(
        made.encode(ITEMS[:1], role="document"), expected(["D: text number 0"]), atol=1e-6
    )
    assert server.requests[-1]["input_type"] == "passage"
    assert made.card.role_prompts == {"query": "Q: ", "document": "D: "}
    embedder(server, role_param="task").encode(ITEMS[:1], role="document")
    assert server.requests[-1]["task"] == "document"


# --- the card and the options -----------------------------------------------------------------------------


def test_the_card(server):
    card = embedder(server).card
    assert (card.name, card.dim, card.base_model, card.weights) == ("model", 8, "org/model", "")
    assert card.modalities == ("text", "video")
    same = embedder(server, name="mine", batch_size=3, concurrency=1, encoding_format="float", cache=None)
    assert same.card.name == "mine"
    assert same.card.fingerprint == card.fingerprint
    assert embedder(server, clip_text="ocr").card.fingerprint != card.fingerprint
    with embeddings_server() as elsewhere:
        assert embedder(elsewhere).card.fingerprint != card.fingerprint


def test_dimensions_need_no_probe(server):
    made = embedder(server, dimensions=4)
    assert (made.card.dim, server.requests) == (4, [])
    assert made.encode(ITEMS[:2], role="query").shape == (2, 4)


def test_dimensions_that_the_endpoint_does_not_do(server):
    server.supports_dimensions = False
    with pytest.raises(
        RefusedRequest, match=r"gave vectors of 8 dimensions, not 4: dimensions=4 was asked for"
    ):
        embedder(server, dimensions=4).encode(ITEMS, role="query")


def test_another_model_under_the_same_name(server):
    embedder(server).encode(ITEMS[:3], role="query")
    server.dim = 6
    with pytest.raises(
        RefusedRequest, match=r"vectors of 6 dimensions, not 8: another model answers under the same"
    ):
        embedder(server).encode(ITEMS, role="query")


def test_options_that_the_endpoint_does_not_take(server):
    made = embedder(server, dimensions=4)
    server.longest = 0  # every text is refused
    with pytest.raises(
        RefusedRequest, match=r"not even of one short text: maximum context.*Look at dimensions"
    ):
        made.encode(ITEMS, role="query")
    with pytest.raises(RefusedRequest, match=r"does not take a request for model 'org/model', not even"):
        embedder(server)
    assert len(server.requests) < 12  # not one a text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("batch_size=0", "batch_size is 0 and must be at least 1"),
        ("timeout=nan", "timeout is nan and must be at least 0.001"),
        ("concurrency=0&dimensions=-1", "dimensions is -1 and must be at least 0; concurrency is 0 and must"),
        ("retries=-1", "must not be negative, got -1"),
        ("role_param=:a,b", "it is a field's name"),
        ("role_param=input_type:a", "it is a field's name"),
        ("clip_text=transcipt", "did you mean 'transcript'"),
        ("encoding_format=int8", "'int8' is not one of base64, float"),
        ("api_key=secret", "unknown option 'api_key'"),
    ],
)
def test_options_that_are_refused(options, complaint):
    with pytest.raises(RefusedRequest, match=complaint):
        load_embedder(f"openai:m?base_url=http://127.0.0.1:9/v1&{options}")


def test_nobody_there_is_said_soon():
    with embeddings_server() as gone:
        pass
    with pytest.raises(
        RefusedRequest, match=r"no embeddings from http://127.*\(model 'org/model'\): .*3 times.*refused"
    ):
        embedder(gone)


# --- trouble that stays -----------------------------------------------------------------------------------


def test_an_endpoint_that_dies_ends_the_job_and_keeps_what_was_answered(server):
    made = embedder(server, batch_size=10, concurrency=1, retries=1)
    server.troubles, server.share = ["broken"], 0.0
    made.encode(ITEMS[:20], role="query")
    server.share = 1.0
    with pytest.raises(
        JobFailed, match=r"failed 2 times in a row on one request \(retries=1\).*Internal Server Error"
    ):
        made.encode(ITEMS, role="query")
    server.share = 0.0
    embedder(server).encode(ITEMS, role="query")
    assert set(Counter(server.answered).values()) == {1}


def test_a_key_that_is_withdrawn_ends_the_job_at_once(server):
    made = embedder(server, batch_size=1, concurrency=2)
    server.delay = 0.02
    server.scripted = [(401, {}, {"error": {"message": "revoked"}})] * 60
    with pytest.raises(RefusedRequest, match="refuses the key in OPENAI_API_KEY"):
        made.encode(ITEMS, role="query")
    assert len(server.requests) < 12  # the other forty were not sent


# --- what is said -----------------------------------------------------------------------------------------


def test_the_key_is_nowhere(server, caplog, tmp_path):
    for name in (
        "",
        "openai",
        "httpx2",
        "httpcore2",
        "httpx",
        "httpcore",
    ):  # of both generations of the client
        caplog.set_level(logging.DEBUG, logger=name)
    made = embedder(server, batch_size=10)
    server.scripted = [(500, {}, f"cannot use {KEY}"), (400, {}, {"error": {"message": f"bad {KEY}"}})]
    made.encode(ITEMS, role="query")
    server.scripted = [(401, {}, {"error": {"message": f"Incorrect API key provided: {KEY}"}})]
    with pytest.raises(RefusedRequest) as caught:
        made.encode([Item("new", text="new")], role="query")
    told = caplog.text + str(caught.value) + repr(made.card) + repr(vars(made))
    del made, caught
    gc.collect()
    assert f"Bearer {KEY}" in [headers["authorization"] for headers in server.headers]  # it was used
    assert "HTTP 500: cannot use <OPENAI_API_KEY>" in told
    assert KEY not in told + caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert all(KEY.encode() not in path.read_bytes() for path in files)


def test_usage_is_counted_and_told_once(server, caplog):
    with caplog.at_level(logging.INFO, "vidvec_msg"):
        made = embedder(server, batch_size=9)
        server.scripted = [(500, {}, "oh no")]
        made.encode(ITEMS, role="query")
        made.encode(ITEMS[:5], role="query")
        assert (made.usage.requests, made.usage.texts, made.usage.cached) == (6, 46, 5)
        assert made.usage.tokens == 45 * 3 + 5  # the probe has five words
        assert "requests" not in caplog.text
        del made
        gc.collect()
    (line,) = [record.getMessage() for record in caplog.records if "requests" in record.getMessage()]
    assert line == (
        f"org/model at 127.0.0.1:{server.server_port}: 6 requests for 46 texts, 140 tokens, "
        "5 vectors from the cache; retries: 1, cool-downs: 0"
    )


def test_through_the_verbs(server, tmp_path):
    from vidvec_msg.cli import main

    server.longest = 40
    rows = [{"_id": f"d{n}", "text": f"document {n}"} for n in range(6)] + [{"_id": "long", "text": "x" * 50}]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = f"openai:org/model?base_url={server.url}&batch_size=2"
    words = ["embed", "--collection", str(tmp_path), "--embedder", spec, "--out", str(tmp_path / "v")]
    assert main([*words, "--max_failures", "1"]) == 0
    failures = [json.loads(line) for line in (tmp_path / "v" / "failures.jsonl").read_text().splitlines()]
    assert [failure["item"] for failure in failures] == ["long"]
    assert main(["index", "--vectors", str(tmp_path / "v"), "--out", str(tmp_path / "i")]) == 0
    assert main(["search", "--index", str(tmp_path / "i"), "--text", "document 3", "--k", "1"]) == 0
    manifest = (tmp_path / "i" / "index.json").read_text()
    assert KEY not in manifest
    assert server.url in manifest
