"""The choreography: one function per story, from a moment to a picture.

``SCENES[key](canvas, time, cast)`` draws the story's moment ``time`` (0 to 1). The two stories of a
contrast pair use the same stage and differ in what happens on it. Which way the picture faces, when things
start and how fast they go is the cast's and the clip's business, not a scene's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from vidvec_msg.tinyworld.drawing import GROUND, INK, RGB, Canvas, Mood, ease, mix
from vidvec_msg.tinyworld.stories import COLOURS

BRICK: RGB = (176, 106, 88)
WOOD: RGB = (164, 120, 78)
STONE: RGB = (140, 140, 150)
GEM: RGB = (70, 214, 220)
LEAF: RGB = (96, 168, 76)
BERRY: RGB = (150, 34, 84)
HOLE: RGB = (72, 60, 70)
WATER: RGB = (96, 160, 226)


@dataclass(frozen=True, slots=True)
class Cast:
    """Everything about a clip that is not its story: who plays, where, which way round, when.

    Args:
        colour, shape: the main actor ``{a}``, by caption name.
        other_colour, other_shape: the other actor ``{b}``.
        backdrop, decor: the place (see `Canvas`).
        mirror: draw left to right swapped.
        delay: share of the clip that passes before anything happens.
        span: share of the clip the story takes.
        size: actors' size, 1 is normal.
        shift: horizontal offset of the main actor's start, fraction of the picture.
    """

    colour: str
    shape: str
    other_colour: str
    other_shape: str
    backdrop: int = 0
    decor: int = 0
    mirror: bool = False
    delay: float = 0.0
    span: float = 1.0
    size: float = 1.0
    shift: float = 0.0

    @property
    def names(self) -> dict[str, str]:
        """What captions call the two actors: the slots ``a`` and ``b``."""
        return {"a": f"{self.colour} {self.shape}", "b": f"{self.other_colour} {self.other_shape}"}

    def main(
        self, c: Canvas, x: float, y: float = GROUND, r: float = 0.115, *, look: float = 1.0,
        mood: Mood = "plain", turn: float = 0.0, shade: bool = True, paint: RGB | None = None,
    ) -> None:  # fmt: skip
        """Draw the main actor with its feet at (x, y)."""
        c.actor(
            self.shape,
            paint or COLOURS[self.colour],
            x,
            y,
            r * self.size,
            look=look,
            mood=mood,
            turn=turn,
            shade=shade,
        )

    def other(
        self, c: Canvas, x: float, y: float = GROUND, r: float = 0.1, *, look: float = -1.0,
        mood: Mood = "plain", turn: float = 0.0, shade: bool = True, paint: RGB | None = None,
    ) -> None:  # fmt: skip
        """Draw the other actor with its feet at (x, y)."""
        paint = paint or COLOURS[self.other_colour]
        c.actor(self.other_shape, paint, x, y, r * self.size, look=look, mood=mood, turn=turn, shade=shade)


def _hop(time: float, hops: float, height: float = 0.05) -> float:
    """Height above the ground of something that hops ``hops`` times over the clip."""
    return height * abs(math.sin(math.pi * hops * time))


def _path(time: float, *stops: tuple[float, float]) -> float:
    """A value eased from stop to stop, each stop a (time, value)."""
    value = stops[0][1]
    for (t0, v0), (t1, v1) in pairwise(stops):
        if time >= t0:
            value = v0 + (v1 - v0) * ease(time, t0, t1)
    return value


# ---- persistence ------------------------------------------------------------------------------------------
def _wall(c: Canvas, cracks: int, fallen: float) -> None:
    """Eight bricks in two columns; ``cracks`` 0 to 3, ``fallen`` 0 (up) to 1 (rubble)."""
    for row in range(4):
        for column in range(2):
            number = row * 2 + column
            x, y = 0.69 + 0.1 * column, GROUND - 0.06 - 0.12 * row
            x += fallen * (0.05 + 0.05 * row + 0.03 * (number % 3)) * (1 if number % 2 else -0.4)
            y += fallen * (GROUND - 0.03 - y)
            turn = fallen * (number * 1.7 % 3 - 1.5)
            c.tilted(x, y, 0.098, 0.112, turn, mix(BRICK, INK, 0.45))
            c.tilted(x, y, 0.084, 0.096, turn, mix(BRICK, (230, 170, 140), 0.25 * (number % 2)))
    if fallen < 0.05:
        for crack in range(cracks):
            x, y = 0.645, GROUND - 0.08 - 0.13 * crack
            c.line(
                [(x, y), (x + 0.06, y - 0.05), (x + 0.1, y + 0.02), (x + 0.19, y - 0.03)], 0.022, (52, 36, 36)
            )


def wall_breaks(c: Canvas, t: float, cast: Cast) -> None:
    """Three hits, and at the fourth the wall is rubble."""
    hits = (0.2, 0.4, 0.6)
    cracks = sum(t > hit for hit in hits)
    fallen = ease(t, 0.6, 0.72)
    _wall(c, cracks, fallen)
    start = 0.2 + cast.shift
    x = _path(
        t, (0, start), (0.2, 0.53), (0.3, 0.3), (0.4, 0.53), (0.5, 0.3), (0.6, 0.55), (0.74, 0.6), (1.0, 0.86)
    )
    cast.main(c, x, GROUND - (_hop(t, 8) if t > 0.74 else 0), mood="happy" if t > 0.66 else "plain")


def wall_stays(c: Canvas, t: float, cast: Cast) -> None:
    """One hit, a sad look, and off the other way."""
    _wall(c, int(t > 0.32), 0)
    x = _path(t, (0, 0.2 + cast.shift), (0.32, 0.53), (0.45, 0.42), (0.55, 0.42), (1.0, 0.06))
    cast.main(c, x, look=1 if t < 0.5 else -1, mood="plain" if t < 0.34 else "sad")


def _hill(c: Canvas) -> None:
    slope = mix(c.place.ground[1], (110, 130, 90), 0.45)
    c.poly([(0.22, GROUND + 0.02), (0.7, 0.42), (0.98, 0.42), (1.0, 0.44), (1.0, GROUND + 0.02)], slope)
    c.line([(0.24, GROUND), (0.7, 0.42), (1.0, 0.42)], 0.022, mix(slope, (255, 255, 255), 0.35))
    c.line([(0.93, 0.42), (0.93, 0.2)], 0.018, INK)
    c.poly([(0.93, 0.2), (0.93, 0.31), (0.8, 0.255)], (226, 70, 90))


def _on_hill(share: float) -> tuple[float, float]:
    """Feet position at ``share`` of the way: 0 the foot of the hill, 1 the flag."""
    x = 0.13 + 0.72 * share
    return x, min(GROUND, max(0.42, GROUND - (x - 0.24) / 0.46 * 0.4))


def hill_top(c: Canvas, t: float, cast: Cast) -> None:
    """Up, back down, and up again to the flag."""
    _hill(c)
    share = _path(t, (0, 0.0), (0.28, 0.55), (0.45, 0.0), (0.55, 0.0), (0.9, 0.92))
    x, y = _on_hill(share)
    mood: Mood = "happy" if t > 0.86 else "sad" if 0.3 < t < 0.5 else "plain"
    cast.main(c, x - 0.02, y - 0.01 - (_hop(t, 8) if t > 0.9 else 0), 0.1, mood=mood)


def hill_bottom(c: Canvas, t: float, cast: Cast) -> None:
    """Half the way up, back down, asleep."""
    _hill(c)
    share = _path(t, (0, 0.0), (0.35, 0.55), (0.55, 0.0))
    x, y = _on_hill(share)
    asleep = t > 0.62
    cast.main(c, x - 0.02, y - 0.01, 0.1, mood="asleep" if asleep else "sad" if t > 0.37 else "plain")
    if asleep:
        c.dreams(x - 0.02, y - 0.2, t)


# ---- pace -------------------------------------------------------------------------------------------------
def _track(c: Canvas) -> None:
    lane = mix(c.place.ground[0], (255, 255, 255), 0.4)
    c.box(0, 0.57, 1, 0.61, lane)
    c.box(0, 0.88, 1, 0.92, lane)
    c.line([(0.92, 0.9), (0.92, 0.36)], 0.02, INK)
    for row in range(2):
        for column in range(3):
            shade = (250, 250, 250) if (row + column) % 2 else INK
            c.box(0.92 - 0.05 * column, 0.36 + 0.05 * row, 0.87 - 0.05 * column, 0.41 + 0.05 * row, shade)


def slow_passes(c: Canvas, t: float, cast: Cast) -> None:
    """The fast one sleeps on the upper lane; the slow one goes by on the lower."""
    _track(c)
    fast = _path(t, (0, 0.12), (0.22, 0.55))
    asleep = t > 0.27
    cast.other(c, fast, 0.6, 0.095, look=1, mood="asleep" if asleep else "plain", shade=False)
    if asleep:
        c.dreams(fast, 0.42, t)
    x = 0.12 + 0.74 * min(1.0, t / 0.92)
    cast.main(c, x, 0.91 - _hop(t, 9, 0.015), 0.105, mood="happy" if t > 0.88 else "plain")


def fast_wins(c: Canvas, t: float, cast: Cast) -> None:
    """The fast one is at the flag in half the time; the slow one crawls."""
    _track(c)
    cast.other(c, 0.12 + 0.22 * t, 0.6 - _hop(t, 9, 0.015), 0.095, look=1, shade=False)
    x = _path(t, (0, 0.12 + cast.shift), (0.12, 0.14 + cast.shift), (0.5, 0.85))
    done = t > 0.5
    cast.main(c, x, 0.91 - (_hop(t, 9, 0.1) if done else 0), 0.105, mood="happy" if done else "plain")
    if 0.15 < t < 0.48:
        for row in range(3):
            c.line([(x - 0.3, 0.75 + 0.05 * row), (x - 0.15, 0.75 + 0.05 * row)], 0.012, (255, 255, 255))


def _rock(c: Canvas) -> None:
    c.shadow(0.62, 0.14)
    c.poly(
        [(0.49, GROUND), (0.53, 0.7), (0.6, 0.62), (0.68, 0.65), (0.74, 0.74), (0.75, GROUND)],
        mix(STONE, INK, 0.4),
    )
    c.poly(
        [
            (0.51, GROUND - 0.01),
            (0.55, 0.71),
            (0.605, 0.64),
            (0.67, 0.67),
            (0.72, 0.75),
            (0.73, GROUND - 0.01),
        ],
        STONE,
    )
    c.poly([(0.56, 0.71), (0.605, 0.65), (0.65, 0.67), (0.6, 0.72)], mix(STONE, (255, 255, 255), 0.4))


def rock_crash(c: Canvas, t: float, cast: Cast) -> None:
    """Full speed into the rock, and stars."""
    _rock(c)
    start = 0.08 + cast.shift
    x = _path(t, (0, start), (0.14, start), (0.36, 0.43), (0.55, 0.22))
    crashed = t > 0.35
    y = GROUND - (0.16 * math.sin(math.pi * ease(t, 0.36, 0.55)) if 0.36 < t < 0.55 else 0)
    if 0.1 < t < 0.34:
        for row in range(3):
            c.line([(x - 0.28, 0.65 + 0.05 * row), (x - 0.15, 0.65 + 0.05 * row)], 0.012, (255, 255, 255))
    if 0.33 < t < 0.47:
        for angle in range(8):
            dx, dy = math.cos(angle * 0.785), math.sin(angle * 0.785)
            c.line(
                [(0.5 + 0.05 * dx, 0.68 + 0.05 * dy), (0.5 + 0.11 * dx, 0.68 + 0.11 * dy)],
                0.018,
                (255, 214, 70),
            )
    turn = -2.6 * ease(t, 0.36, 0.55) if crashed else 0.0
    cast.main(c, x, y, mood="dizzy" if crashed else "plain", turn=turn)
    if t > 0.5:
        c.stars(x, y - 0.27, t)


def rock_jump(c: Canvas, t: float, cast: Cast) -> None:
    """A pause before the rock, and a leap over it."""
    _rock(c)
    x = _path(t, (0, 0.08 + cast.shift), (0.3, 0.38), (0.48, 0.38), (0.75, 0.84), (1.0, 0.93))
    air = 0.42 * math.sin(math.pi * min(1, max(0, (x - 0.38) / 0.46))) if t > 0.48 else 0.0
    cast.main(c, x, GROUND - air, mood="happy" if t > 0.7 else "plain")


# ---- care -------------------------------------------------------------------------------------------------
def _rain(c: Canvas, t: float, dry: tuple[float, float] | None) -> None:
    """A grey cloud and falling drops; none below an umbrella that spans the x range ``dry``."""
    for x, y, r in ((0.2, 0.1, 0.12), (0.4, 0.08, 0.14), (0.62, 0.09, 0.15), (0.84, 0.1, 0.12)):
        c.oval(x, y, r, 0.085, (134, 142, 162))
    for number in range(13):
        x = (number * 0.618) % 1.0
        y = 0.2 + ((number * 0.37 + t * 2.7) % 1.0) * (GROUND - 0.2)
        if dry and dry[0] < x < dry[1] and y > 0.36:
            continue
        c.line([(x, y), (x - 0.012, y + 0.06)], 0.016, WATER)


def _umbrella(c: Canvas, x: float, r: float = 0.25, y: float = 0.46) -> None:
    c.line([(x, y - 0.02), (x, GROUND - 0.12)], 0.016, INK)
    p = c.pixels
    rect = [(x - r) * p, (y - 0.19) * p, (x + r) * p, (y + 0.19) * p]
    c.draw.pieslice(rect, 180, 360, fill=(196, 60, 100))
    inner = [(x - r * 0.45) * p, (y - 0.19) * p, (x + r * 0.45) * p, (y + 0.19) * p]
    c.draw.pieslice(inner, 180, 360, fill=(250, 226, 216))


def umbrella_over(c: Canvas, t: float, cast: Cast) -> None:
    """The big one brings its umbrella to the small one."""
    x = _path(t, (0, 0.0), (0.15, 0.0), (0.6, 0.5))
    _rain(c, t, (x - 0.25, x + 0.25))
    covered = t > 0.55
    cast.other(c, 0.66, GROUND, 0.075, mood="happy" if covered else "sad")
    _umbrella(c, x + 0.04)
    cast.main(c, x - 0.04, GROUND, 0.145, mood="happy" if covered else "plain")


def umbrella_away(c: Canvas, t: float, cast: Cast) -> None:
    """The big one leaves with the umbrella."""
    x = _path(t, (0, 0.5), (0.25, 0.5), (0.75, -0.02))
    _rain(c, t, (x - 0.25, x + 0.25))
    wet = t > 0.45
    cast.other(c, 0.66, GROUND, 0.075, mood="sad" if wet else "plain")
    _umbrella(c, x + 0.04)
    cast.main(c, x - 0.04, GROUND, 0.145, look=1 if t < 0.25 else -1)


def _pit(c: Canvas) -> None:
    c.poly([(0.48, GROUND - 0.06), (0.86, GROUND - 0.06), (0.82, 1.0), (0.52, 1.0)], HOLE)
    c.line([(0.46, GROUND - 0.06), (0.52, 1.0)], 0.02, mix(HOLE, INK, 0.5))
    c.line([(0.88, GROUND - 0.06), (0.82, 1.0)], 0.02, mix(HOLE, INK, 0.5))


def pit_pull(c: Canvas, t: float, cast: Cast) -> None:
    """A rope, and the one in the pit comes out."""
    _pit(c)
    x = _path(t, (0, 0.06 + cast.shift), (0.28, 0.36), (0.45, 0.36), (0.75, 0.2))
    up = ease(t, 0.45, 0.78)
    bx, by = 0.67 - 0.22 * ease(t, 0.62, 0.85), 0.98 - (0.98 - GROUND) * min(1, up * 1.15)
    by -= 0.1 * math.sin(math.pi * ease(t, 0.6, 0.85))
    out = t > 0.8
    cast.other(c, bx, by, 0.09, mood="happy" if up > 0.3 else "sad", shade=out)
    if 0.3 < t < 0.86:
        drop = ease(t, 0.3, 0.42)
        c.line(
            [
                (x + 0.08, GROUND - 0.1),
                (0.5, GROUND - 0.14),
                (bx, GROUND - 0.14 + (by - 0.1 - GROUND + 0.14) * drop),
            ],
            0.022,
            (206, 160, 80),
        )
    cast.main(c, x, mood="happy" if out else "plain")


def pit_pass(c: Canvas, t: float, cast: Cast) -> None:
    """A leap over the pit and away; one stays below."""
    _pit(c)
    cast.other(
        c, 0.67, 0.98, 0.09, look=-1 if t < 0.5 else 1, mood="plain" if t < 0.25 else "sad", shade=False
    )
    x = _path(t, (0, 0.06 + cast.shift), (0.3, 0.38), (0.62, 0.94), (0.9, 1.16))
    air = 0.3 * math.sin(math.pi * min(1, max(0, (x - 0.38) / 0.54)))
    cast.main(c, x, GROUND - air)


# ---- sharing ----------------------------------------------------------------------------------------------
def _flying(
    c: Canvas, start: tuple[float, float], end: tuple[float, float], share: float
) -> tuple[float, float]:
    x = start[0] + (end[0] - start[0]) * share
    return x, start[1] + (end[1] - start[1]) * share - 0.22 * math.sin(math.pi * share)


def _berry(c: Canvas, x: float, y: float) -> None:
    c.disc(x, y, 0.047, mix(BERRY, INK, 0.4))
    c.disc(x, y, 0.037, BERRY)
    c.disc(x - 0.012, y - 0.014, 0.011, (240, 190, 214))


def _berries(c: Canvas, t: float, cast: Cast, giving: bool) -> None:
    spots = [(0.5, 0.56), (0.44, 0.5), (0.56, 0.5), (0.5, 0.45)]
    away = [(0.14, 0.55), (0.86, 0.55), (0.14, 0.46), (0.86, 0.46)]
    moved = 0
    placed = []
    for number, (spot, far) in enumerate(zip(spots, away, strict=True)):
        share = ease(t, 0.14 + 0.17 * number, 0.32 + 0.17 * number)
        moved += share > 0.5
        begin, end = (spots[3 - number], far) if giving else (far, spot)
        placed.append(_flying(c, begin, end, share))
    others: Mood = ("happy" if moved > 1 else "plain") if giving else ("sad" if moved > 1 else "happy")
    cast.other(c, 0.14, GROUND, 0.095, look=1, mood=others)
    cast.other(c, 0.86, GROUND, 0.095, look=-1, mood=others)
    cast.main(c, 0.5, GROUND, 0.12, look=-1 if int(t * 6) % 2 else 1, mood="happy" if moved > 1 else "plain")
    for x, y in placed:
        _berry(c, x, y)


def berries_given(c: Canvas, t: float, cast: Cast) -> None:
    """Four berries fly from the middle to both sides."""
    _berries(c, t, cast, giving=True)


def berries_taken(c: Canvas, t: float, cast: Cast) -> None:
    """Four berries fly from both sides to the middle."""
    _berries(c, t, cast, giving=False)


def _gem(c: Canvas, x: float, y: float) -> None:
    c.poly(
        [(x - 0.07, y), (x - 0.04, y - 0.05), (x + 0.04, y - 0.05), (x + 0.07, y), (x, y + 0.075)],
        mix(GEM, INK, 0.45),
    )
    c.poly([(x - 0.05, y), (x - 0.03, y - 0.035), (x + 0.03, y - 0.035), (x + 0.05, y), (x, y + 0.055)], GEM)


def _leaf(c: Canvas, x: float, y: float) -> None:
    c.oval(x, y, 0.075, 0.045, mix(LEAF, INK, 0.4))
    c.oval(x, y, 0.06, 0.032, LEAF)
    c.line([(x - 0.09, y + 0.01), (x + 0.05, y)], 0.012, mix(LEAF, INK, 0.5))


def gems_swapped(c: Canvas, t: float, cast: Cast) -> None:
    """Gem and leaf change places."""
    share = ease(t, 0.25, 0.7)
    mood: Mood = "happy" if t > 0.6 else "plain"
    cast.main(c, 0.24, GROUND, 0.12, mood=mood)
    cast.other(c, 0.76, GROUND, 0.115, mood=mood)
    arc = 0.16 * math.sin(math.pi * share)
    _gem(c, 0.24 + 0.52 * share, 0.5 - arc)
    _leaf(c, 0.76 - 0.52 * share, 0.5 + 0.6 * arc)


def gem_grabbed(c: Canvas, t: float, cast: Cast) -> None:
    """In, grab, and off with the gem."""
    x = _path(t, (0, 0.04 + cast.shift), (0.35, 0.5), (0.48, 0.5), (0.85, -0.08))
    taken = t > 0.42
    cast.other(c, 0.76, GROUND, 0.115, mood="sad" if taken else "happy")
    cast.main(
        c, x, GROUND - _hop(t, 10, 0.02), 0.12, look=-1 if t > 0.48 else 1, mood="happy" if taken else "plain"
    )
    grab = ease(t, 0.36, 0.46)
    _gem(c, 0.76 + (x + 0.01 - 0.76) * grab, 0.5)


# ---- belonging --------------------------------------------------------------------------------------------
_GROUP = ((0.58, 0.74), (0.76, 0.7), (0.9, 0.82))


def group_joined(c: Canvas, t: float, cast: Cast) -> None:
    """A sad one comes to the group, and all bounce."""
    joined = t > 0.55
    for number, (x, y) in enumerate(_GROUP):
        x += 0.04 * ease(t, 0.35, 0.5)
        jump = _hop(t + 0.07 * number, 7, 0.09) if joined else 0.0
        cast.other(c, x, y - jump, 0.085, mood="happy" if joined else "plain", shade=False)
    x = _path(t, (0, 0.08 + cast.shift), (0.12, 0.08 + cast.shift), (0.58, 0.66))
    cast.main(
        c, x, 0.88 - (_hop(t, 7, 0.09) if joined else 0), 0.1, mood="happy" if joined else "sad", shade=False
    )


def group_left(c: Canvas, t: float, cast: Cast) -> None:
    """One bounces with the group, then goes."""
    away = t > 0.35
    for number, (x, y) in enumerate(_GROUP):
        jump = 0.0 if away else _hop(t + 0.07 * number, 7, 0.09)
        cast.other(c, x + 0.02, y - jump, 0.085, mood="plain" if away else "happy", shade=False)
    x = _path(t, (0, 0.66), (0.3, 0.66), (0.85, 0.08))
    cast.main(c, x, 0.88 - (0 if away else _hop(t, 7, 0.09)), 0.1, look=-1 if away else 1, shade=False)


_CROWD = ((0.16, 0.62), (0.5, 0.56), (0.84, 0.62), (0.2, 0.93), (0.8, 0.93))


def _crowd(c: Canvas, cast: Cast, own: RGB, theirs: list[RGB], mood: Mood, smile: int) -> None:
    for number, (x, y) in enumerate(_CROWD):
        look = 1.0 if x < 0.5 else -1.0
        cast.other(
            c,
            x,
            y,
            0.095,
            look=look,
            paint=theirs[number],
            mood="happy" if number < smile else "plain",
            shade=False,
        )
    cast.main(c, 0.5, 0.84, 0.115, paint=own, mood=mood, shade=False)


def colour_lost(c: Canvas, t: float, cast: Cast) -> None:
    """One slowly takes the colour of the five around it."""
    mine, crowd = COLOURS[cast.colour], COLOURS[cast.other_colour]
    share = ease(t, 0.2, 0.75)
    _crowd(c, cast, mix(mine, crowd, share), [crowd] * 5, "sad" if share > 0.5 else "plain", 0)


def colour_spreads(c: Canvas, t: float, cast: Cast) -> None:
    """Five take the colour of the one in the middle, one by one."""
    mine, crowd = COLOURS[cast.colour], COLOURS[cast.other_colour]
    shares = [ease(t, 0.12 + 0.13 * n, 0.28 + 0.13 * n) for n in range(5)]
    _crowd(c, cast, mine, [mix(crowd, mine, s) for s in shares], "happy", sum(s > 0.5 for s in shares))


# ---- hope -------------------------------------------------------------------------------------------------
def _lamp(c: Canvas, on: float) -> None:
    c.line([(0.72, GROUND), (0.72, 0.36)], 0.03, INK)
    c.box(0.65, GROUND - 0.02, 0.79, GROUND + 0.02, INK)
    c.poly(
        [(0.66, 0.36), (0.78, 0.36), (0.82, 0.24), (0.62, 0.24)], mix((120, 116, 122), (255, 232, 120), on)
    )
    c.box(0.6, 0.2, 0.84, 0.245, INK)


def lamp_on(c: Canvas, t: float, cast: Cast) -> None:
    """Night, a walk to the lamp, light."""
    on = ease(t, 0.48, 0.6)
    x = _path(t, (0, 0.1 + cast.shift), (0.12, 0.1 + cast.shift), (0.48, 0.54))
    _lamp(c, on)
    cast.main(c, x, GROUND - (_hop(t, 7) if on > 0.9 else 0), mood="happy" if on > 0.5 else "sad")
    c.night(1 - on, (0.72, 0.3, 0.5) if on > 0.05 else None)


def lamp_off(c: Canvas, t: float, cast: Cast) -> None:
    """Light, then night."""
    off = ease(t, 0.36, 0.5)
    _lamp(c, 1 - off)
    cast.main(c, 0.44 + cast.shift, mood="sad" if off > 0.5 else "happy")
    c.night(off, (0.72, 0.3, 0.5) if off < 0.95 else None)


def _plant(c: Canvas, grown: float, wilt: float) -> None:
    """A plant at x 0.7: ``grown`` 0 (sprout) to 1 (in bloom), ``wilt`` 0 (fresh) to 1 (bent and brown)."""
    c.oval(0.7, GROUND, 0.12, 0.035, (120, 88, 66))
    green = mix((70, 150, 66), (140, 106, 58), wilt)
    height = 0.1 + 0.38 * grown
    tip = (0.7 + 0.2 * wilt, GROUND - height * (1 - 0.5 * wilt))
    bend = (0.7 + 0.02 * wilt, GROUND - height * 0.75)
    c.line([(0.7, GROUND), bend, tip], 0.03, green)
    for side in (-1, 1):
        c.oval(0.7 + side * 0.06, GROUND - height * 0.42 + 0.1 * wilt, 0.03 + 0.025 * grown, 0.024, green)
    bloom = ease(grown, 0.55, 1.0)
    if bloom > 0:
        petal = mix((236, 92, 148), (132, 100, 74), wilt)
        for number in range(5):
            angle = number * 1.257 + 0.3
            reach = 0.07 * bloom
            px, py = tip[0] + reach * math.cos(angle), tip[1] + reach * math.sin(angle)
            if number < round(wilt * 4):
                px, py = 0.78 + 0.05 * number, GROUND + 0.01
            c.disc(px, py, 0.048 * bloom, petal)
        c.disc(tip[0], tip[1], 0.04 * bloom, mix((252, 210, 70), (120, 92, 60), wilt))


def plant_blooms(c: Canvas, t: float, cast: Cast) -> None:
    """Water from the can; the sprout becomes a flower."""
    grown = ease(t, 0.3, 0.85)
    _plant(c, grown, 0)
    x = 0.3 + cast.shift
    cast.main(c, x, mood="happy" if t > 0.5 else "plain")
    # the can tips over the sprout and drops fall while it pours
    tip = 0.55 * ease(t, 0.1, 0.22) * (1 - ease(t, 0.8, 0.92))
    c.tilted(x + 0.14, 0.58, 0.13, 0.11, tip, (120, 130, 150))
    c.line([(x + 0.19, 0.57), (x + 0.27, 0.54 + 0.08 * tip)], 0.026, (120, 130, 150))
    if 0.2 < t < 0.82:
        for number in range(4):
            fall = (t * 5 + number * 0.25) % 1.0
            c.oval(x + 0.28 + 0.05 * fall, 0.58 + 0.22 * fall, 0.014, 0.022, WATER)


def plant_wilts(c: Canvas, t: float, cast: Cast) -> None:
    """A sleeper; the flower bends, browns and drops its petals."""
    _plant(c, 1, ease(t, 0.25, 0.85))
    x = 0.3 + cast.shift
    cast.main(c, x, look=-1, mood="asleep")
    c.dreams(x, 0.6, t)


# ---- craft ------------------------------------------------------------------------------------------------
_BLOCKS: tuple[RGB, ...] = ((214, 158, 92), (196, 132, 84), (224, 176, 112), (186, 122, 76))


def _block(c: Canvas, x: float, y: float, number: int, turn: float = 0.0, size: float = 0.14) -> None:
    c.tilted(x, y, size + 0.016, size + 0.016, turn, mix(_BLOCKS[number % 4], INK, 0.45))
    c.tilted(x, y, size - 0.008, size - 0.008, turn, _BLOCKS[number % 4])


def tower_rises(c: Canvas, t: float, cast: Cast) -> None:
    """Four blocks, one on the other."""
    begins = (0.02, 0.25, 0.48, 0.71)
    x = 0.34 + cast.shift - 0.1 * abs(math.sin(math.pi * (t - 0.02) / 0.23))
    placed = 0
    for number, begin in enumerate(begins):
        share = ease(t, begin + 0.06, begin + 0.2)
        if t < begin:
            continue
        placed += share >= 1
        rest = (0.74, GROUND - 0.07 - 0.145 * number)
        bx = x + 0.1 + (rest[0] - x - 0.1) * share
        by = 0.52 + (rest[1] - 0.52) * share - 0.12 * math.sin(math.pi * share)
        _block(c, bx, by, number)
    cast.main(c, x, mood="happy" if placed == 4 else "plain")


def tower_topples(c: Canvas, t: float, cast: Cast) -> None:
    """A fourth block, a wobble, a heap."""
    share, fall = ease(t, 0.12, 0.32), ease(t, 0.45, 0.7)
    sway = 0.03 * math.sin(t * 30) if 0.32 < t < 0.47 else 0.0
    x = _path(t, (0, 0.34 + cast.shift), (0.45, 0.36 + cast.shift), (0.6, 0.16))
    for number in range(4):
        height = GROUND - 0.07 - 0.145 * number
        spot = (0.74 + sway * number, height)
        if number == 3:
            spot = (x + 0.1 + (spot[0] - x - 0.1) * share, 0.4 + (height - 0.4) * share)
        rest = (0.44 + 0.15 * ((number * 3) % 4), GROUND - 0.05 + 0.03 * (number % 2))
        turn = fall * (1.1 + number)
        _block(c, spot[0] + (rest[0] - spot[0]) * fall, spot[1] + (rest[1] - spot[1]) * fall**2, number, turn)
    cast.main(c, x, mood="sad" if t > 0.45 else "plain", look=1)


def _canyon(c: Canvas) -> None:
    c.box(0.4, GROUND - 0.03, 0.76, 1.0, HOLE)
    c.box(0.385, GROUND - 0.03, 0.41, 1.0, mix(c.place.ground[1], INK, 0.45))
    c.box(0.75, GROUND - 0.03, 0.775, 1.0, mix(c.place.ground[1], INK, 0.45))


def bridge_laid(c: Canvas, t: float, cast: Cast) -> None:
    """Three planks, then across."""
    _canyon(c)
    start = 0.2 + cast.shift
    for number in range(3):
        share = ease(t, 0.06 + 0.16 * number, 0.2 + 0.16 * number)
        if share <= 0:
            continue
        rest = 0.46 + 0.12 * number
        x = start + 0.1 + (rest - start - 0.1) * share
        y = 0.56 + (GROUND + 0.005 - 0.56) * share
        c.tilted(x, y, 0.13, 0.055, (1 - share) * 1.2, mix(WOOD, INK, 0.45))
        c.tilted(x, y, 0.115, 0.036, (1 - share) * 1.2, WOOD)
    x = _path(t, (0, start), (0.56, start), (0.92, 0.9))
    cast.main(c, x, GROUND - 0.01, 0.11, mood="happy" if t > 0.6 else "plain")


def gap_fall(c: Canvas, t: float, cast: Cast) -> None:
    """No plank, full speed, gone."""
    _canyon(c)
    x = _path(t, (0, 0.06 + cast.shift), (0.15, 0.06 + cast.shift), (0.5, 0.58))
    drop = max(0.0, (t - 0.44) / 0.22)
    if 0.15 < t < 0.42:
        for row in range(3):
            c.line([(x - 0.28, 0.65 + 0.05 * row), (x - 0.15, 0.65 + 0.05 * row)], 0.012, (255, 255, 255))
    if drop < 2:
        y = GROUND + 0.45 * drop**2 - (0.06 * math.sin(math.pi * min(1, drop * 2)))
        cast.main(c, x, y, 0.11, mood="sad" if drop > 0 else "plain", turn=drop * 0.9, shade=drop <= 0)


# ---- manners ----------------------------------------------------------------------------------------------
_SCRAPS = ((0.3, 0.86), (0.42, 0.82), (0.54, 0.88), (0.66, 0.83))


def _scrap(c: Canvas, x: float, y: float, number: int) -> None:
    c.tilted(x, y, 0.08, 0.058, number * 0.9, mix((255, 255, 255), INK, 0.5))
    c.tilted(x, y, 0.062, 0.042, number * 0.9, (252, 250, 240))


def _bin(c: Canvas) -> None:
    c.poly([(0.82, 0.58), (0.98, 0.58), (0.96, GROUND), (0.84, GROUND)], (92, 108, 128))
    c.box(0.8, 0.54, 1.0, 0.59, (70, 84, 102))
    for x in (0.87, 0.93):
        c.line([(x, 0.62), (x, GROUND - 0.03)], 0.012, (70, 84, 102))


def litter_swept(c: Canvas, t: float, cast: Cast) -> None:
    """The broom pushes the scraps to the bin and in."""
    _bin(c)
    x = _path(t, (0, 0.08), (0.1, 0.08), (0.75, 0.6))
    front = x + 0.17
    for number, (sx, sy) in enumerate(_SCRAPS):
        at = max(sx, front + 0.015 * number)
        into = ease(t, 0.68 + 0.05 * number, 0.8 + 0.05 * number)
        if into < 1:
            px, py = _flying(c, (min(at, 0.8), sy), (0.9, 0.56), into)
            _scrap(c, px, py, number)
    c.line([(x + 0.04, 0.58), (front - 0.02, 0.82)], 0.022, WOOD)
    c.poly(
        [(front - 0.04, 0.8), (front + 0.01, 0.8), (front + 0.04, 0.9), (front - 0.07, 0.9)], (228, 188, 90)
    )
    cast.main(c, x, GROUND, 0.11, mood="happy" if t > 0.75 else "plain")


def litter_dropped(c: Canvas, t: float, cast: Cast) -> None:
    """A scrap every few steps, past the bin."""
    _bin(c)
    x = _path(t, (0, 0.1), (0.1, 0.12), (0.95, 1.02))
    for number, (sx, sy) in enumerate(_SCRAPS):
        fall = min(1.0, max(0.0, (x - sx - 0.02) / 0.12))
        if fall > 0:
            _scrap(c, sx - 0.02, 0.6 + (sy - 0.6) * fall, number)
    cast.main(c, x, GROUND - _hop(t, 8, 0.015), 0.11)


def _door(c: Canvas, opened: float) -> None:
    """A house front with a door at x 0.5 to 0.66; ``opened`` 0 (shut) to 1 (edge-on)."""
    c.box(0.44, 0.3, 0.74, GROUND, (222, 208, 196))
    c.poly([(0.4, 0.31), (0.59, 0.12), (0.78, 0.31)], (168, 84, 76))
    c.box(0.5, 0.42, 0.68, GROUND, (60, 48, 56))
    width = 0.18 * (1 - 0.8 * opened)
    left = 0.68 - width
    c.poly(
        [(0.68, 0.42), (left, 0.42 - 0.04 * opened), (left, GROUND + 0.04 * opened), (0.68, GROUND)],
        mix(WOOD, INK, 0.1),
    )
    c.disc(left + 0.03 * (1 - 0.6 * opened), 0.63, 0.015, (250, 214, 90))


def door_opened(c: Canvas, t: float, cast: Cast) -> None:
    """The door opens and the other walks in."""
    opened = ease(t, 0.2, 0.38)
    _door(c, opened)
    inside = ease(t, 0.72, 0.92)
    x = _path(t, (0, 0.08), (0.3, 0.2), (0.42, 0.22), (0.72, 0.56))
    if inside < 0.95:
        cast.other(
            c,
            x,
            GROUND + 0.04 * (1 - inside),
            0.09 * (1 - 0.45 * inside),
            look=1,
            mood="happy" if opened > 0.5 else "plain",
        )
    cast.main(c, 0.86, GROUND + 0.02, 0.11, look=-1, mood="happy" if opened > 0.5 else "plain")


def door_shut(c: Canvas, t: float, cast: Cast) -> None:
    """The door shuts right before the other's nose."""
    opened = 1 - ease(t, 0.32, 0.44)
    _door(c, opened)
    x = _path(t, (0, 0.08), (0.46, 0.5), (0.62, 0.24))
    hurt = t > 0.45
    jump = 0.06 * math.sin(math.pi * ease(t, 0.46, 0.62))
    cast.other(c, x, GROUND + 0.04 - jump, 0.09, look=1, mood="sad" if hurt else "happy")
    if 0.43 < t < 0.56:
        for angle in range(8):
            dx, dy = math.cos(angle * 0.785), math.sin(angle * 0.785)
            c.line(
                [(0.52 + 0.05 * dx, 0.7 + 0.05 * dy), (0.52 + 0.1 * dx, 0.7 + 0.1 * dy)],
                0.018,
                (255, 214, 70),
            )
    cast.main(c, 0.86, GROUND + 0.02, 0.11, look=-1 if t < 0.5 else 1)


SCENES: dict[str, Callable[[Canvas, float, Cast], None]] = {
    scene.__name__: scene
    for scene in (
        wall_breaks, wall_stays, hill_top, hill_bottom, slow_passes, fast_wins, rock_crash, rock_jump,
        umbrella_over, umbrella_away, pit_pull, pit_pass, berries_given, berries_taken, gems_swapped,
        gem_grabbed, group_joined, group_left, colour_lost, colour_spreads, lamp_on, lamp_off,
        plant_blooms, plant_wilts, tower_rises, tower_topples, bridge_laid, gap_fall, litter_swept,
        litter_dropped, door_opened, door_shut,
    )
}  # fmt: skip
"""Scene by story key."""
