"""A tiny CrossEncoder, made from a configuration, judges as sentence-transformers' own predict does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import SENTENCES, build_tiny_mllm
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.reranking.contract import Group, Reranker
from vidvec_msg.retrieval.reranking.judgements import Judgements, judge_all
from vidvec_msg.retrieval.reranking.load import load_reranker

TEXTS = (Item("a", text="Keep trying."), Item("b", text="Two friends share their bread."), Item("e", text=""))
STORY = Item("s", text="A slow turtle passes the fast hare.")


def build_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """A random BERT that classifies pairs."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=64, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                   intermediate_size=64, max_position_embeddings=64, num_labels=labels)
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.5)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("cross"))


def judged(reranker, *groups):
    found, failed = {}, {}
    for one in reranker.judge(groups):
        found |= {(j.clip, j.text): j.yes - j.no for j in one.judgements}
        failed |= {(f.clip, f.text): f.reason for f in one.failures}
    return found, failed


def test_log_odds_are_the_model_s_own_output(folder):
    from sentence_transformers import CrossEncoder

    reranker = load_reranker(f"st-cross:{folder}")
    assert isinstance(reranker, Reranker)
    found, failed = judged(reranker, Group(STORY, TEXTS))
    assert not failed
    theirs = CrossEncoder(str(folder)).predict(
        [(text.full_text, STORY.full_text) for text in TEXTS], activation_fn=torch.nn.Identity()
    )
    assert np.allclose([found["s", text.id] for text in TEXTS], theirs, atol=1e-5)
    assert len(set(found.values())) == 3
    alone, _ = judged(reranker, Group(STORY, TEXTS[1:2]))
    assert alone["s", "b"] == pytest.approx(found["s", "b"], abs=1e-5)


def test_of_two_outputs_the_second_is_yes(tmp_path):
    reranker = load_reranker(f"st-cross:{build_cross_encoder(tmp_path, labels=2)}")
    (one,) = reranker.judge([Group(STORY, TEXTS[:1])])
    model, tokenizer = reranker._model, reranker._model.tokenizer
    with torch.no_grad():
        inputs = tokenizer(TEXTS[0].full_text, STORY.full_text, return_tensors="pt")
        bare = BertForSequenceClassification.from_pretrained(tmp_path).eval()
        probabilities = bare(**inputs).logits[0].softmax(-1)
    assert model.num_labels == 2
    assert math.exp(one.judgements[0].yes) == pytest.approx(float(probabilities[1]), rel=1e-4)
    assert math.exp(one.judgements[0].no) == pytest.approx(float(probabilities[0]), rel=1e-4)


def test_a_clip_is_read_by_the_words_it_has(folder):
    spoken = Item("c", video=Path("nowhere.mp4"), transcript=STORY.text)
    mute = Item("m", video=Path("nowhere.mp4"))
    found, failed = judged(
        load_reranker(f"st-cross:{folder}"), Group(spoken, TEXTS[:1]), Group(mute, TEXTS[:1])
    )
    told, _ = judged(load_reranker(f"st-cross:{folder}"), Group(STORY, TEXTS[:1]))
    assert found["c", "a"] == pytest.approx(told["s", "a"], abs=1e-5)
    assert "no transcript" in failed["m", "a"]


def test_the_blank_clip_of_a_prior_has_no_words(folder):
    black = Item("", video=np.zeros((2, 8, 8, 3), dtype=np.uint8), fps=2.0)
    found, failed = judged(load_reranker(f"st-cross:{folder}"), Group(black, TEXTS[:1]))
    assert not failed
    told, _ = judged(load_reranker(f"st-cross:{folder}"), Group(Item("s", text=""), TEXTS[:1]))
    assert found["", "a"] == pytest.approx(told["s", "a"], abs=1e-5)


def test_kept_judgements_follow_the_words_of_a_clip_whose_file_is_gone(folder, tmp_path):
    reranker, path = load_reranker(f"st-cross:{folder}"), tmp_path / "judgements.jsonl"
    for said in (STORY.text, "Two friends share their bread."):
        group = Group(Item("c", video=Path("nowhere.mp4"), transcript=said), TEXTS[:1])
        for asked in (1, 0):
            with Judgements(path) as kept:
                assert judge_all(reranker, [group], kept).asked == asked


def test_a_pair_longer_than_the_model_reads_fails(folder):
    long = Item("long", text="bread " * 80)
    found, failed = judged(load_reranker(f"st-cross:{folder}"), Group(STORY, (TEXTS[0], long)))
    assert found.keys() == {("s", "a")}
    assert "the model reads 64; nothing is cut" in failed["s", "long"]


def test_models_that_are_no_cross_encoders_are_refused(tmp_path):
    with pytest.raises(RefusedRequest, match="gives 3 numbers for a pair"):
        load_reranker(f"st-cross:{build_cross_encoder(tmp_path / 'three', labels=3)}")
    with pytest.raises(RefusedRequest, match="Qwen2ForCausalLM, not a CrossEncoder"):
        load_reranker(f"st-cross:{build_tiny_mllm(tmp_path / 'llm', 'text')}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedRequest, match=r"holds no config\.json"):
        load_reranker(f"st-cross:{tmp_path / 'empty'}")
    with pytest.raises(RefusedRequest, match="batch_size must be at least 1"):
        load_reranker(f"st-cross:{tmp_path / 'three'}?batch_size=0")
