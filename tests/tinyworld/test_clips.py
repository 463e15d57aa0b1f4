"""Drawing: shapes, determinism, and that a story is told by motion."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vidvec_msg.tinyworld.clips import (
    FPS,
    MODEL_FPS,
    MODEL_FRAMES,
    MODEL_OFFSET,
    MODEL_SIZE,
    SECONDS,
    animation,
    caption,
    contact_sheet,
    draw_clip,
    draw_model_frames,
    draw_moment,
    sample_cast,
)
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import STORIES, STORY_BY_KEY, Story, withheld_colours

CAST = Cast("red", "circle", "blue", "square")


def test_a_clip_is_uint8_of_the_asked_size() -> None:
    clip = draw_clip(STORIES[0], CAST, size=64)
    assert clip.shape == (round(SECONDS * FPS), 64, 64, 3)
    assert clip.dtype == np.uint8


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.key)
def test_every_story_moves(story: Story) -> None:
    frames = draw_model_frames(story, CAST)
    assert frames.shape == (MODEL_FRAMES, MODEL_SIZE, MODEL_SIZE, 3)
    first, last = frames[0].astype(int), frames[-1].astype(int)
    assert (np.abs(first - last).max(-1) > 40).mean() > 0.01  # at least 1% of the pixels really differ


def test_the_model_sees_the_middle_of_every_half_second() -> None:
    clip = draw_clip(STORIES[4], CAST, size=48)
    stride = FPS // MODEL_FPS
    assert stride // 2 == MODEL_OFFSET
    np.testing.assert_array_equal(clip[MODEL_OFFSET::stride], draw_model_frames(STORIES[4], CAST))


def test_mirrored_clips_are_mirror_images() -> None:
    plain = draw_moment(STORIES[2], CAST, 0.6, 64)
    mirrored = draw_moment(STORIES[2], replace(CAST, mirror=True), 0.6, 64)
    np.testing.assert_array_equal(plain[:, ::-1], mirrored)


def test_the_same_seed_casts_and_draws_the_same() -> None:
    story = STORY_BY_KEY["lamp_on"]
    one, two = (sample_cast(story, np.random.default_rng(7)) for _ in range(2))
    assert one == two
    np.testing.assert_array_equal(draw_moment(story, one, 0.3, 96), draw_moment(story, two, 0.3, 96))


def test_combo_clips_wear_the_colours_that_training_withholds() -> None:
    rng = np.random.default_rng(0)
    for story in STORIES:
        usual = {sample_cast(story, rng).colour for _ in range(40)}
        combo = {sample_cast(story, rng, combo=True).colour for _ in range(40)}
        assert combo == set(withheld_colours(story))
        assert not usual & combo


def test_the_two_actors_never_share_a_colour() -> None:
    rng = np.random.default_rng(1)
    casts = [sample_cast(story, rng) for story in STORIES for _ in range(10)]
    assert all(cast.colour != cast.other_colour for cast in casts)


def test_a_caption_names_the_actors() -> None:
    text = caption(STORY_BY_KEY["gems_swapped"], CAST, 0, "Here, ")
    assert text == "Here, the red circle and the blue square swap a gem for a leaf."


def test_pictures_for_the_documentation(tmp_path: Path) -> None:
    contact_sheet(tmp_path / "sheet.png", size=48, columns=3, keys=["wall_breaks", "lamp_on"])
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (150 + 3 * 51, 2 * 51)
    animation(tmp_path / "clips.gif", ["wall_breaks"], size=48, columns=1)
    with Image.open(tmp_path / "clips.gif") as film:
        assert getattr(film, "n_frames", 1) > 8
