"""The prompt probe: the grid, its cells' vectors, and the choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from media.clips import grey_frames, write_clip
from probed import HALVING, write_texts
from tiny_models import build_tiny_mllm

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import Role
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluate import evaluate_collection
from vidvec_msg.retrieval.probing import cell_vectors
from vidvec_msg.retrieval.probing.cell_vectors import CellVectors, plain_for
from vidvec_msg.retrieval.probing.grid import GIVEN, read_grid
from vidvec_msg.retrieval.probing.halves import read_halves
from vidvec_msg.retrieval.probing.prompts_verb import probe_prompts

pytestmark = pytest.mark.filterwarnings("ignore::vidvec_msg.embedders.check.CollapsedSpaceWarning")

GRID: dict[str, Any] = {"prompts": ["vidvec", "lamra", "plain"], "query_instructions": ["", "Find it."]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (
        f"mllm:{build_tiny_mllm(tmp_path_factory.mktemp('model'), 'qwen3_vl')}?dtype=float32&decode_timeout=0"
    )


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "C")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips, each with its transcript, and a text that asks for it."""
    root = write_texts(tmp_path_factory.mktemp("data") / "V", queries=6, each=1)
    rows = []
    for number in range(6):
        write_clip(root / f"{number}.mp4", grey_frames(10 + 2 * number))
        rows.append({"_id": f"d{number}-0", "video": f"{number}.mp4", "transcript": f"word {number}"})
    (root / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture(scope="module")
def probe(model: str, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return probe_prompts(collection, model, tmp_path_factory.mktemp("probe") / "P", **GRID)


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "probe.json").read_text())
    return found


# --- the grid


def test_cells_are_all_combinations_behind_the_embedder_as_given() -> None:
    grid = read_grid(
        {"prompts": ["vidvec", "moral"], "query_instructions": ["", "Find."], "fps": None}, max_cells=64
    )
    assert [cell.name for cell in grid.cells] == [
        GIVEN, "prompt=vidvec, query=none", "prompt=vidvec, query=Find.", "prompt=moral, query=none",
    ]  # fmt: skip
    assert len(grid.left_out) == 1
    assert grid.left_out[0][0] == "prompt=moral, query=Find."
    assert "chat is off" in grid.left_out[0][1]


def test_a_prefix_stands_before_media_alone() -> None:
    cell = read_grid({"prefixes": ["Recover the subject"]}, max_cells=9).cells[1]
    worded = cell.template(read_grid({"prompts": ["vidvec"]}, max_cells=9).cells[1].prompt)
    assert worded.video == "Recover the subject\n{video}\nSummarize above video in one word: "
    assert worded.text == "{text}\nSummarize above sentence in one word: "


