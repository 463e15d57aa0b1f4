"""The layer probe, end to end on tiny real models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probed import HALVING, write_texts
from safetensors.torch import load_file, save_file
from tiny_models import build_tiny_mllm
from transformers import AutoModel

from vidvec_msg.cli import main
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.read_outs import ReadOut
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.evaluate import evaluate_collection
from vidvec_msg.retrieval.probing import layer_vectors
from vidvec_msg.retrieval.probing.halves import halved, read_halves
from vidvec_msg.retrieval.probing.layer_vectors import LayerVectors, SideBySide
from vidvec_msg.retrieval.probing.layers_verb import probe_layers

pytestmark = pytest.mark.filterwarnings("ignore::vidvec_msg.embedders.check.CollapsedSpaceWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"mllm:{build_tiny_mllm(tmp_path_factory.mktemp('model'), 'text')}?dtype=float32"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "C")


@pytest.fixture(scope="module")
def probe(model: str, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe_layers(collection, model, tmp_path_factory.mktemp("probe") / "P", dtype="float32")


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "probe.json").read_text())
    return found


def content(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_every_value_is_what_the_embedder_of_that_layer_scores(
    probe: Path, model: str, collection: Path, tmp_path: Path
) -> None:
    """One pass over 16 read-outs = 16 evaluations, on validation queries alone."""
    told = report(probe)
    assert len(told["read_outs"]) == told["compared"] == 16
    validation = tmp_path / "V"
    shutil.copytree(collection, validation)
    chosen = told["halves"]["validation"]["queries"]
    halves = _halves(collection)
    lines = [f"{q}\t{d}\t{g}\n" for q, judged in halves.items() for d, g in judged.items()]
    (validation / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    assert len(halves) == chosen
    for one in [told["read_outs"][n] for n in (0, 3, 7, 12)]:
        spec = f"{model}&layer={one['layer']}&pooling={one['pooling']}&normed={one['normed']}"
        done = evaluate_collection(validation, spec, tmp_path / one["name"], pictures=False, metrics=["map"])
        for way in ("forward", "reverse"):
            assert done.report[way]["metrics"]["map"]["value"] == pytest.approx(
                one[way]["metrics"]["map"], abs=1e-6
            )


def _halves(collection: Path) -> dict[str, dict[str, int]]:
    return halved(Collection.load(collection), "test", share=0.5, keep_together=None, seed=0)[0]


def test_the_best_on_validation_is_chosen_and_told_on_the_test(probe: Path) -> None:
    told = report(probe)
    apart = [one for one in told["read_outs"] if one["forward"]["tied"] <= 0.5]
    values = [one["forward"]["metrics"]["map"] for one in apart]
    best = int(np.argmax(values))
    assert told["chosen"]["name"] == apart[best]["name"]
    # one token of the prompt, the same for every item
    same = [one["name"] for one in told["read_outs"] if one["forward"]["tied"] == 1]
    assert same == ["layer 0, last token", "layer 0 normed, last token"]
    assert told["validation"]["value"] == pytest.approx(max(values))
    scores = told["test"]["forward"]["map"]
    assert scores["chosen"]["low"] <= scores["chosen"]["value"] <= scores["chosen"]["high"]
    assert scores["difference"]["difference"] == pytest.approx(
        scores["chosen"]["value"] - scores["given"]["value"]
    )
    assert told["optimism"]["test"] == scores["chosen"]["value"]
    assert 0 <= told["layers"]["low"] <= told["layers"]["chosen"] <= told["layers"]["high"] <= 3


def test_the_embedder_folder_gives_the_vectors_that_the_probe_saw(probe: Path, collection: Path) -> None:
    told, items = report(probe), Collection.load(collection)
    names = [one["name"] for one in told["read_outs"]]
    chosen = names.index(told["chosen"]["name"])
    embedder = load_embedder(probe / "embedder")
    assert embedder.card.fingerprint == told["chosen"]["fingerprint"]
    for side, role in (("corpus", "document"), ("queries", "query")):
        seen = SideBySide(VectorsFolder.open(probe / "vectors" / side), len(names)).of(chosen)
        assert list(seen.ids) == [item.id for item in getattr(items, side)]
        made = embedder.encode(getattr(items, side), role=role)
        np.testing.assert_allclose(seen.vectors, made, atol=2e-6)


def test_the_same_command_gives_the_same_bytes_and_halves_keep_the_order(
    probe: Path, model: str, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(probe)
    probe_layers(collection, model, probe, dtype="float32")  # complete: nothing is embedded again
    assert content(probe) == before
    monkeypatch.setattr(layer_vectors, "_SHARD_BYTES", 40_000)  # several shards, several calls
    monkeypatch.setattr(layer_vectors, "_CALL_BYTES", 20_000)
    half = probe_layers(collection, model, tmp_path / "P", dtype="float16", vectors=tmp_path / "V")
    assert len(list((tmp_path / "V" / "corpus").glob("shard-*.npy"))) > 1
    assert not (half / "vectors").exists()
    one, other = report(probe), report(half)
    assert one["halves"] == other["halves"]
    for first, second in zip(one["read_outs"], other["read_outs"], strict=True):
        assert first["forward"]["metrics"]["map"] == pytest.approx(
            second["forward"]["metrics"]["map"], abs=0.05
        )


def test_states_beyond_float16_are_kept_since_they_are_unit_vectors(collection: Path, tmp_path: Path) -> None:
    """Raw states grow with depth, and one dimension above all: a thousand times the others, beyond 65,504."""
    folder = build_tiny_mllm(tmp_path / "M", "text")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.down_proj.weight"] *= 1e9
    weights["model.layers.0.mlp.down_proj.weight"][7] *= 1e3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    state = AutoModel.from_pretrained(folder)(torch.arange(9)[None], output_hidden_states=True).hidden_states[
        1
    ]
    assert state.abs().median() > np.finfo(np.float16).max
    assert state[..., 7].abs().median() > 100 * state.abs().median()

    loaded = load_embedder(f"mllm:{folder}?dtype=float32")
    read_outs = [ReadOut(layer, "mean") for layer in (1, 2, 3)]
    halves = read_halves(collection, **HALVING)
    many = LayerVectors(
        loaded.variant(read_outs=read_outs), halves, tmp_path / "V", dtype="float16", batch_size=0, spec="it"
    )
    many.make()
    for number, one in enumerate(read_outs):
        exact = loaded.variant(read_outs=[one]).encode(halves.corpus, role="document")
        np.testing.assert_allclose(many.of(number).corpus.vectors, exact, rtol=2e-3, atol=1e-6)


@pytest.mark.slow
def test_a_killed_pass_goes_on(
    model: str, collection: Path, probe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of the corpus by an error that no handler may keep from ending the process."""
    import subprocess
    import sys

    code = (
        "import os, signal, sys\n"
        "from vidvec_msg.embedders.multimodal_llm import MultimodalLLM as M\n"
        "from vidvec_msg.retrieval import embed as e\n"
        "from vidvec_msg.retrieval.probing.layers_verb import probe_layers\n"
        "from pathlib import Path\n"
        "run, calls = M.encode, []\n"
        "def encode(self, items, *, role):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return run(self, items, role=role)\n"
        "M.encode = encode\n"
        "late = e._encoded_here\n"
        "e._encoded_here = lambda *given: late(*given[:-1], 0.0)\n"
        "c, m, out = sys.argv[1:]\n"
        "probe_layers(Path(c), m, Path(out), dtype='float32', batch_size=7)\n"
    )
    out = tmp_path / "P"
    done = subprocess.run([sys.executable, "-c", code, str(collection), model, str(out)], check=False)
    assert done.returncode == -9
    assert list((out / "vectors" / "corpus" / ".work").glob("part-*.npy"))
    assert not (out / "probe.json").exists()
    probe_layers(collection, model, out, dtype="float32", batch_size=7)
    undisturbed = probe_layers(collection, model, tmp_path / "Q", dtype="float32", batch_size=7)
    mine, whole = content(out), content(undisturbed)
    assert mine.keys() == whole.keys()
    assert [name for name in mine if mine[name] != whole[name] and name != "config.yaml"] == []


