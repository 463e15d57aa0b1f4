"""Who rates what: so many people a task, everybody about as much, drawn by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def assigned(tasks: Sequence[str], raters: Sequence[str], each: int, *, seed: int) -> dict[str, list[str]]:
    """Task → the people who rate it.

    Args:
        tasks: ids.
        raters: names.
        each: people a task, at most as many as there are.
        seed: of the draw.

    Returns:
        for each task that many different people, in the order of their names. The numbers of tasks of two
        people differ by one at most.
    """
    dice = np.random.default_rng(seed)
    load = np.zeros(len(raters), int)
    chosen: dict[str, list[str]] = {}
    for task in tasks:
        # those with the least so far, and by lot among them
        order = np.lexsort((dice.random(len(raters)), load))[:each]
        load[order] += 1
        chosen[task] = [raters[place] for place in sorted(order.tolist())]
    return chosen
