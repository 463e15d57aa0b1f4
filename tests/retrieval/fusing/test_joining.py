"""Fused scores are ranx's, for every method and normalisation."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from vidvec_msg.retrieval.fusing.joining import joined
from vidvec_msg.retrieval.fusing.recipe import Recipe

IDS = tuple("abcdefgh")
RECIPES = [
    ("rrf", Recipe("rrf"), None, {"k": 60}),
    ("sum", Recipe("sum", "min-max"), "min-max", {}),
    ("wsum", Recipe("sum", "min-max", (0.7, 0.3)), "min-max", {"weights": [0.7, 0.3]}),
    ("mnz", Recipe("mnz", "sum"), "sum", {}),
    ("max", Recipe("max", "rank"), "rank", {}),
    ("sum", Recipe("sum", "zmuv"), "zmuv", {}),
]
# in a process of its own, in which ranx runs uncompiled: compiling its fusion takes a minute
RANX = """
import json, sys
from ranx import Run, fuse
pairs, ways = json.load(sys.stdin)
fused = [
    [fuse([Run({"q": run}) for run in runs], norm=norm, method=method, params=parameters).run["q"]
     for method, norm, parameters in ways]
    for runs in pairs
]
print(json.dumps([[dict(one) for one in row] for row in fused]))
"""


@pytest.mark.slow
def test_equal_to_ranx() -> None:
    generator = np.random.default_rng(0)
    pairs = [
        [
            (generator.permutation(8)[:size], np.sort(generator.normal(size=size))[::-1])
            for size in (6, int(generator.integers(2, 9)))
        ]
        for _ in range(5)
    ]
    named = [
        [{IDS[column]: float(score) for column, score in zip(*run, strict=True)} for run in runs]
        for runs in pairs
    ]
    ways = [(method, norm, parameters) for method, _, norm, parameters in RECIPES]
    done = subprocess.run(
        [sys.executable, "-c", RANX], input=json.dumps([named, ways]), capture_output=True, text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, check=True,
    )  # fmt: skip
    for runs, fused in zip(pairs, json.loads(done.stdout), strict=True):
        for (method, recipe, norm, _), expected in zip(RECIPES, fused, strict=True):
            columns, values = joined(runs, recipe)
            found = {
                IDS[column]: value for column, value in zip(columns.tolist(), values.tolist(), strict=True)
            }
            assert found == pytest.approx(expected), (method, norm)