def test_what_is_refused_and_nothing_written(model: str, collection: Path, tmp_path: Path) -> None:
    for spec, reason in (
        (
            "st:some/name",
            r"embedder 'st:some/name' is of another kind \(st: .*; probe-layers reads multimodal LLMs",
        ),
        ("vectors:somewhere", "is of another kind"),
        ("fakes:KeywordEmbedder", r"is of another kind \(KeywordEmbedder\)"),
    ):
        with pytest.raises(RefusedRequest, match=reason):
            probe_layers(collection, spec, tmp_path / "P")
    for options, reason in (
        ({"choose_by": "forwards/map"}, r"choose_by is 'forwards/map' \(did you mean 'forward'\?\)"),
        ({"choose_by": "forward/mop"}, "'mop' is not a metric"),
        ({"choose_by": "forward/median_rank"}, "a median moves in steps"),
        ({"poolings": ["cls"]}, r"poolings is \['cls'\]; accepted are one or more of last, mean, visual"),
        ({"poolings": ["visual"]}, "no item of this collection has frames that this model sees"),
        ({"validation": "test"}, "validation and test are both 'test'"),
        ({"max_failures": -1}, "max_failures is -1"),
    ):
        with pytest.raises(RefusedRequest, match=reason):
            probe_layers(collection, model, tmp_path / "P", **options)
    assert not (tmp_path / "P").exists()


