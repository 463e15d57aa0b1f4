"""The pencil box: a small antialiased canvas in unit coordinates, and the actors that live on it.

Everything is drawn with Pillow at `SUPERSAMPLE` times the wanted size and box-averaged down. Coordinates are
fractions of the picture, x to the right and y down; the ground line sits at `GROUND`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw

RGB = tuple[int, int, int]
Mood = Literal["plain", "happy", "sad", "asleep", "dizzy"]

GROUND = 0.82
"""Height of the ground line, as a fraction of the picture."""

SUPERSAMPLE = 3
"""Drawn pixels per final pixel and axis at 48 px; larger pictures use 2."""

INK: RGB = (58, 50, 66)
PAPER: RGB = (255, 252, 245)


@dataclass(frozen=True, slots=True)
class Backdrop:
    """Colours of a place: sky from top to horizon, ground from horizon down, and the far hills."""

    name: str
    sky: tuple[RGB, RGB]
    ground: tuple[RGB, RGB]
    hills: RGB
    sun: RGB


BACKDROPS: tuple[Backdrop, ...] = (
    Backdrop(
        "meadow",
        ((186, 222, 238), (232, 243, 236)),
        ((176, 206, 150), (148, 186, 128)),
        (198, 220, 190),
        (255, 240, 190),
    ),
    Backdrop(
        "beach",
        ((196, 228, 236), (250, 240, 222)),
        ((238, 220, 180), (222, 198, 152)),
        (176, 212, 218),
        (255, 236, 180),
    ),
    Backdrop(
        "dusk",
        ((206, 190, 220), (250, 220, 206)),
        ((190, 166, 176), (164, 140, 158)),
        (212, 186, 204),
        (255, 226, 196),
    ),
    Backdrop(
        "snow",
        ((206, 216, 230), (236, 240, 246)),
        ((226, 230, 238), (202, 210, 224)),
        (214, 222, 234),
        (255, 248, 224),
    ),
    Backdrop(
        "mint",
        ((200, 232, 222), (240, 246, 232)),
        ((196, 214, 186), (172, 196, 170)),
        (190, 222, 206),
        (252, 240, 204),
    ),
    Backdrop(
        "clay",
        ((234, 222, 206), (248, 238, 224)),
        ((216, 178, 150), (196, 152, 124)),
        (230, 204, 180),
        (255, 240, 206),
    ),
)
"""Soft places, pale enough that every actor colour stands out."""


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """The colour ``share`` of the way from a to b."""
    return (
        round(a[0] + (b[0] - a[0]) * share),
        round(a[1] + (b[1] - a[1]) * share),
        round(a[2] + (b[2] - a[2]) * share),
    )


def ease(time: float, start: float, end: float) -> float:
    """0 before start, 1 after end, a smooth step between."""
    x = min(1.0, max(0.0, (time - start) / (end - start)))
    return x * x * (3 - 2 * x)


@lru_cache(maxsize=64)
def _backdrop_image(index: int, decor: int, pixels: int) -> Image.Image:
    """An empty place: gradient sky with sun and two clouds, far hills, gradient ground with tufts."""
    place = BACKDROPS[index]
    rows = np.linspace(0, 1, pixels)[:, None]  # (height, 1)
    horizon = GROUND - 0.1
    sky, land = np.array(place.sky, float), np.array(place.ground, float)
    up = sky[0] + (sky[1] - sky[0]) * np.clip(rows / horizon, 0, 1)  # (height, 3)
    down = land[0] + (land[1] - land[0]) * np.clip((rows - horizon) / (1 - horizon), 0, 1)
    column = np.where(rows < horizon, up, down)
    image = Image.fromarray(np.repeat(column[:, None], pixels, axis=1).round().astype(np.uint8))
    draw = ImageDraw.Draw(image)
    rng = np.random.default_rng(decor)

    def oval(x: float, y: float, rx: float, ry: float, fill: RGB) -> None:
        draw.ellipse([(x - rx) * pixels, (y - ry) * pixels, (x + rx) * pixels, (y + ry) * pixels], fill=fill)

    oval(rng.uniform(0.12, 0.88), rng.uniform(0.1, 0.2), 0.07, 0.07, place.sun)
    for _ in range(2):
        x, y = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.3)
        cloud = mix(place.sky[0], (255, 255, 255), 0.55)
        oval(x, y, 0.09, 0.03, cloud)
        oval(x + 0.04, y - 0.025, 0.05, 0.035, cloud)
    for x in (rng.uniform(0.0, 0.3), rng.uniform(0.4, 0.6), rng.uniform(0.7, 1.0)):
        oval(x, horizon + 0.05, rng.uniform(0.2, 0.32), rng.uniform(0.1, 0.18), place.hills)
    draw.rectangle([0, horizon * pixels, pixels, pixels], fill=place.ground[0])
    image.paste(
        Image.fromarray(
            np.repeat(column[int(horizon * pixels) :, None], pixels, axis=1).round().astype(np.uint8)
        ),
        (0, int(horizon * pixels)),
    )
    for _ in range(5):
        x, y = rng.uniform(0.03, 0.97), rng.uniform(horizon + 0.06, 0.97)
        tuft = mix(place.ground[1], INK, 0.12)
        draw.line(
            [x * pixels, y * pixels, (x + 0.012) * pixels, (y - 0.03) * pixels],
            fill=tuft,
            width=max(1, pixels // 110),
        )
        draw.line(
            [x * pixels, y * pixels, (x - 0.012) * pixels, (y - 0.025) * pixels],
            fill=tuft,
            width=max(1, pixels // 110),
        )
    return image


class Canvas:
    """One picture in the making.

    Args:
        size: side of the finished picture, pixels.
        backdrop: index into `BACKDROPS`.
        decor: seed of the clouds, hills and tufts (0 to 7 keeps the cache small).
    """

    def __init__(self, size: int, backdrop: int = 0, decor: int = 0) -> None:
        self.factor = SUPERSAMPLE if size <= 64 else 2
        self.pixels = size * self.factor
        self.image = _backdrop_image(backdrop, decor, self.pixels).copy()
        self.draw = ImageDraw.Draw(self.image)
        self.place = BACKDROPS[backdrop]

    def finish(self, mirror: bool = False) -> np.ndarray:
        """The picture, (size, size, 3) uint8, mirrored left to right if asked."""
        array = np.asarray(self.image.reduce(self.factor))
        return np.ascontiguousarray(array[:, ::-1]) if mirror else array

    # ---- plain shapes -------------------------------------------------------------------------------------
    def oval(self, x: float, y: float, rx: float, ry: float, fill: RGB) -> None:
        """A filled ellipse around (x, y)."""
        p = self.pixels
        self.draw.ellipse([(x - rx) * p, (y - ry) * p, (x + rx) * p, (y + ry) * p], fill=fill)

    def disc(self, x: float, y: float, r: float, fill: RGB) -> None:
        """A filled circle around (x, y)."""
        self.oval(x, y, r, r, fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: RGB, round_by: float = 0.0) -> None:
        """A filled rectangle, with rounded corners if asked."""
        p = self.pixels
        corners = [min(x0, x1) * p, min(y0, y1) * p, max(x0, x1) * p, max(y0, y1) * p]
        if round_by:
            self.draw.rounded_rectangle(corners, radius=round_by * p, fill=fill)
        else:
            self.draw.rectangle(corners, fill=fill)

    def poly(self, points: Sequence[tuple[float, float]], fill: RGB) -> None:
        """A filled polygon."""
        self.draw.polygon([(x * self.pixels, y * self.pixels) for x, y in points], fill=fill)

    def line(self, points: Sequence[tuple[float, float]], width: float, fill: RGB) -> None:
        """A poly-line; width as a fraction of the picture."""
        self.draw.line(
            [(x * self.pixels, y * self.pixels) for x, y in points],
            fill=fill,
            width=max(1, round(width * self.pixels)),
            joint="curve",
        )

    def tilted(self, x: float, y: float, w: float, h: float, angle: float, fill: RGB) -> None:
        """A filled rectangle of width w and height h around (x, y), turned by angle (radians)."""
        c, s = math.cos(angle), math.sin(angle)
        corners = ((-w, -h), (w, -h), (w, h), (-w, h))
        self.poly([(x + (a * c - b * s) / 2, y + (a * s + b * c) / 2) for a, b in corners], fill)

    # ---- light --------------------------------------------------------------------------------------------
    def night(self, share: float, glow: tuple[float, float, float] | None = None) -> None:
        """Darken the picture by ``share`` (0 to 1), less so inside ``glow`` = (x, y, radius)."""
        if share <= 0.01:
            return
        p, depth = self.pixels, 190 * share
        cover = Image.new("L", self.image.size, round(depth))
        if glow is not None:
            pen = ImageDraw.Draw(cover)
            x, y, radius = glow
            for step in range(8, 0, -1):
                r = radius * step / 8
                box = [(x - r) * p, (y - r) * p, (x + r) * p, (y + r) * p]
                pen.ellipse(box, fill=round(depth * step / 9))
        self.image.paste((18, 26, 74), (0, 0), cover)
        starlight = mix((70, 78, 120), (255, 246, 206), share)
        if share > 0.3:
            for x, y in (
                (0.1, 0.12),
                (0.26, 0.3),
                (0.42, 0.1),
                (0.5, 0.26),
                (0.9, 0.12),
                (0.93, 0.36),
                (0.08, 0.4),
            ):
                self.disc(x, y, 0.009 * share, starlight)
            self.disc(0.24, 0.16, 0.06 * share, starlight)
            self.disc(0.265, 0.145, 0.05 * share, mix(self.place.sky[0], (18, 26, 74), depth / 255))

    # ---- actors -------------------------------------------------------------------------------------------
    def shadow(self, x: float, width: float, y: float = GROUND) -> None:
        """A soft contact shadow on the ground."""
        self.oval(x, y + 0.005, width, 0.022, mix(self.place.ground[1], INK, 0.3))

    def actor(
        self,
        shape: str,
        colour: RGB,
        x: float,
        y: float,
        r: float,
        *,
        look: float = 1.0,
        mood: Mood = "plain",
        turn: float = 0.0,
        shade: bool = True,
    ) -> None:
        """An actor standing at (x, y), y being its feet.

        Args:
            shape: one of circle, square, triangle.
            colour: body colour.
            x, y: where its feet touch.
            r: half its height.
            look: where the eyes look, -1 left to 1 right.
            mood: the face it makes.
            turn: body turned by this angle, radians (a tumble).
            shade: draw the contact shadow, only where it stands on the ground.
        """
        if shade and y > GROUND - 0.12:
            self.shadow(x, r * 1.05, max(y, GROUND - 0.06))
        cy = y - r
        if mood != "dizzy":
            for side in (-0.45, 0.45):
                self.oval(x + side * r, y - 0.004, r * 0.28, r * 0.14, INK)
        rim, light = mix(colour, INK, 0.5), mix(colour, (255, 255, 255), 0.38)
        for grow, fill in ((1.0, rim), (0.84, colour)):
            self._body(shape, x, cy, r * grow, turn, fill)
        self.oval(x - 0.36 * r, cy - (0.42 if shape != "triangle" else -0.1) * r, r * 0.2, r * 0.14, light)
        self._face(x, cy + (0.22 * r if shape == "triangle" else -0.05 * r), r, look, mood)

    def _body(self, shape: str, x: float, y: float, r: float, turn: float, fill: RGB) -> None:
        if shape == "circle":
            self.disc(x, y, r, fill)
        elif shape == "square":
            if turn:
                self.tilted(x, y, 1.8 * r, 1.8 * r, turn, fill)
            else:
                self.box(x - 0.92 * r, y - 0.9 * r, x + 0.92 * r, y + r, fill, round_by=0.22 * r)
        else:
            corners = ((0.0, -1.15), (1.15, 0.98), (-1.15, 0.98))
            c, s = math.cos(turn), math.sin(turn)
            self.poly([(x + r * (a * c - b * s), y + r * (a * s + b * c)) for a, b in corners], fill)

    def _face(self, x: float, y: float, r: float, look: float, mood: Mood) -> None:
        eye, pen = r * 0.25, r * 0.13
        shift = 0.16 * look * r
        for side in (-0.34, 0.34):
            ex = x + side * r + shift
            if mood == "asleep":
                self.line([(ex - eye * 0.8, y), (ex + eye * 0.8, y)], pen, INK)
            elif mood == "dizzy":
                self.line([(ex - eye * 0.7, y - eye * 0.7), (ex + eye * 0.7, y + eye * 0.7)], pen, INK)
                self.line([(ex - eye * 0.7, y + eye * 0.7), (ex + eye * 0.7, y - eye * 0.7)], pen, INK)
            else:
                self.oval(ex, y, eye, eye * 1.15, PAPER)
                self.oval(
                    ex + eye * 0.35 * look,
                    y + (eye * 0.4 if mood == "sad" else 0.0),
                    eye * 0.58,
                    eye * 0.66,
                    INK,
                )
        mouth = y + 0.46 * r
        mx = x + shift
        if mood == "happy":
            self.draw.pieslice(self._rect(mx, mouth - 0.1 * r, 0.27 * r, 0.26 * r), 0, 180, fill=INK)
        elif mood in ("sad", "dizzy"):
            self.draw.arc(
                self._rect(mx, mouth + 0.14 * r, 0.24 * r, 0.2 * r),
                190,
                350,
                fill=INK,
                width=max(1, round(pen * self.pixels)),
            )
        else:
            self.line([(mx - 0.13 * r, mouth), (mx + 0.13 * r, mouth)], pen * 0.8, INK)

    def _rect(self, x: float, y: float, rx: float, ry: float) -> list[float]:
        p = self.pixels
        return [(x - rx) * p, (y - ry) * p, (x + rx) * p, (y + ry) * p]

    def dreams(self, x: float, y: float, time: float) -> None:
        """Little z's rising from a sleeper at (x, y)."""
        for number in range(2):
            phase = (time * 2 + number * 0.5) % 1.0
            s = 0.022 + 0.014 * phase
            zx, zy = x + 0.06 + 0.06 * phase, y - 0.04 - 0.14 * phase
            self.line([(zx - s, zy - s), (zx + s, zy - s), (zx - s, zy + s), (zx + s, zy + s)], 0.014, INK)

    def stars(self, x: float, y: float, time: float) -> None:
        """Three stars circling over a dizzy head."""
        for number in range(3):
            angle = time * 12 + number * 2.1
            sx, sy = x + 0.11 * math.cos(angle), y + 0.03 * math.sin(angle)
            self.poly([(sx, sy - 0.028), (sx + 0.02, sy + 0.016), (sx - 0.02, sy + 0.016)], (255, 214, 70))
            self.poly([(sx, sy + 0.028), (sx + 0.02, sy - 0.012), (sx - 0.02, sy - 0.012)], (255, 214, 70))
