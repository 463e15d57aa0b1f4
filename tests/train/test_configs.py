"""Every config is accepted, holds what its source published, and makes a step on a tiny model of its kind."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_llava_next import build_tiny_llava_next
from tiny_models import build_tiny_mllm
from tiny_omni import build_tiny_omni

from vidvec_msg.cli import main as cli
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.formats.pairs import read_pairs
from vidvec_msg.train import losses
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.fit import main as fit
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.optimizer import OptimizerOptions

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs" / "train").rglob("*.yaml"))

FAMILIES = {
    "care_text_7b": "qwen2_vl",
    "e5v_text": "llava_next",
    "lamra_text_7b": "qwen2_vl",
    "lco_omni_7b": "qwen2_5_omni",
    "qwen3vl_2b_one_gpu": "qwen3_vl",
    "smollm2_cpu": "text",
    "tinyworld": "tinyworld",
    "vidvec_7b": "videollama3",
    "vidvec_msg_7b": "videollama3",
}
"""Family of each config's model; a config that is missing here fails its dry run."""

RECIPES = [path for path in CONFIGS if path.stem not in ("tinyworld", "smollm2_cpu")]


def test_there_are_configs() -> None:
    assert {path.stem for path in CONFIGS} >= FAMILIES.keys() - {"smollm2_cpu"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_is_accepted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["fit", "--config", str(path), "--print_config"]) == 0, capsys.readouterr().err
    printed = yaml.safe_load(capsys.readouterr().out)
    model = printed["model"]
    loss = getattr(losses, model["loss"]["class_path"].rpartition(".")[2])
    assert isinstance(loss(**model["loss"]["init_args"]), losses.PairLoss)
    LoraOptions(**model["lora"])
    OptimizerOptions(**model["optimizer"])
    resolve_prompt(model["prompt"])
    data = PairsData(**printed["data"])
    if ":" in data.source or (ROOT / data.source).is_file():
        data.read()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_key_is_explained_and_the_table_has_it(path: Path) -> None:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if value.strip() and not key.lstrip().startswith("#"):
            assert "#" in line, f"{path.name}: {line.strip()} has no comment"
    assert f"]({path.name})" in (path.parent / "README.md").read_text()


@pytest.mark.parametrize(
    "program",
    [
        "train.py",
        "train/train.py",
        "train/preview_batch.py",
        "train/merge_adapter.py",
        "retrieval/push_embedder.py",
        "retrieval/mine_negatives.py",
        "retrieval/collect_corpus.py",
    ],
)
def test_a_program_is_a_docstring_and_a_call_of_the_command_line(program: str) -> None:
    source = (ROOT / program).read_text()
    code = source.rpartition('"""')[2]
    assert "vidvec_msg.cli import main" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 5


# ---- recipes: each value says where it comes from, and those that are published are the published ones


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_value_of_a_recipe_says_where_it_comes_from(path: Path) -> None:
    for line in path.read_text().splitlines():
        setting = re.fullmatch(r"\s*[\w.]+: *([^#\s][^#]*)?(#.*)?", line)
        if setting and setting[1]:
            assert re.match(r"# (published|inferred|ours|yours): \S", setting[2] or ""), (
                f"{path.name}: {line}"
            )


def published(path: Path) -> dict[str, Any]:
    """What the papers' tables state, read off a config."""
    content = yaml.safe_load(path.read_text())
    trainer, model, data = content["trainer"], content["model"], content["data"]
    lora, loss = model.get("lora", {}), model["loss"]
    strategy = trainer.get("strategy")
    return {
        "pairs a step": data["batch_size"] * trainer["devices"],
        "epochs": trainer["max_epochs"],
        "lora": (lora.get("r"), lora.get("alpha"), lora.get("dropout")),
        "tuning": (model["tuning"], model.get("quantization")),
        "lr": model["optimizer"]["lr"],
        "loss": loss["class_path"].rpartition(".")[2],
        "one way": loss["init_args"].get("symmetric") is False,
        "temperature": loss["init_args"]["temperature"],
        "prompt": resolve_prompt(model["prompt"]).text,
        "stage": strategy["init_args"]["stage"] if isinstance(strategy, dict) else None,
        "layer": model["layer"],
    }


VIDVEC = {
    "pairs a step": 288,
    "epochs": 1,
    "lora": (64, 128, 0.05),
    "tuning": ("lora", None),
    "lr": 2e-4,
    "loss": "DualSoftmax",
    "one way": False,
    "temperature": 0.05,
    "prompt": "{text}\nSummarize above sentence in one word: ",
    "stage": 3,
    "layer": -1,
}
LAMRA = {**VIDVEC, "pairs a step": 576, "epochs": 2, "loss": "InfoNCE", "one way": True, "stage": None}
TABLE = {
    "vidvec_msg_7b": VIDVEC,
    "vidvec_7b": VIDVEC,
    "lamra_text_7b": LAMRA,
    "e5v_text": {
        **LAMRA,
        "pairs a step": 768,
        "lora": (64, 16, 0.05),
        "tuning": ("lora", "nf4"),
        "lr": 4e-4,
        "prompt": "{text}\nSummary above sentence in one word: ",
    },
    "care_text_7b": {
        **LAMRA,
        "pairs a step": 768,
        "lora": (None, None, None),
        "tuning": ("full", None),
        "lr": 2e-5,
        "prompt": "{text}\nSummary above sentence in one word:",
        "stage": 3,
    },
    "lco_omni_7b": {
        **LAMRA,
        "pairs a step": 1056,
        "tuning": ("lora", "nf4"),
        "lr": 4e-4,
        "temperature": 0.03,
        "prompt": "{text}\nSummarize the above text in one word:",
    },
    "qwen3vl_2b_one_gpu": {**VIDVEC, "tuning": ("lora", "nf4"), "stage": None},
}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_holds_what_its_source_states(path: Path) -> None:
    assert published(path) == TABLE[path.stem]