def test_no_space_left(model: str, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_vectors, "free_bytes", lambda _: 1000)
    with pytest.raises(
        RefusedRequest,
        match=r"40 items × 16 read-outs \(1,024 numbers an item\) need about .* and the disk has 1.0 kB "
        r"free; make room, .* --dtype float16 \(",
    ):
        probe_layers(collection, model, tmp_path / "P", dtype="float32")
    assert not (tmp_path / "P").exists()


def test_another_request_in_the_same_folder_is_refused(probe: Path, model: str, collection: Path) -> None:
    with pytest.raises(RefusedRequest, match=r"holds another probe; .*\n.*seed was 0 and is 5 now"):
        probe_layers(collection, model, probe, dtype="float32", seed=5)


def test_ranks_are_better_when_they_are_low(
    model: str, collection: Path, probe: Path, tmp_path: Path
) -> None:
    told = report(
        probe_layers(
            collection, model, tmp_path / "P", dtype="float32", choose_by="reverse/mean_rank",
            vectors=probe / "vectors",
        )
    )  # fmt: skip
    values = [
        one["reverse"]["metrics"]["mean_rank"] for one in told["read_outs"] if not one["reverse"]["tied"]
    ]
    assert told["validation"]["value"] == pytest.approx(min(values))
    assert told["validation"]["unseen"] >= min(values)  # of ranks, the worse is the higher


def test_an_embedder_of_another_layer_is_compared_with_itself(
    model: str, collection: Path, tmp_path: Path
) -> None:
    told = report(
        probe_layers(
            collection, f"{model}&layer=2", tmp_path / "P", dtype="float32", poolings=["last"],
            metrics=["map"],
        )
    )  # fmt: skip
    names = [one["name"] for one in told["read_outs"]]
    assert names[0] == "layer 2, last token"
    assert len(names) == len(set(names)) == 8
    own = tmp_path / "own"
    shutil.copytree(collection, own)
    halves = halved(Collection.load(collection), "test", share=0.5, keep_together=None, seed=0)[1]
    lines = [f"{q}\t{d}\t{g}\n" for q, judged in halves.items() for d, g in judged.items()]
    (own / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    alone = evaluate_collection(own, f"{model}&layer=2", tmp_path / "E", pictures=False, metrics=["map"])
    for way in ("forward", "reverse"):
        value = alone.report[way]["metrics"]["map"]["value"]
        assert told["test"][way]["map"]["given"]["value"] == pytest.approx(value, abs=1e-6)
    page = (tmp_path / "P" / "probe.md").read_text()
    assert "given: layer 2, last token" in page
    assert "| final, last token |" in page


def test_from_the_command_line(
    probe: Path, model: str, collection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--collection", str(collection), "--embedder", model, "--out", str(probe), "--dtype", "float32"]
    assert main(["probe-layers", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report(probe)
    assert main(["probe-layers", *words]) == 0
    told = capsys.readouterr().out
    assert told == (probe / "probe.md").read_text()
    assert "split test halved by queries (seed 0, 50% choose): 5 queries choose, 5 tell" in told
    page = (probe / "probe.html").read_text()
    assert "data:image/png;base64," in page
    assert "layer 2 normed, mean" in page