def test_a_faulty_grid_is_refused_with_every_problem(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text('text: "{text} by {txt}"\nvideo: "{video} {transcript}"\n')
    axes = {
        "prompts": [str(tmp_path / "mine.yaml"), "vidvek"],
        "prefixes": ["The {subject}"],
        "transcripts": [],
        "fps": [1.0, 1.0, -2.0],
    }
    with pytest.raises(RefusedRequest) as refused:
        read_grid(axes, max_cells=2)
    told = str(refused.value)
    for problem in (
        "text: unknown placeholder {txt} (did you mean '{text}'?); slots are {text}, {video}, {audio}",
        "video: unknown placeholder {transcript}",
        "unknown prompt preset 'vidvek'",
        "prefixes 'The {subject}': unknown placeholder {subject}; no placeholders are filled in here",
        "transcripts is empty, so the grid has no cells",
        "fps repeats a value: 1.0, 1.0, -2.0",
        "fps: -2.0 must be above 0",
    ):
        assert problem in told
    with pytest.raises(
        RefusedRequest, match=r"the grid has no cells: give values for one or more of prompts, "
    ):
        read_grid({"prompts": None}, max_cells=9)
    with pytest.raises(
        RefusedRequest, match=r"the grid has 4 cells \(2 prompts × 2 fps\) .* and 4 may be compared"
    ):
        read_grid({"prompts": ["vidvec", "plain"], "fps": [1.0, 2.0]}, max_cells=4)


# --- vectors


def test_each_side_is_embedded_once_for_what_changes_it(
    model: str, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves = read_halves(clips, **HALVING)
    axes = {"prompts": ["vidvec", "plain"], "transcripts": ["none", "before"], "max_frames": [2, 4]}
    grid = read_grid(axes, max_cells=64)
    many = CellVectors(load_embedder(model), grid.cells, halves, tmp_path / "V", batch_size=0, spec=model)
    # as given is vidvec without transcript and with more frames than any
    assert many.distinct() == {"corpus": 9, "queries": 2}
    many.make()
    assert len(list((tmp_path / "V").glob("corpus-*"))) == 9
    assert len(list((tmp_path / "V").glob("queries-*"))) == 2
    for number, variant in enumerate(many.variants):
        made = many.of(number)
        np.testing.assert_allclose(
            made.corpus.vectors, variant.encode(halves.corpus, role="document"), atol=1e-5
        )
        np.testing.assert_allclose(
            made.queries.vectors, variant.encode(halves.queries, role="query"), atol=1e-5
        )
    monkeypatch.setattr(cell_vectors, "free_bytes", lambda _: -1000000)
    with pytest.raises(
        RefusedRequest, match=r"the vectors of 9 cells \(9 × 6 documents, 2 × 6 queries\) need"
    ):
        many.refuse_without_room()


def test_plain_embedders_give_the_vectors_of_their_variant_in_each_role(model: str, clips: Path) -> None:
    given = load_embedder(model)
    variant = given.variant(role_prompts={"query": "Find it."}, transcript="after")
    halves = read_halves(clips, **HALVING)
    for items in (halves.corpus, halves.queries):
        for role in ("query", "document"):
            plain = plain_for(variant, given, items, role)
            assert plain.card.role_prompts == {}
            np.testing.assert_allclose(
                plain.encode(items, role="document"), variant.encode(items, role=role), atol=1e-6
            )


# --- the choice


def test_the_winner_is_an_embedder_that_evaluate_scores_alike(
    probe: Path, collection: Path, tmp_path: Path
) -> None:
    """Both directions, roles included: instructions of the queries reach the documents when these ask."""
    told = report(probe)
    assert told["compared"] == 7
    assert [cell["same_as"] for cell in told["cells"]] == [None, 0, None, 0, 2, None, None]
    opened = load_embedder(probe / "embedder")
    assert opened.card.fingerprint == told["chosen"]["fingerprint"]
    values = [cell["forward"]["metrics"]["map"] for cell in told["cells"]]
    assert told["validation"]["value"] == pytest.approx(max(values))
    halves = read_halves(collection, **HALVING)
    root = tmp_path / "T"
    root.mkdir()
    for name in ("corpus.jsonl", "queries.jsonl"):
        (root / name).write_text((collection / name).read_text())
    (root / "qrels").mkdir()
    lines = [f"{q}\t{d}\t{g}\n" for q, judged in halves.test.qrels.items() for d, g in judged.items()]
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    done = evaluate_collection(root, str(probe / "embedder"), tmp_path / "E", pictures=False)
    for way in ("forward", "reverse"):
        for metric in ("map", "mrr"):
            assert done.report[way]["metrics"][metric]["value"] == pytest.approx(
                told["test"][way][metric]["chosen"]["value"], abs=1e-6
            )


def test_an_instruction_that_wins_is_in_the_folder(model: str, collection: Path, tmp_path: Path) -> None:
    """Whatever wins: of a grid of one cell, that cell or the embedder as given."""
    out = probe_prompts(
        collection, model, tmp_path / "P", document_instructions=["Represent this."], choose_by="reverse/map"
    )
    told, opened = report(out), load_embedder(out / "embedder")
    won = told["chosen"]["name"] != GIVEN
    assert dict(opened.card.role_prompts) == ({"document": "Represent this."} if won else {})


def test_a_second_run_embeds_nothing_and_changes_no_byte(
    probe: Path, model: str, collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vidvec_msg.embedders.multimodal_llm import MultimodalLLM

    files = {path: path.read_bytes() for path in sorted(probe.rglob("*")) if path.is_file()}
    (probe / "probe.json").unlink()
    monkeypatch.setattr(MultimodalLLM, "encode", lambda _, items, *, role: pytest.fail("encoded again"))
    probe_prompts(collection, model, probe, **GRID)
    assert {path: path.read_bytes() for path in sorted(probe.rglob("*")) if path.is_file()} == files


def test_values_that_change_nothing_are_refused(model: str, collection: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest) as refused:
        probe_prompts(collection, model, tmp_path / "P", fps=[1.0], prefixes=["x"], transcripts=["before"])
    for reason in ("fps changes nothing", "prefixes change nothing", "transcripts changes nothing"):
        assert reason in str(refused.value)
    with pytest.raises(RefusedRequest, match="probe-prompts reads multimodal LLMs from within"):
        probe_prompts(collection, "openai:x", tmp_path / "P", prompts=["plain"])
    assert not (tmp_path / "P").exists()


def test_from_a_yaml_file(
    probe: Path, model: str, collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"collection": str(collection), "embedder": model, "out": str(probe), **GRID}
    (tmp_path / "grid.yaml").write_text(json.dumps(config))
    assert main(["probe-prompts", "--config", str(tmp_path / "grid.yaml")]) == 0
    told = capsys.readouterr().out
    assert "| as given |" in told
    assert "Of 7 compared, by forward map:" in told


def test_a_probe_that_stopped_goes_on_with_the_cells_that_are_missing(
    probe: Path, model: str, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in the midst of a pass is in test_layers.py."""
    out, encode, calls = tmp_path / "P", MultimodalLLM.encode, list[int]()

    def stops(self: MultimodalLLM, items: Sequence[Item], *, role: Role) -> Any:
        calls.append(len(items))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return encode(self, items, role=role)

    monkeypatch.setattr(MultimodalLLM, "encode", stops)
    with pytest.raises(KeyboardInterrupt):
        probe_prompts(collection, model, out, **GRID)
    finished = {path: path.stat().st_mtime_ns for path in out.glob("vectors/*/manifest.json")}
    assert len(finished) == 3
    assert not (out / "probe.json").exists()
    calls.clear()

    def counted(self: MultimodalLLM, items: Sequence[Item], *, role: Role) -> Any:
        calls.append(len(items))
        return encode(self, items, role=role)

    monkeypatch.setattr(MultimodalLLM, "encode", counted)
    probe_prompts(collection, model, out, **GRID)
    assert len(calls) == sum(report(probe)["embedded"].values()) - 3
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert report(out) == report(probe)
    assert (out / "probe.md").read_bytes() == (probe / "probe.md").read_bytes()
