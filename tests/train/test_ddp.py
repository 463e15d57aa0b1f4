"""Two processes through the real Trainer (DDP, gloo) train the weights that one process trains."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from torch.testing import assert_close

from vidvec_msg.formats.collections import write_collection
from vidvec_msg.train.fit import main


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def run_in_its_own_group(command: list[str], told: Path) -> None:
    """Runs a launcher of ranks; whatever happens, none of its ranks outlives the call.

    Their output goes to a file, which is whole in the failure's message: a rank that outlives another one
    complains last and at length, and the reason stands above it.
    """
    # a launcher takes these of a surrounding one for its own: ranks, and a port that may be in use
    surrounding = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if name not in surrounding}
    with told.open("w") as stream:
        launcher = subprocess.Popen(
            command,
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | str = launcher.wait(timeout=480)
        except subprocess.TimeoutExpired:
            code = "none after 480 s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
    assert code == 0, f"exit code {code}\n{told.read_text()}"


@pytest.mark.slow
@pytest.mark.timeout(600)  # three processes import torch, Lightning and ranx
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="ends the ranks by their POSIX process group")
def test_two_processes_equal_one_with_the_joined_batch(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    collection = tmp_path / "collection"
    write_collection(
        collection,
        corpus=[{"_id": f"d{i}", "text": f"document {i}"} for i in range(5)],
        queries=[{"_id": f"q{i}", "text": f"query {i}"} for i in range(3)],
        qrels={"test": {f"q{i}": {f"d{i}": 1} for i in range(3)}},
    )
    callback = {
        "class_path": "vidvec_msg.train.retrieval_validation.RetrievalValidation",
        "init_args": {"collection": str(collection), "batch_size": 2},
    }
    content = {
        "trainer": {
            "accelerator": "cpu",
            "max_steps": 4,
            "enable_model_summary": False,
            "callbacks": [callback],
        },
        # without dropout: ranks draw masks of their own
        "model": {"model": str(tiny), "lora": {"r": 4, "dropout": 0.0}, "optimizer": {"lr": 0.01}},
        "data": {"pairs": str(pairs_file), "batch_size": 8, "validation_fraction": 0.25, "drop_last": False},
    }
    config = tmp_path / "fit.yaml"
    config.write_text(yaml.safe_dump(content))
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["fit", "--config", str(config), "--trainer.default_root_dir", str(one)]) == 0

    words = ["fit", "--config", str(config), "--trainer.default_root_dir", str(two), "--data.batch_size=4"]
    words += ["--trainer.strategy=ddp", "--trainer.devices=2"]
    run_in_its_own_group([sys.executable, "-m", "vidvec_msg.cli", *words], tmp_path / "told.txt")

    found, expected = (load_file(run / "embedder" / "adapter_model.safetensors") for run in (two, one))
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert_close(found[name], weight, rtol=1e-3, atol=1e-5)  # Adam amplifies the order of sums
    shared = (
        "train/loss",
        "train/accuracy",
        "train/negatives_per_anchor",
        "train/false_negatives",
        "train/cosine_positives",
        "train/embedding_norm",
        "train/embedding_norm_std",
        "train/gradient_norm",
        "val/pairs/forward/map",
        "val/pairs/reverse/map",
        "val/forward/map",
        "val/reverse/map",
    )
    for name in shared:
        assert_close(
            [float(row[name] or "nan") for row in rows(two)],
            [float(row[name] or "nan") for row in rows(one)],
            rtol=1e-4,
            atol=1e-5,
            equal_nan=True,
        )
