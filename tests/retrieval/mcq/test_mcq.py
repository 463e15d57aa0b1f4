"""The verb: exams of embedders and of a chat endpoint, on disk and from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from fakes import KeywordEmbedder
from retrieval.mcq.chat_server import chat_server, words_of
from retrieval.mcq.exams import messages

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats import items as items_module
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.mcq.verb import mcq

WORDS = "retrieval.mcq.test_mcq"


class Keywords(KeywordEmbedder):
    """Knows the keywords; a question without one is a point of its own, as any embedder would make it."""

    def encode(self, items, *, role):
        known = [item if self._counts(item).any() else Item(item.id, text="harbour") for item in items]
        return super().encode(known, role=role)


class Constant:
    """Every vector is the same: a collapsed space, in which all options tie."""

    card = EmbedderCard(name="constant", dim=2, weights="v1")

    def encode(self, items, *, role):
        return np.tile(np.array([[1, 0]], dtype=np.float32), (len(items), 1))


@pytest.fixture
def collection(tmp_path) -> Path:
    return messages(tmp_path / "C").root


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def knows(word_of_clip: str):
    """Replies with the letter of the option that has the clip's keyword; without a clip, always with A."""

    def reply(body) -> str:
        content = body["messages"][0]["content"]
        if len(content) == 1:
            return "A"
        word = content[0]["text"].split()[1]
        options = [line for line in words_of(body).splitlines() if line[1:3] == ". "]
        return next((line[0] for line in options if word in line), "none of them")

    return reply


def test_an_embedder_that_knows_answers_all_and_its_options_have_no_order(collection, tmp_path, capsys):
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], rotations=3)
    made = report(tmp_path / "M")
    (model,) = made["models"]
    assert made["questions"] == model["accuracy"]["questions"] == 36
    assert model["accuracy"]["value"] == 1.0
    assert model["accuracy"]["chance"] == pytest.approx(0.2)
    assert model["rotated"] is None
    assert model["control"]["questions"] == 36
    assert set(model["groups"]) == {"topic", "mood"}
    told = capsys.readouterr().out
    assert told in (tmp_path / "M" / "report.md").read_text()
    assert "| keywords | 100.0 |" in told


def test_vectors_from_elsewhere_answer_by_the_ids_of_clips_and_messages(collection, tmp_path):
    names = [one["_id"] for side in ("corpus", "queries") for one in lines(collection / f"{side}.jsonl")]
    dice = np.random.default_rng(0)
    messages_of = {name: dice.standard_normal(8) for name in names if "c" not in name}
    rows = np.array([messages_of[name.split("c")[0]] for name in names], dtype=np.float32)
    np.savez(tmp_path / "v.npz", ids=names, vectors=rows / np.linalg.norm(rows, axis=1, keepdims=True))
    mcq(collection, tmp_path / "M", embedder=[f"vectors:{tmp_path / 'v.npz'}"])
    (model,) = report(tmp_path / "M")["models"]
    assert model["accuracy"]["value"] == 1.0
    assert model["accuracy"]["questions"] == 36
    assert model["control"]["questions"] == 0  # nobody has computed a vector of the question
    assert model["control"]["failed"] == 36


def test_a_collapsed_embedder_scores_at_chance_and_its_ties_are_told(collection, tmp_path):
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Constant"])
    (model,) = report(tmp_path / "M")["models"]
    assert model["tied"] == 36
    assert model["accuracy"]["value"] < 0.5  # by position or with the right one first it would be 1
    assert any("same highest score" in warning for warning in model["warnings"])


def test_answers_say_what_was_chosen_and_why(collection, tmp_path):
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"])
    answers = lines(tmp_path / "M" / "answers.jsonl")
    questions = {one["_id"]: one for one in lines(tmp_path / "M" / "questions.jsonl")}
    assert [one["question"] for one in answers if one["round"] == "clip"] == list(questions)
    for one in answers:
        asked = questions[one["question"]]
        assert one["right"] == (one["position"] == asked["answer"])
        assert one["chosen"] == asked["option_ids"]["ABCDE".index(one["letter"])]
        assert max(one["scores"]) == one["scores"][one["position"]]


