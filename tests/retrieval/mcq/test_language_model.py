"""A tiny real model answers: the reading of its letters is exact, whatever it prefers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch
from media.sounds import tone, write_media
from retrieval.mcq.exams import question
from tiny_models import build_tiny_mllm
from tiny_omni import build_tiny_omni

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.mcq.answerer import Answerer
from vidvec_msg.retrieval.mcq.by_language_model import LanguageModelAnswerer
from vidvec_msg.retrieval.mcq.letters import LetterTokens
from vidvec_msg.retrieval.mcq.load import load_answerer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """``model("qwen2_5_vl", read="generate")``, built and loaded once per set of options."""
    folder = lru_cache(lambda family: str(build_tiny_mllm(tmp_path_factory.mktemp(family), family)))

    @lru_cache
    def make(family: str = "qwen2_5_vl", **options) -> LanguageModelAnswerer:
        return LanguageModelAnswerer(
            folder(family), **{"fps": 2.0, "decode_timeout": 0, "dtype": "float32", **options}
        )

    return make


def clip(seed: int = 0) -> Item:
    pixels = np.random.default_rng(seed).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    return Item(f"clip{seed}", video=pixels, fps=2.0)


def asked(answerer, *questions, with_clip=True):
    failures = []
    answers = list(answerer.answers(questions, with_clip=with_clip, failures=failures))
    return {one.question: one for one in answers}, {one.item: one.reason for one in failures}


def test_it_keeps_the_contract(model):
    assert isinstance(model(), Answerer)
    assert model().sees_letters


def test_letters_have_the_probability_that_the_model_gives_their_tokens(model):
    answerer = model()
    one = question("q", clip=Item("s", text="A slow turtle."))
    answers, _ = asked(answerer, one)
    from vidvec_msg.embedders.prompts import PROMPTS
    from vidvec_msg.retrieval.mcq.question import wording

    words = "A slow turtle.\n\n" + wording(one, with_clip=True)
    ids = answerer.chat.text_ids(PROMPTS["plain"], words, max_tokens=4096)
    with torch.no_grad():
        logits = answerer.full(input_ids=torch.tensor([ids])).logits[0, -1]
    probabilities = logits.softmax(-1)
    tokenizer = answerer.chat.tokenizer
    for letter, score in zip("ABCD", answers["q"].scores, strict=True):
        ids = {
            tokenizer.encode(form)[0] for form in (letter, f" {letter}") if len(tokenizer.encode(form)) == 1
        }
        assert ids
        assert np.exp(score) == pytest.approx(float(probabilities[list(ids)].sum()), rel=1e-4)
    assert answers["q"].mass == pytest.approx(float(np.exp(answers["q"].scores).sum()), rel=1e-5)
    assert answers["q"].chosen == int(np.argmax(answers["q"].scores))


def test_the_letter_that_the_vocabulary_head_favours_is_chosen(model):
    answerer = model()
    tokens = answerer._letters.of
    logits = torch.zeros(answerer.full.get_output_embeddings().weight.shape[0])
    logits[tokens["C"][0]] = 5.0
    scores, mass = answerer._letters.log_likelihoods(logits, "ABCD")
    assert int(np.argmax(scores)) == 2
    assert 0 < mass < 1


def test_an_answer_does_not_depend_on_its_neighbours(model):
    questions = [question(f"q{seed}", clip=clip(seed)) for seed in range(3)]
    together, _ = asked(model(), *questions)
    for one in questions:
        alone, _ = asked(model(), one)
        assert alone[one.id].scores == together[one.id].scores


def test_the_clip_matters_when_it_is_shown_and_only_then(model):
    first, second = question("q", clip=clip(0)), question("q", clip=clip(1))
    shown = [asked(model(), one)[0]["q"].scores for one in (first, second)]
    blind = [asked(model(), one, with_clip=False)[0]["q"].scores for one in (first, second)]
    assert shown[0] != shown[1]
    assert blind[0] == blind[1]
    assert blind[0] not in shown


def test_a_transcript_is_quoted_only_when_asked_for(model):
    silent = question("q", clip=Item("c", video=clip().video, fps=2.0))
    spoken = question("q", clip=Item("c", video=clip().video, fps=2.0, transcript="bread for a stranger"))
    assert asked(model(), silent)[0]["q"].scores == asked(model(), spoken)[0]["q"].scores
    quoting = model(transcript=True)
    assert asked(quoting, silent)[0]["q"].scores != asked(quoting, spoken)[0]["q"].scores
    assert quoting.fingerprint != model().fingerprint


def test_what_it_writes_is_kept_and_read_strictly(model):
    answers, failures = asked(model(read="generate"), question("q", clip=clip()))
    assert failures == {}
    assert isinstance(answers["q"].raw, str)
    assert answers["q"].scores is None
    again, _ = asked(model(read="generate"), question("q", clip=clip()))
    assert again["q"].raw == answers["q"].raw
    assert model(read="generate").fingerprint != model().fingerprint


def test_questions_that_cannot_be_asked_are_named_and_the_others_answered(model, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no clip")
    broken = question("broken", clip=Item("c", video=tmp_path / "broken.mp4"))
    answers, failures = asked(model(max_tokens=120), broken, question("good", clip=clip()),
                              question("long", words="Which of them? " * 100))  # fmt: skip
    assert answers.keys() == {"good"}
    assert failures.keys() == {"broken", "long"}
    assert "do not fit max_tokens=120" in failures["long"]


@pytest.mark.parametrize("family", ["videollama3", "smolvlm", "gemma3"])
def test_other_families_see_the_clip_too(family, model):
    answers, failures = asked(model(family), question("a", clip=clip(0)), question("b", clip=clip(1)))
    assert failures == {}
    assert answers["a"].scores != answers["b"].scores
    written, failures = asked(model(family, read="generate", new_tokens=2), question("a", clip=clip(0)))
    assert failures == {}
    assert written["a"].raw is not None


def test_a_family_that_hears_is_asked_about_sounds(tmp_path):
    folder = build_tiny_omni(tmp_path / "omni", "qwen2_5_omni")
    answerer = LanguageModelAnswerer(str(folder), decode_timeout=0, dtype="float32")
    for name, hertz in (("low", 220.0), ("high", 880.0)):
        write_media(tmp_path / f"{name}.m4a", samples=tone(1.0, hertz=hertz))
    answers, failures = asked(
        answerer,
        question("low", clip=Item("l", audio=tmp_path / "low.m4a")),
        question("high", clip=Item("h", audio=tmp_path / "high.m4a")),
    )
    assert failures == {}
    assert answers["low"].scores != answers["high"].scores


def test_a_language_model_without_eyes_reads_storylines(model):
    answerer = model("text")
    answers, failures = asked(answerer, question("q"), question("clip", clip=clip()))
    assert answers["q"].chosen in range(4)
    assert "reads text" in failures["clip"]
    written, _ = asked(model("text", read="generate"), question("q"))
    assert written["q"].raw is not None


class OneToken:
    """A tokenizer whose every letter is the unknown token."""

    unk_token_id = 0

    def encode(self, text, add_special_tokens=False):
        return [0]

    def decode(self, ids):
        return "?"


def test_a_vocabulary_without_letters_is_refused():
    with pytest.raises(RefusedRequest, match=r"no token of its own for the letters A, B.*use read=generate"):
        LetterTokens(OneToken(), "AB", model="m")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("mllm:", "no answerer 'mllm:'; accepted: mllm:NAME"),
        ("st:name", r"no answerer 'st:name'.*An embedder is given as --embedder"),
        ("mllm:tinyworld?reed=letters", r"unknown option 'reed' \(did you mean 'read'\?\)"),
        ("mllm:tinyworld?read=aloud", "read"),
        ("mllm:tinyworld?new_tokens=0", "at least 1"),
        ("mllm:tinyworld?sound=true", "takes no sound"),
        ("mllm:/nowhere", "nowhere"),
    ],
)
def test_answerers_that_cannot_be_are_refused(spec, words):
    with pytest.raises(RefusedRequest, match=words):
        load_answerer(spec)
