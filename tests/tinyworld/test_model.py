"""The model's own shortcuts against transformers: same tokens, same pixels, same features."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast, VideoLlama3ForConditionalGeneration, VideoLlama3Processor

from vidvec_msg.tinyworld.clips import draw_model_frames
from vidvec_msg.tinyworld.lessons import ONE_WORD_TEXT, ONE_WORD_VIDEO, Lesson, Question, tokenizer_texts
from vidvec_msg.tinyworld.model import (
    ASSISTANT,
    END,
    ModelSize,
    build_model,
    build_processor,
    encode_frames,
    patchify,
    train_tokenizer,
)
from vidvec_msg.tinyworld.muon import Muon, orthogonalize
from vidvec_msg.tinyworld.pretrain import Packer, Schedule, packed_loss, split_parameters, video_prefix
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import STORIES

SMALL = ModelSize(
    width=48,
    layers=2,
    heads=4,
    kv_heads=2,
    feed_forward=64,
    vision_width=32,
    vision_layers=2,
    vision_heads=2,
    vision_feed_forward=64,
    vocabulary=500,
)
CAST = Cast("red", "circle", "blue", "square")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(tokenizer_texts(), SMALL.vocabulary)


@pytest.fixture(scope="module")
def processor(tokenizer: PreTrainedTokenizerFast) -> VideoLlama3Processor:
    return build_processor(tokenizer, SMALL)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> VideoLlama3ForConditionalGeneration:
    torch.manual_seed(0)
    return build_model(tokenizer, SMALL).eval()


def processed(processor: VideoLlama3Processor, frames: np.ndarray) -> dict[str, torch.Tensor]:
    turn = {
        "role": "user",
        "content": [{"type": "video", "video": frames}, {"type": "text", "text": ONE_WORD_VIDEO}],
    }
    settings = {
        "do_sample_frames": False,
        "video_metadata": [
            {"fps": 8.0, "total_num_frames": 32, "frames_indices": list(range(2, 32, 4)), "duration": 4.0}
        ],
    }
    batch: dict[str, torch.Tensor] = processor.apply_chat_template(
        [[turn]],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
        processor_kwargs=settings,
    )
    return batch


def test_the_packer_writes_the_processors_tokens(
    tokenizer: PreTrainedTokenizerFast, processor: VideoLlama3Processor
) -> None:
    packer = Packer(tokenizer)
    batch = processed(processor, draw_model_frames(STORIES[0], CAST))
    ids = packer.ids(video_prefix(2)) + packer.ids(ONE_WORD_VIDEO) + packer.ids(END + ASSISTANT)
    assert batch["input_ids"][0].tolist() == ids
    assert batch["video_grid_thw"].tolist() == [[8, 3, 3]]


def test_pixels_and_features_are_the_stock_ones(
    processor: VideoLlama3Processor, model: VideoLlama3ForConditionalGeneration
) -> None:
    frames = draw_model_frames(STORIES[8], CAST)
    batch = processed(processor, frames)
    patches = patchify(torch.from_numpy(frames), 16)
    torch.testing.assert_close(patches.flatten(0, 1), batch["pixel_values_videos"], atol=1e-6, rtol=0)
    with torch.no_grad():
        stock = model.model.get_video_features(
            batch["pixel_values_videos"], batch["video_grid_thw"], batch["video_merge_sizes"]
        ).pooler_output
        torch.testing.assert_close(encode_frames(model, patches).flatten(0, 1), torch.cat(list(stock)))


def test_questions_cannot_see_each_other(
    tokenizer: PreTrainedTokenizerFast, model: VideoLlama3ForConditionalGeneration
) -> None:
    # the loss of two questions packed together is the sum of their losses apart
    frames = torch.from_numpy(draw_model_frames(STORIES[3], CAST))
    asked = (
        Question("\nSay what happens.", "The red circle slides."),
        Question(ONE_WORD_VIDEO, "slides down the hill", from_last=True),
    )
    packer, patches = Packer(tokenizer), patchify(frames, 16)

    def loss(*questions: Question) -> float:
        with torch.no_grad():
            return packed_loss(
                model, packer.pack([Lesson("hill_bottom", None, 0, questions)], [2]), patches
            ).item()

    assert loss(*asked) == pytest.approx(loss(asked[0]) + loss(asked[1]), rel=1e-4)


def test_one_word_answers_see_the_last_prompt_token_only(tokenizer: PreTrainedTokenizerFast) -> None:
    lesson = Lesson("x", "A red circle.", None, (Question(ONE_WORD_TEXT, "it rolls away", from_last=True),))
    packer = Packer(tokenizer)
    packed = packer.pack([lesson])
    open_to = packed.mask[0, 0] == 0  # (length, length)
    last = int(packed.reads[0])
    assert tokenizer.convert_ids_to_tokens(packed.ids[0].tolist())[last] == ASSISTANT
    for place in range(last + 1, packed.ids.shape[1]):
        assert open_to[place].nonzero().flatten().tolist() == list(range(last, place + 1))
    assert open_to[last, : last + 1].all()
    answer = tokenizer.decode(packed.targets)
    assert answer.strip().removesuffix(END).strip() == "it rolls away"


def test_a_first_word_is_the_same_token_as_elsewhere(tokenizer: PreTrainedTokenizerFast) -> None:
    packer = Packer(tokenizer)
    alone, within = packer.ids("<|user|>Patience"), packer.ids("<|user|>true patience")
    assert within[-len(alone) + 1 :] == alone[1:]


def test_muon_steps_towards_the_nearest_orthogonal_matrix() -> None:
    torch.manual_seed(0)
    for shape in ((3, 16, 32), (3, 32, 16)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape), steps=5))
        assert values.min() > 0.4
        assert values.max() < 1.3


def test_muon_learns() -> None:
    torch.manual_seed(0)
    weight, goal = torch.nn.Parameter(torch.zeros(8, 12)), torch.randn(8, 12)
    optimizer = Muon([weight], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss = (weight - goal).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_embeddings_and_the_patch_filter_are_not_muons(model: VideoLlama3ForConditionalGeneration) -> None:
    matrices, rest = split_parameters(model)
    assert all(parameter.ndim == 2 for parameter in matrices)
    assert any(parameter is model.model.language_model.embed_tokens.weight for parameter in rest)
    assert len(matrices) + len(rest) == len(list(model.parameters()))


def test_the_rate_rises_stays_and_falls() -> None:
    schedule = Schedule(steps=100, warmup=10, cooldown=0.4)
    factors = [schedule.factor(step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9:60] == [1.0] * 51
    assert factors[99] == pytest.approx(1 / 40)