def test_several_models_and_what_all_of_them_guess(collection, tmp_path):
    with chat_server(knows("word")) as server:
        spec = f"endpoint:m?base_url={server.url}"
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], answerer=[spec])
    made = report(tmp_path / "M")
    _, endpoint = made["models"]
    assert endpoint["accuracy"]["value"] == 1.0
    assert endpoint["rotated"]["same"]["value"] == 1.0
    assert endpoint["control"]["value"] == endpoint["letters"]["A"]["right"] / 36
    blind = [one for one in lines(tmp_path / "M" / "answers.jsonl") if one["round"] == "without the clip"]
    guessed = {one["question"] for one in blind if one["right"] and one["model"] == "keywords"}
    at_a = {one["_id"] for one in lines(tmp_path / "M" / "questions.jsonl") if one["answer"] == 0}
    assert made["guessers"] == 2
    assert set(made["guessable"]) == guessed & at_a
    assert made["guessable_by_chance"] == pytest.approx(36 / 25)


def test_unreadable_answers_are_counted_and_wrong(collection, tmp_path):
    with chat_server(lambda body: "I like the first and the second") as server:
        mcq(collection, tmp_path / "M", answerer=[f"endpoint:m?base_url={server.url}"], control=False)
    (model,) = report(tmp_path / "M")["models"]
    assert model["unreadable"] == 36
    assert model["accuracy"]["value"] == 0.0
    assert model["control"] is None
    assert report(tmp_path / "M")["guessable"] is None


# --- going on -------------------------------------------------------------------------------------------


def test_an_interrupted_exam_asks_only_the_rest_and_ends_in_the_same_bytes(collection, tmp_path):
    with chat_server(knows("word")) as server:
        spec = f"endpoint:m?base_url={server.url}&concurrency=3&retries=0&backoff=0"
        mcq(collection, tmp_path / "whole", answerer=[spec])
        all_requests = len(server.requests)
        assert all_requests == 36 * 3
        server.requests.clear()
        calm = server.reply

        def dies(body):
            if len(server.requests) > 20:
                server.scripted = [(500, {}, {})] * 5
            return calm(body)

        server.reply = dies
        words = ["mcq", "--collection", str(collection), "--answerer", spec, "--out", str(tmp_path / "M")]
        assert main(words) == 1
        assert not (tmp_path / "M" / "report.json").exists()
        kept = len(lines(tmp_path / "M" / "answers.jsonl"))
        assert 15 < kept < 36
        with (tmp_path / "M" / "answers.jsonl").open("a") as stream:
            stream.write('{"model": "m", "torn')
        server.scripted, server.reply = [], calm
        server.requests.clear()
        assert main(words) == 0
        assert len(server.requests) == all_requests - kept
    for name in ("answers.jsonl", "questions.jsonl", "report.json", "report.md"):
        assert (tmp_path / "M" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_exam_asks_new_models_alone_and_keeps_the_old_answers(collection, tmp_path):
    with chat_server(knows("word")) as server:
        spec = f"endpoint:m?base_url={server.url}"
        mcq(collection, tmp_path / "M", answerer=[spec])
        server.requests.clear()
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"])
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], answerer=[spec])
        assert server.requests == []
    assert [model["name"] for model in report(tmp_path / "M")["models"]] == ["keywords", "m (endpoint)"]


def test_a_clip_that_changed_is_asked_again(collection, tmp_path):
    with chat_server(knows("word")) as server:
        spec = f"endpoint:m?base_url={server.url}"
        mcq(collection, tmp_path / "M", answerer=[spec], control=False, rotations=0)
        server.requests.clear()
        text = (collection / "corpus.jsonl").read_text()
        (collection / "corpus.jsonl").write_text(text.replace("a apple story", "an apple story, longer", 1))
        mcq(collection, tmp_path / "M", answerer=[spec], control=False, rotations=0)
        assert len(server.requests) == 1


def test_clips_that_have_not_changed_are_not_read_again(collection, tmp_path, monkeypatch):
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"frames")
    os.utime(clip, (1, 1))
    path = collection / "corpus.jsonl"
    rows = [json.loads(line) | {"video": str(clip)} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], control=False)
    (tmp_path / "M" / "answers.jsonl").unlink()
    monkeypatch.setattr(items_module, "_hash_file_ends", None)  # whoever reads fails
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], control=False)
    assert report(tmp_path / "M")["models"][0]["accuracy"]["value"] == 1.0


