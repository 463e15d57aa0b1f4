"""From a seed to a clip: casting, frames as arrays, pictures of the whole world.

A clip lasts `SECONDS`; people watch it at `FPS`, the model samples it at `MODEL_FPS` (8 frames).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from vidvec_msg.tinyworld.drawing import BACKDROPS, Canvas
from vidvec_msg.tinyworld.scenes import SCENES, Cast
from vidvec_msg.tinyworld.stories import COLOURS, SHAPES, STORIES, STORY_BY_KEY, Story, withheld_colours

SECONDS = 4.0
FPS = 8
MODEL_FPS = 2
MODEL_FRAMES = 8
MODEL_SIZE = 48
"""Side of a frame as the model sees it, pixels (the processor resizes to it)."""

MODEL_OFFSET = 2
"""First frame taken: 2 fps means the middle of every half second (`vidvec_msg.media.frames.frame_times`)."""

_STEPS = int(SECONDS * FPS)


def sample_cast(story: Story, rng: np.random.Generator, *, combo: bool = False) -> Cast:
    """Draw a cast for a story.

    Args:
        story: which story; it decides the withheld colours.
        rng: source of every choice.
        combo: give the main actor one of the colours withheld from this story instead of a usual one.
    """
    withheld = withheld_colours(story)
    mains = [name for name in COLOURS if (name in withheld) == combo]
    colour = str(rng.choice(mains))
    others = [name for name in COLOURS if name != colour]
    delay = float(rng.uniform(0.0, 0.1))
    return Cast(
        colour=colour,
        shape=str(rng.choice(SHAPES)),
        other_colour=str(rng.choice(others)),
        other_shape=str(rng.choice(SHAPES)),
        backdrop=int(rng.integers(len(BACKDROPS))),
        decor=int(rng.integers(8)),
        mirror=bool(rng.integers(2)),
        delay=delay,
        span=float(rng.uniform(0.88 - delay, 1.0 - delay)),
        size=float(rng.uniform(0.92, 1.1)),
        shift=float(rng.uniform(-0.03, 0.05)),
    )


def draw_moment(story: Story, cast: Cast, time: float, size: int) -> np.ndarray:
    """One picture: (size, size, 3) uint8; ``time`` is the share of the clip that has passed, 0 to 1."""
    canvas = Canvas(size, cast.backdrop, cast.decor)
    moment = min(1.0, max(0.0, (time - cast.delay) / cast.span))
    SCENES[story.key](canvas, moment, cast)
    return canvas.finish(cast.mirror)


def draw_clip(story: Story, cast: Cast, *, size: int = 160) -> np.ndarray:
    """The clip as people watch it: (32, size, size, 3) uint8 at `FPS`."""
    return np.stack([draw_moment(story, cast, step / (_STEPS - 1), size) for step in range(_STEPS)])


def draw_model_frames(
    story: Story, cast: Cast, *, offset: int = MODEL_OFFSET, size: int = MODEL_SIZE
) -> np.ndarray:
    """The frames the model sees: every fourth of `draw_clip` from ``offset`` (0 to 3).

    Returns:
        (8, size, size, 3) uint8.
    """
    stride = FPS // MODEL_FPS
    steps = range(offset, _STEPS, stride)
    return np.stack([draw_moment(story, cast, step / (_STEPS - 1), size) for step in steps])


def caption(story: Story, cast: Cast, wording: int = 0, lead_in: str = "") -> str:
    """A literal caption with its slots filled."""
    text = story.captions[wording].format(**cast.names)
    if lead_in.endswith(", ") and text.startswith(("The ", "A ", "In ", "It ")):
        text = text[0].lower() + text[1:]
    return lead_in + text


def contact_sheet(
    path: Path, *, seed: int = 0, size: int = 96, columns: int = 8, keys: Sequence[str] | None = None
) -> None:
    """Write a PNG of the stories: one row a story, time from left to right.

    Args:
        path: the PNG to write.
        seed: seed of the casts.
        size: side of a picture, pixels.
        columns: pictures per story.
        keys: stories to show, all by default.
    """
    rng = np.random.default_rng(seed)
    stories = [STORY_BY_KEY[key] for key in keys] if keys else list(STORIES)
    label, gap = 150, 3
    sheet = Image.new("RGB", (label + columns * (size + gap), len(stories) * (size + gap)), (250, 248, 244))
    pen = ImageDraw.Draw(sheet)
    for row, story in enumerate(stories):
        cast = replace(sample_cast(story, rng), mirror=False)
        top = row * (size + gap)
        pen.text((8, top + size // 2 - 16), story.key.replace("_", " "), fill=(50, 44, 58), font_size=15)
        pen.text((8, top + size // 2 + 4), story.topic, fill=(140, 130, 140), font_size=12)
        for column in range(columns):
            picture = draw_moment(story, cast, column / (columns - 1), size)
            sheet.paste(Image.fromarray(picture), (label + column * (size + gap), top))
    sheet.save(path, optimize=True)


def animation(path: Path, keys: Sequence[str], *, seed: int = 0, size: int = 144, columns: int = 4) -> None:
    """Write an animated GIF of some stories playing side by side.

    Args:
        path: the GIF to write.
        keys: stories to show, row by row.
        seed: seed of the casts.
        size: side of a picture, pixels.
        columns: pictures in a row.
    """
    rng = np.random.default_rng(seed)
    clips = [draw_clip(STORY_BY_KEY[key], sample_cast(STORY_BY_KEY[key], rng), size=size) for key in keys]
    rows = -(-len(clips) // columns)
    pictures = []
    for step in range(_STEPS):
        sheet = Image.new("RGB", (columns * (size + 4) - 4, rows * (size + 4) - 4), (250, 248, 244))
        for number, clip in enumerate(clips):
            place = (number % columns * (size + 4), number // columns * (size + 4))
            sheet.paste(Image.fromarray(clip[step]), place)
        pictures.append(sheet.quantize(224, dither=Image.Dither.NONE))
    pictures += [pictures[-1]] * 6  # a breath before it starts again
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=1000 // FPS,
        loop=0,
        optimize=True,
        disposal=1,
    )
