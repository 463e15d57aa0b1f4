"""Fused scores are ranx's, for every method and normalisation."""

import numpy as np
import pytest

from vidvec_msg.retrieval.fusing.joining import joined
from vidvec_msg.retrieval.fusing.recipe import Recipe

# ids of one letter: numba compiles ranx's fusion anew for every width of ids, minutes in all
IDS = tuple("abcdefgh")
RECIPES = [
    ("rrf", Recipe("rrf"), None, {"k": 60}),
    ("sum", Recipe("sum", "min-max"), "min-max", {}),
    ("wsum", Recipe("sum", "min-max", (0.7, 0.3)), "min-max", {"weights": [0.7, 0.3]}),
    ("mnz", Recipe("mnz", "sum"), "sum", {}),
    ("max", Recipe("max", "rank"), "rank", {}),
    ("sum", Recipe("sum", "zmuv"), "zmuv", {}),
]


@pytest.mark.slow
def test_equal_to_ranx() -> None:
    from ranx import Run, fuse

    generator = np.random.default_rng(0)
    runs = [
        (
            columns := generator.permutation(8)[: 8 if n else 6],
            np.sort(generator.normal(size=len(columns)))[::-1],
        )
        for n in range(2)
    ]
    named = [
        Run({"q": {IDS[column]: float(score) for column, score in zip(*run, strict=True)}}) for run in runs
    ]
    for method, recipe, norm, parameters in RECIPES:
        expected = fuse(named, norm=norm, method=method, params=parameters).run["q"]
        columns, values = joined(runs, recipe)
        found = {IDS[column]: value for column, value in zip(columns.tolist(), values.tolist(), strict=True)}
        assert found == pytest.approx(dict(expected)), (method, norm)