def test_clips_that_all_changed_are_embedded_anew(collection, tmp_path):
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], control=False)
    path = collection / "corpus.jsonl"
    path.write_text(path.read_text().replace('"text": "', '"text": "Once more, '))
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], control=False)
    assert report(tmp_path / "M")["models"][0]["accuracy"]["value"] == 1.0


def test_another_exam_is_refused_for_the_folder(collection, tmp_path):
    mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"])
    with pytest.raises(RefusedRequest, match=r"holds another exam.*\n.*seed was 0 and is 1 now"):
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"], seed=1)


# --- limits and refusals --------------------------------------------------------------------------------


def test_a_limit_keeps_the_questions_of_a_smaller_one(collection, tmp_path):
    for limit in (5, 9):
        mcq(collection, tmp_path / str(limit), embedder=[f"{WORDS}:Keywords"], limit=limit)
    few, more = ([one["_id"] for one in lines(tmp_path / name / "questions.jsonl")] for name in ("5", "9"))
    assert len(few) == 5
    assert len(more) == 9
    assert set(few) < set(more)


def test_what_is_wrong_with_a_request_comes_at_once(collection, tmp_path):
    with pytest.raises(RefusedRequest) as refusal:
        mcq(
            collection,
            tmp_path / "M",
            embedder=["endpoint:gpt"],
            answerer=["nothing"],
            limit=-1,
            max_failures=-1,
        )
    for words in ("--answerer endpoint:gpt", "no answerer 'nothing'", "limit is -1", "max_failures is -1"):
        assert words in str(refusal.value)
    assert not (tmp_path / "M").exists()
    with pytest.raises(RefusedRequest, match="nobody answers: give --embedder SPEC"):
        mcq(collection, tmp_path / "M")


def test_a_model_that_is_given_twice_is_refused(collection, tmp_path):
    with pytest.raises(RefusedRequest, match="given twice, or under two names"):
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords", f"{WORDS}:Keywords"])


def test_missing_clips_are_refused_before_a_model_is_loaded(collection, tmp_path):
    rows = lines(collection / "corpus.jsonl")
    rows[0] = {"_id": rows[0]["_id"], "video": "gone.mp4"}
    (collection / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RefusedRequest, match=r"1 of 36 clips have no file.*gone\.mp4"):
        mcq(collection, tmp_path / "M", embedder=[f"{WORDS}:Keywords"])
    assert not (tmp_path / "M").exists()


def test_questions_without_an_answer_count_nowhere_and_end_with_exit_code_1(collection, tmp_path, capsys):
    text = (collection / "corpus.jsonl").read_text()
    (collection / "corpus.jsonl").write_text(text.replace("a apple story", "a story", 1))
    words = ["mcq", "--collection", str(collection), "--embedder", "fakes:KeywordEmbedder"]
    assert main([*words, "--out", str(tmp_path / "M")]) == 1
    assert (
        "keywords has no answer to 1 questions (t0m0c0: no keyword in it); 0 may" in capsys.readouterr().err
    )
    (model,) = report(tmp_path / "M")["models"]
    assert model["accuracy"]["questions"] == 35
    assert model["accuracy"]["value"] == 1.0
    assert model["failed"] == [{"question": "t0m0c0", "reason": "no keyword in it"}]
    assert main([*words, "--out", str(tmp_path / "M"), "--max_failures", "1"]) == 0


def test_json_is_the_report_and_nothing_else(collection, tmp_path, capsys):
    words = ["mcq", "--collection", str(collection), "--embedder", f"{WORDS}:Keywords"]
    assert main([*words, "--out", str(tmp_path / "M"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report(tmp_path / "M")


def test_published_rows_stand_beside_the_benchmark_alone(collection, tmp_path, capsys):
    mcq(collection, tmp_path / "A", embedder=[f"{WORDS}:Keywords"])
    assert "published" not in capsys.readouterr().out
    (collection / "benchmark.json").write_text('{"name": "vidmsg", "as_published": true}')
    mcq(collection, tmp_path / "B", embedder=[f"{WORDS}:Keywords"])
    assert "| Gemini-3.1-Pro *(published, not rerun)* | 76.5 |" in capsys.readouterr().out
