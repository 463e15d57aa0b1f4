"""Two real gloo processes give the loss and the gradients of one process with the joined batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from vidvec_msg.train.gather import gather_pairs, mean_over_ranks, ranks
from vidvec_msg.train.losses import EncodedPairs, PairKeys

sys.path.insert(0, str(Path(__file__).parent))
from rank_of_gather import CASES, LOSSES, case, pairs_of


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("rank_of_gather.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([sys.executable, str(program), str(rank), "2", str(folder)], env=environment)
        for rank in (0, 1)
    ]
    try:
        assert [process.wait(timeout=240) for process in running] == [0, 0]
    finally:  # a rank that waits for a dead one would wait for ever
        for process in running:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("name", "negatives", "sizes"), CASES, ids=[name for name, *_ in CASES])
def test_two_ranks_equal_one_process(
    two_ranks: list[dict[str, Any]],
    loss: str,
    name: str,
    negatives: tuple[int, ...],
    sizes: tuple[int, ...],
) -> None:
    one = case(negatives, (sum(sizes), 0), 0, loss)
    for rank in (0, 1):
        found = two_ranks[rank][f"{loss}/{name}"]
        torch.testing.assert_close(found["loss"], one["loss"])
        torch.testing.assert_close(found["gradient"], one["gradient"])
        assert found["masked"] == one["masked"]
        assert one["masked"] >= 4  # the shared message and the shared group lie on different ranks
    rows = torch.cat([two_ranks[rank][f"{loss}/{name}"]["rows"] for rank in (0, 1)])
    torch.testing.assert_close(rows, one["rows"])


def test_in_one_process_it_is_the_identity() -> None:
    pairs = pairs_of((1, 1))
    own = EncodedPairs(torch.eye(2), torch.eye(2), torch.zeros(2, 1, 2), PairKeys.of(pairs))
    everyone, offset = gather_pairs(own)
    assert everyone is own
    assert offset == 0
    assert ranks() == 1
    assert mean_over_ranks(torch.tensor([1.0, 3.0]), 2) == 2.0
