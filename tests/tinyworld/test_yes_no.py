"""The yes/no skill: what is asked and learned, and what the shipped adapter can do."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    PreTrainedTokenizerFast,
    VideoLlama3ForConditionalGeneration,
)

from vidvec_msg.embedders.adapter import put_adapter_on
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.reranking.contract import Group
from vidvec_msg.retrieval.reranking.load import load_reranker
from vidvec_msg.retrieval.reranking.wording import WORDINGS as PUBLISHED
from vidvec_msg.tinyworld import build_yes_no, weights_dir, yes_no_dir
from vidvec_msg.tinyworld.clips import FPS, draw_clip, draw_model_frames
from vidvec_msg.tinyworld.collections import split_cast
from vidvec_msg.tinyworld.lessons import tokenizer_texts
from vidvec_msg.tinyworld.matching import sentence
from vidvec_msg.tinyworld.model import ModelSize, build_model, train_tokenizer
from vidvec_msg.tinyworld.pretrain import Packer, read_states
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import STORIES
from vidvec_msg.tinyworld.yes_no import NO, WORDINGS, YES, answer_loss, ask, see
from vidvec_msg.tinyworld.yes_no_scores import KINDS, log_odds, matching_scores, missed_gates

SMALL = ModelSize(
    width=48, layers=2, heads=4, kv_heads=2, feed_forward=64,
    vision_width=32, vision_layers=2, vision_heads=2, vision_feed_forward=64, vocabulary=1400,
)  # fmt: skip
CAST = Cast("red", "circle", "blue", "square")
Model = tuple[VideoLlama3ForConditionalGeneration, PreTrainedTokenizerFast]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(tokenizer_texts(), SMALL.vocabulary)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> VideoLlama3ForConditionalGeneration:
    torch.manual_seed(0)
    return build_model(tokenizer, SMALL).eval()


def test_the_answers_are_one_token_each_and_yes_begins_the_word_yes(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    packer = Packer(tokenizer)
    assert len(packer.ids(YES)) == len(packer.ids(NO)) == 1
    assert packer.ids("Yes")[0] == packer.ids(YES)[0]
    assert packer.ids(YES) != packer.ids(NO)


def test_the_wordings_are_the_rerankers() -> None:
    ours = {"{clip}" + wording.replace("{text}", "{query}") for wording in WORDINGS}
    assert ours == {wording.video for wording in PUBLISHED.values()}


def test_questions_side_by_side_are_answered_as_each_alone(
    model: VideoLlama3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast
) -> None:
    rng = np.random.default_rng(0)
    frames = np.stack([draw_model_frames(story, CAST) for story in STORIES[:3]])
    said = [[sentence(story, CAST, kind, rng) for kind in KINDS] for story in STORIES[:3]]
    together = log_odds(model, tokenizer, frames, said)
    alone = np.stack([
        [log_odds(model, tokenizer, frames[row : row + 1], [[one]])[0, 0] for one in said[row]]
        for row in range(3)
    ])  # fmt: skip
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert np.ptp(together) > 10 * np.abs(together - alone).max()


def test_a_few_clips_are_learned_by_heart(
    model: VideoLlama3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast
) -> None:
    pupil = copy.deepcopy(model)
    packer = Packer(tokenizer)
    features = see(pupil, np.stack([draw_model_frames(story, CAST) for story in STORIES[:2]]))
    asked = [[WORDINGS[0].format(text=text) for text in ("red", "circle", "bridge", "umbrella")]] * 2
    matches = torch.tensor([True, True, False, False] * 2)
    answers = packer.ids(YES)[0], packer.ids(NO)[0]
    optimizer = torch.optim.AdamW(pupil.model.language_model.parameters(), lr=3e-3)
    for _ in range(40):
        loss, odds = answer_loss(pupil, ask(packer, asked, [2, 2]), features, matches, answers)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert torch.equal(odds > 0, matches)
    assert odds.abs().min() > 1
    # and its first answer is one of the two words, not only likelier than the other
    states = read_states(pupil, ask(packer, asked, [2, 2]), features.float())
    said = pupil.lm_head(states).argmax(dim=-1)
    assert torch.equal(said, torch.where(matches, *answers))


def tiny_build(out: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    fixed = {
        "story": {"auc": 0.5, "order": 0.5, "accuracy": 0.5}
    }  # the real ones would take most of the time
    monkeypatch.setattr(build_yes_no, "matching_scores", lambda *_args, **_options: fixed)
    build_yes_no.main(out, seed=seed, steps=2, clips=16, batch=4)
    return (out / "adapter_model.safetensors").read_bytes()


def test_the_same_seed_builds_the_same_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, other = (
        tiny_build(tmp_path / name, seed, monkeypatch)
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one == two
    assert one != other
    log = json.loads((tmp_path / "other" / "build.json").read_text(encoding="utf-8"))
    command = "python -m vidvec_msg.tinyworld.build_yes_no --seed 1 --out DIR --steps 2 --clips 16 --batch 4"
    assert log["command"] == command
    assert command in (tmp_path / "other" / "README.md").read_text(encoding="utf-8")


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedRequest, match="already holds files that are not an embedder"):
        build_yes_no.main(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


class TestShippedSkill:
    def test_it_is_small_and_an_adapter_of_the_language_model_alone(self) -> None:
        path = yes_no_dir() / "adapter_model.safetensors"
        assert path.stat().st_size < 300_000
        tensors = load_file(path)
        assert all(".layers." in name and ".lora_" in name for name in tensors)
        assert not any("vision" in name for name in tensors)
        assert all(tensor.dtype == torch.bfloat16 for tensor in tensors.values())

    def test_card_and_log_name_the_command_the_licence_and_the_limits(self) -> None:
        card = (yes_no_dir() / "README.md").read_text(encoding="utf-8")
        log = json.loads((yes_no_dir() / "build.json").read_text(encoding="utf-8"))
        assert log["command"] in card
        for words in ("apache-2.0", "never on\nmessages", "It is no embedder"):
            assert words in card

    def test_its_figures_pass_the_gates(self) -> None:
        log = json.loads((yes_no_dir() / "build.json").read_text(encoding="utf-8"))
        assert missed_gates(log["scores"]["validation"]) == []


@pytest.fixture(scope="module")
def shipped() -> Model:
    """The shipped weights with the shipped skill on them."""
    model, tokenizer = bare()
    put_adapter_on(model, model.model.language_model, yes_no_dir())
    return model.eval(), tokenizer


def bare() -> Model:
    model = AutoModelForImageTextToText.from_pretrained(weights_dir(), dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(weights_dir()).tokenizer


def test_the_reranker_says_what_is_measured_here(shipped: Model) -> None:
    rng = np.random.default_rng(0)
    clips = [(story, split_cast(story, "test", 100, 0)) for story in STORIES[:3]]
    frames = np.stack([draw_model_frames(story, cast) for story, cast in clips])
    said = [[sentence(story, cast, kind, rng) for kind in KINDS] for story, cast in clips]
    expected = log_odds(*shipped, frames, said)
    groups = [
        Group(
            Item(story.key, video=draw_clip(story, cast, size=48), fps=FPS),
            tuple(Item(str(place), text=one.text) for place, one in enumerate(said[row])),
        )
        for row, (story, cast) in enumerate(clips)
    ]
    reranker = load_reranker(f"tinyworld?adapter={yes_no_dir()}&yes={YES}&no={NO}&wording=respond")
    judged = [one.judgements for one in reranker.judge(groups)]
    found = np.array([[judgement.yes - judgement.no for judgement in row] for row in judged])
    np.testing.assert_allclose(found, expected, atol=0.03)  # features of `see` are float16
    assert np.ptp(expected) > 1
    assert max(np.logaddexp(one.yes, one.no) for row in judged for one in row) > np.log(0.5)


@pytest.mark.slow(minutes=1)
@pytest.mark.timeout(600)
class TestShippedSkillOnFreshClips:
    def test_it_tells_right_sentences_from_wrong_ones(self, shipped: Model) -> None:
        scores = matching_scores(*shipped, "test", numbers=range(100, 103))
        assert missed_gates(scores) == [], scores

    def test_without_the_adapter_nothing_can(self) -> None:
        scores = matching_scores(*bare(), "test", numbers=range(100, 102))
        assert all(abs(found["auc"] - 0.5) < 0.1 for found in scores.values()), scores