# ---- the pairs of a recipe, as docs/recipes.md shows them


def examples() -> Iterator[tuple[str, str, str]]:
    """Config, language and content of each example of pairs."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    for found in re.finditer(r"<!-- pairs of (\w+) -->\n```(\w+)\n(.+?)```", page, re.DOTALL):
        yield found[1], found[2], found[3]


def test_every_recipe_has_an_example_of_its_pairs() -> None:
    assert sorted(name for name, _, _ in examples()) == [path.stem for path in RECIPES]


@pytest.mark.parametrize(("name", "language", "content"), examples(), ids=lambda value: value[:20])
def test_the_example_is_read_under_the_config(name: str, language: str, content: str, tmp_path: Path) -> None:
    data = yaml.safe_load((ROOT / "configs" / "train" / f"{name}.yaml").read_text())["data"]
    assert Path(data["pairs"]).suffix == f".{language}"
    path = tmp_path / f"pairs.{language}"
    path.write_text(content)
    pairs = read_pairs(path, data.get("columns"))
    assert len(pairs) >= 2
    assert bool(pairs[0].negatives) == (name in ("care_text_7b", "e5v_text", "lamra_text_7b", "lco_omni_7b"))


# ---- one step of each on a tiny model of its family


def write_pairs(path: Path, columns: dict[str, str], *, negatives: bool, count: int = 288) -> Path:
    names = {"anchor": "anchor", "positive": "positive", "negatives": "negative", **columns}
    rows = []
    for row in range(count):
        texts = {names["anchor"]: f"Clip {row} rolls.", names["positive"]: f"Keep {row}."}
        rows.append({**texts, names["negatives"]: f"Not {row}."} if negatives else texts)
    with path.open("w", newline="") as stream:
        if path.suffix == ".csv":
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        else:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture(scope="module")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a tiny model, by family; each is built once."""
    built: dict[str, str] = {"tinyworld": "tinyworld"}

    def of(family: str) -> str:
        if family not in built:
            folder = tmp_path_factory.mktemp(family)
            special = {"llava_next": build_tiny_llava_next, "qwen2_5_omni": build_tiny_omni}
            if family in special:
                special[family](folder)
            else:
                build_tiny_mllm(folder, family)  # type: ignore[arg-type]
            built[family] = str(folder)
        return built[family]

    return of


# per anchor on one rank: the other pairs of the batch, and hard negatives where the recipe has them
NEGATIVES = {
    "care_text_7b": 2 * 96 - 1,
    "e5v_text": 2 * 96 - 1,
    "lamra_text_7b": 71,
    "lco_omni_7b": 2 * 132 - 1,
    "qwen3vl_2b_one_gpu": 287,
    "tinyworld": 31,
    "vidvec_7b": 71,
    "vidvec_msg_7b": 71,
}


# what a model of three blocks cannot have
SMALLER = {"smollm2_cpu": {"model.layer": 2, "model.lora.targets": r"layers\.1\..*_proj"}}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_makes_a_step_on_a_tiny_model_of_its_family(
    path: Path, tiny_of: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="vidvec_msg")
    content = yaml.safe_load(path.read_text())
    family, data, model = FAMILIES[path.stem], content["data"], content["model"]
    options = {"trainer.fast_dev_run": "true", "trainer.default_root_dir": tmp_path / "run"}
    if family != "tinyworld":  # a machine of one CPU, a model of its size, pairs that are here
        columns = data.get("columns") or {}
        source = tmp_path / f"pairs{Path(data['pairs']).suffix}"
        options |= {
            "trainer.accelerator": "cpu",
            "trainer.devices": 1,
            "trainer.strategy": "auto",
            "trainer.precision": "32-true",
            "model.model": tiny_of(family),
            "model.dtype": "float32",
            "data.pairs": write_pairs(
                source, columns, negatives="negatives" in columns or path.stem == "lco_omni_7b"
            ),
            "data.num_workers": 0,
            **SMALLER.get(path.stem, {}),
        }
    assert fit(["fit", "--config", str(path), *(f"--{key}={value}" for key, value in options.items())]) == 0
    way = "in full, " if model.get("tuning") == "full" else "LoRA on "
    assert " parameters train (" in caplog.text
    assert f": {way}" in caplog.text
    assert ("kept in nf4" in caplog.text) == (model.get("quantization") == "nf4")
    if path.stem in NEGATIVES:
        assert f"{NEGATIVES[path.stem]:.1f} negatives per anchor on 1 rank(s)" in caplog.text
